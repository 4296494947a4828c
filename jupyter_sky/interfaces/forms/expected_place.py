"""Place where the cell of a form would run now, in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.rows import ClusterRow
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_fit import (
    describe_second_cluster,
    missing_labels,
    preferred,
)
from jupyter_sky.interfaces.forms.cell_line import Fields, check
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.forms.matching import request_with_settings
from jupyter_sky.knowledge.ledger.ledger import format_rate

if TYPE_CHECKING:
    from jupyter_sky.machines.provisioner.placement import Decision


class ExpectedPlace(NamedTuple):
    """Place where a cell would run now.

    Attributes
    ----------
    text : str
        The place with the reason, or the obstacle.
    offer : Offer or None
        The place; None where there is none.
    """

    text: str
    offer: Offer | None = None


def placement_text(
    fields: Fields, aliases: Mapping[str, str] | None = None, known: CompletionContext | None = None
) -> str:
    """Return the place where the cell would run now, and the reason; see `expected_place`.

    Examples
    --------
    >>> placement_text(Fields({"cloud": "local"}))
    'would run on this machine: it has what the cell asks for, and costs nothing'
    """
    return expected_place(fields, aliases, known).text


def expected_place(
    fields: Fields, aliases: Mapping[str, str] | None = None, known: CompletionContext | None = None
) -> ExpectedPlace:
    """Return the place where the cell would run now, and the reason.

    A cluster that is up and has what is asked for is taken before anything new. Else it asks the
    optimizer, as a launch does, and takes longer than `match`.

    Parameters
    ----------
    known : Known, optional
        The clusters that are up, and the notebook that asks.
    """
    aliases = Sky.load().aliases if aliases is None else aliases
    if check(fields, aliases):
        return ExpectedPlace("")
    options = parse_cell_line(fields.line(), aliases)
    need, __ = request_with_settings(options)
    if known is None:
        return launch_place(need, _placement_reason)
    name = options.cluster or Sky.load().cluster
    if running := _running_place(need, name, known):
        return running
    text, offer = launch_place(need, _placement_reason)
    second = "" if name or offer is None else describe_second_cluster(need, own_clusters(known))
    return ExpectedPlace("; ".join(filter(None, (text, second))), offer)


def launch_place(need: Resources, describe: Callable[[Decision], str]) -> ExpectedPlace:
    """Return the place of a new cluster as it is described, or why it cannot be started."""
    from jupyter_sky.machines.provisioner.placement import decide_placement

    try:
        found = decide_placement(need)
    except SkyError as error:
        return ExpectedPlace(no_placement_text(need, error))
    return ExpectedPlace(describe(found), found.offer)


def _placement_reason(found: Decision) -> str:
    offer, price = found.offer, format_rate(found.price)
    if offer.cloud == "local":
        return _("would run on this machine: it has what the cell asks for, and costs nothing")
    if find_facts(offer.cloud).on_premises:
        return _("would run on a machine of yours: {place}, {price}").format(
            place=offer.place, price=price
        )
    why = _("the best of the clouds that you have an account with")
    return _("would run on {place}, {price}: {why}").format(place=offer.place, price=price, why=why)


def own_clusters(known: CompletionContext) -> list[ClusterRow]:
    """Return the clusters that the notebook started for itself."""
    return [
        row
        for row in known.up
        if row.notebook == known.notebook and not row.connection.get("named")
    ]


def _running_place(need: Resources, name: str, known: CompletionContext) -> ExpectedPlace | None:
    """Return the cluster that takes the cell, as `executor.clusters.ClusterRegistry.obtain`."""
    named = [row for row in known.up if row.name == name]
    for row in preferred(named if name else own_clusters(known)):
        missing = missing_labels(need, row)
        if not missing:
            price = "free" if row.price == 0 else format_rate(row.price)
            offer = Offer(**row.offer)
            text = _("would run on cluster {name}, which is up: {place}, {price}").format(
                name=row.name, place=offer.place, price=price
            )
            return ExpectedPlace(text, offer)
        if name:
            text = _("cannot run on cluster {name}, which is up without {missing}")
            return ExpectedPlace(text.format(name=name, missing=" and ".join(missing)))
    return None


def no_placement_text(need: Resources, error: SkyError) -> str:
    """Return why a request cannot be placed now or yet."""
    from jupyter_sky.machines.provisioner import placement

    if why := clouds.permanent_obstacle(need):
        return _("cannot run yet: {why}").format(why=why)
    if placement.usable_providers(need):
        return _("cannot run now: {message}").format(message=error.message.splitlines()[0])
    if need.clouds and set(need.clouds) <= set(clouds.ON_PREMISES):
        return _("cannot run yet: this machine has less than that")
    return _("cannot run yet: {need} (see %sky check)").format(
        need=placement.no_account_reason(need)
    )
