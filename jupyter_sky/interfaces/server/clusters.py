"""``clusters/NAME/...``: metrics, end, extension, SSH command and launch log of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import StateConflict
from jupyter_sky.machines.engines.wire.controller_requests import ReadMetrics

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.clusters.clusters import ClusterRegistry
    from jupyter_sky.interfaces.server.service import SkyService


_NAME = r"clusters/([^/]+)"


def get_metrics(service: SkyService, name: str) -> dict[str, Any]:
    """Return the load of a cluster's nodes, and the time left until it ends if unused."""
    return service.ask(service.live_cluster(name), ReadMetrics()).encode()


def end_cluster(service: SkyService, name: str) -> dict[str, Any]:
    """End a cluster; returns when its cloud has confirmed."""
    from jupyter_sky.execution.clusters.cluster_records import describe_place
    from jupyter_sky.execution.clusters.clusters import ClusterRegistry

    session = service.session
    with service.ending(name):
        if any(found["name"] == name for found in service.snapshot.orphans):
            _end_orphaned_machines(service, name)
            return {"ended": name, "place": _("not in the store")}
        row = service.cluster(name)
        if row.state not in ("up", "starting", "stopped"):
            service.live_cluster(name)  # says why it is not
        # one of its own: several may be ended at once
        known = ClusterRegistry(session.store, session.notebook, session.id)
        known.records.end_initiator = _("in the panel")
        try:
            ended = known.terminate(name)
        except SkyUsageError as error:
            raise StateConflict(
                _("cluster {name} is being launched now: {message}").format(
                    name=name, message=error.message
                ),
                hint=_("stop the cell that launches it"),
            ) from None
        return {"ended": name, "place": describe_place(ended)}


def _end_orphaned_machines(service: SkyService, name: str) -> None:
    from jupyter_sky import clouds
    from jupyter_sky.interfaces.server.reconciliation import orphaned_machines

    machines = orphaned_machines(service.session).get(name, [])
    for cloud in {machine.cloud for machine in machines}:
        clouds.get(cloud).terminate([m.id for m in machines if m.cloud == cloud])
    left = tuple(found for found in service.snapshot.orphans if found["name"] != name)
    service.update_snapshot(orphans=left)


def extend_cluster(service: SkyService, name: str, time: Any) -> dict[str, Any]:
    """Keep a cluster for some time from now on, used or not."""
    from jupyter_sky.base.requests.resources import parse_duration
    from jupyter_sky.execution.sessions.extension import extend_cluster

    if not isinstance(time, str):
        raise SkyUsageError(
            _("time {time!r} is not understood").format(time=time), hint=_('such as {"time": "1h"}')
        )
    seconds = parse_duration(time, "time")
    row = service.live_cluster(name)
    left = extend_cluster(
        service.session.store, row, seconds, lambda request: service.ask(row, request)
    )
    return {"idle_left": left}


def get_ssh_command(service: SkyService, name: str) -> dict[str, Any]:
    """Return the command that opens a shell on the head node of a cluster."""
    from jupyter_sky.machines.provisioner.ssh_launch import shell_command

    row = service.live_cluster(name)
    path = Path(row.connection["file"])
    if runs_here(row.cloud):
        folder = path.parents[1]
        raise StateConflict(
            _("cluster {name} is on this machine: {folder}").format(name=name, folder=folder),
            hint=_("open a terminal here"),
        )
    try:
        return {"command": shell_command(path)}
    except (OSError, ValueError, KeyError):
        raise SkyError(
            _("what is noted of cluster {name} cannot be read: {path}").format(name=name, path=path)
        ) from None


