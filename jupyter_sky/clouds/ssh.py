"""The `ssh` cloud: machines of one's own, listed in a file, leased and never terminated."""

from __future__ import annotations

import getpass
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError, SkyNoCapacity, SkyUnreachable, SkyUsageError, suggest
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_vcpus
from jupyter_sky.base.requests.resources import Resources, parse_gpus, parse_usd, plain_number
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches import journals, ssh_slot
from jupyter_sky.clouds.launches.base import Credentials, StatusCallback, Tick, no_tick
from jupyter_sky.clouds.launches.launch_records import LaunchRecords
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine


class SshFacts(CloudFacts):
    """Facts of a pool of machines of one's own."""

    name, title, note = "ssh", "Machines of one's own", "machines of your own"
    launchable = on_premises = True


class SshCloud:
    """The pool of hosts as a cloud."""

    name = "ssh"

    def check(self) -> Credentials:
        """Ask every machine of the pool, all at once."""
        path = hosts_file()
        try:
            hosts = list(read_hosts(path).values())
        except SkyUsageError as error:
            return Credentials("ssh", False, error.message, error.hint or "")
        if not hosts:
            return Credentials(
                "ssh",
                False,
                f"no machines are listed in {path}",
                "list some: %sky help your-own-cloud",
            )
        asked = run_parallel([partial(_host_problem, host) for host in hosts])
        troubles = dict(zip(hosts, asked, strict=True))
        found = [
            f"{host.name}: {trouble.message if trouble else f'answers, {_slot_size(host)}'}"
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
        return list(_offer_groups(resources))

    def slots(self, resources: Resources, offer: Offer) -> int | None:
        """Return how many slots there are of an offer, taken or not; None for one not of here."""
        group = _find_group(resources, offer)
        return sum(host.slots for host in group) if group else None

    def free_slots(self, resources: Resources, offer: Offer) -> int | None:
        """Ask the machines of an offer how many slots nobody has; None for one not of here."""
        group = _find_group(resources, offer)
        return sum(run_parallel([partial(_count_free, host) for host in group])) if group else None

    def launch(self, request: LaunchRequest, tick: Tick = no_tick) -> list[Machine]:
        """Take a slot for each node, of as many machines as there are, or take none."""
        records, token = _records(), request.token
        record: JsonObject = {
            "cloud": self.name,
            "region": request.offer.region,
            "cluster": request.cluster,
            "started": time.time(),
            "owner": request.owner,
            "notebook": request.notebook,
            "cpus": request.offer.vcpus if request.resources.cpus else None,
            "memory": request.offer.memory if request.resources.memory else None,
            "nodes": [],
        }
        record = records.create(token, record)
        note = {name: record[name] for name in ("cluster", "owner", "notebook", "started")}
        taken: list[Slot] = []
        try:
            for node in _acquire_slots(_matching_hosts(request), request, note):
                taken.append(node)
                record = records.write(token, record | {"nodes": [asdict(each) for each in taken]})
        except BaseException:
            ssh_slot.release_slots(taken)
            records.mark_ended(token, {"time": time.time()})
            raise
        return [_make_machine(token, record, node, "starting") for node in taken]

    def await_slots(self, machines: Sequence[Machine], say: StatusCallback = no_tick) -> list[Slot]:
        """Return the slots that machines are, by rank: to launch them was to take them."""
        return self.recorded_slots(machines)

    def recorded_slots(self, machines: Sequence[Machine]) -> list[Slot]:
        """Return the slots as they were noted, by rank."""
        return _load_slots(_records().read(_token(machines[0].id)))

    def cluster_folder(self, machines: Sequence[Machine]) -> Path:
        """Return where on this machine a cluster is noted."""
        return _records().folder(_token(machines[0].id))

    def limits(self, machines: Sequence[Machine]) -> dict[str, object]:
        """Return what engines are held to: their share of a machine that is shared."""
        record = _records().read(_token(machines[0].id))
        nodes, hosts = _load_slots(record), read_hosts(hosts_file())
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
            found += [machine for machine in self._describe_request(token) if machine.id in ids]
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """Give slots back, after their journals were copied."""
        records = _records()
        for token in dict.fromkeys(map(_token, ids)):
            record = records.read(token)
            nodes = _load_slots(record)
            if not nodes or "ended" in record:
                continue
            missing = ""
            try:
                missing = journals.collect_journals(nodes, records.folder(token) / "journal")
            finally:  # whatever is in the way of a log, an interrupt too, the slots are given back
                ssh_slot.release_slots(nodes)
            end = {"time": time.time(), "reason": "stopped", "missing": missing}
            records.mark_ended(token, end)

    def list_mine(self, everywhere: bool = False) -> list[Machine]:
        """List the slots that this user holds, as the machines themselves say."""
        found: list[Machine] = []
        for token, __ in _records().list_unfinished():
            found += [
                machine for machine in self._describe_request(token) if machine.state != "ended"
            ]
        return found

    def _describe_request(self, token: str) -> list[Machine]:
        record = _records().read(token)
        nodes, ended = _load_slots(record), record.get("ended")
        if ended is None and nodes:
            states = _slot_states(nodes)
            if all(state is not None and "unknown" not in state for state in states):
                ended = states[0] or {}
                _records().mark_ended(token, ended)
        else:
            states = [ended or {}] * len(nodes)
        return [
            _make_machine(token, record, node, *_machine_state(state))
            for node, state in zip(nodes, states, strict=True)
        ]


cloud = SshCloud()


def hosts_file() -> Path:
    """Return the file that lists the machines."""
    settings = Sky.load()
    return (
        Path(settings.hosts).expanduser()
        if settings.hosts
        else (Path(settings.data_dir) / "hosts.toml")
    )


def records_folder() -> Path:
    """Return the folder where this user's clusters on machines reached by SSH are noted."""
    return Path(Sky.load().data_dir) / "ssh"


def _records() -> LaunchRecords:
    return LaunchRecords(records_folder())


def _address(host: SshHost) -> ssh.Address:
    """Return a machine's address, with its key pinned: at first contact to the one it shows."""
    known = records_folder() / "known_hosts"
    address = host.address(known)
    ssh.pin_host_key(address, known, host.host_key)
    return replace(address, pinned=bool(host.host_key))


def pool_address(name: str) -> tuple[ssh.Address, str] | None:
    """Return the address of a machine of the pool, and the Python that its owner names for it."""
    host = read_hosts(hosts_file()).get(name)
    return (_address(host), host.python) if host else None


def login_address(text: str) -> ssh.Address:
    """Return the address of a machine of the pool by its name, or one written as user@host.

    Raises
    ------
    SkyUsageError
        It is neither.
    """
    host = read_hosts(hosts_file()).get(text)
    try:
        return _address(host or SshHost(text, vcpus=1, memory=1, **parse_address(text)))
    except ValueError as error:
        raise SkyUsageError(
            f"{text!r}: {error}",
            hint=_("or the name of a machine in {path}").format(path=hosts_file()),
        ) from None


def _host_problem(host: SshHost) -> SkyError | None:
    try:
        answer = ssh.run(_address(host), ssh_slot.TOOL_CHECK_SCRIPT, timeout=30)
    except SkyError as error:
        return error
    if answer.code:
        return SkyError(answer.err, hint=ssh_slot.REQUIREMENTS_HINT)
    return None


def _count_free(host: SshHost) -> int:
    """Return how many slots of a machine are free; of one that does not answer, none."""
    try:
        return ssh_slot.count_free_slots(_address(host), host.slots)
    except SkyError:
        return 0


def _slot_size(host: SshHost) -> str:
    gpus = f", {host.gpu}:{host.gpu_count}" if host.gpu else ""
    slots = f", {host.slots} slots" if host.slots > 1 else ""
    return f"{format_vcpus(host.vcpus)}, {host.memory:g} GiB{gpus}{slots}"


def _offer_groups(resources: Resources) -> dict[Offer, list[SshHost]]:
    """Return what is offered, each with the machines whose slots it is."""
    hosts = read_hosts(hosts_file())
    if named := hosts.get(resources.instance_type or ""):
        return {_make_offer(named, named.name, resources): [named]}
    alike: dict[Offer, list[SshHost]] = {}
    for host in hosts.values():
        alike.setdefault(_make_offer(host, "", Resources()), []).append(host)
    return {
        _make_offer(
            group[0], group[0].name if len(group) == 1 else _slot_kind(slot), resources
        ): group
        for slot, group in alike.items()
    }


def _make_offer(host: SshHost, name: str, resources: Resources) -> Offer:
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
        source=hosts_file().name,
        date=time.strftime("%Y-%m-%d"),
    )


