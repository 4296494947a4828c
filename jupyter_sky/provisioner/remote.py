"""From slots of machines reached by SSH to a cluster, and the way to it, for every cloud."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import ssh
from ..clouds.keeper import Node
from ..engines.guardian import write_private
from ..errors import SkyClusterLost, SkyError
from ..together import at_once
from .bootstrap import prepare
from .stages import Stages

if TYPE_CHECKING:
    from ..engines.tunnel import Tunnel

START_SECONDS = 120.0
STAGES = "stages.jsonl"

_GO = """
umask 077
cd "$1" || exit 1
cat >config.partial && mv config.partial config.json &&
  printf %s "$2" >go.partial && mv go.partial go || exit 74
"""
_TELL = """
umask 077
mkdir -p "$1/security" && cd "$1/security" || exit 1
cat >both && head -n 1 both >engine.partial && tail -n +2 both >nurse.partial && rm both &&
  mv engine.partial engine.json && mv nurse.partial nurse.json
"""
_AWAIT = """
cd "$1" || { cat "$HOME/.cache/jupyter_sky/ended/$2.json"; exit 71; }
left=$(($3 * 20))
until [ -s "security/$4" ]; do
  flock -s -n alive true && { tail -n 8 head.log; exit 71; }
  left=$((left - 1))
  [ "$left" -gt 0 ] || { tail -n 8 head.log; exit 72; }
  sleep 0.05
done
cat "security/$4"
"""


def bring_up(
    nodes: Sequence[Node],
    config: dict[str, Any],
    folder: Path,
    report: Callable[[str, str], None],
    stages: Stages,
) -> Path:
    """Make nodes ready and start the cluster on them; return the file that says how to reach it.

    Parameters
    ----------
    nodes
        By rank; the first one is the head node.
    config
        For the head.
    folder
        Where the cluster is noted on this machine.
    report
        Called with ``booting`` and what is being done.
    stages
        Where it is written down how long everything takes.
    """
    pythons = _staged(stages, report, lambda stage: prepare(nodes, stage))
    head = nodes[0]
    config = {**config, "peers": [node.private or node.address.host for node in nodes]}
    stages.begin("controller")
    report("booting", "controller")
    more: dict[str, Any] = {"directory": head.directory, "gate": True, "private": head.private}
    if len(nodes) > 1:
        more["elsewhere"] = [node.rank for node in nodes[1:]]
    _start_all(nodes, pythons, config, more)

    def waiting() -> None:
        report("booting", "controller")

    text = _await(head, "client.json", waiting)
    if len(nodes) > 1:
        known = _await(head, "nurse.json", waiting)
        at_once([partial(_introduce, node, known) for node in nodes[1:]])
    path = folder / "link.json"
    write_private(
        path,
        {
            "cluster": config["cluster"],
            "node": asdict(head),
            "python": pythons[0],
            "controller": json.loads(text),
        },
    )
    stages.end()
    return path


def _staged(
    stages: Stages, report: Callable[[str, str], None], work: Callable[[Callable], dict[int, str]]
) -> dict[int, str]:
    stages.begin("environment")

    return work(stages.telling(report))


def _go(node: Node, python: str, module: str, config: dict[str, Any]) -> None:
    """Give a keeper the order to go on: as the guardian of a module."""
    site = f"{Path(python).parents[1]}/lib"
    guardian = f"$(echo {shlex.quote(site)}/python*/site-packages)/jupyter_sky/engines/guardian.py"
    config_path = f"{node.directory}/config.json"
    command = shlex.join([python, "-m", module, config_path])
    go = (
        f"{node.exports()}"
        f"export IPYTHONDIR={shlex.quote(node.directory)}/profile\n"
        "export PYDEVD_DISABLE_FILE_VALIDATION=1\n"
        f"export PATH={shlex.quote(str(Path(python).parent))}:$HOME/.local/bin:"
        f"{shlex.quote(node.base)}:$PATH\n"
        f'exec {shlex.quote(python)} -I -S "{guardian}" {shlex.quote(node.directory)} {command}\n'
    )
    data = json.dumps(config).encode()
    answer = ssh.run(node.address, _GO, node.directory, go, data=data, patience=ssh.HEAL_SECONDS)
    if answer.code:
        raise SkyClusterLost(f"{node.host}: the cluster cannot be started: {answer.err}")


def _start_all(
    nodes: Sequence[Node], pythons: dict[int, str], config: dict[str, Any], more: dict[str, Any]
) -> None:
    """Start the head, and a nurse on each of the other nodes, all at once."""

    def one(node: Node) -> None:
        if node is nodes[0]:
            _go(node, pythons[0], "jupyter_sky.engines.head", config | more)
            return
        own = {"directory": node.directory, "rank": node.rank}
        _go(node, pythons[node.rank], "jupyter_sky.engines.nurse", config | own)

    at_once([partial(one, node) for node in nodes])


def _introduce(node: Node, known: str) -> None:
    """Tell a nurse and its engine where the head is."""
    engine = json.dumps(json.loads(known)["engine"])
    both = f"{engine}\n{known}".encode()
    answer = ssh.run(node.address, _TELL, node.directory, data=both, patience=ssh.HEAL_SECONDS)
    if answer.code:
        raise SkyClusterLost(f"{node.host}: it cannot be told where the head is: {answer.err}")


def _await(node: Node, name: str, meanwhile: Callable[[], None]) -> str:
    """Wait for a file of the controller's and return it."""
    words = (node.directory, node.token, str(int(START_SECONDS)), name)
    answer = ssh.run(
        node.address,
        _AWAIT,
        *words,
        timeout=START_SECONDS + 30,
        meanwhile=meanwhile,
        patience=ssh.HEAL_SECONDS,
    )
    if answer.code == 0:
        return answer.text
    said = answer.text.strip()
    if said.startswith("{"):
        said = json.loads(said).get("reason", said)
    what = "has ended" if answer.code == 71 else f"did not start within {START_SECONDS:g} s"
    raise SkyClusterLost(f"the controller on {node.host} {what}: {said}")


# -- the way to it ------------------------------------------------------------------------------


def open_tunnel(path: Path) -> Tunnel | None:
    """Open the connection that a file describes; None where none is needed.

    Raises
    ------
    SkyUnreachable
        The machine cannot be reached; says why.
    """
    from ..engines.tunnel import Tunnel

    record = json.loads(path.read_text())
    if "node" not in record:
        return None
    node = Node.load(record["node"])
    ssh.check_key(node.address)
    words = [record["python"], "-m", "jupyter_sky.engines.gate", "attach", node.directory]
    command = [*node.address.command(), "exec " + shlex.join(words)]

    def explain(errors: str) -> SkyError:
        return ssh.explain(node.address, errors.replace(" | ", "\n"))

    return Tunnel(record["cluster"], command, record["controller"], explain)


def shell_command(path: Path) -> str:
    """Return the command that opens a shell in a cluster's folder on its head node."""
    node = Node.load(json.loads(path.read_text())["node"])
    inside = f"cd {shlex.quote(node.directory)} && exec $SHELL -l"
    return f"{ssh.manual(node.address).replace('ssh ', 'ssh -t ', 1)} {shlex.quote(inside)}"
