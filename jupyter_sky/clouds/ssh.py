"""The `ssh` cloud: machines of one's own, listed in a file, leased and never terminated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import ssh
from ..config import Sky
from ..errors import SkyError, SkyNoCapacity, SkyUnreachable, SkyUsageError
from ..offers import Offer
from ..resources import Resources, plain_number
from ..together import at_once
from . import journals, keeper
from .base import Credentials, Launch, Machine, Say, Tick, patient
from .keeper import Node
from .pool import PoolHost, read
from .records import Records


class SshCloud:
    """The pool of hosts as a cloud."""

    name = "ssh"

    def check(self) -> Credentials:
        """Ask every machine of the pool, all at once."""
        path = pool_file()
        try:
            hosts = list(read(path).values())
        except SkyUsageError as error:
            return Credentials("ssh", False, error.message, error.hint or "")
        if not hosts:
            return Credentials(
                "ssh", False, f"no machines are listed in {path}", "list some: see the README"
            )
        asked = at_once([partial(_trouble, host) for host in hosts])
        troubles = dict(zip(hosts, asked, strict=True))
        found = [
            f"{host.name}: {trouble.message if trouble else f'answers, {_size(host)}'}"
            for host, trouble in troubles.items()
        ]
        fixes = [
            f"{host.name}: {trouble.hint}"
            for host, trouble in troubles.items()
            if trouble and trouble.hint
        ]
        return Credentials("ssh", None in troubles.values(), "; ".join(found), "; ".join(fixes))

    def offers(self, resources: Resources) -> list[Offer]:
        """Offer slots, those of one size under one name; by its own name if that is asked for."""
        return list(_groups(resources))

    def slots(self, resources: Resources, offer: Offer) -> int | None:
        """Return how many slots there are of an offer, taken or not; None for one not of here."""
        group = _group(resources, offer)
        return sum(host.slots for host in group) if group else None

    def launch(self, order: Launch, tick: Tick = patient) -> list[Machine]:
        """Take a slot for each node, of as many machines as there are, or take none."""
        records, token = _records(), order.token
        record: dict[str, Any] = {
            "cloud": self.name,
            "region": order.offer.region,
            "cluster": order.cluster,
            "started": time.time(),
            "owner": order.owner,
            "notebook": order.notebook,
            "cpus": order.offer.vcpus if order.resources.cpus else None,
            "memory": order.offer.memory if order.resources.memory else None,
            "nodes": [],
        }
        record = records.open(token, record)
        note = {name: record[name] for name in ("cluster", "owner", "notebook", "started")}
        taken: list[Node] = []
        try:
            for node in _take(_places(order), order, note):
                taken.append(node)
                record = records.write(token, record | {"nodes": [asdict(each) for each in taken]})
        except BaseException:
            keeper.end(taken)
            records.close(token, {"time": time.time()})
            raise
        return [_machine(token, record, node, "starting") for node in taken]

    def nodes(self, machines: Sequence[Machine], say: Say = patient) -> list[Node]:
        """Return the slots that machines are, by rank: to launch them was to take them."""
        return self.taken(machines)

    def taken(self, machines: Sequence[Machine]) -> list[Node]:
        """Return the slots as they were noted, by rank."""
        return _nodes(_records().read(_token(machines[0].id)))

    def folder(self, machines: Sequence[Machine]) -> Path:
        """Return where on this machine a cluster is noted."""
        return _records().folder(_token(machines[0].id))

    def limits(self, machines: Sequence[Machine]) -> dict[str, object]:
        """Return what engines are held to: their share of a machine that is shared."""
        record = _records().read(_token(machines[0].id))
        nodes, hosts = _nodes(record), read(pool_file())
        cpus: list[list[int] | None] = []
        memory = record.get("memory")
        for node in nodes:
            host = hosts.get(node.host)
            width = int(record.get("cpus") or 0)
            if host and node.slots > 1:
                width = width or max(int(host.vcpus / node.slots), 1)
                memory = memory or host.memory / node.slots
            first = node.slot * width
            cpus.append(list(range(first, first + width)) if width else None)
        return {"cpus": cpus if any(cpus) else None, "memory": memory}

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; of those that do not answer, that nothing else is known."""
        found: list[Machine] = []
        for token in dict.fromkeys(map(_token, ids)):
            found += [machine for machine in self._described(token) if machine.id in ids]
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """Give slots back, with what cells there have printed brought home before."""
        records = _records()
        for token in dict.fromkeys(map(_token, ids)):
            record = records.read(token)
            nodes = _nodes(record)
            if not nodes or "ended" in record:
                continue
            missing = ""
            try:
                missing = journals.bring_home(nodes, records.folder(token) / "journal")
            finally:  # whatever is in the way of a log, an interrupt too, the slots are given back
                keeper.end(nodes)
            end = {"time": time.time(), "reason": "stopped", "missing": missing}
            records.close(token, end)

    def mine(self, everywhere: bool = False) -> list[Machine]:
        """List the slots that this user holds, as the machines themselves say."""
        found: list[Machine] = []
        for token, _ in _records().unfinished():
            found += [machine for machine in self._described(token) if machine.state != "ended"]
        return found

    def _described(self, token: str) -> list[Machine]:
        record = _records().read(token)
        nodes, ended = _nodes(record), record.get("ended")
        if ended is None and nodes:
            states = _states(nodes)
            if all(state is not None and "unknown" not in state for state in states):
                ended = states[0] or {}
                _records().close(token, ended)
        else:
            states = [ended or {}] * len(nodes)
        return [
            _machine(token, record, node, *_told(state))
            for node, state in zip(nodes, states, strict=True)
        ]


