"""Alternatives of a pool: the best offer of each, in the order in which they are launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyError, SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.specs import Nodes, Spec
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger.ledger import format_rate


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternative that is on sale, with its best offer and its price (USD/h of all nodes)."""

    price: float
    offer: Offer
    resources: Resources
    nodes: Nodes
    spec: Spec


def offers_table(choices: Sequence[Choice], refusals: Sequence[SkyError] = ()) -> Table:
    """Return alternatives as a table: place, price of all nodes, where the price comes from.

    Examples
    --------
    >>> offer = Offer("runpod", "EU-RO-1", "1x_L4", 8, 24, price=0.5, source="runpod-live")
    >>> choice = Choice(1.0, offer, Resources(), Nodes(2), Spec())
    >>> [row[1:] for row in offers_table([choice]).rows]
    [('$1.00/h', 'second', 'RunPod, live')]
    """
    rows = tuple(
        (
            choice.offer.place_of(choice.nodes.initial),
            format_rate(None if choice.offer.price is None else choice.price),
            choice.offer.billing_unit or "-",
            describe_origin(choice.offer.source, choice.offer.date).short,
        )
        for choice in choices
    )
    columns = (_("place"), _("price"), _("billed by"), _("price from"))
    note = "\n".join(refusal.message for refusal in refusals)
    return Table(_("offers for this pool"), columns, rows, note)


def no_alternative(refusals: Sequence[SkyError]) -> SkyNoOffer:
    """Return the error that none of several alternatives can be had, with what would help each.

    Examples
    --------
    >>> no_alternative([SkyNoOffer("no A", hint="see B"), SkyNoOffer("no C", hint="see B")]).hint
    'see B'
    """
    reasons = "; ".join(refusal.message for refusal in refusals)
    hints = dict.fromkeys(refusal.hint for refusal in refusals if refusal.hint)
    return SkyNoOffer(
        _("none of {refusals_count} specs can be had: {reasons}").format(
            refusals_count=len(refusals), reasons=reasons
        ),
        hint="\n".join(hints) or None,
    )
