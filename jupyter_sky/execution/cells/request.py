"""Request and position of one cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy, parse_burst
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import Resources, parse_clouds
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.notebook_history import NO_HISTORY, NotebookHistory

PASSING_MAGICS = {"%%sky", "%%time", "%%timeit", "%%capture", "%%prun"}
"""Cell magics that leave errors of the body to IPython."""


def are_passing_magics(lines: Sequence[str]) -> bool:
    """Return whether lines are ``%%sky`` and magics that leave its errors to IPython."""
    words = {line.split(maxsplit=1)[0] for line in lines if line.strip()}
    return "%%sky" in words and words <= PASSING_MAGICS


def with_settings(options: CellOptions, config: Sky) -> CellOptions:
    """Return options with the values of the settings where the cell itself says nothing."""
    resources = apply_settings(options.resources, config)
    return replace(
        options,
        resources=resources,
        cluster=options.cluster or config.cluster or None,
        burst=options.burst or configured_burst(config),
    )


def configured_burst(config: Sky) -> BurstPolicy | None:
    """Return the policy of the settings for machines of one's own that are busy; None for none."""
    return parse_burst(config.burst, "Sky.burst") if config.burst.strip() else None


def apply_settings(need: Resources, config: Sky) -> Resources:
    """Return a request with the clouds and the price limit of the settings where it names none."""
    if config.cloud and not need.clouds:
        need = replace(need, clouds=parse_clouds(config.cloud, "Sky.cloud"))
    if need.max_hourly_cost is None:
        need = replace(need, max_hourly_cost=config.max_hourly_cost)
    return need


class CellPosition:
    """Position of a cell in its notebook.

    Parameters
    ----------
    number
        The number in its prompt.
    line
        Text after ``%%sky``.
    above
        The cell's lines before the body.
    cell_id
        JupyterLab's own name of the cell.
    history
        The cells before it.
    is_outermost
        Whether only magics stand around the body, and no code that could handle its errors.
    folder
        To which its paths are relative; without one that of the session.
    """

    __slots__ = ("above", "cell_id", "folder", "history", "is_outermost", "line", "number")

    def __init__(
        self,
        number: int,
        line: str = "",
        above: Sequence[str] = (),
        cell_id: str | None = None,
        history: NotebookHistory = NO_HISTORY,
        is_outermost: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.number, self.line, self.above, self.cell_id = number, line, tuple(above), cell_id
        self.history, self.is_outermost, self.folder = history, is_outermost, folder

    def number_lines(self, body: str) -> str:
        """Return the body below its lines as comments: line numbers are the notebook's own."""
        if body.startswith("%%"):
            return body  # a cell magic must stand first
        return "".join(f"# {line}\n" for line in self.above) + body


def cell_id(shell: Any) -> str | None:
    """Return the front end's own name of the cell that a shell runs; most but Lab send none."""
    try:
        found = shell.get_parent()["metadata"]["cellId"]
    except (AttributeError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def parse_ranks(on: str | None, nodes: int) -> list[int]:
    """Return the ranks that ``--on`` names; without it, all of them.

    Raises
    ------
    SkyUsageError
        A rank that the cluster does not have.
    """
    if on is None or on == "all":
        return list(range(nodes))
    ranks: list[int] = []
    for part in on.split(","):
        first, colon, last = part.partition(":")
        ranks += range(int(first or 0), int(last or nodes)) if colon else [int(first)]
    bad = [rank for rank in ranks if not 0 <= rank < nodes]
    if bad or not ranks:
        raise SkyUsageError(
            _("--on {on}: the cluster has ranks 0 to {nodes}").format(on=on, nodes=nodes - 1)
        )
    return sorted(set(ranks))
