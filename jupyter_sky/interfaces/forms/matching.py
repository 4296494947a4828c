"""Matches of a form's fields: offers, the place where the cell would run, or the obstacle.

Read from memory alone, in some tens of milliseconds: the form updates as the user types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources, format_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.candidates import RequestChange, suggest_changes
from jupyter_sky.execution.cells.request import apply_settings
from jupyter_sky.interfaces.forms.cell_line import Fields, Value, check
from jupyter_sky.knowledge.catalog import Catalog, Selection
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger.billing import billed_seconds
from jupyter_sky.knowledge.ledger.ledger import cost, format_rate, format_usd

MAX_OFFERS = 3
"""Largest number of offers that are shown."""

_MAX_ALIKE = 20  # offers that a line may stand for: the same machine in many zones


@dataclass(frozen=True, slots=True)
class OfferMatch:
    """An offer that matches, as a line.

    Attributes
    ----------
    cloud, region, machine, gpu : str
        Place and machine; `machine` is the cloud's own name of the type.
    vcpus, memory : float
        Of one node; memory in GiB, 0 when not known.
    spot : bool
        Whether the cloud may take it back.
    price : float or None
        USD/h for all nodes; None when unknown.
    estimate : float or None
        USD for the time given, as its cloud would bill it.
    origin, origin_detail : str
        Publisher and date of the price, and all its sources for a tooltip.
    note : str
        Caution about the price; empty where there is none.
    more : int
        Other regions of the cloud that sell the same at the same price.
    """

    cloud: str
    region: str
    machine: str
    gpu: str
    vcpus: float
    memory: float
    spot: bool
    price: float | None
    estimate: float | None
    origin: str
    origin_detail: str
    note: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class RequestSuggestion:
    """Change of fields that makes an unmet request possible.

    Attributes
    ----------
    keys : tuple of str
        The fields that stand in the way.
    words : str
        Description of what is on sale instead.
    values : dict
        Values that can be met, by key; False where only leaving the field out helps.
    """

    keys: tuple[str, ...]
    words: str
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Offers that match the fields of a form.

    Attributes
    ----------
    line : str
        The options as they are written after ``%%sky``.
    errors : dict
        Message and hint by key of what is not understood; nothing else is answered then.
    count : int
        Offers that match.
    places : tuple of OfferMatch
        The cheapest of them.
    spot : OfferMatch or None
        The cheapest spot machine, where the market is left open: it would not be taken unasked.
    seconds : float or None
        Time that `estimate` of each place is for.
    seconds_to_limit : float or None
        Seconds until the cell would reach what it may cost, at the cheapest place.
    suggestions : tuple of RequestSuggestion
        Changes that lead to an offer when nothing matches, the nearest first.
    notes : tuple of str
        Sentences for the user.
    """

    line: str
    errors: Mapping[str, tuple[str, str]]
    count: int = 0
    places: tuple[OfferMatch, ...] = ()
    spot: OfferMatch | None = None
    seconds: float | None = None
    seconds_to_limit: float | None = None
    suggestions: tuple[RequestSuggestion, ...] = ()
    notes: tuple[str, ...] = ()


def match(
    fields: Fields,
    aliases: Mapping[str, str] | None = None,
    seconds: float | None = None,
    catalog: Catalog | None = None,
) -> MatchResult:
    """Return the offers that match, or the fields to loosen.

    Parameters
    ----------
    fields : Fields
        Content of the form.
    aliases : mapping, optional
        Options by their short names; those of the settings unless given.
    seconds : float, optional
        Expected duration of the cell; its time limit unless given.
    catalog : Catalog, optional
        Catalog of the offers; the loaded one unless given.

    Examples
    --------
    >>> match(Fields({"gpus": "V100:7"})).suggestions[0].values  # doctest: +SKIP
    {'gpus': 'V100:8'}
    """
    from jupyter_sky.knowledge.catalog import load

    aliases = Sky.load().aliases if aliases is None else aliases
    errors = check(fields, aliases)
    unknown = errors.pop("alias", None) if fields.alias not in aliases else None
    if errors:
        return MatchResult(fields.line(), errors)
    known = replace(fields, alias="") if unknown else fields
    options = parse_cell_line(known.line(), aliases)
    try:
        answer = _match_request(options, seconds, catalog or load())
    except SkyUsageError as error:
        return MatchResult(fields.line(), {_find_field(error): (error.message, error.hint or "")})
    notes = (unknown[0], *answer.notes) if unknown else answer.notes
    return replace(answer, line=fields.line(), notes=notes)


def _match_request(options: CellOptions, seconds: float | None, catalog: Catalog) -> MatchResult:
    """Return the matches of a request, without its line."""
    asked, notes = request_with_settings(options)
    # as a launch has it: the variables of a cell are not risked unasked
    need = replace(asked, spot=bool(asked.spot))
    own, sold = _find_offers(catalog, need)
    seconds = options.timeout if seconds is None else seconds
    spot = None
    if asked.spot is None:
        risky = catalog.filter(replace(need, spot=True)).offers(1)
        spot = next(_make_matches(risky, need.nodes, seconds, 1), None)
    notes += catalog.problems
    if not own and not len(sold):
        loosen = tuple(_make_suggestions(catalog, need, spot))
        return MatchResult("", {}, suggestions=loosen, notes=tuple(notes))
    places = tuple(_make_matches([*own, *_first_offers(sold)], need.nodes, seconds, MAX_OFFERS))
    return MatchResult(
        line="",
        errors={},
        count=len(own) + len(sold),
        places=places,
        spot=spot,
        seconds=seconds,
        seconds_to_limit=_find_seconds_to_limit(options.max_cost, places[0].price),
        notes=tuple(notes),
    )


