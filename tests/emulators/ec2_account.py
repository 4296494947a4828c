"""An account of EC2: instances that take their time, and what else moto leaves out."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from .ec2_errors import error, parameter
from .ec2_moto import IMAGES, moto
from .ec2_power import ENDED, PowerCycle
from .ec2_quotas import default_quotas, list_quotas
from .provider_billing import Bills
from .server import Request, Response

REGIONS = (
    "ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-southeast-1 ap-southeast-2 "
    "ca-central-1 eu-central-1 eu-north-1 eu-west-1 eu-west-2 eu-west-3 sa-east-1 us-east-1 "
    "us-east-2 us-west-1 us-west-2"
).split()
_CANONICAL = "/aws/service/canonical/ubuntu/server/24.04/stable/current"
_DEEP = "/aws/service/deeplearning/ami"
_NUMBERS = count(123456789012)


@dataclass
class Life:
    """One instance: moto's record of it, and what becomes of it when."""

    region: str
    record: Any
    address: str
    up: float
    host: Any = None
    gone: float = 0.0
    preempted: float = 0.0
    off: float = 0.0
    starts: bool = False
    why: tuple[str, str] = ("", "")

    @property
    def state(self) -> str:
        return self.record._state.name


class Account(PowerCycle):
    """See `tests.emulators.ec2.Ec2`, which speaks for it."""

    def __init__(self, fleet: Any, boot: float, minute: float) -> None:
        self.closed = {"ap-east-1"}
        """Regions that the account has not enabled."""
        self.page = 1000
        """Most reservations on one page of DescribeInstances."""
        self.quota_page = 3
        """Most quotas on one page of ListServiceQuotas."""
        self.quotas = {region: default_quotas() for region in REGIONS}
        """Limits of each region by the name of the quota; see `list_quotas`."""
        self.moto, self.fleet, self.boot, self.minute = moto(), fleet, boot, minute
        self.number = str(next(_NUMBERS))
        self._lock = threading.RLock()
        self.bills = Bills("aws")
        self._lives: dict[str, Life] = {}
        self._tokens: dict[tuple[str, str], tuple[dict[str, str], Response]] = {}
        self._launched = count()

    def close(self) -> None:
        """End all machines and forget them."""
        with self._lock:
            for life in self._lives.values():
                if life.host is not None:
                    life.host.kill()
            self._lives = {}
            for service in ("ec2", "scheduler", "sts"):
                self.moto.backend(service).pop(self.number, None)

    def answer(
        self, request: Request, service: str, region: str, action: str, form: dict[str, str]
    ) -> Response:
        """Do what is asked."""
        with self._lock:
            self.settle()
            before = getattr(self, f"_before_{action}", None)
            if before and (response := before(request, region, form)):
                return response
            if service == "ec2" and not form:
                return error(service, "InvalidAction")
            response = self.moto.answer(request, form, self.number)
            after = getattr(self, f"_after_{action}", None)
            return after(response, region, form) if after and response.status == 200 else response

    def _before_ListServiceQuotas(self, request: Request, region: str, form: Any) -> Response:
        return list_quotas(request, region, self.quotas[region], self.number, self.quota_page)

    def machines(self) -> list[dict[str, Any]]:
        """Machines that cost money now, and so have not ended."""
        with self._lock:
            self.settle()
            return [
                {
                    "id": f"{life.region}/{name}",
                    "state": life.state,
                    "tags": (tags := {t["key"]: t["value"] for t in life.record.get_tags()}),
                    "lease_end": float(tags.get("jupyter-sky-lease-end") or "nan"),
                    "instance_type": life.record.instance_type,
                    "zone": life.record.placement.zone,
                    "spot": life.record.lifecycle == "spot",
                }
                for name, life in self._lives.items()
                if life.state not in ENDED
            ]

    def preempt(self, id: str, notice: float = 0.0) -> None:
        """Take a spot machine back, so many seconds after its notice."""
        life = self._lives[id.rpartition("/")[2]]
        if life.host is not None:
            life.host.notice(notice)
        else:
            life.preempted = time.time() + notice
            self.settle()

    def come_up(self, id: str) -> None:
        """Let a machine boot at once whose boot would take longer."""
        self._lives[id.rpartition("/")[2]].up = time.time()

    def power_off(self, id: str) -> None:
        """Power a machine off from within."""
        life = self._lives[id.rpartition("/")[2]]
        if life.host is not None:
            life.host.shutdown()
        else:
            self._ended(life, "shutdown")

    def reboot(self, id: str) -> None:
        """Restart a machine, as automatic recovery and scheduled events do."""
        life = self._lives[id.rpartition("/")[2]]
        if life.host is not None:
            life.host.reboot()

    def expire(self, now: float | None = None) -> None:
        """Carry out schedules that are due, by another clock (unix seconds) if one is given."""
        with self._lock:
            for backend in self.moto.backend("scheduler")[self.number].values():
                for group in backend.schedule_groups.values():
                    for schedule in list(group.schedules.values()):
                        if self._due(schedule, now):
                            asked = json.loads(schedule.target["Input"])
                            for name in asked["InstanceIds"]:
                                self._end(self._lives[name], "Client.UserInitiatedShutdown")
                            del group.schedules[schedule.name]

    # -- what moto leaves out ----------------------------------------------------------------

    def _before_GetParameter(self, request: Request, region: str, _: Any) -> Response:
        name = json.loads(request.body)["Name"]
        for id, *_rest, held in IMAGES:
            root = _DEEP if "/" in held else _CANONICAL
            if held and name.startswith(f"{root}/{held}"):
                return parameter(name, id, f"arn:aws:ssm:{region}::parameter{name}")
        return error("ssm", "ParameterNotFound")

    def _before_DescribeRegions(self, _: Request, region: str, form: dict[str, str]) -> Response:
        found = [(name, "opt-in-not-required") for name in REGIONS if name not in self.closed]
        if form.get("AllRegions") == "true":
            found += [(name, "not-opted-in") for name in sorted(self.closed)]
        items = "".join(
            f"<item><regionName>{name}</regionName><regionEndpoint>ec2.{name}.amazonaws.com"
            f"</regionEndpoint><optInStatus>{status}</optInStatus></item>"
            for name, status in found
        )
        body = (
            '<DescribeRegionsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>0-0</requestId><regionInfo>{items}</regionInfo></DescribeRegionsResponse>"
        )
        return Response(body.encode(), 200, {"Content-Type": "text/xml"})

    def _before_DescribeInstances(self, _: Request, region: str, form: dict[str, str]) -> None:
        if "InstanceId.1" not in form:
            form["MaxResults"] = str(min(int(form.get("MaxResults", 1000)), self.page))

    def _before_RunInstances(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        if held := self._tokens.get((region, form.get("ClientToken", ""))):
            asked, response = held
            return response if asked == form else error("ec2", "IdempotentParameterMismatch")
        return self.moto.unfit(region, form)

    def _after_RunInstances(
        self, response: Response, region: str, form: dict[str, str]
    ) -> Response:
        text = response.body.decode()
        for name in re.findall(r"<instanceId>(i-\w+)</instanceId>", text):
            self._begin(name, region, form)
        text = re.sub(r"<(ipAddress|dnsName)>[^<]*</\1>", "", text)  # they come when it runs
        if form.get("InstanceMarketOptions.MarketType") == "spot":
            sir = r"<instanceId>i-(\w+)</instanceId>"
            given = r"\g<0><spotInstanceRequestId>sir-\1</spotInstanceRequestId>"
            text = re.sub(sir, given, text)
        answer = Response(text.encode(), 200, response.headers)
        if token := form.get("ClientToken"):
            self._tokens[region, token] = (dict(form), answer)
        return answer

    def _before_TerminateInstances(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        names = [form[key] for key in form if key.startswith("InstanceId.")]
        for name in names:  # all or none
            if name not in self._lives or self._lives[name].region != region:
                told = f"The instance ID '{name}' does not exist"
                return error("ec2", "InvalidInstanceID.NotFound", told)
        for name in names:
            self._end(self._lives[name], "Client.UserInitiatedShutdown")
        return None

    def _after_TerminateInstances(
        self, response: Response, region: str, form: dict[str, str]
    ) -> Response:
        for key, name in form.items():
            if key.startswith("InstanceId."):
                self._mark(self._lives[name])  # moto has just written its own words
        return response

    def _before_CreateSecurityGroup(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        if "VpcId" in form or any(
            vpc.is_default == "true" or vpc.is_default is True
            for vpc in self.moto.backend("ec2")[self.number][region].vpcs.values()
        ):
            return None
        return error("ec2", "VPCIdNotSpecified", "No default VPC for this user")

    def _before_DeleteSecurityGroup(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        for life in self._lives.values():
            groups = [group.id for group in life.record.security_groups]
            if life.state != "terminated" and form.get("GroupId") in groups:
                told = f"resource {form['GroupId']} has a dependent object"
                return error("ec2", "DependencyViolation", told)
        return None

    def _before_GetConsoleOutput(
        self, _: Request, region: str, form: dict[str, str]
    ) -> Response | None:
        life = self._lives.get(form["InstanceId"])
        if life is None or life.host is None:
            return None
        said = base64.b64encode(life.host.console().encode()[-65536:]).decode()
        body = (
            '<GetConsoleOutputResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>0-0</requestId><instanceId>{form['InstanceId']}</instanceId>"
            f"<output>{said}</output></GetConsoleOutputResponse>"
        )
        return Response(body.encode(), 200, {"Content-Type": "text/xml"})

    # -- instances ---------------------------------------------------------------------------

    def _begin(self, name: str, region: str, form: dict[str, str]) -> None:
        record = self.moto.backend("ec2")[self.number][region].get_instance(name)
        life = Life(region, record, self._next_address(), time.time() + self.boot)
        record._state.name, record._state.code = "pending", 0
        for nic in record.nics.values():
            nic.public_ip = None
        if record.lifecycle == "spot":
            record.spot_instance_request_id = name.replace("i-", "sir-")
        self._lives[name] = life
        self._bill(life)
        if self.fleet is not None:
            try:
                self._power_on(life, base64.b64decode(form.get("UserData", "")).decode())
            except OSError:
                self._end(life, "Server.InternalError")

    def _next_address(self) -> str:
        number = next(self._launched)
        net = ("192.0.2", "198.51.100", "203.0.113")[number // 254 % 3]
        return f"{net}.{number % 254 + 1}"

    def _bill(self, life: Life) -> None:
        """Open the bill of an instance: its disk costs from now on, itself once it runs."""
        record = life.record
        volumes = [device.size for device in record.block_device_mapping.values() if device.size]
        self.bills.begin(
            self._id(life),
            "disk",
            tags={tag["key"]: tag["value"] for tag in record.get_tags()},
            instance_type=record.instance_type,
            region=life.region,
            zone=record.placement.zone,
            spot=record.lifecycle == "spot",
            disk_gib=sum(map(float, volumes)),
        )

    @staticmethod
    def _id(life: Life) -> str:
        return f"{life.region}/{life.record.id}"

    def _power_on(self, life: Life, document: str) -> None:
        """Let a real machine stand behind an instance."""
        record = life.record
        life.host = host = self.fleet.launch(
            record.id,
            document,
            ingress=self._ingress(record),
            spot=record.lifecycle == "spot",
            metadata=self._metadata(life),
            on_end=lambda reason: self._ended(life, reason),
        )
        life.address = host.address
        for nic in record.nics.values():
            nic.private_ip_address = host.private
            nic.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": host.private}]

    def _ingress(self, record: Any) -> list[tuple[str, int]]:
        rules: list[tuple[str, int]] = []
        for group in record.security_groups:
            for rule in group.ingress_rules:
                if net := (rule.ip_range or {}).get("CidrIp"):
                    rules.append((net, int(rule.from_port or 0)))
                elif (rule.source_group or {}).get("GroupId") == group.id:
                    rules.append((self.fleet.network, 0))
        return rules

    def _metadata(self, life: Life) -> dict[str, Any]:
        record = life.record
        return {
            "cloud": "aws",
            "id": record.id,
            "type": record.instance_type,
            "region": life.region,
            "zone": record.placement.zone,
            "image": record.image_id,
            "account": self.number,
        }

    def _ended(self, life: Life, reason: str) -> None:
        """A machine has ended by itself, or its fleet has taken it back."""
        if reason == "preempted":
            self._end(life, "Server.SpotInstanceTermination")
        elif reason == "crashed":
            self._end(life, "Server.InternalError")
        elif life.record.instance_initiated_shutdown_behavior == "terminate":
            self._end(life, "Client.InstanceInitiatedShutdown")
        else:
            with self._lock:
                life.record.stop()
                life.record._state.name, life.record._state.code = "stopped", 80
                self.bills.end(self._id(life), "machine", "address")

    def _end(self, life: Life, code: str) -> None:
        with self._lock:
            if life.state in ENDED:
                return
            self.moto.backend("ec2")[self.number][life.region].terminate_instances([life.record.id])
            life.gone = time.time() + self.boot
            # one that EC2 takes back in its first hour is not charged
            taken = code == "Server.SpotInstanceTermination"
            self.bills.end(self._id(life), waived=taken and self._is_new(life))
            who = "User initiated" if code.startswith("Client.User") else code
            when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
            life.why = (code, f"{who} ({when})")
            self._mark(life)
            if life.host is not None:
                life.host.kill()

    def _is_new(self, life: Life) -> bool:
        return time.time() - life.up < 60 * self.minute

    def _mark(self, life: Life) -> None:
        code, told = life.why
        record = life.record
        record.state_reason.code = code
        record.state_reason.message = f"{code}: {code.rpartition('.')[2]}"
        record._reason = told
        over = time.time() >= life.gone
        record._state.name, record._state.code = (
            ("terminated", 48) if over else ("shutting-down", 32)
        )

    def settle(self) -> None:
        """Let happen what is due."""
        with self._lock:
            now = time.time()
            for life in self._lives.values():
                if life.state == "shutting-down":
                    self._mark(life)
                elif life.state == "stopping" and now >= life.off:
                    life.off = 0.0
                    self._set_state(life, "stopped", 80)
                    self.bills.end(self._id(life), "machine", "address")
                elif life.preempted and now >= life.preempted:
                    self._end(life, "Server.SpotInstanceTermination")
                elif life.state == "pending" and now >= life.up:
                    if life.host is not None and not life.host.ready():
                        continue
                    life.record._state.name, life.record._state.code = "running", 16
                    self.bills.begin(self._id(life), "machine", "address")
                    for nic in life.record.nics.values():
                        nic.public_ip = life.address

    def _due(self, schedule: Any, now: float | None) -> bool:
        text = re.fullmatch(r"at\((.*)\)", schedule.schedule_expression)
        when = datetime.fromisoformat(f"{text[1] if text else ''}+00:00").timestamp()
        if now is not None:
            return when <= now
        created = schedule.creation_date
        return created + (when - created) * self.minute / 60 <= time.time()
