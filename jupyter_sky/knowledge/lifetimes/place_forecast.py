"""Forecast of places: how probably each is up, and since when, by what was last seen of it.

A place alternates between up and down; the hazards of both changes fall with the time for which it
has been in its state (`availability`). From the last observation on, the forecast follows the
chances of all states and ages in steps of `STEP`::

    up(0), down(0)  = returns of all ages, losses of all ages
    up(a + STEP)    = up(a) * (1 - loss(a))
    down(a + STEP)  = down(a) * (1 - return(a))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.knowledge.lifetimes.availability import HazardCurve
from jupyter_sky.knowledge.lifetimes.observations import Happening, Seen

STEP = 0.1
"""Hours."""
AGES = np.arange(0.0, 12.0 + STEP / 2, STEP)
"""Hours for which a place has been up or down; the last stands for all that are longer."""
MEMORY = 72.0
"""Hours after which an observation no longer tells the state of a place."""


@dataclass(frozen=True, slots=True)
class PlaceState:
    """State in which a place was seen last.

    Attributes
    ----------
    is_up : bool
        Whether a machine could be had.
    at : float
        Hours at which it was seen.
    since : float
        Hours since which it was, or is taken to have been, in this state.
    """

    is_up: bool
    at: float
    since: float


@dataclass(frozen=True)
class PlaceForecast:
    """Chances of the states of places, a row for each place.

    Attributes
    ----------
    up, down : ndarray
        Chance that a place is up or down and has been so for an age of `AGES`.
    losses, returns : ndarray
        Chance that it changes within a step, by age.
    """

    up: np.ndarray
    down: np.ndarray
    losses: np.ndarray
    returns: np.ndarray

    def after(self, hours: float) -> PlaceForecast:
        """Return the chances some hours later, where nothing else is seen.

        Examples
        --------
        >>> from jupyter_sky.knowledge.lifetimes.availability import LOSS, RETURN
        >>> seen = {"a": PlaceState(is_up=True, at=0.0, since=0.0)}
        >>> now = forecast_places(["a"], seen, 0.0, np.ones(1), np.ones(1), LOSS, RETURN)
        >>> now.is_up().tolist(), bool(0.5 < now.after(0.5).is_up()[0] < 0.7)
        ([1.0], True)
        """
        return self._advance(np.full(len(self.up), round(hours / STEP)))

    def _advance(self, steps: np.ndarray) -> PlaceForecast:
        """Return the chances after as many steps as each place has."""
        up, down = self.up, self.down
        for step in range(int(steps.max(initial=0))):
            lost, back = up * self.losses, down * self.returns
            moves = (steps > step)[:, None]
            up, down = (
                np.where(moves, _grow_older(up - lost, back), up),
                np.where(moves, _grow_older(down - back, lost), down),
            )
        return replace(self, up=up, down=down)

    def is_up(self) -> np.ndarray:
        """Return the chance that each place is up."""
        return self.up.sum(axis=1)

    def mean_if_up(self, by_age: np.ndarray) -> np.ndarray:
        """Return the means of quantities that depend on the age, given that the places are up."""
        chance = self.is_up()
        mean = (self.up * by_age).sum(axis=1) / np.maximum(chance, 1e-12)
        return np.where(chance > 1e-9, mean, by_age[:, 0])

    def loss_rates(self) -> np.ndarray:
        """Return the losses per hour that each place is up, in the long run."""
        alive = np.cumprod(np.hstack([np.ones((len(self.losses), 1)), 1 - self.losses]), axis=1)
        steps = alive[:, :-1].sum(axis=1) + alive[:, -1] / self.losses[:, -1]
        return 1 / (steps * STEP)


def _grow_older(chances: np.ndarray, begun: np.ndarray) -> np.ndarray:
    """Return chances by age a step later; `begun` are those that have changed their state."""
    older = np.empty_like(chances)
    older[:, 0] = begun.sum(axis=1)
    older[:, 1:] = chances[:, :-1]
    older[:, -1] += chances[:, -1]
    return older


def forecast_places(
    zones: Sequence[str],
    states: Mapping[str, PlaceState],
    now: float,
    loss_factors: np.ndarray,
    return_factors: np.ndarray,
    loss: HazardCurve,
    back: HazardCurve,
) -> PlaceForecast:
    """Return the chances of the states of places now.

    Parameters
    ----------
    zones
        Names of the places.
    states
        What was seen last, by zone; all are there.
    now
        Hours.
    loss_factors, return_factors
        How many times as often as the hazards say each place goes down and comes back.
    loss, back
        Hazards of a loss by the time up, and of a return by the time down.

    Returns
    -------
    PlaceForecast
        In the order of `zones`.
    """
    up = np.zeros((len(zones), len(AGES)))
    down = np.zeros_like(up)
    steps = np.zeros(len(zones), dtype=int)
    for row, zone in enumerate(zones):
        state = states[zone]
        age = min(round((state.at - state.since) / STEP), len(AGES) - 1)
        (up if state.is_up else down)[row, age] = 1.0
        steps[row] = round(min(now - state.at, MEMORY) / STEP)
    chances = _chances(loss, loss_factors), _chances(back, return_factors)
    return PlaceForecast(up, down, *chances)._advance(steps)


def _chances(hazard: HazardCurve, factors: np.ndarray) -> np.ndarray:
    expected = np.asarray(hazard.integral(AGES + STEP)) - np.asarray(hazard.integral(AGES))
    return -np.expm1(-factors[:, None] * expected[None])


def last_states(seen: Sequence[Seen], unseen_age: float) -> dict[str, PlaceState]:
    """Return the state in which each place was seen last.

    Parameters
    ----------
    unseen_age
        Hours for which a place is taken to have been up when it is seen for the first time.

    Examples
    --------
    >>> seen = [Seen(1.0, "a", Happening.LOST), Seen(3.0, "a", Happening.REFUSED)]
    >>> last_states(seen, 8.0)["a"]
    PlaceState(is_up=False, at=3.0, since=1.0)
    """
    states = dict[str, PlaceState]()
    for event in seen:
        before = states.get(event.zone)
        is_up = event.what in (Happening.LAUNCHED, Happening.RELEASED)
        if before is None:
            since = event.at - unseen_age if is_up else event.at
        else:
            since = before.since if before.is_up is is_up else event.at
        states[event.zone] = PlaceState(is_up, event.at, since)
    return states
