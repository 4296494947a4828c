"""Knowledge that can be read from here, and how each kind of it is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.requests.resources import parse_clouds
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import coverage
from jupyter_sky.clouds.prices.runner import refresh, sources
from jupyter_sky.clouds.prices.source import PriceSource, SpotPriceSource
from jupyter_sky.clouds.prices.spot_prices import read_spot_prices
from jupyter_sky.knowledge.catalog import files, loader
from jupyter_sky.knowledge.tracker import Place, Tracker
from jupyter_sky.knowledge.tracker.quotas import AccountQuota, write_quotas
from jupyter_sky.machines.renewal.schedule import (
    CATALOG,
    PERIODS,
    QUOTAS,
    SPOT_PRICES,
    Reading,
    Result,
    Subject,
)

_log = logging.getLogger(__name__)


def find_subjects(known: Mapping[str, PriceSource] | None = None) -> list[Subject]:
    """Return what can be read with the accounts of this user; asks nobody.

    Of a cloud that the settings name and whose price list is public, spot prices are read without.

    Parameters
    ----------
    known
        Price sources by cloud, all unless given.
    """
    found: list[Subject] = []
    for name, source in (sources() if known is None else known).items():
        if not clouds.is_rented(name):
            continue
        has_account = clouds.is_ready(name)
        if isinstance(source, SpotPriceSource) and (has_account or _is_public(source)):
            found.append(Subject(SPOT_PRICES, name))
        if not has_account:
            continue
        if clouds.get_launcher(name).has_quotas():
            found.append(Subject(QUOTAS, name))
        found.append(Subject(CATALOG, name))
    return found


def _is_public(source: PriceSource) -> bool:
    """Whether the settings name a cloud whose prices are read without an account."""
    named = Sky.load().cloud
    if not named or source.cloud not in parse_clouds(named, "Sky.cloud"):
        return False
    try:
        source.check()
    except SkyError:
        return False
    return True


def add_catalog_ages(
    readings: Mapping[Subject, Reading], folder: Path, base: Path | None = None
) -> dict[Subject, Reading]:
    """Return the readings with the ages of what ships, and of refreshes that were asked for.

    Parameters
    ----------
    folder
        The data directory.
    base
        Directory of the catalog that ships, unless it is the package's own.
    """
    found = dict(readings)
    shipped = files.parts(base or loader.shipped_directory())
    for meta in (*shipped, *coverage.read_refreshed(folder / "catalog")):
        built = _unix_seconds(meta.built)
        for cloud in meta.clouds:
            subject = Subject(CATALOG, cloud)
            last = found.get(subject, Reading())
            if built > last.done:
                failures = last.failures if last.tried > built else 0
                found[subject] = replace(last, done=built, failures=failures)
    return found


def read_subject(
    subject: Subject,
    folder: Path,
    known: Mapping[str, PriceSource] | None = None,
    base: Path | None = None,
) -> Result:
    """Read something from its cloud and keep it; return what has come.

    Parameters
    ----------
    folder
        The data directory.
    known
        Price sources by cloud, all unless given.
    base
        Directory of the catalog that ships, unless it is the package's own.

    Raises
    ------
    SkyError
        The cloud refuses, or cannot be reached.
    """
    assert subject.kind in PERIODS
    all_sources = sources() if known is None else dict(known)
    if subject.kind == SPOT_PRICES:
        return _read_spot_prices(subject.cloud, folder, all_sources[subject.cloud], base)
    if subject.kind == QUOTAS:
        quotas = read_and_keep_quotas(subject.cloud, folder)
        return Result(_("{cloud}: {count} quotas").format(cloud=subject.cloud, count=len(quotas)))
    return _refresh_catalog(subject.cloud, folder, all_sources, base)


def read_and_keep_quotas(cloud: str, folder: Path) -> list[AccountQuota]:
    """Read the quotas of an account and keep them, so that they limit plans; return them.

    Parameters
    ----------
    folder
        The data directory. One that cannot be written keeps nothing.

    Raises
    ------
    SkyError
        The cloud refuses, or cannot be reached.
    """
    quotas = clouds.get_launcher(cloud).list_quotas()
    try:
        write_quotas(folder, cloud, quotas, time.time())
    except OSError:
        _log.warning("the quotas of %s could not be kept", cloud, exc_info=True)
    return quotas


def _read_spot_prices(cloud: str, folder: Path, source: PriceSource, base: Path | None) -> Result:
    listed = read_spot_prices(cloud, folder, base=base, source=source)
    if not listed.prices:
        raise SkyRefreshError(_("{cloud}: not one spot price came back").format(cloud=cloud))
    places = {
        Place(cloud, price.region, price.zone, price.instance_type, spot=True): price.usd
        for price in listed.prices
    }
    now = time.time()
    tracker = Tracker(Store.open(folder).database)
    kept = tracker.record_prices(places, now)
    tracker.compact(now)
    text = _("{cloud}: {count:,} spot prices, {changed:,} of them new").format(
        cloud=cloud, count=kept.valid, changed=kept.changed
    )
    left_out = sum(listed.skipped.values()) + len(kept.invalid)
    if not left_out:
        return Result(text)
    reasons = "; ".join(dict.fromkeys((*listed.skipped, *kept.invalid[:1])))
    told = _(
        "{cloud}: {count:,} invalid entries of its spot prices were left out: {reasons}"
    ).format(cloud=cloud, count=left_out, reasons=reasons)
    return Result(text, told)


def _refresh_catalog(
    cloud: str, folder: Path, known: Mapping[str, PriceSource], base: Path | None
) -> Result:
    (outcome,) = refresh([cloud], directory=folder, base=base, known=known, quiet=True)
    if outcome.error is not None:
        raise outcome.error
    changes = outcome.diff
    assert changes is not None
    return Result(
        _(
            "catalog refreshed: {cloud} has {count:,} priced offers, {new:,} new, {gone:,} gone, "
            "{repriced:,} at another price"
        ).format(
            cloud=cloud,
            count=changes.after,
            new=changes.new,
            gone=changes.gone,
            repriced=changes.repriced,
        )
    )


def _unix_seconds(stamp: str) -> float:
    """Return the time of a part of the catalog; 0 for one that has none."""
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0