def get_launch_log(service: SkyService, name: str) -> dict[str, Any]:
    """Return the stages of the launch of a cluster, each with its seconds, as text."""
    from jupyter_sky.clouds.launches.machine_records import launch_records
    from jupyter_sky.machines.provisioner.launch_stages import format_stages
    from jupyter_sky.machines.provisioner.ssh_launch import STAGES

    row = service.cluster(name)
    if file := row.connection.get("file"):
        folder = Path(file).parent
    else:
        folder = launch_records().folder(row.connection.get("token", ""))
    text = format_stages(folder / STAGES)
    if not text and runs_here(row.cloud):
        text = _("{name} runs on this machine: nothing had to be launched\n").format(name=name)
    return {"text": text or _("no stage has begun yet\n")}


class MetricsHandler(SkyHandler):
    """Handler of the metrics of a cluster's nodes."""

    @authorized
    async def get(self, name: str) -> None:
        """Ask its controller; this does not count as use."""
        self.service.poller.touch()
        await self.answer(get_metrics, self.service, name)


class DownHandler(SkyHandler):
    """Handler that ends a cluster."""

    @authorized
    async def post(self, name: str) -> None:
        """End the cluster, and answer when it is gone."""
        await self.answer(end_cluster, self.service, name)


class ExtendHandler(SkyHandler):
    """Handler that extends a cluster."""

    @authorized
    async def post(self, name: str) -> None:
        """Keep the cluster: ``{"time": "1h"}``."""
        await self.answer(lambda: extend_cluster(self.service, name, self.body().get("time")))


class SshHandler(SkyHandler):
    """Handler of the SSH command of a cluster."""

    @authorized
    async def get(self, name: str) -> None:
        """Return the command."""
        await self.answer(get_ssh_command, self.service, name)


class LaunchLogHandler(SkyHandler):
    """Handler of the launch log of a cluster."""

    @authorized
    async def get(self, name: str) -> None:
        """Return the stages of the launch."""
        await self.answer(get_launch_log, self.service, name)


# -- ``clusters/NAME/start``: stopped clusters, their cost, and their start -----------------------


def start_stopped_cluster(service: SkyService, name: str) -> dict[str, Any]:
    """Begin to start a stopped cluster; the state tells how it goes on.

    A launch takes longer than browsers and proxies wait for an answer.
    """
    from jupyter_sky.execution.clusters.clusters import ClusterRegistry
    from jupyter_sky.execution.clusters.stopped_clusters import find_startable

    service.cluster(name)  # says that it is not known
    session = service.session
    # one of its own: several may be started at once
    known = ClusterRegistry(session.store, session.notebook, session.id)
    service.begin_start(name)
    try:
        row = find_startable(known, name)
    except BaseException as error:
        service.end_start(name)
        if isinstance(error, SkyUsageError):
            raise StateConflict(error.message, hint=error.hint) from None
        raise
    service.begin(_start, service, known, row)
    return {"starting": name}


def _start(service: SkyService, known: ClusterRegistry, row: ClusterRow) -> None:
    """Start a cluster to the end, and note its stages; a failure is noted, too."""
    from jupyter_sky.execution.clusters.stopped_clusters import start_cluster

    def report(stage: str, detail: str) -> None:
        if service.closed.is_set():
            raise SkyCancelled(_("the Jupyter server has ended"))
        if detail:
            service.note_start(row.name, detail)

    failure = ""
    try:
        start_cluster(known, row, report)
    except SkyError as error:
        failure = " ".join(filter(None, [error.message, error.hint]))
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        known.disconnect(row.name)
        service.end_start(row.name, failure and _("not started: {why}").format(why=failure))


class StartHandler(SkyHandler):
    """Handler that starts a stopped cluster."""

    @authorized
    async def post(self, name: str) -> None:
        """Begin to start the cluster."""
        await self.answer(start_stopped_cluster, self.service, name)


HANDLERS = [
    (rf"{_NAME}/metrics", MetricsHandler),
    (rf"{_NAME}/down", DownHandler),
    (rf"{_NAME}/extend", ExtendHandler),
    (rf"{_NAME}/ssh", SshHandler),
    (rf"{_NAME}/log", LaunchLogHandler),
    (r"clusters/([^/]+)/start", StartHandler),
]
