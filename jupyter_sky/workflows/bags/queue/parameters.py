"""Parameters of the jobs of a bag: ranges and their grids or samples, tables, generators, files."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.conditions import (
    condition_names,
    is_met,
    parse_condition,
)
from jupyter_sky.base.translation import _

Parameters = dict[str, Any]
"""Values of one job by their names; values of JSON."""
Where = str | Callable[[Parameters], bool]
"""Constraint: a comparison of parameters, or a function of all of them."""
MAX_JOBS = 1_000_000
"""Jobs of a bag: more than that would be a mistake in a range."""
_SAMPLERS = ("grid", "random", "sobol")
_TRIES = 1000
"""Samples drawn for each wanted job before the constraints are found too narrow."""
_RANGES_HINT = 'such as {"lr": (0.001, 0.1), "depth": [2, 4, 8]}'
FILE_EXAMPLE = '{"parameters": {"lr": {"min": 0, "max": 1, "step": 0.5}}}'
RANGE_EXAMPLE = '{"min": 0, "max": 1, "step": 0.5}, {"min": 0, "max": 1}, {"values": [1, 2]}'
_FILE_KEYS = ("parameters", "constraints", "n", "seed", "sampler")


@dataclass(frozen=True, slots=True)
class Sweep:
    """Space of parameters, and how jobs are taken from it.

    Attributes
    ----------
    ranges
        Choices of each parameter as a list, or the ends of an interval as a tuple of two numbers.
    where
        Constraints, all of which hold for each job.
    n
        Number of jobs to draw; without it, all combinations of the choices.
    seed
        Of the samples: the first of 200 are the same as those of 100.
    sampler
        ``grid`` (all combinations, in the order of the ranges), ``random`` or ``sobol``.

    Examples
    --------
    >>> Sweep({"a": [1, 2], "b": [0, 5]}, where=("a > b",)).jobs()
    [{'a': 1, 'b': 0}, {'a': 2, 'b': 0}]
    >>> len(Sweep({"x": (0.0, 1.0)}, n=3, seed=1).jobs())
    3
    """

    ranges: Mapping[str, list[Any] | tuple[float, float]]
    where: tuple[Where, ...] = ()
    n: int | None = None
    seed: int = 0
    sampler: str = field(default="")

    def jobs(self, n: int | None = None) -> list[Parameters]:
        """Return the parameters of the jobs: of `n` where it is given, else of as many as it says.

        Raises
        ------
        SkyUsageError
            The constraints leave too little, or there are too many combinations.
        """
        wanted = self.n if n is None else n
        if wanted is None:
            return list(_require_some(self._grid()))
        if self._is_grid:
            return _at_least(list(itertools.islice(self._grid(), wanted)), wanted)
        return _at_least(list(itertools.islice(self._samples(wanted), wanted)), wanted)

    @property
    def _is_grid(self) -> bool:
        return self.sampler == "grid"

    def _grid(self) -> Iterator[Parameters]:
        names = list(self.ranges)
        choices = [list(self.ranges[name]) for name in names]
        total = math.prod(map(len, choices))
        if total > MAX_JOBS:
            raise SkyUsageError(
                _("the ranges have {total:,} combinations").format(total=total),
                hint=_("draw some of them: n=200"),
            )
        combinations = (
            dict(zip(names, values, strict=True)) for values in itertools.product(*choices)
        )
        return filter(self._is_allowed, combinations)

    def _samples(self, wanted: int) -> Iterator[Parameters]:
        units = _sobol(len(self.ranges), self.seed) if self.sampler == "sobol" else None
        units = units or _random(len(self.ranges), self.seed)
        points = itertools.islice(units, wanted * _TRIES)
        return filter(self._is_allowed, map(self._place, points))

    def _place(self, point: Sequence[float]) -> Parameters:
        """Return the parameters of a point of the unit cube."""
        return {
            name: _place_value(values, share)
            for (name, values), share in zip(self.ranges.items(), point, strict=True)
        }

    def _is_allowed(self, parameters: Parameters) -> bool:
        return all(
            is_met(each, parameters, "where") if isinstance(each, str) else each(parameters)
            for each in self.where
        )


def _place_value(values: list[Any] | tuple[float, float], share: float) -> Any:
    if isinstance(values, tuple):
        low, high = values
        return low + share * (high - low)
    return values[min(int(share * len(values)), len(values) - 1)]


def _random(dimensions: int, seed: int) -> Iterator[Sequence[float]]:
    source = random.Random(seed)
    while True:
        yield [source.random() for _axis in range(dimensions)]


def _sobol(dimensions: int, seed: int) -> Iterator[Sequence[float]]:
    """Yield a scrambled Sobol sequence, whose points fill the cube evenly."""
    from scipy.stats import qmc

    source = qmc.Sobol(dimensions, seed=seed)  # pyright: ignore[reportCallIssue]
    while True:
        yield from source.random(64).tolist()


def _at_least(found: list[Parameters], wanted: int) -> list[Parameters]:
    if len(found) < wanted:
        raise SkyUsageError(
            _("{wanted} jobs are asked for, and the ranges give {count}").format(
                wanted=wanted, count=len(found)
            ),
            hint=_("ask for fewer, widen the ranges, or loosen where="),
        )
    return found


def _require_some(found: Iterator[Parameters]) -> list[Parameters]:
    jobs = list(found)
    if not jobs:
        raise SkyUsageError(
            _("no combination of the parameters fulfils the constraints"),
            hint=_("loosen where="),
        )
    return jobs


def make_sweep(
    ranges: Mapping[str, Any],
    where: Where | Sequence[Where] | None = None,
    n: int | None = None,
    seed: int = 0,
    sampler: str | None = None,
) -> Sweep:
    """Return a sweep over ranges as people write them.

    Parameters
    ----------
    ranges
        A list, a `range` or an array has choices; a tuple of two numbers is an interval; anything
        else is one value.
    where, n, seed
        As `Sweep` has them.
    sampler
        Unless given, ``grid`` without `n`, else ``random``.

    Raises
    ------
    SkyUsageError
        A range is empty or turned round, a value is not one of JSON, an interval has no `n`, a
        constraint names no parameter.

    Examples
    --------
    >>> make_sweep({"lr": [0.1, 0.01], "seed": range(2)}, where="seed < 1").jobs()
    [{'lr': 0.1, 'seed': 0}, {'lr': 0.01, 'seed': 0}]
    """
    if not isinstance(ranges, Mapping) or not ranges:
        raise SkyUsageError(_("a sweep without parameters"), hint=_RANGES_HINT)
    read = {str(name): _read_range(str(name), values) for name, values in ranges.items()}
    sampler = sampler or ("grid" if n is None else "random")
    if sampler not in _SAMPLERS:
        raise SkyUsageError(
            _("sampler={sampler!r} is not known").format(sampler=sampler),
            hint=suggest(str(sampler), _SAMPLERS),
        )
    _check_count(n)
    intervals = [name for name, values in read.items() if isinstance(values, tuple)]
    if intervals and (n is None or sampler == "grid"):
        raise SkyUsageError(
            _("{name} is an interval, of which a grid has no points").format(name=intervals[0]),
            hint=_("say how many jobs to draw, n=200, or list its values"),
        )
    constraints: Sequence[Where] = (
        () if where is None else [where] if isinstance(where, str) or callable(where) else where
    )
    for each in constraints:
        if isinstance(each, str):
            _check_names(each, read)
    return Sweep(read, tuple(constraints), n, seed, sampler)


def _check_count(n: int | None) -> None:
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_JOBS):
        raise SkyUsageError(
            _("n={n!r}: not a number of jobs").format(n=n),
            hint=_("between 1 and {most:,}").format(most=MAX_JOBS),
        )


def _check_names(constraint: str, ranges: Mapping[str, Any]) -> None:
    for name in condition_names(parse_condition(constraint, "where")):
        if name not in ranges:
            raise SkyUsageError(
                _("where {constraint}: there is no parameter {name}").format(
                    constraint=constraint, name=name
                ),
                hint=suggest(name, ranges),
            )


def _read_range(name: str, values: Any) -> list[Any] | tuple[float, float]:
    if isinstance(values, tuple) and len(values) == 2 and all(map(_is_number, values)):
        low, high = values
        if not low < high:
            raise SkyUsageError(
                _("{name}: ({low}, {high}) is no interval").format(name=name, low=low, high=high),
                hint=_("the lower end first; a list has single values: [{low}, {high}]").format(
                    low=low, high=high
                ),
            )
        return float(low), float(high)
    as_list = getattr(values, "tolist", None)  # of an array
    if as_list is not None:
        values = as_list()
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        values = [values]
    choices = [_plain_value(name, each) for each in values]
    if not choices:
        raise SkyUsageError(_("{name} has no values").format(name=name), hint=_RANGES_HINT)
    return choices


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain_value(name: str, value: Any) -> Any:
    """Return a value of JSON; of NumPy and pandas the number in it."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise SkyUsageError(
            _("parameter {name}: a {kind} is not a value of JSON").format(
                name=name, kind=type(value).__name__
            ),
            hint=_("numbers, texts, lists and dicts; let the job make or read the rest"),
        ) from None
    return json.loads(text)


