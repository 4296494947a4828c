"""``clusters/NAME/start``: stopped clusters, their cost, and their start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import StateConflict

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.clusters.clusters import ClusterRegistry
    from jupyter_sky.interfaces.server.service import SkyService


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


HANDLERS = [(r"clusters/([^/]+)/start", StartHandler)]
