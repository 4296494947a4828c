"""Users of the chaos whose money for the day runs out while their cell runs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from chaos_checks import UNIT_SECONDS
from chaos_environment import Home

from tests.conftest import Notebook
from tests.emulators.multi_cloud import EmulatedClouds

MORE_SECONDS = 40.0
"""For so much longer there is money when the budget is set."""
TOLD_SECONDS = 10.0
"""Within this time the controller knows how long the money lasts."""
UP_SECONDS, END_SECONDS = 120.0, 240.0
LEASE = {"SKY_LEASE": "400s", "SKY_IDLE": "10m", "SKY_HEARTBEAT_TIMEOUT": "10m"}
"""Nothing but the budget ends their clusters in time."""


@dataclass
class Miser:
    """A user with a budget and a data directory of their own.

    Attributes
    ----------
    stays : bool
        Whether the kernel lives when the money has run out; else only the controller is there.
    over_usd : float
        By how much the cloud's bill has passed the budget and what its stated grace costs.
    words : str
        How it went.
    """

    world: EmulatedClouds
    home: Home
    number: int
    stays: bool
    over_usd: float = 0.0
    words: str = "did not run"

    def start(self) -> threading.Thread:
        """Begin, in a thread."""
        thread = threading.Thread(target=self._go)
        thread.start()
        return thread

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.home.root / f"own{self.number}"

    def _go(self) -> None:
        try:
            self._spend()
        except Exception as error:  # of the harness: it counts against us
            self.over_usd, self.words = float("inf"), f"{type(error).__name__}: {error}"

    def _spend(self) -> None:
        from jupyter_sky.base.store.store import Store
        from jupyter_sky.knowledge.ledger.budget import GRACE_SECONDS

        folder = self.home.root / f"miser{self.number}"
        folder.mkdir()
        env = {**self.home.env, **LEASE, "SKY_DATA_DIR": str(self.home.own_data(self.number))}
        book = Notebook(folder, env, "miser.ipynb")
        try:
            line = f"%%sky --cloud aws --cpus 2 -c miser{self.number} --bg --name long"
            book.run(f"{line}\nimport time\ntime.sleep(900)")
            store, deadline = Store.open(self.data), time.monotonic() + UP_SECONDS
            while not (rows := store.clusters()):
                assert time.monotonic() < deadline, "its cluster is not up"
                time.sleep(0.5)
            price, begun = rows[0].price or 0.0, store.intervals()[0].started
            lasted = max(time.time() - begun, UNIT_SECONDS)  # so much is billed at the least
            budget = price / 3600 * (lasted + MORE_SECONDS)
            ran = book.run(f"%config Sky.budget_usd_day = {budget!r}")
            assert ran.status == "ok", ran.evalue
            if not self.stays:
                time.sleep(TOLD_SECONDS)
                book.kill()
            seconds = self._billed_seconds({machine["id"] for machine in rows[0].machines})
            store.close()
        finally:
            if book.manager.has_kernel:
                book.kill()
        spent = price / 3600 * seconds
        self.over_usd = max(0.0, spent - budget - price / 3600 * GRACE_SECONDS)
        late = seconds - (budget / price * 3600) - GRACE_SECONDS
        who = "its kernel" if self.stays else "its controller alone"
        self.words = f"ended by {who} {late:+.1f} s from the end of the grace"

    def _billed_seconds(self, machines: set[str]) -> float:
        """Wait for the end of machines; return for how long the cloud bills them."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            bills = [one for one in self.world.bills() if one["id"] in machines]
            over = all(one["ended"] is not None for one in bills)
            if (bills and over) or time.monotonic() > deadline:
                return sum(one["seconds"] for one in bills)
            time.sleep(0.5)
