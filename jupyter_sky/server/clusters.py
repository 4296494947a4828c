"""``clusters/NAME/...``: how one is, its end, its extension, the way into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SkyError, SkyUsageError
from .handler import NotNow, SkyHandler, authorized

if TYPE_CHECKING:
    from .desk import Desk

_NAME = r"clusters/([^/]+)"


def vitals(desk: Desk, name: str) -> dict[str, Any]:
    """Say how busy the nodes of a cluster are, and when it ends if nobody comes."""
    return desk.ask(desk.up(name), "vitals")


def down(desk: Desk, name: str) -> dict[str, Any]:
    """End a cluster; returns when its cloud has confirmed."""
    from ..executor.clusters import Clusters

    session = desk.session
    with desk.ending(name):
        if any(found["name"] == name for found in desk.seen.orphans):
            _end_orphan(desk, name)
            return {"ended": name, "place": "not in the store"}
        row = desk.cluster(name)
        if row.state not in ("up", "starting"):
            desk.up(name)  # says why it is not
        # one of its own: several may be ended at once
        known = Clusters(session.store, session.notebook, session.id)
        known.ender = "in the panel"
        try:
            ended = known.down(name)
        except SkyUsageError as error:
            raise NotNow(
                f"cluster {name} is being launched now: {error.message}",
                hint="stop the cell that launches it",
            ) from None
        return {"ended": name, "place": session.place(ended)}


def _end_orphan(desk: Desk, name: str) -> None:
    from .. import clouds
    from .patrol import strays

    machines = strays(desk.session).get(name, [])
    for cloud in {machine.cloud for machine in machines}:
        clouds.get(cloud).terminate([m.id for m in machines if m.cloud == cloud])
    left = tuple(found for found in desk.seen.orphans if found["name"] != name)
    desk.see(orphans=left)


def extended(desk: Desk, name: str, time: Any) -> dict[str, Any]:
    """Keep a cluster for some time from now on, be it used or not."""
    from ..executor.extension import extend
    from ..resources import parse_duration

    if not isinstance(time, str):
        raise SkyUsageError(f"time {time!r} is not understood", hint='such as {"time": "1h"}')
    seconds = parse_duration(time, "time")
    row = desk.up(name)
    left = extend(desk.session.store, row, seconds, lambda op, **more: desk.ask(row, op, **more))
    return {"idle_left": left}


def ssh(desk: Desk, name: str) -> dict[str, Any]:
    """Return the command that opens a shell on the head node of a cluster."""
    from ..provisioner.remote import shell_command

    row = desk.up(name)
    path = Path(row.connection["file"])
    if row.cloud == "local":
        folder = path.parents[1]
        raise NotNow(f"cluster {name} is on this machine: {folder}", hint="open a terminal here")
    try:
        return {"command": shell_command(path)}
    except (OSError, ValueError, KeyError):
        raise SkyError(f"what is noted of cluster {name} cannot be read: {path}") from None


def log(desk: Desk, name: str) -> dict[str, Any]:
    """Return the stages of the launch of a cluster, each with its seconds, as text."""
    from ..clouds.rented import records_of
    from ..provisioner.remote import STAGES
    from ..provisioner.stages import report

    row = desk.cluster(name)
    if file := row.connection.get("file"):
        folder = Path(file).parent
    else:
        folder = records_of().folder(row.connection.get("token", ""))
    text = report(folder / STAGES)
    if not text and row.cloud == "local":
        text = f"cluster {name} had no stages: it is on this machine\n"
    return {"text": text or "no stage has begun yet\n"}


class VitalsHandler(SkyHandler):
    """How busy its nodes are."""

    @authorized
    async def get(self, name: str) -> None:
        """Ask its head, which goes by nobody's looking."""
        self.desk.watchman.somebody_looks()
        await self.answer(vitals, self.desk, name)


class DownHandler(SkyHandler):
    """Its end."""

    @authorized
    async def post(self, name: str) -> None:
        """End it, and answer when it is gone."""
        await self.answer(down, self.desk, name)


class ExtendHandler(SkyHandler):
    """Its extension."""

    @authorized
    async def post(self, name: str) -> None:
        """Keep it: ``{"time": "1h"}``."""
        await self.answer(lambda: extended(self.desk, name, self.body().get("time")))


class SshHandler(SkyHandler):
    """The way into it."""

    @authorized
    async def get(self, name: str) -> None:
        """Return the command."""
        await self.answer(ssh, self.desk, name)


class LogHandler(SkyHandler):
    """Its launch."""

    @authorized
    async def get(self, name: str) -> None:
        """Return its stages."""
        await self.answer(log, self.desk, name)


HANDLERS = [
    (rf"{_NAME}/vitals", VitalsHandler),
    (rf"{_NAME}/down", DownHandler),
    (rf"{_NAME}/extend", ExtendHandler),
    (rf"{_NAME}/ssh", SshHandler),
    (rf"{_NAME}/log", LogHandler),
]
