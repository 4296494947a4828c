"""Plots of what jobs have returned, over their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_PANELS = 6
"""Parameters that are shown, in the order in which jobs have them."""


def plot_objective(
    frame: DataFrame, parameters: list[str], results: list[str], objective: str | None
) -> Figure:
    """Return a figure with a panel for each parameter that varies.

    Parameters
    ----------
    frame
        Jobs, as `BagRun.frame` returns them.
    parameters, results
        Its columns of either kind.
    objective
        Result to show; the first that is a number unless given.

    Raises
    ------
    SkyUsageError
        No job has returned such a number.

    Examples
    --------
    >>> from pandas import DataFrame
    >>> frame = DataFrame({"lr": [0.1, 0.2], "loss": [3.0, 2.0], "state": "succeeded"})
    >>> len(plot_objective(frame, ["lr"], ["loss"], None).axes)
    1
    """
    from matplotlib import pyplot

    done: Any = frame[frame["state"] == "succeeded"]
    name = _find_objective(done, results, objective)
    varied = [each for each in parameters if done[each].astype(str).nunique() > 1]
    shown = (varied or parameters)[:MOST_PANELS] or [""]
    figure = pyplot.figure(figsize=(3.6 * len(shown), 3.2), layout="constrained")
    pyplot.close(figure)  # it is shown where it is returned, and not once more
    panels: Any = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, each in zip(panels, shown, strict=True):
        values = done[each] if each else done.index
        if each and not _is_number(values):
            values = values.astype(str)
        axes.plot(values, done[name].astype(float), "o", alpha=0.6)
        means: Any = done[name].astype(float).groupby(values).mean()
        if 1 < len(means) < len(done):
            axes.plot(means.index, means, "-", label=_("mean"))
            axes.legend()
        axes.set_xlabel(each or _("job"))
    panels[0].set_ylabel(name)
    return figure


def _find_objective(done: DataFrame, results: list[str], objective: str | None) -> str:
    numbers = [each for each in results if len(done) and _is_number(done[each])]
    if objective is None and numbers:
        return numbers[0]
    if objective is not None and objective in numbers:
        return objective
    if objective is None:
        raise SkyUsageError(
            _("no job has returned a number"),
            hint=_('return one, or a dict such as {"loss": 0.2}; plot it: bag.plot("loss")'),
        )
    raise SkyUsageError(
        _("{name}: not a number that jobs have returned").format(name=objective),
        hint=suggest(objective, numbers),
    )


def _is_number(values: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    kind = values.infer_objects()
    return is_numeric_dtype(kind) and not is_bool_dtype(kind)
