"""Search space: a finite set of configurations, each of them in one arm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.requests.offers import Offer

Value = str | int | float | bool


@dataclass(frozen=True)
class Point:
    """One configuration.

    Attributes
    ----------
    arm : str
        What is selected, such as the cloud.
    values : mapping
        How it is configured: values by name of the parameter.
    price : float, optional
        USD/h of the whole configuration, all nodes together; None when not known.
    offer : Offer, optional
        The machine that a node is, for whoever launches it.

    Examples
    --------
    >>> str(Point("aws", {"family": "m6i", "nodes": 2}, 0.38))
    'aws family=m6i nodes=2'
    """

    arm: str
    values: Mapping[str, Value]
    price: float | None = None
    offer: Offer | None = field(default=None, compare=False)

    @property
    def nodes(self) -> int:
        """Number of machines; 1 unless a parameter of that name says otherwise."""
        return int(self.values.get("nodes", 1))

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def __str__(self) -> str:
        return " ".join([self.arm, *(f"{name}={value}" for name, value in self.values.items())])

    def __hash__(self) -> int:
        return hash((self.arm, tuple(self.values.items())))


@dataclass(frozen=True)
class Space:
    """A finite set of configurations, in arms whose parameters may differ.

    Attributes
    ----------
    points : tuple of Point
        All configurations that exist; optimizers speak of them by their place in this tuple.

    Raises
    ------
    SkyUsageError
        When there is no point, when a point stands there twice, or a price is not a price.

    Examples
    --------
    >>> space = Space.of({"A": {"nodes": [2, 3]}, "B": {"kind": ["x", "y"], "nodes": [2]}})
    >>> len(space), space.arms
    (4, ('A', 'B'))
    """

    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise SkyUsageError(
                _("a space without any configuration"), hint=_("give one point or more")
            )
        seen: set[str] = set()
        for point in self.points:
            if str(point) in seen:
                raise SkyUsageError(
                    _("{point}: this configuration is in the space twice").format(point=point),
                    hint=_("give it once"),
                )
            seen.add(str(point))
            if point.price is not None and not 0 <= point.price < float("inf"):
                raise SkyUsageError(
                    _("{point}: a price of {price} USD/h").format(point=point, price=point.price),
                    hint=_("a price is 0 or more, and None when not known"),
                )

    @classmethod
    def of(
        cls,
        arms: Mapping[str, Mapping[str, Iterable[Value]]],
        price: Callable[[str, Mapping[str, Value]], float | None] | None = None,
    ) -> Space:
        """All combinations of the parameters' values, arm by arm.

        Parameters
        ----------
        arms
            For each arm its parameters, each with the values it can have.
        price
            ``price(arm, values)`` gives USD/h of a whole configuration, or None.
        """
        points = []
        for arm, parameters in arms.items():
            for chosen in product(*parameters.values()):
                values = dict(zip(parameters, chosen, strict=True))
                points.append(Point(arm, values, price(arm, values) if price else None))
        return cls(tuple(points))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> Point:
        return self.points[index]

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, in the order of their first points."""
        return tuple(dict.fromkeys(point.arm for point in self.points))

    @cached_property
    def arm_of(self) -> np.ndarray:
        """Number of each point's arm."""
        place = {arm: number for number, arm in enumerate(self.arms)}
        return np.array([place[point.arm] for point in self.points])

    def members(self, arm: str) -> np.ndarray:
        """Places of an arm's points.

        Raises
        ------
        SkyUsageError
            For an arm that the space lacks.
        """
        if arm not in self.arms:
            raise SkyUsageError(
                _("the space has no arm {arm!r}").format(arm=arm), hint=suggest(arm, self.arms)
            )
        return np.flatnonzero(self.arm_of == self.arms.index(arm))

    @cached_property
    def prices(self) -> np.ndarray:
        """USD/h of each point; NaN when not known."""
        return np.array([np.nan if p.price is None else p.price for p in self.points], float)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters, of whatever arm."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.values))

    def column(self, name: str) -> tuple[np.ndarray, bool]:
        """Return a parameter's value at each point, and whether values are compared by distance.

        Numbers are, on a logarithmic scale when all are positive: from 1 to 2 nodes it is as far
        as from 2 to 4. Other values are numbered in the order in which they first occur. NaN
        stands where an arm lacks the parameter.
        """
        found = [point.values.get(name) for point in self.points]
        given = [value for value in found if value is not None]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in given):
            numbers = np.array([np.nan if v is None else v for v in found], float)
            positive = np.nanmin(numbers) > 0
            return (np.log2(numbers) if positive else numbers), True
        codes = {value: code for code, value in enumerate(dict.fromkeys(given))}
        return np.array([np.nan if v is None else codes[v] for v in found], float), False

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Numeric parameters that every arm has: what is learned in one arm speaks of others."""
        return tuple(
            name
            for name in self.parameters
            if self.column(name)[1] and not np.isnan(self.column(name)[0]).any()
        )

    @cached_property
    def fingerprint(self) -> str:
        """Says whether two spaces have the same points in the same order."""
        text = json.dumps([[p.arm, dict(p.values)] for p in self.points], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def features(self, members: Sequence[int] | np.ndarray) -> np.ndarray:
        """Coordinates of some points for models of distance, one row for each.

        A number becomes one coordinate from 0 to 1; another value with n alternatives becomes n
        coordinates, of which its own is sqrt(1/2), so that two different values are 1 apart.
        What does not vary is left out.
        """
        members = np.asarray(members)
        columns = [np.zeros((len(members), 0))]
        for name in self.parameters:
            values, numeric = self.column(name)
            columns += _coordinates(values[members], numeric)
        if len(set(self.arm_of[members].tolist())) > 1:
            columns += _coordinates(self.arm_of[members].astype(float), False)
        return np.hstack(columns)


def _coordinates(values: np.ndarray, numeric: bool) -> list[np.ndarray]:
    known = values[~np.isnan(values)]
    different = np.unique(known)
    if len(different) + bool(len(known) < len(values)) < 2:
        return []
    if not numeric:
        return [(values[:, None] == different[None, :]) * np.sqrt(0.5)]
    span = different[-1] - different[0] or 1.0
    filled = np.where(np.isnan(values), different.mean(), values)
    return [((filled - different[0]) / span)[:, None]]


def too_small(space: Space, failed: Point) -> list[int]:
    """Return the points that have no more memory than one that ran out of it.

    No more in all nodes together, in each node and for each vCPU: whichever of these the workload
    needs, it does not get more.

    Examples
    --------
    >>> space = Space.of({"A": {"vcpus": [2, 4], "memory": [4, 8], "nodes": [1]}})
    >>> [str(space[index]) for index in too_small(space, space[2])]
    []
    >>> [str(space[index]) for index in too_small(space, space[1])]
    ['A vcpus=2 memory=4 nodes=1', 'A vcpus=4 memory=4 nodes=1', 'A vcpus=4 memory=8 nodes=1']
    """
    limit = _memory(failed)
    if limit is None:
        return []
    found = []
    for index, point in enumerate(space.points):
        amounts = _memory(point)
        if point != failed and amounts is not None and bool(np.all(amounts <= limit)):
            found.append(index)
    return found


def _memory(point: Point) -> np.ndarray | None:
    """Return the memory of a node, of a vCPU and of all nodes (GiB); None where it is not known."""
    memory, vcpus = point.values.get("memory"), point.values.get("vcpus")
    if not isinstance(memory, int | float) or not memory:
        return None
    each = memory / vcpus if isinstance(vcpus, int | float) and vcpus else 0.0
    return np.array([memory, each, memory * point.nodes])
