"""Measurements of own runs, starts and transfers at the place where a cell would run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.requests.quantities import format_duration, format_run_time
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.interfaces.forms.cell_line import Fields
from jupyter_sky.knowledge.tracker.observations import Observation

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import Store
    from jupyter_sky.interfaces.forms.measurements import Measurement
    from jupyter_sky.knowledge.tracker.transfer_rates import TransferRate

_RUNS = 2000  # latest runs that are looked at: the form asks again and again
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class MeasuredFacts:
    """Facts about one application, place or way, in words.

    Attributes
    ----------
    about : str
        Subject, such as ``train on aws m5.large``.
    facts : tuple of str
        Number of measurements with the failures first, the age of the latest one last.
    """

    about: str
    facts: tuple[str, ...]


def find_application(fields: Fields, source: str) -> str:
    """Return the application of a cell, by which its earlier runs are known.

    Examples
    --------
    >>> find_application(Fields({"name": "train"}), "fit(X)"), find_application(Fields(), "fit(X)")
    ('train', 'fit(X)')
    """
    from jupyter_sky.execution.cells.run_record import recorded_code
    from jupyter_sky.interfaces.forms.run_queue import code_title

    return str(fields.values.get("name") or "") or code_title(recorded_code(source))


def measured_place(
    offer: Offer, application: str, store: Store, now: float | None = None
) -> list[MeasuredFacts]:
    """Return what was measured at a place; empty where nothing was.

    Parameters
    ----------
    offer
        Place and machine where the cell would run.
    application
        Name of the cell's runs, as `sky.measurements` has it.
    store
        Storage of the runs; the tracker's is that of the same data directory.
    now
        Unix seconds; the present unless given.
    """
    from jupyter_sky.interfaces.forms.measurements import measure
    from jupyter_sky.knowledge import tracker

    now = time.time() if now is None else now
    places = {row.name: (row.cloud, row.instance_type) for row in store.clusters(False)}
    there = (offer.cloud, offer.instance_type)
    runs = [run for run in store.runs(limit=_RUNS) if places.get(run.cluster) == there]
    current = tracker.current()
    own = [one for one in measure(runs, places) if one.application == application]
    every = measure(runs, places, together=True)
    others = every if [one.runs for one in own] != [one.runs for one in every] else []
    return [
        *(_run_facts(one, one.application, now) for one in own),
        *(_run_facts(one, _("all runs"), now) for one in others),
        *_start_facts(offer, current.observations(), now),
        *_transfer_facts(offer, current.transfer_rates(now).rates, now),
    ]


def _run_facts(one: Measurement, subject: str, now: float) -> MeasuredFacts:
    """Return the facts of runs of an application, or of all."""
    place = _("this machine") if one.cloud == "local" else f"{one.cloud} {one.instance_type}"
    count = ngettext("{count} run", "{count} runs", one.runs)
    facts = [_count_text(count, one.runs, one.failed + one.lost)]
    if one.seconds is not None:
        facts.append(_("{time} each").format(time=format_run_time(one.seconds)))
    facts.append(_("waited {time}").format(time=format_run_time(one.waited)))
    if one.usd is not None and one.price is not None and one.price > 0:
        from jupyter_sky.knowledge.ledger.ledger import format_rate, format_usd

        paid = _("paid {usd} each at {price}")
        facts.append(paid.format(usd=format_usd(one.usd), price=format_rate(one.price)))
    return MeasuredFacts(
        _("{subject} on {place}").format(subject=subject, place=place),
        (*facts, _age_text(now - one.latest)),
    )


def _start_facts(
    offer: Offer, observations: Iterable[Observation], now: float
) -> Iterator[MeasuredFacts]:
    """Yield the facts of starts at a place, in any of its zones."""
    where = Place(offer.cloud, offer.region, "", offer.instance_type, offer.spot)
    exact = Place.of(offer)
    launched = [one for one in observations if one.kind == "launched" and where.covers(one.place)]
    refused = [
        one
        for one in observations
        if one.kind == "refused" and (where.covers(one.place) or one.place.covers(exact))
    ]
    starts, failed = _count_events((*launched, *refused)), _count_events(refused)
    if not starts:
        return
    facts = [_count_text(ngettext("{count} start", "{count} starts", starts), starts, failed)]
    if seconds := [one.seconds for one in launched if one.seconds is not None]:
        facts.append(
            _("ready after {time}").format(time=format_duration(statistics.median(seconds)))
        )
    latest = max(one.at for one in (*launched, *refused))
    about = _("starts at {place}").format(place=str(where))
    yield MeasuredFacts(about, (*facts, _age_text(now - latest)))


def _count_events(observations: Iterable[Observation]) -> int:
    return sum(one.events for one in observations)


def _transfer_facts(
    offer: Offer, rates: Iterable[TransferRate], now: float
) -> Iterator[MeasuredFacts]:
    """Yield the rates of transfers that begin or end in the region of an offer."""
    here = f"{offer.cloud}/{offer.region}".rstrip("/")
    for rate in rates:
        if here in (rate.source, rate.target):
            count = ngettext("{count} transfer", "{count} transfers", rate.count)
            yield MeasuredFacts(
                _("{source} to {target}").format(source=rate.source, target=rate.target),
                (
                    count.format(count=rate.count),
                    _("{speed} Gbit/s").format(speed=f"{rate.gbit_s:.2g}"),
                    _age_text(now - rate.latest),
                ),
            )


def _count_text(count: str, number: int, failed: int) -> str:
    """Return a number of measurements with the share of those that failed.

    Examples
    --------
    >>> _count_text("{count} runs", 5, 1), _count_text("{count} runs", 5, 0)
    ('5 runs, 1 failed (20 %)', '5 runs, none failed')
    """
    if not failed:
        return _("{count}, none failed").format(count=count.format(count=number))
    return _("{count}, {failed} failed ({share:.0f} %)").format(
        count=count.format(count=number), failed=failed, share=100 * failed / number
    )


def _age_text(seconds: float) -> str:
    """Return the age of the latest measurement.

    Examples
    --------
    >>> _age_text(3600.0), _age_text(86400.0), _age_text(864000.0)
    ('latest less than a day ago', 'latest 1 day ago', 'latest 10 days ago')
    """
    days = int(seconds // _DAY)
    if days < 1:
        return _("latest less than a day ago")
    return ngettext("latest {days} day ago", "latest {days} days ago", days).format(days=days)
