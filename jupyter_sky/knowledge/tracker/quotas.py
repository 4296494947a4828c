"""Quotas of accounts, and the tightest of them for a kind of machine at a place."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from jupyter_sky.base.requests.quantities import format_vcpus
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.translation import _, ngettext

QuotaUnit = Literal["vcpus", "gpus"]


@dataclass(frozen=True, slots=True)
class AccountQuota:
    """Limit of what an account may have at once.

    Attributes
    ----------
    cloud : str
        Name of the cloud.
    name : str
        Name of the quota, in the cloud's own words.
    limit : float
        Most vCPUs or accelerators at once.
    unit : str
        ``vcpus`` or ``gpus``.
    region : str
        Where it holds; empty for all regions together.
    families : tuple of str
        What counts against it, as `family_names` has it or as a pattern, such as ``p4*``; where
        the unit is ``gpus``, names of accelerators. Empty for all.
    spot : bool or None
        Market that counts; None for both.
    page : str
        Address where it can be raised.

    Examples
    --------
    >>> quota = AccountQuota("aws", "All P5 Spot Instance Requests", 0, "vcpus", "us-east-1")
    >>> quota.describe()
    'All P5 Spot Instance Requests in us-east-1 is 0 vCPUs'
    """

    cloud: str
    name: str
    limit: float
    unit: QuotaUnit
    region: str = ""
    families: tuple[str, ...] = ()
    spot: bool | None = None
    page: str = ""

    def describe(self) -> str:
        """Return name, place and limit in words."""
        amount = format_amount(self.unit, self.limit)
        if not self.region:
            return _("{name} is {amount}").format(name=self.name, amount=amount)
        text = _("{name} in {region} is {amount}")
        return text.format(name=self.name, region=self.region, amount=amount)


def format_amount(unit: QuotaUnit, count: float) -> str:
    """Return an amount that a quota counts.

    Examples
    --------
    >>> format_amount("vcpus", 96), format_amount("gpus", 1)
    ('96 vCPUs', '1 GPU')
    """
    if unit == "vcpus":
        return format_vcpus(count)
    return ngettext("{count:g} GPU", "{count:g} GPUs", 1 if count == 1 else 2).format(count=count)


class QuotaTable:
    """All quotas that are known, by place, family and market.

    Parameters
    ----------
    quotas
        Of all clouds.

    Examples
    --------
    >>> table = QuotaTable([AccountQuota("aws", "P", 8, "vcpus", "us-east-1", ("p4*", "p3*"))])
    >>> families = table.families("aws", "p4d.24xlarge")
    >>> table.tightest("aws", "us-east-1", families, False, "vcpus").limit
    8
    >>> table.tightest("aws", "us-west-2", families, False, "vcpus")
    """

    def __init__(self, quotas: Iterable[AccountQuota] = ()) -> None:
        self._found: dict[tuple[str, str, str, QuotaUnit, bool], list[AccountQuota]] = {}
        self._patterns: dict[str, set[str]] = {}
        self._families: dict[tuple[str, str], frozenset[str]] = {}
        for quota in quotas:
            for key in _keys(quota):
                self._found.setdefault(key, []).append(quota)
                if "*" in key[2]:
                    self._patterns.setdefault(quota.cloud, set()).add(key[2])
        self.clouds = frozenset(key[0] for key in self._found)

    def __bool__(self) -> bool:
        return bool(self._found)

    def families(self, cloud: str, instance_type: str) -> frozenset[str]:
        """Return the families of quotas that an instance type counts against."""
        key = cloud, instance_type
        if key not in self._families:  # each plan asks for a thousand of them
            names = family_names(cloud, instance_type)
            patterns = self._patterns.get(cloud, ())
            matching = {each for each in patterns if any(fnmatchcase(n, each) for n in names)}
            self._families[key] = names | matching
        return self._families[key]

    def tightest(
        self, cloud: str, region: str, families: Collection[str], spot: bool, unit: QuotaUnit
    ) -> AccountQuota | None:
        """Return the quota with the lowest limit that machines count against; None without any."""
        found = [
            quota
            for place in {"", region}
            for family in ("", *families)
            for quota in self._found.get((cloud, place, family, unit, spot), ())
        ]
        return min(found, key=lambda quota: (quota.limit, quota.name), default=None)


def family_names(cloud: str, instance_type: str) -> frozenset[str]:
    """Return the names by which quotas may call the kin of an instance type.

    Examples
    --------
    >>> sorted(family_names("aws", "p4d.24xlarge")), sorted(family_names("gcp", "n2d-standard-8"))
    (['p', 'p4d'], ['n2d'])
    >>> sorted(family_names("azure", "Standard_D4s_v3"))
    ['standard', 'standarddsv3']
    """
    from jupyter_sky.base.clouds.register import (
        find_facts,  # which needs the values of this package
    )

    series = re.split(r"[-._]", instance_type)[0]
    family = find_facts(cloud).quota_family(instance_type)
    return frozenset({family_key(family), family_key(series)})


def family_key(name: str) -> str:
    """Return a name as families are compared: clouds spell them in several ways.

    Examples
    --------
    >>> family_key("Standard_Ds_v3"), family_key("A100-80GB")
    ('standarddsv3', 'a10080gb')
    """
    return re.sub(r"[\s_-]", "", name).lower()


def _keys(quota: AccountQuota) -> Iterator[tuple[str, str, str, QuotaUnit, bool]]:
    for family in quota.families or ("",):
        for spot in (False, True) if quota.spot is None else (quota.spot,):
            yield quota.cloud, quota.region, family_key(family), quota.unit, spot


# -- Quotas of this user's accounts as they were read last, a small file for each cloud -----------

KEPT_SECONDS = 7 * 86400.0
"""Age beyond which quotas that were read no longer limit plans: they may have been raised."""
_FOLDER = "quotas"
_loaded: dict[tuple, KnownQuotas] = {}


@dataclass(frozen=True, eq=False)
class KnownQuotas:
    """Quotas that limit plans.

    Attributes
    ----------
    quotas : sequence of AccountQuota
        Of all clouds whose quotas are known.
    read_at : dict of str to float
        When those of each cloud were read, unix seconds.
    table : QuotaTable
        The same by place, family and market.
    """

    quotas: Sequence[AccountQuota] = ()
    read_at: dict[str, float] = field(default_factory=dict)
    table: QuotaTable = field(default_factory=QuotaTable)


def write_quotas(folder: Path, cloud: str, quotas: Iterable[AccountQuota], now: float) -> None:
    """Keep the quotas of a cloud.

    Parameters
    ----------
    folder
        The data directory.
    now
        When they were read, unix seconds.
    """
    path = folder / _FOLDER / f"{cloud}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"at": now, "quotas": [asdict(quota) for quota in quotas]}
    write_atomically(path, json.dumps(kept).encode(), mode=0o600, durable=False)


def current_quotas() -> QuotaTable:
    """Return the quotas of this user's accounts that were read lately."""
    from jupyter_sky.base.settings import paths

    return read_quotas(paths.data_dir(), time.time()).table


