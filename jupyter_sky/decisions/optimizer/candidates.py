"""Offers that meet a request, and the labels in the way when none does."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import (
    OTHER_FORM,
    Amount,
    Resources,
    format_option,
    plain_number,
)
from jupyter_sky.base.translation import _

_AMOUNTS = ("cpus", "memory", "gpu_memory", "disk")
_NAMES = ("region", "zone", "instance_type")
_ALTERNATIVES = 3  # ways out that an error names; more would hide the best one


def candidates(resources: Resources, offers: Iterable[Offer]) -> list[Offer]:
    """Return offers that meet a request, the cheapest first and unknown prices last.

    Among equal prices the smallest machine comes first; names settle what remains, so the order
    does not depend on the order of `offers`.

    Examples
    --------
    >>> small = Offer("local", "here", "half", 1, 4, price=0.0)
    >>> large = Offer("local", "here", "whole", 2, 8, price=0.0)
    >>> [offer.instance_type for offer in candidates(Resources(), [large, small])]
    ['half', 'whole']
    """
    return sorted((offer for offer in offers if resources.satisfied_by(offer)), key=_rank)


def no_offer(resources: Resources, offers: Iterable[Offer]) -> SkyNoOffer:
    """Explain an impossible request: the fewest labels in the way, and what is nearest to them.

    Parameters
    ----------
    resources : Resources
        A request that none of the offers meets.
    offers : iterable of Offer
        Everything on sale from clouds that can launch.

    Examples
    --------
    >>> here = Offer("local", "this-machine", "", 2, 8, price=0.0)
    >>> no_offer(Resources.parse(cpus="64+"), [here]).message.split("; ")[1]
    'nearest: --cpus 2'
    """
    offers = list(offers)
    clouds = sorted({offer.cloud for offer in offers})
    if not offers:
        return SkyNoOffer(
            _("nothing is on sale for {command_line}").format(
                command_line=resources.command_line() or _("any request")
            ),
            hint=_("no cloud can launch here; see %sky check"),
        )
    if resources.clouds and not set(resources.clouds) & set(clouds):
        return SkyNoOffer(
            _(
                "--cloud {clouds} cannot be met: {clouds2} cannot launch here; clouds "
                "that can: {clouds3}"
            ).format(
                clouds=",".join(resources.clouds),
                clouds2=" and ".join(resources.clouds),
                clouds3=", ".join(clouds),
            ),
            hint=_("see %sky check"),
        )
    first, *others = map(str, suggest_changes(resources, offers))
    return SkyNoOffer(
        first, hint="\n".join(_("or else {other}").format(other=other) for other in others) or None
    )


@dataclass(frozen=True, slots=True)
class RequestChange:
    """A smallest change of an impossible request that would make it possible.

    Attributes
    ----------
    labels : tuple of str
        Keys that stand in the way, all of them together.
    asked : str
        These, as they are written.
    found : str
        What there is instead.
    change : dict
        What would do, by key; a key without it would have to go.
    """

    labels: tuple[str, ...]
    asked: str
    found: str
    change: Mapping[str, str]

    def __str__(self) -> str:
        words = [format_option(key, value) for key, value in self.change.items()]
        markets = {"spot": "on_demand", "on_demand": "spot"}
        gone = (
            k for k in self.labels if k not in self.change and markets.get(k) not in self.change
        )
        nearest = " ".join([*words, *(f"no {format_option(key)}" for key in gone)])
        return f"{self.asked} cannot be met: {self.found}; nearest: {nearest}"


def suggest_changes(resources: Resources, offers: Iterable[Offer]) -> list[RequestChange]:
    """Return smallest changes of a request that none of the offers meets, the nearest first.

    Examples
    --------
    >>> here = Offer("local", "this-machine", "", 2, 8, price=0.0)
    >>> suggest_changes(Resources.parse(cpus="64+"), [here])[0].change
    {'cpus': '2'}
    """
    found = list(offers)
    return [_make_change(resources, *obstacle) for obstacle in _find_unmet_sets(resources, found)]


def _rank(offer: Offer) -> tuple[object, ...]:
    price = math.inf if offer.price is None else offer.price
    names = (offer.cloud, offer.region, offer.zone or "", offer.instance_type, offer.gpu or "")
    return (price, offer.vcpus, offer.memory, offer.gpu_count, *names, offer.spot, offer.date)


def _find_unmet_sets(
    resources: Resources, offers: Sequence[Offer]
) -> list[tuple[tuple[str, ...], list[Offer]]]:
    """Return smallest sets of labels that must give way, each with its offers from the nearest on.

    The labels that one offer fails are those whose removal would make it a candidate, so the
    smallest such set over all offers is the smallest change of the request.
    """
    groups: defaultdict[tuple[str, ...], list[Offer]] = defaultdict(list)
    for offer in offers:
        groups[resources.unmet_labels(offer)].append(offer)
    fewest = min(map(len, groups))

    def distance(offer: Offer) -> float:
        return sum(_distance(key, resources, offer) for key in resources.unmet_labels(offer))

    ordered = [
        (labels, sorted(group, key=lambda offer: (distance(offer), _rank(offer))))
        for labels, group in groups.items()
        if len(labels) == fewest
    ]
    ordered.sort(key=lambda item: (distance(item[1][0]), item[0]))
    return ordered[:_ALTERNATIVES]


def _make_change(
    resources: Resources, labels: tuple[str, ...], group: Sequence[Offer]
) -> RequestChange:
    nearest, asked = group[0], resources.labels()
    rest = "" if set(asked) == set(labels) else " meeting the rest"
    return RequestChange(
        labels,
        " ".join(format_option(key, asked[key]) for key in labels),
        " and ".join(
            _describe_available(key, resources, group, rest, len(labels) == 1) for key in labels
        ),
        dict(pair for key in labels for pair in _met_label(key, resources, nearest)),
    )


def _distance(key: str, resources: Resources, offer: Offer) -> float:
    """Return how far an offer is from a label that it fails, if possible the log of a ratio."""
    if key in _AMOUNTS:
        return _log_ratio(_amount(key, resources).value, _offer_amount(key, offer))
    if key == "max_hourly_cost":
        limit = resources.max_hourly_cost or 0
        return math.inf if offer.price is None else offer.price * resources.nodes - limit
    if key == "gpus" and resources.gpu and offer.gpu:
        if offer.gpu == resources.gpu:
            other = resources.gpu_form not in (None, offer.form_factor)
            near = _log_ratio(float(resources.gpu_count), float(offer.gpu_count))
            return near + OTHER_FORM * other
        return 10 + _log_ratio(_gpu_memory(resources.gpu), _gpu_memory(offer.gpu))
    if key in _NAMES:
        from difflib import SequenceMatcher

        return 1 - SequenceMatcher(None, getattr(resources, key), _offer_name(key, offer)).ratio()
    return 100.0


def _describe_available(
    key: str, resources: Resources, group: Sequence[Offer], rest: str, sole: bool
) -> str:
    """Return what there is instead of what a label asks for."""
    nearest = group[0]
    if key in _AMOUNTS:
        most = sole and (_amount(key, resources).at_least or key == "disk")
        subject = f"the most that any offer{rest} has" if most else f"the nearest offer{rest} has"
        verb = " is" if most else ""
        return f"{subject}{verb} {_rounded(_offer_amount(key, nearest))} ({nearest.place})"
    if key == "gpus":
        if nearest.gpu is None:
            return f"no offer{rest} has an accelerator"
        return f"the nearest offer{rest} has {_gpus_of(nearest, resources)} ({nearest.place})"
    if key == "intel_sgx":
        return f"no offer{rest} has enclaves of Intel SGX"
    if key == "image":
        return f"no offer{rest} is a container that runs an image"
    if key == "service":
        brought = " ".join(nearest.packages)
        if brought:
            return f"the nearest service{rest} brings {brought} ({nearest.cloud})"
        return f"no managed service{rest} is known to bring that"
    if key == "max_hourly_cost":
        if nearest.price is None:
            return f"no price is known for an offer{rest}"
        price = _rounded_up(nearest.price * resources.nodes)
        return f"the cheapest offer{rest} is {price} USD/h ({nearest.place})"
    if key in ("spot", "on_demand"):
        return f"every offer{rest} is {'spot' if nearest.spot else 'on-demand'}"
    names = list(
        dict.fromkeys(_offer_name(key, offer) for offer in group if _offer_name(key, offer))
    )
    noun = key.replace("_", " ")
    if not names:
        return f"no offer{rest} names a {noun}"
    return f"offers{rest} have {noun} {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def _met_label(key: str, resources: Resources, offer: Offer) -> Iterator[tuple[str, str]]:
    """Yield the label, and its value, that this offer would meet; nothing when there is none."""
    text = _format_met_label(key, resources, offer)
    if key in ("spot", "on_demand"):
        key = "spot" if offer.spot else "on_demand"
    if text:
        yield key, text


def _format_met_label(key: str, resources: Resources, offer: Offer) -> str:
    """Return what a label would have to say for this offer; empty when there is nothing."""
    if key in ("spot", "on_demand"):
        return "true"
    if key == "gpus":
        return _gpus_of(offer, resources).split()[0] if offer.gpu else ""
    if key in ("image", "intel_sgx", "service"):
        return ""
    if key == "max_hourly_cost":
        price = offer.price
        return "" if price is None else _rounded_up(price * resources.nodes)
    if key in _AMOUNTS:
        return _rounded(_offer_amount(key, offer))
    return _offer_name(key, offer)


def _amount(key: str, resources: Resources) -> Amount:
    return getattr(resources, key)


def _offer_amount(key: str, offer: Offer) -> float:
    return {
        "cpus": offer.vcpus,
        "memory": offer.memory,
        "gpu_memory": offer.gpu_memory or 0.0,
        "disk": offer.disk or 0.0,
    }[key]


def _offer_name(key: str, offer: Offer) -> str:
    return getattr(offer, key) or ""


def _gpus_of(offer: Offer, resources: Resources) -> str:
    """Return the accelerators of an offer, with their form factor where one was asked for."""
    form = offer.form_factor if resources.gpu_form and offer.gpu == resources.gpu else ""
    unknown = " of unknown form factor" if resources.gpu_form and not form else ""
    return f"{offer.gpu}{f'-{form}' if form else ''}:{offer.gpu_count:g}{unknown}"


def _log_ratio(asked: float, found: float) -> float:
    return abs(math.log(asked / found)) if found > 0 else math.inf


def _gpu_memory(name: str) -> float:
    """Return memory in GiB, or 1 for an accelerator that a cloud sells and we do not know."""
    return accelerators.accelerator(name).memory if name in accelerators.names() else 1.0


def _rounded(value: float) -> str:
    return plain_number(round(value, 3))


def _rounded_up(price: float) -> str:
    # Rounded down, the limit that we suggest would refuse the very offer that it came from.
    return plain_number(math.ceil(price * 10_000 - 1e-9) / 10_000)
