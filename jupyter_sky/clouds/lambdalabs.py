"""Lambda: GPU machines by its public API.

Each machine is one request, and the API has no idempotency: machines are told apart by tags, and
looked for before a request is sent again. It takes one launch in some seconds. A machine that
powers itself off is billed in full until it is terminated by a request.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from threading import Event
from typing import Any, ClassVar, TypeVar

from ..config.settings import Sky
from ..offers import Offer
from ..provider.classification import ProviderError, group_codes
from ..provider.facts import LambdaFacts
from ..provider.naming import fit_name, tagged_machine
from ..provider.parallel_requests import StopRequested, pause
from ..provider.protocol import TRANSIENT_CAUSES, Provider
from ..provider.values import TAGS, LaunchRequest, Machine, MachineConfig, MachineState
from .rest import RestClient

API = "https://cloud.lambda.ai/api/v1"
LAUNCH_SECONDS = 12.0
"""Seconds from one launch to the next that the API takes."""
LISTED_SECONDS = 20.0
"""Time after which a machine is listed whose launch was not answered."""
_POLL_SECONDS = 0.5
_LONGEST_TAG = 128
_RANK, _STARTED = "jupyter-sky-rank", "jupyter-sky-started"
_STATES: dict[str, MachineState] = {"booting": "starting", "active": "running"}
_ENDED = ("preempted", "terminating", "terminated")
_KEY_FIX = "create a key at https://cloud.lambda.ai/api-keys and set LAMBDA_API_KEY"

T = TypeVar("T", str, float)


class Lambda(LambdaFacts, Provider):
    """Lambda as a cloud that rents machines; an ID is that of its API.

    Examples
    --------
    >>> Lambda.find_meaning("global/quota-exceeded", 400)[0]
    'quota'
    """

    login, variables = _KEY_FIX, ("LAMBDA_API_KEY",)
    errors: ClassVar = group_codes(
        ("capacity", "region", "", "instance-operations/launch/insufficient-capacity"),
        (
            "quota",
            "region",
            "ask Lambda's support for a higher limit",
            "global/quota-exceeded instance-operations/launch/quota-exceeded",
        ),
        (
            "permission",
            "region",
            _KEY_FIX,
            "global/invalid-api-key global/account-inactive global/forbidden",
        ),
        (
            "invalid",
            "region",
            "",
            "global/invalid-parameters instance-operations/launch/file-system-in-wrong-region "
            "global/object-does-not-exist",
        ),
        ("throttled", "region", "", "global/too-many-requests"),
        ("transient", "region", "", "provider/internal-unavailable global/internal-error"),
    )

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        self._made: dict[str, dict[int, Machine]] = {}
        """Machines by token and rank, as lists may not have them yet."""

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the types of machines in the regions that have some free now."""
        from ..catalog.refresh.lambdalabs import read_type

        for entry in self._call("GET", "/instance-types")["data"].values():
            kind = read_type(entry)
            for region in kind["regions"]:
                yield Offer(
                    self.name,
                    region,
                    kind["type"],
                    int(kind["vcpus"]),
                    kind["memory"],
                    gpu=kind["gpu"] or None,
                    gpu_count=kind["gpus"] if kind["gpu"] else 0,
                    price=kind["usd"],
                    source="lambda-api",
                )

    def identify(self) -> str:
        """Prove the key by one request."""
        self._call("GET", "/ssh-keys")
        return "the key is accepted"

    # -- machines -------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Launch machines one by one; all are terminated where one is refused."""
        with self._locks.setdefault(request.token, threading.Lock()):
            made = self._made.setdefault(request.token, {})
            made |= {machine.rank: machine for machine in self.machines(token=request.token)}
            key = self._register_key(request.owner, config.public_key)
            try:
                for rank in range(request.resources.nodes):
                    if rank not in made:
                        made[rank] = self._launch_one(request, config, key, rank, stop)
            except (ProviderError, StopRequested) as error:
                passes = isinstance(error, ProviderError) and (
                    self.explain_refusal(error).cause in TRANSIENT_CAUSES
                )
                if not passes:  # else the same request comes again and finds them
                    self._give_up(request.token, list(made.values()))
                raise
            return [made[rank] for rank in sorted(made)]

    def _give_up(self, token: str, machines: Sequence[Machine]) -> None:
        self._made.pop(token, None)
        if machines:
            self.on_created(token, machines)
            self.terminate([machine.id for machine in machines])

    def _launch_one(
        self, request: LaunchRequest, config: MachineConfig, key: str, rank: int, stop: Event
    ) -> Machine:
        pause(stop, _setting("launch_seconds", LAUNCH_SECONDS) if rank else 0.0)
        started = time.time()
        tags = dict(config.tags) | {_RANK: str(rank), _STARTED: str(int(started))}
        body = {
            "region_name": request.offer.region,
            "instance_type_name": request.offer.instance_type,
            "ssh_key_names": [key],
            "name": fit_name(f"{request.token}-{rank}", 64),
            "user_data": config.user_data,
            "tags": [{"key": k, "value": v[-_LONGEST_TAG:]} for k, v in tags.items() if v],
        }
        try:
            answer = self._call("POST", "/instance-operations/launch", body)
        except ConnectionError:
            if found := self._await_listed(request.token, rank, stop):
                return found
            raise
        (name,) = answer["data"]["instance_ids"]
        return tagged_machine(
            tags, id=name, cloud=self.name, rank=rank, state="starting", started=started
        )

    def _await_listed(self, token: str, rank: int, stop: Event) -> Machine | None:
        """Return the machine of a launch whose answer was lost; None where it made none."""
        until = time.monotonic() + LISTED_SECONDS
        while time.monotonic() < until:
            for machine in self.machines(token=token):
                if machine.rank == rank:
                    return machine
            pause(stop, _POLL_SECONDS)
        return None

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that are billed: those that are off, too."""
        found = []
        for entry in self._call("GET", "/instances")["data"]:
            machine = _parse_machine(entry)
            if (
                machine.state != "ended"
                and machine.token
                and owner in ("", machine.owner)
                and token in ("", machine.token)
                and (regions is None or entry["region"]["name"] in regions)
            ):
                found.append(machine)
        return found

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return the machines of these ids, those that have ended a short while ago, too."""
        entries = self._call("GET", "/instances")["data"]
        return [_parse_machine(entry) for entry in entries if entry["id"] in ids]

    def terminate(self, ids: Sequence[str]) -> None:
        """Terminate machines; one unknown ID refuses a whole request, so that none is sent."""
        known = {machine.id for machine in self.describe(ids) if machine.state != "ended"}
        if known:
            body = {"instance_ids": sorted(known)}
            self._call("POST", "/instance-operations/terminate", body)

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete the public key of an owner without machines; nothing else is left."""
        if alive:
            return []
        removed = []
        for key in self._call("GET", "/ssh-keys")["data"]:
            if key["name"].startswith(_key_prefix(owner)):
                self._call("DELETE", f"/ssh-keys/{key['id']}")
                removed.append(f"SSH key {key['name']}")
        return removed

    # -- the API --------------------------------------------------------------------------------

    def _register_key(self, owner: str, public_key: str) -> str:
        """Return the name of our public key: the API insists on one that it knows."""
        wanted = public_key.split()[:2]
        for key in self._call("GET", "/ssh-keys")["data"]:
            if key["public_key"].split()[:2] == wanted:
                return key["name"]
        digest = re.sub(r"[^0-9A-Za-z]", "", wanted[1])[-8:]
        body = {"name": f"{_key_prefix(owner)}{digest}", "public_key": public_key}
        return self._call("POST", "/ssh-keys", body)["data"]["name"]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        client = RestClient(
            _setting("endpoint", API),
            {"Authorization": f"Bearer {os.environ.get('LAMBDA_API_KEY', '')}"},
        )
        return client.call(method, path, body)


def _setting(key: str, default: T) -> T:
    value = Sky.load().provider_setting(LambdaFacts.name, key)
    return type(default)(value) if value else default


def _key_prefix(owner: str) -> str:
    return f"{fit_name(f'jupyter-sky-{owner}', 48)}-"


def _parse_machine(entry: dict[str, Any]) -> Machine:
    tags = {tag["key"]: tag["value"] for tag in entry.get("tags") or ()}
    status = entry["status"]
    started = tags.get(_STARTED, "")
    return tagged_machine(
        {name: tags[name] for name in TAGS if name in tags},
        id=entry["id"],
        cloud=LambdaFacts.name,
        rank=int(tags.get(_RANK, 0)),
        state="ended" if status in _ENDED else _STATES.get(status, "running"),
        started=float(started) if started.isdigit() else time.time(),
        preempted=status == "preempted",
        reason="Lambda took the machine back" if status == "preempted" else "",
        address=entry.get("ip") or "",
        private=entry.get("private_ip") or entry.get("ip") or "",
    )