cloud = SshCloud()


def pool_file() -> Path:
    """Return the file that lists the machines."""
    settings = Sky.load()
    return (
        Path(settings.hosts).expanduser()
        if settings.hosts
        else (Path(settings.data_dir) / "hosts.toml")
    )


def root() -> Path:
    """Return the folder where this user's clusters on machines reached by SSH are noted."""
    return Path(Sky.load().data_dir) / "ssh"


def _records() -> Records:
    return Records(root())


def _address(host: PoolHost) -> ssh.Address:
    """Return a machine's address, with its key pinned: at first contact to the one it shows."""
    known = root() / "known_hosts"
    address = host.address(known)
    ssh.pin(address, known, host.host_key)
    return replace(address, pinned=bool(host.host_key))


def _trouble(host: PoolHost) -> SkyError | None:
    try:
        answer = ssh.run(_address(host), keeper.TOOLS, timeout=30)
    except SkyError as error:
        return error
    if answer.code:
        return SkyError(answer.err, hint=keeper.NEEDED)
    return None


def _size(host: PoolHost) -> str:
    gpus = f", {host.gpu}:{host.gpu_count}" if host.gpu else ""
    slots = f", {host.slots} slots" if host.slots > 1 else ""
    return f"{host.vcpus:g} vCPUs, {host.memory:g} GiB{gpus}{slots}"


def _groups(resources: Resources) -> dict[Offer, list[PoolHost]]:
    """Return what is offered, each with the machines whose slots it is."""
    hosts = read(pool_file())
    if named := hosts.get(resources.instance_type or ""):
        return {_offer(named, named.name, resources): [named]}
    alike: dict[Offer, list[PoolHost]] = {}
    for host in hosts.values():
        alike.setdefault(_offer(host, "", Resources()), []).append(host)
    return {
        _offer(group[0], group[0].name if len(group) == 1 else _kind(slot), resources): group
        for slot, group in alike.items()
    }