def _slot_kind(offer: Offer) -> str:
    words = [f"{plain_number(offer.vcpus)}cpu", f"{plain_number(offer.memory)}gib"]
    words += [f"{offer.gpu}:{offer.gpu_count}".lower()] if offer.gpu else []
    return "-".join(words)


def _matching_hosts(request: LaunchRequest) -> list[SshHost]:
    """Return the machines that have slots of the kind ordered."""
    return _find_group(request.resources, request.offer)


def _find_group(resources: Resources, offer: Offer) -> list[SshHost]:
    groups = _offer_groups(resources)
    return next((group for one, group in groups.items() if one.place == offer.place), [])


def _acquire_slots(hosts: Sequence[SshHost], request: LaunchRequest, note: Any) -> Iterable[Slot]:
    """Take slots until there are enough: one of each machine first, all machines at once."""
    count, rank, refused = request.resources.nodes, 0, list[SkyError]()
    left = {host: host.slots for host in hosts}

    def one(rank: int, host: SshHost) -> Slot | SkyError:
        node = Slot(
            rank,
            token=f"{request.token}.{host.name}.{host.slots - left[host]}",
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
            return ssh_slot.acquire_slot(node, note)
        except SkyError as error:
            left[host] = 0
            return error

    while rank < count and any(left.values()):
        chosen = [host for host in left if left[host]][: count - rank]
        outcomes = run_parallel([partial(one, rank + at, host) for at, host in enumerate(chosen)])
        for host, outcome in zip(chosen, outcomes, strict=True):
            if isinstance(outcome, SkyError):
                refused.append(outcome)
                continue
            left[host] -= 1
            yield replace(outcome, rank=rank)
            rank += 1
    if rank < count:
        raise _capacity_error(request, rank, refused)


def _capacity_error(request: LaunchRequest, found: int, refused: Sequence[SkyError]) -> SkyError:
    """Say why there are not enough slots; one machine's own trouble is told as it is."""
    if len(refused) == 1 and request.resources.nodes == 1:
        return refused[0]
    reasons = "; ".join(error.message for error in refused) or "there are no more"
    return SkyNoCapacity(
        _("{nodes} slots of {place} were asked for, {found} could be had: {reasons}").format(
            nodes=request.resources.nodes, place=request.offer.place, found=found, reasons=reasons
        ),
        hint=_("see %sky check, or take fewer nodes"),
    )


def _token(identity: str) -> str:
    return identity.rpartition("/")[0]


def _load_slots(record: JsonObject) -> list[Slot]:
    return [Slot.load(node) for node in record.get("nodes", [])]


def _slot_states(nodes: Sequence[Slot]) -> list[JsonObject | None]:
    def one(node: Slot) -> JsonObject | None:
        try:
            return ssh_slot.slot_state(node)
        except SkyUnreachable as error:
            return {"unknown": error.message}

    return run_parallel([partial(one, node) for node in nodes])


def _machine_state(state: JsonObject | None) -> tuple[str, JsonObject]:
    """Return the state of a machine, and its end or what else is known."""
    if state is None:
        return "running", {}
    if "unknown" in state:
        return "running", {"reason": state["unknown"]}
    return "ended", state


def _make_machine(
    token: str, record: JsonObject, node: Slot, state: Any, more: JsonObject | None = None
) -> Machine:
    more = more or {}
    return Machine(
        id=f"{token}/{node.rank}",
        token=token,
        cloud="ssh",
        cluster=record.get("cluster", ""),
        owner=record.get("owner", ""),
        rank=node.rank,
        state=state,
        started=record.get("started", 0.0),
        ended=more.get("time"),
        reason=more.get("reason", ""),
    )


# -- The machines of the ``ssh`` cloud, as their owner lists them in a TOML file ------------------
#
# [gpu-box]
# address = "ada@10.0.0.5:2222"
# key = "~/.ssh/id_ed25519"
# vcpus = 16
# memory = 64
# gpus = "A100:2"
# price = 0.5
# slots = 2

_ADDRESS = re.compile(r"(?:([^@\s]+)@)?(\[[0-9A-Fa-f:.]+\]|[^@:\s\[\]]+)(?::(\d{1,5}))?")
_EXAMPLE = '[gpu-box]\naddress = "ada@10.0.0.5"\nvcpus = 16\nmemory = 64'


@dataclass(frozen=True, slots=True)
class SshHost:
    """One machine of the pool.

    Attributes
    ----------
    vcpus, memory, gpu_count : float
        Of the whole machine; memory in GiB.
    price : float
        USD/h of the whole machine.
    slots : int
        How many clusters may share it, each with an equal part.
    host_key : str
        Its public key, such as ``ssh-ed25519 AAAA...``; without it, the one that it shows first.
    private : str
        Where the other machines of the pool reach it; its address unless given.
    python : str
        A Python there whose packages cells see beside ours.
    packages : tuple of str
        Requirements that engines there have from the start.
    offline : bool
        It cannot reach a package index: what it needs comes through the connection.
    env : dict
        Environment of what we start there.
    """

    name: str
    user: str
    host: str
    port: int
    vcpus: float
    memory: float
    key: str = ""
    gpu: str | None = None
    gpu_count: int = 0
    price: float = 0.0
    slots: int = 1
    host_key: str = ""
    private: str = ""
    python: str = ""
    packages: tuple[str, ...] = ()
    offline: bool = False
    env: dict[str, str] = field(default_factory=dict, hash=False)

    def address(self, known_hosts: Path, pinned: bool = False) -> Address:
        """Return where it is; its key is pinned in `known_hosts`."""
        return Address(self.user, self.host, self.port, self.key, str(known_hosts), pinned)


def read_hosts(path: Path) -> dict[str, SshHost]:
    """Read the pool; without a file it is empty.

    Raises
    ------
    SkyUsageError
        The file cannot be understood; names the file and the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SkyUsageError(
            _("{path}: cannot be read: {error}").format(path=path, error=error)
        ) from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SkyUsageError(
            _("{path}: not TOML: {error}").format(path=path, error=error),
            hint=_("such as\n{example}").format(example=_EXAMPLE),
        ) from None
    return {name: _parse_host(path, text, name, table) for name, table in tables.items()}


def _parse_host(path: Path, text: str, name: str, table: Any) -> SshHost:
    def wrong(what: str, key: str = "", hint: str | None = None) -> SkyUsageError:
        line = _line_number(text, name, key)
        return SkyUsageError(
            _("{path}, line {line}: [{name}] {what}").format(
                path=path, line=line, name=name, what=what
            ),
            hint=hint,
        )

    if not isinstance(table, dict):
        raise wrong(
            "is not a table",
            hint=_("each machine is one, such as\n{example}").format(example=_EXAMPLE),
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise wrong("is not a name", hint=_("letters, digits, dots and hyphens"))
    fields: JsonObject = {"name": name}
    for key, value in table.items():
        if key not in _PARSERS:
            raise wrong(f"has no setting {key!r}", key, suggest(key, _PARSERS))
        try:
            fields |= _PARSERS[key](value)
        except (SkyError, ValueError, TypeError) as error:
            first = str(error).splitlines()[0]
            raise wrong(f"{key} = {value!r}: {first}", key, getattr(error, "hint", None)) from None
    for key, needed in (("address", "host"), ("vcpus", "vcpus"), ("memory", "memory")):
        if needed not in fields:
            raise wrong(f"has no {key}", hint=_("such as\n{example}").format(example=_EXAMPLE))
    return SshHost(**fields)


def _line_number(text: str, name: str, key: str) -> int:
    """Return the number of the line where a machine, or one of its settings, is written."""
    lines = text.splitlines()
    word = rf"[\"']?{re.escape(name)}[\"']?"
    header = re.compile(rf"\s*(\[\s*{word}\s*[\].]|{word}\s*=)")
    start = next((at for at, line in enumerate(lines) if header.match(line)), 0)
    if key:
        setting = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]")
        for at in range(start, len(lines)):
            if setting.match(lines[at]):
                return at + 1
            if at > start and lines[at].lstrip().startswith("[") and f"{name}." not in lines[at]:
                break
    return start + 1


def parse_address(value: Any) -> JsonObject:
    """Return user, host and port of an address; ValueError for what is none."""
    match = _ADDRESS.fullmatch(_parse_text(value))
    port = int(match[3] or 22) if match else 0
    if not match or not 0 < port < 65536:
        raise ValueError("not an address; write user@host or user@host:port")
    host = match[2].strip("[]")
    if host.startswith("-") or (match[1] or "").startswith("-"):  # ssh would take it as an option
        raise ValueError("not an address; write user@host or user@host:port")
    Address(match[1] or "", host, port)  # refuses characters that a shell would interpret
    return {"user": match[1] or getpass.getuser(), "host": host, "port": port}


def _parse_positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise ValueError("not a positive number")
    return float(value)


def _parse_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1000:
        raise ValueError("not a whole number from 1")
    return value


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _parse_true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _parse_gpus(value: Any) -> JsonObject:
    gpu, amount = parse_gpus(_parse_text(value), "gpus")
    count = int(amount.value)
    if amount.at_least or count != amount.value:
        raise SkyUsageError(
            _("gpus {value}: not a whole number").format(value=value),
            hint=_('such as gpus = "A100:4"'),
        )
    return {"gpu": gpu, "gpu_count": count}


def _parse_price(value: Any) -> float:
    return parse_usd(value if isinstance(value, str) else str(float(value)), "price")


def _parse_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("not a list of texts")
    return tuple(_parse_text(each) for each in value)


def _parse_environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("not a table of texts")
    for name in value:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not the name of a variable")
    return {name: _parse_text(each) for name, each in value.items()}


_PARSERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "address": parse_address,
    "gpus": _parse_gpus,
    "key": lambda value: {"key": str(Path(_parse_text(value)).expanduser())},
    "vcpus": lambda value: {"vcpus": _parse_positive(value)},
    "memory": lambda value: {"memory": _parse_positive(value)},
    "price": lambda value: {"price": _parse_price(value)},
    "slots": lambda value: {"slots": _parse_count(value)},
    "host_key": lambda value: {"host_key": _parse_text(value)},
    "private": lambda value: {"private": _parse_text(value)},
    "python": lambda value: {"python": _parse_text(value)},
    "packages": lambda value: {"packages": _parse_texts(value)},
    "offline": lambda value: {"offline": _parse_true(value)},
    "env": lambda value: {"env": _parse_environment(value)},
}
