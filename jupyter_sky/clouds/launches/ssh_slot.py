"""Slots of machines reached by SSH: acquire, inspect and release them.

``slot_agent.sh`` runs there; these are our ends of it. A slot is a lock that a process on the
machine holds, so two notebooks or two users cannot take one, and it is free as soon as that
process ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyBootstrapError, SkyError, SkyNoCapacity, SkyUnreachable
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.environment_spec import environment_spec
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.translation import _

CLAIM_SECONDS = 900
"""A slot is given back when its cluster has not been started for so long."""
GRACE_SECONDS = 8
_SHUTDOWN_SCRIPT = """
lease=${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky}
[ -d "$lease" ] && : >"$lease/end"
"""
_STOP_SCRIPT = """
lease=${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky}
: >"$lease/stopping" || exit 1
begun=${lease%/run/jupyter-sky}/var/lib/jupyter-sky/begun left=50
while [ -e "$begun" ] && [ "$left" -gt 0 ]; do left=$((left - 1)); sleep 0.2; done
[ -L "$1/work" ] || [ ! -d "$1/work" ] || mv "$1/work" "$2/kept-$3" || exit 1
sync
"""
"""Tells a machine that it is stopped and will be started: see lease.sh. The files of its cluster
are put where its end does not remove them; they stay there, and later clusters link to them."""
_WITHDRAW_SCRIPT = """
rm -f "${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky}/stopping"
[ -L "$1/work" ] || [ ! -d "$2/kept-$3" ] || mv "$2/kept-$3" "$1/work"
"""
_CONFIRM_SCRIPT = """
[ ! -e "$1/confirmed.json" ] || mv "$1/confirmed.json" "$1/cleanup.json"
"""
TOOL_CHECK_SCRIPT = """
for tool in flock mkfifo setsid stat timeout; do
  command -v "$tool" >/dev/null || { echo "there is no $tool" >&2; exit 69; }
done
"""
"""Check for the tools that the slot agent needs."""
REQUIREMENTS_HINT = "a Linux machine with util-linux and coreutils is needed"

_STATE_SCRIPT = """
cd "$1" 2>/dev/null && ! flock -s -n alive true && echo "running" && exit
cat "$HOME/.cache/jupyter_sky/ended/$2.json" 2>/dev/null && exit
boot=$(cat boot 2>/dev/null)
[ -n "$boot" ] && [ "$boot" != "$(cat /proc/sys/kernel/random/boot_id)" ] &&
  echo '{"reason": "the machine was restarted"}' || echo "{}"
"""
_FREE_SCRIPT = """
locks=${JUPYTER_SKY_SLOTS:-/var/lib/jupyter_sky-slots}
[ -d "$locks" ] || locks=${JUPYTER_SKY_SLOTS:-/tmp/jupyter_sky-slots}
number=0 free=0
while [ "$number" -lt "$1" ]; do
  lock=$locks/$number
  # not locked for writing, so that two that look at once do not see each other
  { [ ! -e "$lock" ] || flock -s -n "$lock" true; } 2>/dev/null && free=$((free + 1))
  number=$((number + 1))
done
echo "$free"
"""
_RELEASE_SCRIPT = """
slot=$(sed -n 's/.*"remove": \\["[^"]*", "\\([^"]*\\)"\\].*/\\1/p' "$1/cleanup.json" 2>/dev/null)
alive() { [ -e "$1/alive" ] && ! flock -s -n "$1/alive" true; }
if alive "$1"; then
  pid=$(cat "$1/pid")
  kill -TERM "$pid"
  left=$(($2 * 20))
  while alive "$1" && [ "$left" -gt 0 ]; do left=$((left - 1)); sleep 0.05; done
  alive "$1" && kill -KILL "$pid" && sleep 0.5