def _offer(host: PoolHost, name: str, resources: Resources) -> Offer:
    """One slot of a machine, or as much of it as was asked for: the price is that of the slot."""
    vcpus, memory = host.vcpus / host.slots, host.memory / host.slots
    return Offer(
        cloud="ssh",
        region="pool",
        instance_type=name,
        vcpus=min(resources.cpus.value, vcpus) if resources.cpus else vcpus,
        memory=min(resources.memory.value, memory) if resources.memory else memory,
        gpu=host.gpu if host.gpu_count >= host.slots else None,
        gpu_count=host.gpu_count // host.slots,
        price=host.price / host.slots,
        source=pool_file().name,
        date=time.strftime("%Y-%m-%d"),
    )


def _kind(offer: Offer) -> str:
    words = [f"{plain_number(offer.vcpus)}cpu", f"{plain_number(offer.memory)}gib"]
    words += [f"{offer.gpu}:{offer.gpu_count}".lower()] if offer.gpu else []
    return "-".join(words)


def _places(order: Launch) -> list[PoolHost]:
    """Return the machines that have slots of the kind ordered."""
    return _group(order.resources, order.offer)


def _group(resources: Resources, offer: Offer) -> list[PoolHost]:
    groups = _groups(resources)
    return next((group for one, group in groups.items() if one.place == offer.place), [])


def _take(hosts: Sequence[PoolHost], order: Launch, note: Any) -> Iterable[Node]:
    """Take slots until there are enough: one of each machine first, all machines at once."""
    count, rank, refused = order.resources.nodes, 0, list[SkyError]()
    left = {host: host.slots for host in hosts}

    def one(rank: int, host: PoolHost) -> Node | SkyError:
        node = Node(
            rank,
            token=f"{order.token}.{host.name}.{host.slots - left[host]}",
            host=host.name,
            address=_address(host),
            private=host.private or host.host,
            slots=host.slots,
            python=host.python,
            packages=host.packages,
            offline=host.offline,
            env=host.env,
        )
        try:
            return keeper.take(node, note)
        except SkyError as error:
            left[host] = 0
            return error

    while rank < count and any(left.values()):
        chosen = [host for host in left if left[host]][: count - rank]
        outcomes = at_once([partial(one, rank + at, host) for at, host in enumerate(chosen)])
        for host, outcome in zip(chosen, outcomes, strict=True):
            if isinstance(outcome, SkyError):
                refused.append(outcome)
                continue
            left[host] -= 1
            yield replace(outcome, rank=rank)
            rank += 1
    if rank < count:
        raise _refusal(order, rank, refused)


def _refusal(order: Launch, found: int, refused: Sequence[SkyError]) -> SkyError:
    """Say why there are not enough slots; one machine's own trouble is told as it is."""
    if len(refused) == 1 and order.resources.nodes == 1:
        return refused[0]
    reasons = "; ".join(error.message for error in refused) or "there are no more"
    return SkyNoCapacity(
        f"{order.resources.nodes} slots of {order.offer.place} were asked for, "
        f"{found} could be had: {reasons}",
        hint="see %sky check, or take fewer nodes",
    )


def _token(identity: str) -> str:
    return identity.rpartition("/")[0]


def _nodes(record: dict[str, Any]) -> list[Node]:
    return [Node.load(node) for node in record.get("nodes", [])]


def _states(nodes: Sequence[Node]) -> list[dict[str, Any] | None]:
    def one(node: Node) -> dict[str, Any] | None:
        try:
            return keeper.state(node)
        except SkyUnreachable as error:
            return {"unknown": error.message}

    return at_once([partial(one, node) for node in nodes])


def _told(state: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Return the state of a machine, and its end or what else is known."""
    if state is None:
        return "running", {}
    if "unknown" in state:
        return "running", {"reason": state["unknown"]}
    return "ended", state


def _machine(
    token: str, record: dict[str, Any], node: Node, state: Any, more: dict[str, Any] | None = None
) -> Machine:
    more = more or {}
    return Machine(
        id=f"{token}/{node.rank}",
        token=token,
        cloud="ssh",
        cluster=record.get("cluster", ""),
        rank=node.rank,
        state=state,
        started=record.get("started", 0.0),
        ended=more.get("time"),
        reason=more.get("reason", ""),
    )
