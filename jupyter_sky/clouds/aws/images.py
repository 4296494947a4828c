"""Machine images of AWS: the choice of an image and its lookup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.errors import SkyNoCapacity, SkyUsageError
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _

_UBUNTU = "099720109477"  # Canonical's account
_UBUNTU_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_OPEN_DRIVER_SINCE = 7.5
"""CUDA compute capability from which NVIDIA's open driver works: not on V100 and before."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Public parameter and name of an image.

    Attributes
    ----------
    parameter : str
        Public parameter of Systems Manager that holds the id of the latest.
    owner, name : str
        Account and name that publish it, for accounts that may not read parameters.
    """

    parameter: str
    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An image in one region.

    Attributes
    ----------
    root : str
        Device of the boot disk.
    gib : int
        Least size of the boot disk, in GiB.
    """

    id: str
    root: str
    gib: int


def select_source(arch: str, gpu: str | None = None) -> ImageSource:
    """Select the image of a machine: the latest Ubuntu LTS, with drivers for its GPUs.

    Examples
    --------
    >>> select_source("arm64").parameter.split("/")[-4]
    'arm64'
    """
    vendor, cuda = "", 0.0
    if gpu:
        try:
            found = accelerators.accelerator(gpu)
            vendor, cuda = found.vendor, float(found.cuda or 0)
        except SkyUsageError:
            pass  # an own offer may name what nobody knows; then without drivers
    if vendor == "NVIDIA":
        kind, release = "base-oss-nvidia-driver-gpu", "24.04"
        name = f"Deep Learning {'ARM64 ' * (arch == 'arm64')}Base OSS Nvidia Driver GPU AMI"
        if cuda < _OPEN_DRIVER_SINCE:
            kind, release = "base-proprietary-nvidia-driver-gpu", "22.04"
            name = "Deep Learning Base Proprietary Nvidia Driver GPU AMI"
        parameter = f"deeplearning/ami/{arch}/{kind}-ubuntu-{release}/latest/ami-id"
        return ImageSource(f"/aws/service/{parameter}", "amazon", f"{name} (Ubuntu {release}) *")
    if vendor == "AWS":  # Trainium and Inferentia
        parameter = "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id"
        return ImageSource(parameter, "amazon", "Deep Learning AMI Neuron (Ubuntu 24.04) *")
    word = _UBUNTU_ARCHITECTURES[arch]
    return ImageSource(
        f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{word}/hvm/ebs-gp3/ami-id",
        _UBUNTU,
        f"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{word}-server-*",
    )


def find_image(client: Callable[[str, str], Any], offer: Offer) -> MachineImage:
    """Look the image of an offer up in its region.

    Parameters
    ----------
    client
        Returns a client of boto3 for a service in a region.
    """
    ec2 = client("ec2", offer.region)
    arch = offer.arch or _arch(ec2, offer.instance_type)
    wanted = select_source(arch, offer.gpu)
    id = _latest(client("ssm", offer.region), wanted.parameter)
    if id:
        images = ec2.describe_images(ImageIds=[id])["Images"]
    else:
        filters = {"name": wanted.name, "architecture": arch, "state": "available"}
        images = ec2.describe_images(
            Owners=[wanted.owner],
            Filters=[{"Name": name, "Values": [value]} for name, value in filters.items()],
        )["Images"]
    if not images:
        missing = SkyNoCapacity(
            _("{place}: the region has no image {name}").format(place=offer.place, name=wanted.name)
        )
        missing.cause, missing.scope = "quota", "family"
        raise missing
    image = max(images, key=lambda each: each["CreationDate"])
    root = image["RootDeviceName"]
    disks = image.get("BlockDeviceMappings", [])
    sizes = [each["Ebs"].get("VolumeSize", 0) for each in disks if each.get("DeviceName") == root]
    return MachineImage(image["ImageId"], root, max(sizes, default=0))


def _latest(ssm: Any, parameter: str) -> str:
    """Return the ID that a public parameter holds; empty where it is not to be had."""
    from botocore.exceptions import ClientError

    try:
        return ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
    except ClientError as error:
        if error.response["Error"]["Code"] in ("ParameterNotFound", "AccessDeniedException"):
            return ""
        raise


def _arch(ec2: Any, instance_type: str) -> str:
    """Return the architecture of a type, where the offer does not say it."""
    types = ec2.describe_instance_types(InstanceTypes=[instance_type])["InstanceTypes"]
    return "arm64" if "arm64" in types[0]["ProcessorInfo"]["SupportedArchitectures"] else "x86_64"