# -- jobs as people give them ------------------------------------------------------------------


def read_jobs(jobs: Any, argument: str = "value") -> list[Parameters]:
    """Return the parameters of jobs that are listed, each with its own.

    Parameters
    ----------
    jobs
        Dicts, or single values; a DataFrame with a job in each row; a generator of either; a number
        of jobs without parameters; the path of a JSON file.
    argument
        Name that single values get.

    Raises
    ------
    SkyUsageError
        There is none, a value is not one of JSON, or a generator has raised.

    Examples
    --------
    >>> read_jobs([{"lr": 0.1}, {"lr": 0.2}])
    [{'lr': 0.1}, {'lr': 0.2}]
    >>> read_jobs(range(2), "seed")
    [{'seed': 0}, {'seed': 1}]
    >>> read_jobs(3)
    [{}, {}, {}]
    """
    if isinstance(jobs, Sweep):
        return jobs.jobs()
    if isinstance(jobs, str | Path):
        return read_file(Path(jobs)).jobs()
    if isinstance(jobs, int) and not isinstance(jobs, bool):
        _check_count(jobs)
        return [{} for _number in range(jobs)]
    if isinstance(jobs, Mapping):
        raise SkyUsageError(
            _("a bag takes a list of jobs, and one dict is given"),
            hint=_("a job for each combination of values: sky.sweep(function, {...})"),
        )
    as_dicts = getattr(jobs, "to_dict", None)  # of a DataFrame
    if as_dicts is not None:
        jobs = as_dicts("records")
    if not isinstance(jobs, Iterable):
        raise SkyUsageError(
            _("a {kind} is no list of jobs").format(kind=type(jobs).__name__),
            hint=_("a list of dicts, a DataFrame, a generator, or a number of jobs"),
        )
    found = [_read_job(number, job, argument) for number, job in enumerate(_drawn(jobs))]
    if not found:
        raise SkyUsageError(_("a bag without jobs"), hint=_("give at least one"))
    return found