def read_quotas(folder: Path, now: float) -> KnownQuotas:
    """Return the quotas that were read lately; the same object while no file changes.

    Parameters
    ----------
    folder
        The data directory.
    now
        Unix seconds; what was read longer than `KEPT_SECONDS` before is left out.
    """
    paths = sorted((folder / _FOLDER).glob("*.json"))
    if not paths:
        return KnownQuotas()
    key = (*((str(path), path.stat().st_mtime_ns) for path in paths), now // 3600.0)
    known = _loaded.get(key)
    if known is None:
        found: list[AccountQuota] = []
        read_at: dict[str, float] = {}
        for path in paths:
            quotas, at = _read_file(path)
            if quotas and 0 <= now - at < KEPT_SECONDS:
                found += quotas
                read_at[path.stem] = at
        known = KnownQuotas(tuple(found), read_at, QuotaTable(found))
        _loaded.clear()
        _loaded[key] = known
    return known  # another thread may have cleared the others meanwhile


def _read_file(path: Path) -> tuple[list[AccountQuota], float]:
    """Return the quotas of a file and when they were read; none where it is damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        rows = [row | {"families": tuple(row["families"])} for row in kept["quotas"]]
        return [AccountQuota(**row) for row in rows], float(kept["at"])
    except (OSError, ValueError, TypeError, KeyError):
        return [], 0.0
