"""State, cost report and the day's budget.

``GET state``, ``GET cost``, ``GET cost.csv``, ``GET`` and ``PUT budget``.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized

if TYPE_CHECKING:
    from jupyter_sky.interfaces.server.service import SkyService
    from jupyter_sky.knowledge.ledger.report import CostReport

RETRY_SECONDS = 10.0
"""Period at which the server looks for a store, from its start until there is one."""


def enforce_budget(service: SkyService) -> None:
    """Enforce the day's budget in this server as notebooks do, as soon as there is a store.

    Its session has a budget monitor. Nobody need have the panel open, and no kernel need live.
    """

    def wait() -> None:
        from jupyter_sky.base.settings.settings import Sky

        while not service.closed.wait(RETRY_SECONDS):
            with suppress(SkyError):
                service.configure()
                if (Path(Sky.load().data_dir) / "sky.db").exists():
                    assert service.session
                    return

    threading.Thread(target=wait, name="sky-budget", daemon=True).start()


class StateHandler(SkyHandler):
    """Handler of the state: all of it, or 304 where the front end has it already."""

    _etag: str | None = None

    def compute_etag(self) -> str | None:
        """Return the cursor of the answer: it need not be computed of its text."""
        return self._etag

    @authorized
    async def get(self) -> None:
        """Answer from the store alone: no cloud and no cluster is asked."""
        try:
            cursor = await self.service.run_in_thread(self.service.cursor)
            self.service.poller.touch()
            known = self.request.headers.get("If-None-Match", "")
            if known.removeprefix("W/").strip('"') == cursor:
                self.set_status(304)
                self.finish()
                return
            state = await self.service.run_in_thread(self.service.overview)
        except SkyError as error:
            self.refuse(error)
            return
        self._etag = f'"{state["cursor"]}"'
        self.finish(json.dumps(state))


class _CostHandler(SkyHandler):
    """Base of the handlers of the bill."""

    def bill(self) -> CostReport:
        """Return the cost report for ``?by=day&since=7d&notebook=PATH``.

        Raises
        ------
        SkyUsageError
            There is no such grouping, or no such time.
        """
        from jupyter_sky.knowledge.ledger.report import make_report, parse_by, parse_since

        by = parse_by(self.get_query_argument("by", "cell"))
        since = parse_since(self.get_query_argument("since", "all"))
        notebook = self.get_query_argument("notebook", "") or None
        return make_report(self.service.session.store, notebook, by, since)


class CostHandler(_CostHandler):
    """Handler of the cost report."""

    @authorized
    async def get(self) -> None:
        """Answer as `Bill.to_dict` has it."""
        await self.answer(lambda: self.bill().to_dict())


class CsvHandler(_CostHandler):
    """Handler of the cost report as a CSV file."""

    @authorized
    async def get(self) -> None:
        """Answer all lines."""
        try:
            bill = await self.service.run_in_thread(self.bill)
        except SkyError as error:
            self.refuse(error)
            return
        self.set_header("Content-Disposition", f'attachment; filename="{bill.file_name}"')
        self.finish(bill.to_csv(), set_content_type="text/csv; charset=utf-8")


class BudgetHandler(SkyHandler):
    """Handler of the day's budget."""

    @authorized
    async def get(self) -> None:
        """Answer how the day stands."""
        await self.answer(self._found)

    @authorized
    async def put(self) -> None:
        """Set it: ``{"usd": 20}``, or null for no limit."""
        await self.answer(self._set)

    def _set(self) -> dict[str, Any]:
        from jupyter_sky.knowledge.ledger import budget

        usd = budget.parse_budget(self.body())
        self.service.session.clusters.budget_monitor.set_budget(usd, _("the Cost panel"))
        return self._found()

    def _found(self) -> dict[str, Any]:
        from jupyter_sky.knowledge.ledger import budget
        from jupyter_sky.knowledge.ledger.report import budget_dict

        return budget_dict(budget.assess(self.service.session.store))


HANDLERS = [
    ("state", StateHandler),
    ("cost", CostHandler),
    (r"cost\.csv", CsvHandler),
    ("budget", BudgetHandler),
]
