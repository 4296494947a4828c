"""Egress: cost of values that leave a cluster's cloud for this machine.

What comes in costs nothing on the clouds that we launch on. The price is the catalog's, at the
first tier: a free allowance of an account is not counted, since it is not known here whether it is
spent. Less than `BOOKING_BYTES` waits until there is more.
"""

from __future__ import annotations

import logging
import threading
import time

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.base.translation import _

_log = logging.getLogger(__name__)

BOOKING_BYTES = 10**6


class EgressMeter:
    """The bytes that have left one cluster for this process, and their entries in the ledger."""

    def __init__(self, row: ClusterRow, store: Store) -> None:
        self._row, self._store = row, store
        self._waiting = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Count fetched bytes; book them, in a thread of its own, as soon as they are enough."""
        if find_facts(self._row.cloud).on_premises:
            return
        with self._lock:
            self._waiting += nbytes
            if self._waiting < BOOKING_BYTES:
                return
            moved, self._waiting = self._waiting, 0
        threading.Thread(target=self._book, args=(moved,), name="sky-egress", daemon=True).start()

    def _book(self, nbytes: int) -> None:
        at, gb = time.time(), nbytes / 1e9
        try:
            usd = egress_price(self._row, gb)
        except Exception:  # a catalog that cannot be read: it is named as unknown
            _log.warning("the price of egress could not be looked up", exc_info=True)
            usd = None
        self._store.add_other_cost(self._row.id, _("egress of {gb:.3g} GB").format(gb=gb), usd, at)


def egress_price(row: ClusterRow, gb: float) -> float | None:
    """Return the cost of data sent from a cluster to the internet, USD; None if not known."""
    from jupyter_sky.knowledge import catalog

    return catalog.load().egress(f"{row.cloud}/{row.region}", "internet", gb).usd