fi
for mounted in "$1"/mounts/*; do # left where all processes were killed
  fusermount3 -u -z "$mounted" 2>/dev/null
done
rm -rf "$1"
# a supervisor that was killed leaves its slot; one that another cluster has taken since stays
[ -f "$slot" ] && flock -n "$slot" rm -f "$slot"
true
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of one machine that is ours, and what the machine has.

    Attributes
    ----------
    token : str
        Its name there.
    host : str
        The name of its machine, for people.
    private : str
        Where the other nodes reach it.
    directory, base, environment : str
        Folders there: of the cluster, of all that we keep, of engines' Python and packages.
    ready : bool
        Whether that environment is there.
    slot : int
        Which of the machine's slots it is.
    python, packages, offline, env
        What the owner of the machine says: see `SshHost`.
    uv, found, zstd : str
        Paths of what an environment can be made with, if they are there: an installer, a Python of
        this minor version, what unpacks in a fifth of gzip's time.
    glibc : str
        Such as ``glibc 2.36``.
    free : int
        Kilobytes of disk.
    """

    rank: int
    token: str
    host: str
    address: Address
    private: str = ""
    slots: int = 1
    python: str = ""
    packages: tuple[str, ...] = ()
    offline: bool = False
    env: dict[str, str] = field(default_factory=dict, hash=False)
    directory: str = ""
    base: str = ""
    slot: int = 0
    system: str = ""
    machine: str = ""
    libc: str = ""
    glibc: str = ""
    environment: str = ""
    ready: bool = False
    uv: str = ""
    found: str = ""
    zstd: str = ""
    free: int = 0

    @property
    def engine_python(self) -> str:
        """The path of the Python that its engines run in."""
        return f"{self.environment}/bin/python"

    @classmethod
    def load(cls, record: JsonObject) -> Slot:
        """Make it again from `asdict`, as read from JSON."""
        address = Address(**record["address"])
        return cls(**record | {"address": address, "packages": tuple(record["packages"])})

    def exports(self) -> str:
        """Return shell text that sets the machine's own environment."""
        import shlex

        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.env.items())


@cache
def _script() -> str:
    return TOOL_CHECK_SCRIPT + Path(__file__).with_name("slot_agent.sh").read_text()


def acquire_slot(node: Slot, note: JsonObject, host_key: str = "") -> Slot:
    """Take a slot of a machine, and look what is there; the same again gives the same one.

    Parameters
    ----------
    node
        What is known of it so far.
    note
        Left beside it: whose it is, for those who find it.
    host_key
        Private host key that a rented machine shows from now on.

    Raises
    ------
    SkyNoCapacity
        Every slot is taken.
    SkyBootstrapError
        The machine cannot hold a cluster.
    """
    wanted = environment_spec(node.python, node.packages)
    words = (node.token, str(node.slots), str(CLAIM_SECONDS), json.dumps(note))
    look = (node.exports(), wanted.key, wanted.python, node.python)
    answer = ssh.run(node.address, _script(), *words, *look, host_key)
    if answer.code:
        raise _acquire_error(node, answer)
    facts: dict[str, str] = {}
    for line in answer.text.splitlines():
        name, __, value = line.partition("=")
        facts[name] = value
    if facts.get("system") != "Linux":
        raise SkyBootstrapError(
            _("{where} runs {facts}").format(
                where=f"{node.host} ({node.address.name})",
                facts=facts.get("system") or _("no known system"),
            ),
            hint=_("engines on machines reached by SSH need Linux"),
        )
    return replace(
        node,
        directory=facts["directory"],
        base=facts["base"],
        slot=int(facts["slot"]),
        system=facts["system"],
        machine=facts["machine"],
        libc=facts.get("libc", "gnu"),
        glibc=facts["glibc"],
        environment=facts["environment"],
        ready="ready" in facts,
        uv=facts["uv"],
        found=facts.get("found", ""),
        zstd=facts.get("zstd", ""),
        free=int(facts["free"] or 0),
    )


def _acquire_error(node: Slot, answer: ssh.CommandResult) -> SkyError:
    """Return the error of a machine that gives no slot."""
    where = f"{node.host} ({node.address.name})"
    if answer.code == 75:
        some = "its slot is" if node.slots == 1 else f"all {node.slots} slots are"
        return SkyNoCapacity(
            _("{where}: {some} taken by other clusters").format(where=where, some=some)
        )
    if answer.code == 69:
        return SkyBootstrapError(f"{where}: {answer.err}", hint=REQUIREMENTS_HINT)
    if answer.code == 77:
        return SkyBootstrapError(
            _("{where}: this user cannot take slots in {err}").format(where=where, err=answer.err),
            hint=_(
                "whoever administers it can make a folder for them: sudo mkdir -m 1777 "
                "/var/lib/jupyter_sky-slots"
            ),
        )
    return slot_error(node, "no folder can be made there", answer.err)


def slot_error(node: Slot, what: str, errors: str) -> SkyBootstrapError:
    """Return an error about a machine, with the last that was said there."""
    where = f"{node.host} ({node.address.name})"
    if "No space left" in errors or "Disk quota exceeded" in errors:
        return SkyBootstrapError(
            _("{where}: the disk is full ({what})").format(where=where, what=what),
            hint=_("make room below {base}").format(base=node.base or _("~/.cache")),
        )
    last = "\n".join(errors.strip().splitlines()[-8:])
    return SkyBootstrapError(f"{where}: {what}" + (f":\n{last}" if last else ""))


def slot_state(node: Slot) -> JsonObject | None:
    """Say how a slot is: None while it is held, else its end (``time``, ``reason``) if known.

    Raises
    ------
    SkyUnreachable
        The machine does not answer.
    """
    text = ssh.run(node.address, _STATE_SCRIPT, node.directory, node.token, timeout=20).text
    if text.startswith("running"):
        return None
    try:
        return json.loads(text)
    except ValueError:  # it was cut off: that says nothing of the slot
        raise SkyUnreachable(
            _("{name} did not answer to the end").format(name=node.address.name)
        ) from None


def count_free_slots(address: Address, slots: int) -> int:
    """Return how many of a machine's slots nobody holds; it takes none.

    Raises
    ------
    SkyUnreachable
        The machine does not answer.
    """
    text = ssh.run(address, _FREE_SCRIPT, str(slots), timeout=20).text.strip()
    return int(text) if text.isdigit() else 0


def release_slots(nodes: Sequence[Slot]) -> None:
    """End what holds slots and all below it, and see that it is gone.

    Raises
    ------
    SkyUnreachable
        A machine does not answer.
    """

    def one(node: Slot) -> None:
        words = (node.directory, str(GRACE_SECONDS))
        if node.directory:
            ssh.run(node.address, _RELEASE_SCRIPT, *words, timeout=GRACE_SECONDS + 20)

    run_parallel([partial(one, node) for node in nodes])


def request_machine_shutdown(nodes: Sequence[Slot]) -> list[str]:
    """Let rented machines end themselves, where their cloud cannot be asked to; return which do."""

    def one(node: Slot) -> bool:
        try:
            return ssh.run(node.address, _SHUTDOWN_SCRIPT, timeout=20).code == 0
        except SkyUnreachable:
            return False

    told = run_parallel([partial(one, node) for node in nodes])
    return [node.host for node, heard in zip(nodes, told, strict=True) if heard]


def announce_stop(nodes: Sequence[Slot]) -> None:
    """Tell rented machines that they are stopped by a request, and started again later.

    Without that, one ends itself for good with its cluster.

    Raises
    ------
    SkyUnreachable
        A machine does not answer, or cannot be told.
    """

    def one(node: Slot) -> None:
        answer = ssh.run(node.address, _STOP_SCRIPT, *_places(node), timeout=30)
        if answer.code:
            raise SkyUnreachable(
                _("{host} cannot be told that it is to be kept: {error}").format(
                    host=node.host, error=answer.err
                )
            )

    run_parallel([partial(one, node) for node in nodes])


def withdraw_stop(nodes: Sequence[Slot]) -> None:
    """Tell machines that they are not stopped after all."""

    def one(node: Slot) -> None:
        ssh.run(node.address, _WITHDRAW_SCRIPT, *_places(node), timeout=20)

    run_parallel([partial(one, node) for node in nodes])


def confirm_start(nodes: Sequence[Slot]) -> None:
    """Let machines that were started again end with their cluster from now on.

    Before that, they outlive a cluster that could not be started, and can be stopped again.
    """

    def one(node: Slot) -> None:
        ssh.run(node.address, _CONFIRM_SCRIPT, node.directory, timeout=20)

    run_parallel([partial(one, node) for node in nodes])


def _places(node: Slot) -> tuple[str, str, str]:
    """Return the folder of a cluster on a node, the one that outlasts it, and its token."""
    return node.directory, node.base, node.token
