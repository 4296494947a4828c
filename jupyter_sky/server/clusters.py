"""``clusters/NAME/...``: how one is, its end, its extension, the way into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SkyError, SkyUsageError
from .handler import SkyHandler, StateConflict, authorized

if TYPE_CHECKING:
    from .desk import SkyService

_NAME = r"clusters/([^/]+)"


def get_metrics(desk: SkyService, name: str) -> dict[str, Any]:
    """Say how busy the nodes of a cluster are, and when it ends if nobody comes."""
    return desk.ask(desk.live_cluster(name), "vitals")


def end_cluster(desk: SkyService, name: str) -> dict[str, Any]:
    """End a cluster; returns when its cloud has confirmed."""
    from ..executor.clusters import ClusterRegistry

    session = desk.session
    with desk.ending(name):
        if any(found["name"] == name for found in desk.snapshot.orphans):
            _end_orphaned_machines(desk, name)
            return {"ended": name, "place": "not in the store"}
        row = desk.cluster(name)
        if row.state not in ("up", "starting"):
            desk.live_cluster(name)  # says why it is not
        # one of its own: several may be ended at once
        known = ClusterRegistry(session.store, session.notebook, session.id)
        known.end_initiator = "in the panel"
        try:
            ended = known.terminate(name)
        except SkyUsageError as error:
            raise StateConflict(
                f"cluster {name} is being launched now: {error.message}",
                hint="stop the cell that launches it",
            ) from None
        return {"ended": name, "place": session.describe_place(ended)}


def _end_orphaned_machines(desk: SkyService, name: str) -> None:
    from .. import clouds
    from .patrol import orphaned_machines

    machines = orphaned_machines(desk.session).get(name, [])
    for cloud in {machine.cloud for machine in machines}:
        clouds.get(cloud).terminate([m.id for m in machines if m.cloud == cloud])
    left = tuple(found for found in desk.snapshot.orphans if found["name"] != name)
    desk.update_snapshot(orphans=left)


def extend_cluster(desk: SkyService, name: str, time: Any) -> dict[str, Any]:
    """Keep a cluster for some time from now on, be it used or not."""
    from ..executor.extension import extend_cluster
    from ..resources import parse_duration

    if not isinstance(time, str):
        raise SkyUsageError(f"time {time!r} is not understood", hint='such as {"time": "1h"}')
    seconds = parse_duration(time, "time")
    row = desk.live_cluster(name)
    left = extend_cluster(
        desk.session.store, row, seconds, lambda op, **more: desk.ask(row, op, **more)
    )
    return {"idle_left": left}


def get_ssh_command(desk: SkyService, name: str) -> dict[str, Any]:
    """Return the command that opens a shell on the head node of a cluster."""
    from ..provisioner.remote import shell_command

    row = desk.live_cluster(name)
    path = Path(row.connection["file"])
    if row.cloud == "local":
        folder = path.parents[1]
        raise StateConflict(
            f"cluster {name} is on this machine: {folder}", hint="open a terminal here"
        )
    try:
        return {"command": shell_command(path)}
    except (OSError, ValueError, KeyError):
        raise SkyError(f"what is noted of cluster {name} cannot be read: {path}") from None


def get_launch_log(desk: SkyService, name: str) -> dict[str, Any]:
    """Return the stages of the launch of a cluster, each with its seconds, as text."""
    from ..clouds.rented import launch_records
    from ..provisioner.remote import STAGES
    from ..provisioner.stages import format_stages

    row = desk.cluster(name)
    if file := row.connection.get("file"):
        folder = Path(file).parent
    else:
        folder = launch_records().folder(row.connection.get("token", ""))
    text = format_stages(folder / STAGES)
    if not text and row.cloud == "local":
        text = f"cluster {name} had no stages: it is on this machine\n"
    return {"text": text or "no stage has begun yet\n"}


class MetricsHandler(SkyHandler):
    """How busy its nodes are."""

    @authorized
    async def get(self, name: str) -> None:
        """Ask its head, which goes by nobody's looking."""
        self.desk.poller.touch()
        await self.answer(get_metrics, self.desk, name)


class DownHandler(SkyHandler):
    """Its end."""

    @authorized
    async def post(self, name: str) -> None:
        """End it, and answer when it is gone."""
        await self.answer(end_cluster, self.desk, name)


class ExtendHandler(SkyHandler):
    """Its extension."""

    @authorized
    async def post(self, name: str) -> None:
        """Keep it: ``{"time": "1h"}``."""
        await self.answer(lambda: extend_cluster(self.desk, name, self.body().get("time")))


class SshHandler(SkyHandler):
    """The way into it."""

    @authorized
    async def get(self, name: str) -> None:
        """Return the command."""
        await self.answer(get_ssh_command, self.desk, name)


class LaunchLogHandler(SkyHandler):
    """Its launch."""

    @authorized
    async def get(self, name: str) -> None:
        """Return its stages."""
        await self.answer(get_launch_log, self.desk, name)


HANDLERS = [
    (rf"{_NAME}/vitals", MetricsHandler),
    (rf"{_NAME}/down", DownHandler),
    (rf"{_NAME}/extend", ExtendHandler),
    (rf"{_NAME}/ssh", SshHandler),
    (rf"{_NAME}/log", LaunchLogHandler),
]
