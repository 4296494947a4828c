"""Quotas of this user's accounts as they were read last, a small file for each cloud."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.knowledge.tracker.quotas import AccountQuota, QuotaTable

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
