"""Time estimators: ready-made ones, and the call of any of them.

An estimator is called with an `Offer` and gives hours, or a duration such as ``"90m"``; ``inf``
says that this machine will not do. Without one a task is assumed to take one hour, and everything
that rests on it says "assumed"::

    train.set_time_estimator(flops(tflop=8_160_000, precision="fp16"))
    infer.set_time_estimator(table({"T4": 14.8, "Inferentia": 8.2}))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.dag.dag import Estimate, parse_hours
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import Store

DEFAULT_HOURS = 1.0
"""Assumed run time of a task without an estimator, h."""

CPU_TFLOPS = 0.03
"""Assumed peak of one vCPU in 32 bits: half a core at 2 GHz with two 256-bit units."""


def estimate_hours(estimator: Estimate, offer: Offer, task: str) -> float:
    """Return hours of a task on a machine.

    Raises
    ------
    SkyUsageError
        When the estimator raises, or gives nan, a negative number or no number at all.
    """
    machine = offer.instance_type + (f" ({offer.gpu}:{offer.gpu_count:g})" if offer.gpu else "")
    where = f"task {task}: its time estimator, asked for {offer.cloud} {machine},"
    try:
        value = estimator(offer)
    except Exception as error:
        raise SkyUsageError(
            _("{where} raised {name}: {error}").format(
                where=where, name=type(error).__name__, error=error
            ),
            hint=_("it gets an Offer and gives hours; inf for a machine that will not do"),
        ) from error
    try:
        return parse_hours(value)
    except SkyUsageError as error:
        raise SkyUsageError(
            _("{where} gave {message}").format(where=where, message=error.message), hint=error.hint
        ) from None


@dataclass(frozen=True)
class Flops:
    """Work over peak rate, see `flops`."""

    tflop: float
    precision: str
    utilisation: float
    cpu_tflops: float

    def __call__(self, offer: Offer) -> float:
        """Return hours (or an `Estimate`) on an offer."""
        rate = self.cpu_tflops * offer.vcpus
        if offer.gpu:
            peak = None
            if offer.gpu in accelerators.names():
                peak = accelerators.accelerator(offer.gpu).tflops(self.precision)
            rate = (peak or 0.0) * offer.gpu_count
        return self.tflop / (rate * self.utilisation) / 3600 if rate > 0 else math.inf


def flops(
    tflop: float,
    precision: str = "fp16",
    utilisation: float = 1.0,
    *,
    cpu_tflops: float = CPU_TFLOPS,
) -> Flops:
    """Return operations over the peak rate of all accelerators, as the paper does (section 5.1.1).

    Parameters
    ----------
    tflop
        Operations in all, in units of 10**12.
    precision
        One of `jupyter_sky.base.requests.accelerators.PRECISIONS`.
    utilisation
        Share of the peak that is reached, above 0 and up to 1.
    cpu_tflops
        Peak of one vCPU, for machines without an accelerator.

    Examples
    --------
    >>> v100 = Offer("aws", "", "p3.2xlarge", 8, 61, gpu="V100", gpu_count=1)
    >>> round(flops(450_000)(v100), 6)
    1.0
    """
    for name, value, most in (("tflop", tflop, math.inf), ("utilisation", utilisation, 1.0)):
        if not 0 < value <= most:
            raise SkyUsageError(
                _("flops({name}={value!r})").format(name=name, value=value),
                hint=_("a number above 0"),
            )
    accelerators.accelerator("V100").tflops(precision)  # refuses what is not a precision
    return Flops(tflop, precision, utilisation, cpu_tflops)


@dataclass(frozen=True)
class ByMachine:
    """Times by accelerator or instance type, see `table`."""

    hours: Mapping[str, float] = field(hash=False)

    def __call__(self, offer: Offer) -> float:
        """Return hours (or an `Estimate`) on an offer."""
        gpu = offer.gpu or ""
        keys = (offer.instance_type, f"{gpu}:{offer.gpu_count:g}", gpu, offer.service, offer.cloud)
        return next((self.hours[key] for key in keys if key in self.hours), math.inf)


def table(times: Mapping[str, Any]) -> ByMachine:
    """Return times by what a machine is; what is not in the table is ruled out.

    Parameters
    ----------
    times
        Hours or durations by instance type, accelerator with its count (``"V100:4"``; without,
        any count), managed service, or cloud; the first of these that is there holds.

    Returns
    -------
    ByMachine
        Time estimator: hours by offer.

    Examples
    --------
    >>> t4 = Offer("gcp", "", "n1-standard-8+T4:1", 8, 30, gpu="T4", gpu_count=1)
    >>> table({"T4": "90m", "nvidia-v100:4": 4})(t4)
    1.5
    """
    found = {}
    for key, value in times.items():
        name, colon, count = str(key).partition(":")
        try:
            name = accelerators.canonical(name)
        except SkyUsageError:
            pass  # an instance type, a service or a cloud
        found[name + colon + count] = parse_hours(value)
    return ByMachine(found)


@dataclass(frozen=True)
class Amdahl:
    """A part that more processors do not make faster, see `amdahl`."""

    hours: float
    serial: float

    def __call__(self, offer: Offer) -> float:
        """Return hours (or an `Estimate`) on an offer."""
        if not offer.vcpus:
            return math.inf
        return self.hours * (self.serial + (1 - self.serial) / offer.vcpus)


def amdahl(hours: float | str, serial: float = 0.0) -> Amdahl:
    """Return time on one vCPU, of which a share gains nothing from more of them.

    Parameters
    ----------
    hours
        Time on one vCPU, in hours or as a duration such as ``"90m"``.
    serial
        Share of it that more vCPUs do not shorten, from 0 to 1.

    Returns
    -------
    Amdahl
        Time estimator: hours by offer.

    Examples
    --------
    >>> amdahl(10, serial=0.1)(Offer("aws", "", "m5.2xlarge", 8, 32))
    2.125
    """
    if not 0 <= serial <= 1:
        raise SkyUsageError(
            _("amdahl(serial={serial!r})").format(serial=serial), hint=_("a share from 0 to 1")
        )
    return Amdahl(parse_hours(hours), serial)


@dataclass(frozen=True)
class Measured:
    """Run times of earlier runs, see `measured`."""

    hours: Mapping[tuple[str, str], float] = field(hash=False)
    runs: int
    otherwise: Estimate | None = None

    def __call__(self, offer: Offer) -> Any:
        """Return hours (or an `Estimate`) on an offer."""
        known = self.hours.get((offer.cloud, offer.instance_type))
        if known is None and self.otherwise is not None:
            return self.otherwise(offer)
        return median(self.hours.values()) if known is None else known


def measured(name: str, store: Store | None = None, otherwise: Estimate | None = None) -> Measured:
    """Return the median time of earlier runs of this name on each type of machine that ran them.

    Parameters
    ----------
    name
        Of a cell: ``%%sky --name train``.
    store
        Where the ledger is; that of this user unless given.
    otherwise
        Asked for machines on which it never ran; else the median over all of them holds.

    Raises
    ------
    SkyUsageError
        When no run of this name has ended well.
    """
    if store is None:
        from pathlib import Path

        from jupyter_sky.base.settings.settings import Sky
        from jupyter_sky.base.store.store import Store as Kept

        store = Kept.open(Path(Sky.load().data_dir))
    clusters = {row.name: row for row in store.clusters(live_only=False)}
    times: dict[tuple[str, str], list[float]] = {}
    for run in store.runs(status="ok", limit=None):
        row = clusters.get(run.cluster)
        if run.name == name and run.ended is not None and row is not None:
            key = (row.cloud, row.instance_type)
            times.setdefault(key, []).append((run.ended - run.started) / 3600)
    if not times:
        names = sorted({run.name for run in store.runs(status="ok", limit=None) if run.name})
        raise SkyUsageError(
            _("no run called {name!r} has ended well").format(name=name),
            hint=_("known: {names}").format(names=", ".join(names))
            if names
            else _("name a cell: %%sky --name train"),
        )
    count = sum(map(len, times.values()))
    return Measured({key: median(found) for key, found in times.items()}, count, otherwise)