def _drawn(jobs: Iterable[Any]) -> Iterator[Any]:
    """Yield jobs; say which one a generator has failed at."""
    source, number = iter(jobs), 0
    while True:
        try:
            job = next(source)
        except StopIteration:
            return
        except Exception as error:
            raise SkyUsageError(
                _("the generator of jobs has failed at job {number}: {kind}: {error}").format(
                    number=number, kind=type(error).__name__, error=error
                ),
                hint=_("nothing was begun"),
            ) from error
        if number >= MAX_JOBS:
            raise SkyUsageError(_("more than {most:,} jobs").format(most=MAX_JOBS))
        yield job
        number += 1


def _read_job(number: int, job: Any, argument: str) -> Parameters:
    values = job if isinstance(job, Mapping) else {argument: job}
    named = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise SkyUsageError(
                _("job {number}: {name!r} is no name of a parameter").format(
                    number=number, name=name
                )
            )
        named[name] = _plain_value(
            _("{name} of job {number}").format(name=name, number=number), value
        )
    return named


def read_file(path: Path) -> Sweep:
    """Return the sweep of a JSON file, in the form of SciSpot's tools.

    ``{"parameters": {"lr": {"min": 0, "max": 1, "step": 0.5}, "kind": {"values": ["a"]}},
    "constraints": ["lr > 0"], "n": 10, "seed": 0, "sampler": "sobol"}``; a list is a list of jobs,
    each parameter without a step an interval.

    Raises
    ------
    SkyUsageError
        It is not there, is no JSON, or has not this form.
    """
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SkyUsageError(
            _("{path}: {error}").format(path=path, error=error),
            hint=_("a JSON file with parameters and their ranges"),
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("parameters"), dict):
        raise SkyUsageError(
            _("{path}: it has no parameters").format(path=path),
            hint=FILE_EXAMPLE,
        )
    for key in data:
        if key not in _FILE_KEYS:
            raise SkyUsageError(
                _("{path}: {key!r} is not known").format(path=path, key=key),
                hint=suggest(key, _FILE_KEYS),
            )
    ranges = {name: _read_file_range(name, found) for name, found in data["parameters"].items()}
    constraints = data.get("constraints", ())
    return make_sweep(ranges, constraints, data.get("n"), data.get("seed", 0), data.get("sampler"))


def _read_file_range(name: str, found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    if "values" in found:
        return list(found["values"])
    try:
        low, high, step = found["min"], found["max"], found.get("step")
    except KeyError as error:
        raise SkyUsageError(
            _("parameter {name}: {key} is missing").format(name=name, key=error),
            hint=RANGE_EXAMPLE,
        ) from None
    if step is None:
        return (low, high)
    if not step > 0:
        raise SkyUsageError(
            _("parameter {name}: step {step} is not above 0").format(name=name, step=step)
        )
    # the end belongs to the range, however the steps are rounded
    return [low + number * step for number in range(int((high - low) / step * (1 + 1e-12)) + 1)]


def argument_name(function: Callable[..., Any]) -> str:
    """Return the name of the first argument of a function, by which single values are passed.

    Examples
    --------
    >>> argument_name(lambda seed: seed)
    'seed'
    """
    try:
        return next(iter(inspect.signature(function).parameters), "value")
    except (TypeError, ValueError):  # of some built-in functions nothing is known
        return "value"