# -- what matches ------------------------------------------------------------------------------


def request_with_settings(options: CellOptions) -> tuple[Resources, list[str]]:
    """Return the request with the limits of the settings, and the names of those that apply."""
    asked, notes = options.resources, []
    need = apply_settings(asked, Sky.load())
    if need.clouds != asked.clouds:
        notes.append(_("by your settings only {clouds}").format(clouds=" or ".join(need.clouds)))
    if need.max_hourly_cost != asked.max_hourly_cost:
        notes.append(
            _("by your settings at most {max_hourly_cost}").format(
                max_hourly_cost=format_rate(need.max_hourly_cost)
            )
        )
    return need, notes


def _find_offers(catalog: Catalog, need: Resources) -> tuple[list[Offer], Selection]:
    """Offers of the user's own machines, and of the catalog."""
    from jupyter_sky.machines.provisioner import placement

    own, __ = placement.on_premises_candidates(need)
    if not own:
        _check_names(catalog, need, placement.on_premises_offers(need))
    return own, catalog.filter(need)


def _check_names(catalog: Catalog, need: Resources, own: Iterable[Offer]) -> None:
    """Raise SkyUsageError for a name that is neither in the catalog nor of an own machine."""
    for key in ("region", "zone", "instance_type"):
        if getattr(need, key) in {getattr(offer, key) for offer in own}:
            need = replace(need, **{key: None})
    catalog.check(need)


def _first_offers(sold: Selection) -> Iterator[Offer]:
    """Yield the cheapest offers, those that can be launched before the others."""
    from jupyter_sky.machines.provisioner.launch_order import split_by_launchability

    for _tier, offers in split_by_launchability(sold):
        yield from offers.offers(MAX_OFFERS * _MAX_ALIKE)


def _find_field(error: SkyUsageError) -> str:
    """Return the field with a name that does not exist."""
    flags = {"region": "--region ", "zone": "--zone ", "instance_type": "--instance-type "}
    return next(key for key, flag in flags.items() if error.message.startswith(flag))


def _make_matches(
    offers: Sequence[Offer], nodes: int, seconds: float | None, limit: int
) -> Iterator[OfferMatch]:
    """Return the first offers; those that only differ in zone and region are one place."""
    alike: dict[tuple, list[Offer]] = {}
    for offer in offers:
        key = (offer.cloud, offer.instance_type, offer.spot, offer.price)
        alike.setdefault(key, []).append(offer)
    for same in islice(alike.values(), limit):
        yield _make_match(same[0], len({offer.region for offer in same}) - 1, nodes, seconds)


def _make_match(offer: Offer, more: int, nodes: int, seconds: float | None) -> OfferMatch:
    price = None if offer.price is None else offer.price * nodes
    billed = None if seconds is None else billed_seconds(offer.cloud, seconds)
    notes = [offer.note] if offer.note else []
    if why := clouds.launch_obstacle(offer):
        notes.append(why)
    origin = describe_origin(offer.source, offer.date)
    return OfferMatch(
        offer.cloud,
        offer.region,
        offer.instance_type,
        f"{offer.gpu}:{offer.gpu_count:g}" if offer.gpu else "",
        offer.vcpus,
        offer.memory,
        offer.spot,
        price,
        None if billed is None else cost(price, billed),
        origin.short or _("date unknown"),
        origin.tooltip,
        "; ".join(notes),
        more,
    )


def _find_seconds_to_limit(limit: float | None, price: float | None) -> float | None:
    return limit / price * 3600 if limit is not None and price else None


# -- what stands in the way --------------------------------------------------------------------


def _make_suggestions(
    catalog: Catalog, need: Resources, spot: OfferMatch | None
) -> Iterator[RequestSuggestion]:
    from jupyter_sky.knowledge.catalog.nearest_offers import find_nearest
    from jupyter_sky.machines.provisioner import placement

    if spot is not None:
        words = _("{cloud} {region} {machine} is to be had as a spot machine only").format(
            cloud=spot.cloud, region=spot.region, machine=spot.machine
        )
        yield RequestSuggestion(
            ("spot",),
            _("{words}, at {price}").format(words=words, price=format_rate(spot.price)),
            {"spot": True},
        )
    for way in suggest_changes(
        need, [*placement.on_premises_offers(need), *find_nearest(catalog, need)]
    ):
        yield RequestSuggestion(way.labels, way.found, _suggested_values(way))


def _suggested_values(way: RequestChange) -> dict[str, Value]:
    """Return changes of fields that have matches: another value, the other market, or none."""
    values: dict[str, Value] = {}
    for key in way.labels:
        values[key] = way.change.get(key, False)
    for market in ("spot", "on_demand"):
        if market in way.change:
            values[market] = True
    return values


def summary(answer: MatchResult) -> str:
    """Return the matches in one line of plain text, for a saved notebook."""
    if answer.errors:
        return "; ".join(message for message, __ in answer.errors.values())
    if answer.suggestions:
        return _("nothing matches: {words}").format(words=answer.suggestions[0].words)
    first = answer.places[0]
    words = [first.cloud, first.region, first.machine, "spot" if first.spot else ""]
    where = " ".join(word for word in words if word)
    text = _("{count:,} offers match, the cheapest {price} ({where})").format(
        count=answer.count, price=format_rate(first.price), where=where
    )
    if first.estimate is not None and answer.seconds:
        text += _("; est. {estimate} for {seconds}").format(
            estimate=format_usd(first.estimate), seconds=format_duration(answer.seconds)
        )
    return text
