"""A space of what the clouds sell: clouds as arms, families, sizes and nodes as parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.space import Point, Space, Value

if TYPE_CHECKING:
    from jupyter_sky.base.requests.resources import Label
    from jupyter_sky.knowledge.catalog import Catalog


def product_family(cloud: str, instance_type: str) -> str:
    """Return the family of an instance type: its name without the size.

    Examples
    --------
    >>> product_family("aws", "m6i.2xlarge"), product_family("gcp", "n2-standard-8")
    ('m6i', 'n2-standard')
    >>> product_family("azure", "Standard_D8as_v5")
    'Das_v5'
    """
    return find_facts(cloud).product_family(instance_type)


def on_sale(
    *,
    nodes: int | Iterable[int] = 1,
    types: int = 30,
    catalog: Catalog | None = None,
    **labels: Label,
) -> Space:
    """Return the configurations on sale that meet a request.

    Every cloud is an arm. Within it the family, the vCPUs and GiB of memory of a node and the
    number of nodes are parameters, and the accelerators where there are any. Each instance type
    is taken at the place where it is cheapest; of types with the same parameters the cheapest is.

    Parameters
    ----------
    nodes
        Numbers of nodes to try.
    types : int
        Most instance types of a cloud, the cheapest first.
    catalog
        What is on sale; the one of the package unless given.
    **labels
        Resources, spelled as the options of a cell are: ``cpus="4+"``, ``cloud="aws,gcp"``,
        ``on_demand=True``. Unless a market is asked for, on-demand prices are taken.

    Returns
    -------
    Space
        The configurations, a cloud as an arm.

    Raises
    ------
    SkyNoOffer
        When nothing is sold that meets the request.
    SkyUsageError
        For labels, nodes or a number of types that make no sense.

    Examples
    --------
    >>> found = on_sale(cpus="4", memory="16+", cloud="aws,gcp", nodes=[1, 2], types=5)
    >>> found.arms, found.parameters
    (('aws', 'gcp'), ('family', 'vcpus', 'memory', 'nodes'))
    """
    counts = _counts(nodes)
    if types < 1:
        raise SkyUsageError(f"types={types}", hint=_("give 1 or more"))
    points: list[Point] = []
    for offer in _cheapest(catalog, labels, types):
        values: dict[str, Value] = {
            "family": product_family(offer.cloud, offer.instance_type),
            "vcpus": offer.vcpus,
            "memory": offer.memory,
        }
        if offer.gpu:
            values |= {"gpu": offer.gpu, "gpus": offer.gpu_count}
        for count in counts:
            price = None if offer.price is None else offer.price * count
            points.append(Point(offer.cloud, {**values, "nodes": count}, price, offer))
    unique = {str(point): point for point in reversed(points)}  # the first, the cheapest, stays
    return Space(tuple(point for point in points if unique[str(point)] is point))


def _counts(nodes: int | Iterable[int]) -> list[int]:
    counts = [nodes] if isinstance(nodes, int) else list(nodes)
    if not counts or any(isinstance(n, bool) or n != int(n) or n < 1 for n in counts):
        raise SkyUsageError(f"nodes={nodes!r}", hint=_("give numbers of nodes, each 1 or more"))
    return list(dict.fromkeys(int(n) for n in counts))


def _cheapest(catalog: Catalog | None, labels: dict[str, Label], types: int) -> list[Offer]:
    """Return the cheapest offer of each instance type, cloud by cloud."""
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.decisions.optimizer.candidates import no_offer
    from jupyter_sky.knowledge.catalog import load
    from jupyter_sky.knowledge.catalog.nearest_offers import find_nearest

    known = load() if catalog is None else catalog
    if "spot" not in labels and "on_demand" not in labels:
        labels = {**labels, "on_demand": True}
    need = Resources.parse(**labels)
    known.check(need)
    selection = known.filter(need).sorted()
    if not len(selection):
        raise no_offer(need, find_nearest(known, need))
    seen: dict[str, dict[str, int]] = {}
    names = zip(selection.strings("cloud"), selection.strings("instance_type"), strict=True)
    for place, (cloud, instance_type) in enumerate(names):
        of_cloud = seen.setdefault(cloud, {})
        if len(of_cloud) < types:
            of_cloud.setdefault(instance_type, place)
    chosen = [selection[place : place + 1] for of in seen.values() for place in of.values()]
    return [offer for one in chosen for offer in one.offers()]
