"""Google Cloud: machines of Compute Engine."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from . import gcp_access, gcp_errors, gcp_role
from . import gcp_machine as machine
from . import gcp_network as network
from .base import Birth, Launch, Machine, Made, Tick, Trouble, forgotten
from .gcp_access import Access, any_of, connect, passes
from .gcp_errors import ignoring
from .rented import RentedCloud

PREEMPTED = "compute.instances.preempted"
"""Operations of this type tell of machines that were taken back and are gone."""
SAME_TIME = 8
"""Requests that are under way at once."""
SPENT = 20
"""How often an order may have failed at one place before; each time spends an id of requests."""
CONSOLE_CHARS = 16384
log = logging.getLogger(__name__)
_NAMESPACE = uuid.UUID("8b5f7a52-21a6-4bd1-9f0e-5f6ad2a0c3de")


class GcpDriver:
    """Machines of Compute Engine, with google-cloud-compute.

    Credentials are the application default ones: ``GOOGLE_APPLICATION_CREDENTIALS`` or those of
    ``gcloud auth application-default login``; the project is ``GOOGLE_CLOUD_PROJECT`` or that of
    the credentials. Ids are ``zone/name``.

    Examples
    --------
    >>> GcpDriver().name
    'gcp'
    """

    name = "gcp"
    login = "gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT"

    def __init__(self) -> None:
        self._seen: dict[str, Machine] = {}

    # -- who we are --------------------------------------------------------------------------

    def configured(self) -> str:
        """Return in words which credentials would be used, empty without any; asks nobody."""
        return gcp_access.configured()

    def identify(self) -> str:
        """Prove the credentials by one request; return account and project."""
        access = connect()
        found = access.call("Projects", "get")
        return f"{access.who} in project {found.name}"

    def explain(self, error: Exception) -> Trouble | None:
        """Say what an error means; None for one that is not of this cloud's SDK."""
        return gcp_errors.explain(error)

    # -- birth -------------------------------------------------------------------------------

    def ending(self, order: Launch) -> str:
        """Return shell commands by which a machine deletes itself, if it is given an account."""
        return gcp_role.ending(connect().host) if gcp_role.account() else ""

    def create(
        self, order: Launch, birth: Birth, tick: Tick, made: Made = forgotten
    ) -> list[Machine]:
        """Create all machines of an order in one zone, or none; also network and firewall."""
        access = connect()
        zone = order.offer.zone or _zone(access, order)
        network.ensure(access, order, birth, tick)
        names = [machine.name(order.token, rank) for rank in range(order.resources.nodes)]
        try:
            self._make(access, order, birth, zone, tick)
            found = self._read(access, zone, names)
            if missing := set(names) - {each.name for each, _ in found}:
                raise _taken_back(zone, missing)
        except Exception as error:
            # after a lost answer the order is sent again and finds its machines
            if gcp_errors.explain(error) is not None and not passes(error):
                with suppress(Exception):  # whoever sent the order looks for what is left of it
                    made([each for _, each in self._read(access, zone, names)])
                with suppress(Exception):
                    self.remove([f"{zone}/{name}" for name in names])
            raise
        return sorted((each for _, each in found), key=lambda each: each.rank)

    def _make(
        self, access: Access, order: Launch, birth: Birth, zone: str, tick: Tick, role: bool = True
    ) -> None:
        """Make all machines; without a role, where they may not have the one they are to have."""
        account, asked = gcp_role.account() if role else "", list[Any]()
        try:
            asked += self._insert(access, order, birth, zone, account)
            access.settle(asked, zone, tick)
        except Exception as error:
            if not account or not gcp_role.is_refused(error):
                raise
            trouble = gcp_errors.explain(error)
            log.warning(
                "gcp: machines do without the service account %r: %s; when one is lost, it is "
                "powered off and its disk billed until %%sky reap. %s",
                account,
                trouble.message if trouble else error,
                trouble.fix if trouble else "",
            )
            for each in asked:  # their names are taken until all have failed
                with gcp_role.tolerated():
                    access.settle([each], zone, tick)
            self._make(access, order, birth, zone, tick, role=False)

    def _insert(
        self, access: Access, order: Launch, birth: Birth, zone: str, account: str
    ) -> list[Any]:
        """Ask for all machines at once; return the operations that are under way."""
        ranks = range(order.resources.nodes)
        bodies = [machine.body(order, birth, zone, rank, account) for rank in ranks]
        with ThreadPoolExecutor(min(len(ranks), SAME_TIME)) as workers:
            asked = [workers.submit(_insert, access, order, body, zone) for body in bodies]
        errors = [error for each in asked if (error := each.exception())]
        if errors:  # what does not pass decides: then no machine is waited for
            raise next((error for error in errors if not passes(error)), errors[0])  # type: ignore[arg-type]
        return [operation for each in asked if (operation := each.result()) is not None]

    # -- life --------------------------------------------------------------------------------

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that have not ended; what was powered off but is kept is among them."""
        wanted = {machine.OWNER: owner, machine.TOKEN: token}
        exact = {key: value for key, value in wanted.items() if value}
        parts = [f'(labels.{key} = "{machine.label(value)}")' for key, value in exact.items()]
        filter = " ".join(parts) or f"labels.{machine.OWNER}:*"
        found = [
            (each, self._noticed(each, zone))
            for zone, each in connect().everywhere("Instances", "instances", filter)
            if all(machine.tags(each).get(key) == value for key, value in exact.items())
            and (regions is None or _region(zone) in regions)
        ]
        return [
            replace(seen, state="running", ended=None) if machine.kept(each) else seen
            for each, seen in found
        ]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; those that the cloud no longer knows are left out.

        Of those that it took back, or that were seen here and whose lease has ended, it is known
        why they are gone.
        """
        access, answers = connect(), list[Machine]()
        for zone, names in _by_zone(ids).items():
            found = {each.name: seen for each, seen in self._read(access, zone, names)}
            answers += found.values()
            if gone := set(names) - set(found):
                answers += self._ends(access, zone, gone)
        return answers

    def ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """Return None: Compute Engine lists only what is there."""
        return None

    def remove(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines and all that is theirs; returns without waiting."""
        access = connect()

        def end(zone: str, name: str) -> None:
            with ignoring("gone"):
                access.call("Instances", "delete_unary", zone=zone, instance=name)

        with ThreadPoolExecutor(SAME_TIME) as workers:
            asked = [workers.submit(end, *_split(each)) for each in ids]
        for each in asked:
            each.result()
        for name in (_split(each)[1] for each in ids):
            if name.endswith("-0"):  # the head: its cluster has ended
                with suppress(Exception):  # a rule costs nothing, and `leftovers` finds it
                    network.remove_rule(access, name.removesuffix("-0"))

    def leftovers(self, owner: str, regions: Collection[str] | None = None) -> list[str]:
        """Delete disks and firewall rules that no machine uses; say what."""
        access, deleted = connect(), list[str]()
        alive = {each.token for each in self.machines(owner=owner)}
        for zone, name in list(_unused_disks(access, owner)):
            if regions is None or _region(zone) in regions:
                with ignoring("gone", "resourceInUseByAnotherResource"):
                    access.call("Disks", "delete_unary", zone=zone, disk=name)
                    deleted.append(f"disk {zone}/{name}")
        for name in network.unused_rules(access, owner, alive):
            if network.remove_rule(access, name):
                deleted.append(f"firewall rule {name}")
        return deleted

    def teardown(self, region: str) -> None:
        """Delete network and firewall when no machine uses them; they are the same everywhere."""
        if not self.machines():
            network.teardown(connect())

    def console(self, id: str) -> str:
        """Return the end of what a machine has written to its serial port."""
        zone, name = _split(id)
        asked = {"zone": zone, "instance": name, "port": 1}
        with ignoring("gone", "resourceNotReady"):
            found = connect().call("Instances", "get_serial_port_output", **asked)
            return found.contents[-CONSOLE_CHARS:]
        return ""

    # -- reading -----------------------------------------------------------------------------

    def _read(self, access: Access, zone: str, names: Sequence[str]) -> list[tuple[Any, Machine]]:
        found = []
        for begin in range(0, len(names), 20):  # an address has room for so many names
            asked = any_of("name", names[begin : begin + 20])
            listed = access.call("Instances", "list", zone=zone, filter=asked)
            found += [(each, self._noticed(each, zone)) for each in listed]
        return found

    def _noticed(self, instance: Any, zone: str) -> Machine:
        seen = machine.read(instance, zone)
        self._seen[seen.id] = seen
        return seen

    def _ends(self, access: Access, zone: str, names: Collection[str]) -> Iterator[Machine]:
        """Machines among those that are gone of which it is known why."""
        asked = {
            "zone": zone,
            "filter": f'operationType = "{PREEMPTED}"',
            "order_by": "creationTimestamp desc",
        }
        taken: dict[str, str] = {}
        for operation in access.call("ZoneOperations", "list", **asked):
            taken.setdefault(operation.target_link.rpartition("/")[2], operation.insert_time)
        for name in sorted(names):
            rank = int(name.rpartition("-")[2])
            blank = Machine(f"{zone}/{name}", "gcp", "", rank, "ended", 0.0)
            known = replace(self._seen.get(blank.id, blank), state="ended")
            if name in taken:
                words = "the cloud took the spot machine back"
                ended = machine.seconds(taken[name])
                yield replace(known, ended=ended, reason=words, preempted=True)
            elif known.lease_end and time.time() > known.lease_end:
                yield replace(known, ended=known.lease_end, reason="its lease has ended")


def _insert(access: Access, order: Launch, body: Any, zone: str) -> Any | None:
    """Ask for one machine; None when it is there already.

    The id of a request makes it count once, however often it is sent. An order that failed and is
    sent again would only be told of that failure: then it takes the next id.
    """
    for attempt in range(SPENT):
        place = f"{zone}/{order.offer.instance_type}/{order.offer.spot}"
        place += "".join(f"/{each.email}" for each in body.service_accounts)
        request_id = str(uuid.uuid5(_NAMESPACE, f"{body.name}/{place}/{attempt}"))
        asked = {"zone": zone, "instance_resource": body, "request_id": request_id}
        try:
            operation = access.call("Instances", "insert_unary", **asked)
        except Exception as error:
            if gcp_errors.is_code(error, "alreadyExists") and _lives(access, zone, body):
                return None
            raise
        if operation.status.name != "DONE" or _lives(access, zone, body):
            return operation
    return operation


def _lives(access: Access, zone: str, body: Any) -> bool:
    """Whether a machine is there and is the one that is asked for."""
    try:
        found = access.call("Instances", "get", zone=zone, instance=body.name)
    except Exception as error:
        if gcp_errors.is_code(error, "gone"):
            return False
        raise
    same = machine.tags(found).get(machine.TOKEN) == machine.tags(body).get(machine.TOKEN)
    return same and found.status in ("PROVISIONING", "STAGING", "RUNNING")


def _zone(access: Access, order: Launch) -> str:
    """Choose a zone of the region that has what is asked; the same order gets the same."""
    from google.api_core.exceptions import NotFound

    kind, gpu, _ = machine.split_type(order.offer.instance_type)
    if gpu:
        listed = access.everywhere("AcceleratorTypes", "accelerator_types", f'name = "{gpu}"')
    else:
        listed = access.everywhere("MachineTypes", "machine_types", f'name = "{kind}"')
    zones = sorted({zone for zone, _ in listed if _region(zone) == order.offer.region})
    if not zones:
        words = f"no zone of {order.offer.region} has {order.offer.instance_type}"
        raise NotFound(words, errors=[{"reason": "notFound", "message": words}])
    return zones[int(hashlib.sha256(order.token.encode()).hexdigest(), 16) % len(zones)]


def _unused_disks(access: Access, owner: str) -> Iterator[tuple[str, str]]:
    old = time.time() - network.YOUNG_SECONDS
    filter = f'labels.{machine.OWNER} = "{machine.label(owner)}"'
    for zone, disk in access.everywhere("Disks", "disks", filter):
        if not disk.users and machine.seconds(disk.creation_timestamp) < old:
            yield zone, disk.name


def _taken_back(zone: str, names: Iterable[str]) -> Exception:
    from google.api_core.exceptions import ServiceUnavailable

    words = f"{', '.join(sorted(names))} in {zone} ended while being made"
    return ServiceUnavailable(words, errors=[{"reason": "UNSUPPORTED_OPERATION", "message": words}])


def _by_zone(ids: Iterable[str]) -> dict[str, list[str]]:
    zones = defaultdict[str, list[str]](list)
    for each in ids:
        zone, name = _split(each)
        zones[zone].append(name)
    return zones


def _split(id: str) -> tuple[str, str]:
    zone, _, name = id.partition("/")
    return zone, name


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]


cloud = RentedCloud(GcpDriver())
