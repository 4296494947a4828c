"""Times that a search has measured, as an estimator of the tasks of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.decisions.search.result import SearchResult

LABELS_EXAMPLE = "{'cpus': '4+'}"
SPEEDUP = 0.22
"""Fall of the logarithm of a time with each doubling of vCPUs, for machines that were not tried."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Estimator of run times: those measured, and for other machines the mean of the nearest size.

    The mean is that of logarithms, and is scaled to the size of the machine.

    Attributes
    ----------
    hours : mapping
        Time by cloud and instance type; infinite where it failed.
    sizes : mapping
        vCPUs of those that succeeded.

    Examples
    --------
    >>> times = MeasuredTimes({("aws", "m5.large"): 2.0}, {("aws", "m5.large"): 2.0})
    >>> times(Offer("aws", "", "m5.large", 2, 8)), round(times(Offer("gcp", "", "n2", 4, 16)), 2)
    (2.0, 1.61)
    """

    hours: Mapping[tuple[str, str], float]
    sizes: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, found: SearchResult) -> MeasuredTimes:
        """Return the times of a search, on as many nodes as its best configuration has.

        Raises
        ------
        SkyUsageError
            No configuration that names its machine has succeeded.
        """
        best = found.best
        if best is None or best.point.offer is None:
            raise SkyUsageError(
                _("nothing was measured on machines that a plan knows"),
                hint=_("search over labels, such as {example}").format(example=LABELS_EXAMPLE),
            )
        hours, sizes = {}, {}
        for one in found.tries:
            offer = one.point.offer
            if offer is None or one.point.nodes != best.point.nodes:
                continue
            kind, good = (offer.cloud, offer.instance_type), [run for run in one.runs if run.ok]
            if good:
                hours[kind] = sum(run.seconds for run in good) / len(good) / 3600
                sizes[kind] = float(offer.vcpus)
            elif one.runs[-1].failure in ("crash", "memory"):
                hours[kind] = math.inf
        return cls(hours, sizes)

    def __call__(self, offer: Offer) -> float:
        """Return the hours on a machine; infinite on one on which it has failed."""
        kind = (offer.cloud, offer.instance_type)
        if kind in self.hours:
            return self.hours[kind]
        away = {each: self._doublings(each, offer) for each in self.sizes}
        nearest = min(map(abs, away.values()))
        logs = [
            math.log(self.hours[each]) - SPEEDUP * doublings
            for each, doublings in away.items()
            if abs(doublings) == nearest and self.hours[each] > 0
        ]
        return math.exp(sum(logs) / len(logs)) if logs else 0.0

    def _doublings(self, kind: tuple[str, str], offer: Offer) -> float:
        """Return the doublings of vCPUs from a machine that was tried to another."""
        return math.log2(max(offer.vcpus, 0.25) / max(self.sizes[kind], 0.25))
