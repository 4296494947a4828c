"""moto, which keeps the state of EC2, with images as AWS has them and its checks of a launch."""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from .ec2_errors import error
from .server import Request, Response

MOST_GIB = {"gp3": 65536, "gp2": 16384}
_CANONICAL = "/aws/service/canonical/ubuntu/server/24.04/stable/current"
_DEEP = "/aws/service/deeplearning/ami"
_NAME = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{}-server-{}"
_OSS = "Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)"
IMAGES = (  # id, architecture, GiB, owner, name, parameter that holds it while it is the latest
    ("ami-0a64", "x86_64", 8, "099720109477", _NAME.format("amd64", 20261101), "amd64"),
    ("ami-0a63", "x86_64", 8, "099720109477", _NAME.format("amd64", 20261001), ""),
    ("ami-0b64", "arm64", 8, "099720109477", _NAME.format("arm64", 20261101), "arm64"),
    ("ami-0c64", "x86_64", 75, "898082745236", f"Deep Learning {_OSS} 20261101", "x86_64/base-oss"),
    (
        "ami-0d64",
        "arm64",
        75,
        "898082745236",
        f"Deep Learning ARM64 {_OSS} 20261101",
        "arm64/base-oss",
    ),
    (
        "ami-0e64",
        "x86_64",
        75,
        "898082745236",
        "Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu 22.04) 20261101",
        "x86_64/base-proprietary",
    ),
    (
        "ami-0f64",
        "x86_64",
        75,
        "898082745236",
        "Deep Learning AMI Neuron (Ubuntu 24.04) 20261101",
        "",
    ),
)


class Moto:
    """moto, imported once and only by who uses it."""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([_ami(*image[:5]) for image in IMAGES], file)
            file.flush()
            os.environ["MOTO_AMIS_PATH"] = file.name
            from moto.backends import get_backend
            from moto.ec2.models.amis import Ami
            from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
            from moto.moto_server.werkzeug_app import (
                DomainDispatcherApplication,
                create_backend_app,
            )

        sizes = {image[0]: image[2] for image in IMAGES}
        theirs = Ami.block_device_mappings.fget

        def mappings(ami: Any) -> list[dict[str, Any]]:
            found = theirs(ami)
            for each in found:
                each["Ebs"]["VolumeSize"] = sizes[ami.id]
            return found

        Ami.block_device_mappings = property(mappings)
        self.backend = get_backend
        self.types = INSTANCE_TYPES
        self.offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get
        self._app = DomainDispatcherApplication(create_backend_app)

    def answer(self, request: Request, form: dict[str, str], account: str) -> Response:
        """Let moto answer, for one of its accounts."""
        from werkzeug.test import Client

        body = urlencode(form).encode() if form else request.body
        headers = {**request.headers, "x-moto-account-id": account}
        headers.pop("content-length", None)
        answer = Client(self._app).open(
            request.path,
            method=request.method,
            query_string=request.query,
            headers=headers,
            data=body,
        )
        kept = {
            name: value
            for name, value in answer.headers.items()
            if name.lower().startswith(("content-type", "x-amz"))
        }
        return Response(answer.data, answer.status_code, kept)

    def unfit(self, region: str, form: dict[str, str]) -> Response | None:
        """Refuse what EC2 would, and moto would not."""

        def bad(message: str, code: str = "InvalidParameterValue") -> Response:
            return error("ec2", code, message)

        kind, zone = form["InstanceType"], form.get("Placement.AvailabilityZone", "")
        facts = self.types.get(kind)
        zones = {o["Location"] for o in self.offered(region) if o["InstanceType"] == kind}
        if facts is None or not zones:
            return bad(f"Invalid value '{kind}' for InstanceType.")
        if zone and zone not in zones:
            return error("ec2", "Unsupported", type=kind, zone=zone)
        image = next((each for each in IMAGES if each[0] == form["ImageId"]), None)
        if image is None:
            return bad(
                f"The image id '[{form['ImageId']}]' does not exist", "InvalidAMIID.NotFound"
            )
        able = facts["ProcessorInfo"]["SupportedArchitectures"]
        if image[1] not in able:
            return bad(
                f"The architecture '{','.join(able)}' of the specified instance type does not "
                f"match the architecture '{image[1]}' of the specified AMI."
            )
        disk = "BlockDeviceMapping.1.Ebs"
        size, sort = int(form.get(f"{disk}.VolumeSize", 8)), form.get(f"{disk}.VolumeType", "gp2")
        if size > MOST_GIB[sort]:
            told = f"Volume of {size}GiB is too large for volume type {sort}; maximum is"
            return bad(f"{told} {MOST_GIB[sort]}GiB.")
        if size < image[2]:
            told = f"Volume of size {size}GB is smaller than snapshot 'snap-0', expect size >="
            return bad(f"{told} {image[2]}GB", "InvalidBlockDeviceMapping")
        if len(base64.b64decode(form.get("UserData", ""))) > 16384:
            return bad("User data is limited to 16384 bytes")
        return None


@cache
def moto() -> Moto:
    """moto, imported when it is first needed."""
    return Moto()


def _ami(id: str, arch: str, gib: int, owner: str, name: str) -> dict[str, Any]:
    day = re.search(r"\d{8}$", name)
    date = datetime.strptime(day[0] if day else "20261101", "%Y%m%d")
    return {
        "ami_id": id,
        "name": name,
        "description": name,
        "owner_id": owner,
        "public": True,
        "virtualization_type": "hvm",
        "architecture": arch,
        "state": "available",
        "hypervisor": "xen",
        "root_device_type": "ebs",
        "root_device_name": "/dev/sda1",
        "creation_date": date.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }
