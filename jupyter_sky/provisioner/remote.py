"""From slots of machines reached by SSH to a cluster, and the way to it, for every cloud."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from .. import ssh
from ..clouds.keeper import Node
from ..engines.guardian import write_private
from ..engines.logins import LOGIN_VARIABLE
from ..engines.package import minor_version
from ..engines.tunnel import Tunnel
from ..errors import SkyClusterLost, SkyError
from ..together import at_once
from .bootstrap import NOT_BEGUN, prepare
from .stages import Stages

START_SECONDS = 120.0
STAGES = "stages.jsonl"

_BEGIN = """
umask 077
cd {directory} && printf %s {config} >config.partial && mv config.partial config.json &&
  printf %s {go} >go.partial && mv go.partial go && printf . 1<>wake || exit {failed}
"""
_TELL = """
umask 077
mkdir -p "$1/security" && cd "$1/security" && cat >nurse.partial && mv nurse.partial nurse.json
"""
_AWAIT = """
ended() {
  cat "$HOME/.cache/jupyter_sky/ended/$1.json" 2>/dev/null || tail -n 8 head.log
  exit 71
}
cd "$1" || ended "$2"
left=$(($3 * 20))
until [ -s "security/$4" ]; do
  if [ $((left % 10)) -eq 0 ]; then
    [ -e alive ] || ended "$2" # and its folder is gone
    flock -s -n alive true && ended "$2"
  fi
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
    head, others = nodes[0], nodes[1:]
    config = {**config, "peers": [node.private or node.address.host for node in nodes]}
    path = folder / "link.json"

    def waiting() -> None:
        report("booting", "controller")

    def begun(node: Node) -> None:
        if node is head:
            _begun[path] = Tunnel(config["cluster"], _way(head))

    try:
        stages.begin("environment")
        prepare(nodes, stages.telling(report), _orders(nodes, config), begun)
        stages.begin("controller")
        waiting()
        if others:
            known = _await(head, "nurse.json", waiting)
            at_once([partial(_introduce, node, known) for node in others])
        client = _await(head, "client.json", waiting)
        link = {
            "cluster": config["cluster"],
            "node": asdict(head),
            "controller": json.loads(client),
        }
        write_private(path, link)
    except BaseException:
        if path in _begun:
            _begun.pop(path).close()
        raise
    stages.end()
    return path


def _orders(nodes: Sequence[Node], config: dict[str, Any]) -> dict[int, str]:
    """Say how to start the head, and a nurse on each of the other nodes."""
    head, others = nodes[0], nodes[1:]
    its = {"directory": head.directory, "gate": True, "private": head.private}
    if others:
        its["elsewhere"] = [node.rank for node in others]
    orders = {head.rank: _order(head, "jupyter_sky.engines.head", config | its)}
    for node in others:
        its = {"directory": node.directory, "rank": node.rank}
        orders[node.rank] = _order(node, "jupyter_sky.engines.nurse", config | its)
    return orders


def _order(node: Node, module: str, config: dict[str, Any]) -> str:
    """Give a node's keeper the order to go on: as the guardian of a module."""
    quote, python = shlex.quote, node.engine_python
    packages = f"{node.environment}/lib/python{minor_version()}/site-packages"
    guardian = f"{packages}/jupyter_sky/engines/guardian.py"
    command = [python, "-m", module, f"{node.directory}/config.json"]
    go = (
        f"{node.exports()}"
        f"export IPYTHONDIR={quote(node.directory)}/profile\n"
        f"export PATH={quote(str(Path(python).parent))}:$HOME/.local/bin:"
        f"{quote(node.base)}:$PATH\n"
        f"exec {shlex.join([python, '-I', '-S', guardian, node.directory, *command])}\n"
    )
    return _BEGIN.format(
        directory=quote(node.directory),
        config=quote(json.dumps(config)),
        go=quote(go),
        failed=NOT_BEGUN,
    )


def _introduce(node: Node, known: str) -> None:
    """Tell a nurse where the head is."""
    data = known.encode()
    answer = ssh.run(node.address, _TELL, node.directory, data=data, patience=ssh.HEAL_SECONDS)
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

_begun: dict[Path, Tunnel] = {}
"""Connections begun while their cluster started, until they are asked for."""


def _way(head: Node) -> list[str]:
    """Return the command that connects to the gate of a head node."""
    words = [head.engine_python, "-m", "jupyter_sky.engines.gate", "attach", head.directory]
    return [*head.address.command(), "exec " + shlex.join(words)]


def open_tunnel(path: Path) -> Tunnel | None:
    """Open the connection that a file describes; None where none is needed.

    Raises
    ------
    SkyUnreachable
        The machine cannot be reached; says why.
    """
    record = _record(path)
    if "node" not in record:
        return None
    node = _node(record, path)
    ssh.check_key(node.address)

    def explain(errors: str) -> SkyError:
        return ssh.explain(node.address, errors.replace(" | ", "\n"))

    tunnel = _begun.pop(path, None)
    if tunnel is not None and tunnel.ended:
        tunnel.close()
        tunnel = None
    if tunnel is None:
        tunnel = Tunnel(record["cluster"], _way(node))
    try:
        tunnel.lead_to(record["controller"], explain)
    except BaseException:
        tunnel.close()
        raise
    return tunnel


def _record(path: Path) -> dict[str, Any]:
    """Read what is noted of a cluster; raise ValueError where that is no record."""
    try:
        record = json.loads(path.read_text())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not an object")
    return record


def _node(record: dict[str, Any], path: Path) -> Node:
    try:
        node = Node.load(record["node"])
        texts = (record["cluster"], node.directory, node.environment)
        if not all(isinstance(text, str) for text in texts) or "controller" not in record:
            raise ValueError("not a record of a cluster")
    except (TypeError, ValueError, KeyError, AttributeError):
        raise SkyClusterLost(f"what is noted of a cluster cannot be read: {path}") from None
    return node


def shell_command(path: Path) -> str:
    """Return the command that opens a shell in a cluster's folder on its head node."""
    node = _node(_record(path), path)
    folder = shlex.quote(node.directory)
    # the head knows by the variable for which cluster somebody is there: a login keeps it up
    inside = f"cd {folder} && exec env {LOGIN_VARIABLE}={folder} $SHELL -l"
    return f"{ssh.manual(node.address).replace('ssh ', 'ssh -t ', 1)} {shlex.quote(inside)}"
