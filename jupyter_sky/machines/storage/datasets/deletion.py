"""Objects that a deletion would remove, and the cost of keeping them."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_sky.base.clouds.register import find_store
from jupyter_sky.base.requests.quantities import format_objects, format_size
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.machines.storage.datasets.data import Storage
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.places import is_priced, place_of

SHOWN_KEYS = 3


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """Objects that would be deleted.

    Attributes
    ----------
    manifest
        The objects.
    usd_month
        USD that keeping them costs in a month; None where it is not known.
    note
        What remains to be paid.
    """

    manifest: Manifest
    usd_month: float | None
    note: str = ""

    def __str__(self) -> str:
        objects, prefix = self.manifest.objects, self.manifest.prefix
        shown = ", ".join(each.key.removeprefix(prefix) for each in objects[:SHOWN_KEYS])
        more = _(" and {more:,} more").format(more=len(objects) - SHOWN_KEYS)
        amount = _("{amount} ({size}) below {uri}: {shown}{more}").format(
            amount=format_objects(len(objects)),
            size=format_size(self.manifest.nbytes),
            uri=self.manifest.uri,
            shown=shown,
            more=more if len(objects) > SHOWN_KEYS else "",
        )
        kept = ""
        if self.usd_month is not None:
            kept = _(", {usd} a month").format(usd=format_usd(self.usd_month))
        return f"{amount}{kept}{self.note}"


def plan_deletion(data: Storage) -> DeletionPlan:
    """Return what deleting data would remove.

    Raises
    ------
    SkyObjectMissing
        There is nothing.
    """
    manifest, place = data.list(), place_of(data.store, data.uri)
    cloud, __, region = place.partition("/")
    if not is_priced(place) or not region:
        return DeletionPlan(manifest, None)
    from jupyter_sky.knowledge import catalog

    usd = catalog.load().storage(cloud, region, manifest.nbytes / 1e9).usd
    is_kept = cloud == find_store("gs")
    note = _(" (billed for 7 more days unless the bucket's soft delete is off)") if is_kept else ""
    return DeletionPlan(manifest, usd, note)
