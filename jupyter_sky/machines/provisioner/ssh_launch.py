"""Launch of a cluster on slots of machines reached by SSH, and its tunnel, for every cloud."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyClusterLost, SkyError
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.environment_spec import python_minor_version
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.machines.engines.client.tunnel import Tunnel
from jupyter_sky.machines.engines.controller.logins import LOGIN_VARIABLE
from jupyter_sky.machines.provisioner.bootstrap import NOT_STARTED, prepare
from jupyter_sky.machines.provisioner.launch_stages import LaunchStages

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.client.connection import ClusterConnection

START_SECONDS = 120.0
STAGES = "stages.jsonl"

_START_SCRIPT = """
umask 077
cd {directory} && printf %s {config} >config.partial && mv config.partial config.json &&
  printf %s {go} >go.partial && mv go.partial go && printf . 1<>wake || exit {failed}
"""
_SEND_FILE_SCRIPT = """
umask 077
mkdir -p "$1/security" && cd "$1/security" && cat >agents.partial && mv agents.partial agents.json
"""
_AWAIT_FILE_SCRIPT = """
ended() {
  cat "$HOME/.cache/jupyter_sky/ended/$1.json" 2>/dev/null || tail -n 8 controller.log
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
  [ "$left" -gt 0 ] || { tail -n 8 controller.log; exit 72; }
  sleep 0.05
done
cat "security/$4"
"""


def start_cluster(
    nodes: Sequence[Slot],
    config: dict[str, Any],
    folder: Path,
    report: Callable[[str, str], None],
    stages: LaunchStages,
) -> Path:
    """Make nodes ready and start the cluster on them; return its connection file.

    Parameters
    ----------
    nodes
        Slots by rank; the first one is the head node.
    config
        Configuration of the controller.
    folder
        Folder of the cluster's record on this machine.
    report
        Called with ``booting`` and the current stage.
    stages
        Log of the stages with their times.
    """
    head, others = nodes[0], nodes[1:]
    config = {**config, "peers": [node.private or node.address.host for node in nodes]}
    path = folder / "link.json"

    def report_waiting() -> None:
        report("booting", "controller")

    def open_tunnel_early(node: Slot) -> None:
        if node is head:
            _open_tunnels[path] = Tunnel(config["cluster"], _tunnel_command(head))

    try:
        stages.begin("environment")
        prepare(
            nodes, stages.report_callback(report), _start_commands(nodes, config), open_tunnel_early
        )
        stages.begin("controller")
        report_waiting()
        if others:
            address = _await_file(head, "agents.json", report_waiting)
            run_parallel([partial(_send_controller_address, node, address) for node in others])
        controller = json.loads(_await_file(head, "client.json", report_waiting))
        record = {"cluster": config["cluster"], "node": asdict(head), "controller": controller}
        write_private(path, record)
    except BaseException:
        if path in _open_tunnels:
            _open_tunnels.pop(path).close()
        raise
    stages.end()
    return path


def _start_commands(nodes: Sequence[Slot], config: dict[str, Any]) -> dict[int, str]:
    """Return the commands that start the controller, and a node agent on each other node."""
    head, others = nodes[0], nodes[1:]
    settings = {"directory": head.directory, "tunnel": True, "private": head.private}
    if others:
        settings["elsewhere"] = [node.rank for node in others]
    commands = {
        head.rank: _start_command(
            head, "jupyter_sky.machines.engines.controller", config | settings
        )
    }
    for node in others:
        settings = {"directory": node.directory, "rank": node.rank}
        commands[node.rank] = _start_command(
            node, "jupyter_sky.machines.engines.node.node_agent", config | settings
        )
    return commands


def _start_command(node: Slot, module: str, config: dict[str, Any]) -> str:
    """Return the command that makes a node's slot agent start a module under a supervisor."""
    quote, python = shlex.quote, node.engine_python
    packages = f"{node.environment}/lib/python{python_minor_version()}/site-packages"
    supervisor = f"{packages}/jupyter_sky/base/remote/supervisor.py"
    command = [python, "-m", module, f"{node.directory}/config.json"]
    go = (
        f"{node.exports()}"
        f"export IPYTHONDIR={quote(node.directory)}/profile\n"
        f"export PATH={quote(str(Path(python).parent))}:$HOME/.local/bin:"
        f"{quote(node.base)}:$PATH\n"
        f"exec {shlex.join([python, '-I', '-S', supervisor, node.directory, *command])}\n"
    )
    return _START_SCRIPT.format(
        directory=quote(node.directory),
        config=quote(json.dumps(config)),
        go=quote(go),
        failed=NOT_STARTED,
    )


def _send_controller_address(node: Slot, address: str) -> None:
    """Send the controller's address to a node agent."""
    data = address.encode()
    answer = ssh.run(
        node.address, _SEND_FILE_SCRIPT, node.directory, data=data, patience=ssh.RECONNECT_SECONDS
    )
    if answer.code:
        raise SkyClusterLost(
            _("{host}: could not send the controller's address: {err}").format(
                host=node.host, err=answer.err
            )
        )


def _await_file(node: Slot, name: str, meanwhile: Callable[[], None]) -> str:
    """Wait for a file of the controller; return its contents."""
    arguments = (node.directory, node.token, str(int(START_SECONDS)), name)
    answer = ssh.run(
        node.address,
        _AWAIT_FILE_SCRIPT,
        *arguments,
        timeout=START_SECONDS + 30,
        meanwhile=meanwhile,
        patience=ssh.RECONNECT_SECONDS,
    )
    if answer.code == 0:
        return answer.text
    message = answer.text.strip()
    if message.startswith("{"):
        message = json.loads(message).get("reason", message)
    outcome = "has ended" if answer.code == 71 else f"did not start within {START_SECONDS:g} s"
    raise SkyClusterLost(
        _("the controller on {host} {outcome}: {message}").format(
            host=node.host, outcome=outcome, message=message
        )
    )


# -- tunnels ------------------------------------------------------------------------------------

_open_tunnels: dict[Path, Tunnel] = {}
"""Connections begun while their cluster started, until they are asked for."""


def _tunnel_command(head: Slot) -> list[str]:
    """Return the command that connects to the tunnel server of a head node."""
    command = [
        head.engine_python,
        "-m",
        "jupyter_sky.machines.engines.controller.tunnel_server",
        "attach",
        head.directory,
    ]
    return [*head.address.command(), "exec " + shlex.join(command)]


def open_tunnel(path: Path) -> Tunnel | None:
    """Open the connection that a file describes; None where none is needed.

    Raises
    ------
    SkyUnreachable
        The machine cannot be reached; the message says why.
    """
    record = _read_record(path)
    if "node" not in record:
        return None
    node = _load_slot(record, path)
    ssh.check_key(node.address)

    def explain(errors: str) -> SkyError:
        return ssh.explain_failure(node.address, errors.replace(" | ", "\n"))

    tunnel = _open_tunnels.pop(path, None)
    if tunnel is not None and tunnel.has_ended:
        tunnel.close()
        tunnel = None
    if tunnel is None:
        tunnel = Tunnel(record["cluster"], _tunnel_command(node))
    try:
        tunnel.connect_to(record["controller"], explain)
    except BaseException:
        tunnel.close()
        raise
    return tunnel


def _read_record(path: Path) -> dict[str, Any]:
    """Read the record of a cluster; raise ValueError if it is invalid."""
    try:
        record = json.loads(path.read_text())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not an object")
    return record


def _load_slot(record: dict[str, Any], path: Path) -> Slot:
    try:
        node = Slot.load(record["node"])
        texts = (record["cluster"], node.directory, node.environment)
        if not all(isinstance(text, str) for text in texts) or "controller" not in record:
            raise ValueError("not a record of a cluster")
    except (TypeError, ValueError, KeyError, AttributeError):
        raise SkyClusterLost(
            _("the record of the cluster cannot be read: {path}").format(path=path)
        ) from None
    return node


def shell_command(path: Path, node: Slot | None = None, command: str = "") -> str:
    """Return the command that opens a shell in a cluster's folder on one of its nodes.

    Parameters
    ----------
    path
        Connection file of the cluster.
    node
        The node; the head unless given.
    command
        To run there in place of a shell.
    """
    node = node or _load_slot(_read_record(path), path)
    folder = shlex.quote(node.directory)
    # by the variable the controller knows that a login is for this cluster, and keeps it up
    inside = f"cd {folder} && exec env {LOGIN_VARIABLE}={folder} "
    inside += f"$SHELL -lc {shlex.quote(command)}" if command else "$SHELL -l"
    login = ssh.manual_command(node.address)
    if not command:
        login = login.replace("ssh ", "ssh -t ", 1)
    return f"{login} {shlex.quote(inside)}"


def open_connection(path: Path, cluster: str) -> tuple[Tunnel | None, ClusterConnection]:
    """Connect to the cluster that a file describes; return its tunnel too, if it needs one.

    Raises
    ------
    SkyClusterLost
        Its controller has just ended.
    """
    from jupyter_sky.machines.engines.client.connection import ClusterConnection

    try:
        tunnel = open_tunnel(path)
    except FileNotFoundError as error:
        raise SkyClusterLost(
            _("cluster {cluster} does not answer").format(cluster=cluster)
        ) from error
    if tunnel is None:
        return None, ClusterConnection(cluster, path)
    try:
        connection = ClusterConnection(cluster, tunnel.connection)
    except BaseException:
        tunnel.close()
        raise
    connection.down_reason = lambda: "" if tunnel.is_up else tunnel.down_reason or "connecting"
    return tunnel, connection
