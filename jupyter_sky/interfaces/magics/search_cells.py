"""Cells with ``--search``: tried on several machines, and written anew with the best of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.decisions.search.result import SearchResult

TRIALS = 12
"""Machines that are tried unless told otherwise."""
_REPLACED = (
    "search trials budget deadline cpus memory gpus gpu_memory nodes cloud instance_type spot "
    "on_demand"
).split()
"""Options that a line with the best machines has no more, or has with other values."""


def check_search(options: CellOptions) -> None:
    """Raise SkyUsageError for options that only a search has, and those that it cannot have."""
    of_search = {
        "--trials": options.trials,
        "--budget": options.budget,
        "--deadline": options.deadline,
    }
    given = [flag for flag, value in of_search.items() if value is not None]
    if given and not options.search:
        raise SkyUsageError(
            _("{flag} belongs to a search of machines").format(flag=given[0]),
            hint=_("add --search cost; --max-cost and --timeout limit a cell"),
        )
    others = {"--bg": options.background, "--map": options.maps, "--cluster": options.cluster}
    clash = [flag for flag, value in others.items() if value]
    if options.search and clash:
        raise SkyUsageError(
            _("--search with {flag}: each trial has machines of its own").format(flag=clash[0]),
            hint=_("search first, then run the cell with the line that it gives"),
        )


def run_search(code: str, options: CellOptions, line: str, shell: Any) -> SearchResult:
    """Try a cell on machines that meet its line; put the cell with the best of them below it.

    Parameters
    ----------
    line
        The text after ``%%sky``.

    Raises
    ------
    SkyUsageError
        No machine has succeeded; the reason of each is told.
    """
    from jupyter_sky.interfaces.widgets.search_view import LiveView
    from jupyter_sky.workflows.trials.live_search import describe_failures, search_live

    view = LiveView(shell)

    found = search_live(
        code,
        space_labels(options),
        options.trials or TRIALS,
        "time" if options.search == "time" else "cost",
        usd=options.budget,
        deadline=options.deadline,
        options=options,
        watch=view,
    )
    if found.best is None:
        raise SkyUsageError(
            describe_failures(found), hint=_("mend the cell, or ask for other machines")
        )
    best = best_cell(f"%%sky {line}\n{code}".rstrip("\n"), found)
    view(found, best.partition("\n")[0])
    shell.set_next_input(best)
    return found


def space_labels(options: CellOptions) -> dict[str, Any]:
    """Return what a cell asks for as labels of `jupyter_sky.decisions.search.on_sale`.

    Examples
    --------
    >>> from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
    >>> space_labels(parse_cell_line("--cpus 4+ --nodes 2"))
    {'cpus': '4+', 'nodes': 2}
    """
    labels: dict[str, Any] = dict(options.resources.labels())
    if "nodes" in labels:
        labels["nodes"] = options.resources.nodes
    for flag in ("spot", "on_demand", "intel_sgx"):
        if flag in labels:
            labels[flag] = True
    return labels


def best_cell(source: str, found: SearchResult) -> str:
    r"""Return a cell with the machines of the best configuration in its line.

    Examples
    --------
    >>> from jupyter_sky.base.requests.offers import Offer
    >>> from jupyter_sky.decisions.search import Measurement, Point, SearchResult, Space, Try
    >>> point = Point("aws", {"nodes": 2}, 1.0, Offer("aws", "us-east-1", "m5.large", 2, 8))
    >>> tried = Try(1, 0, point, 0.1, (Measurement(9.0, 0.1),))
    >>> found = SearchResult(Space((point,)), "cost", 1, (tried,))
    >>> best_cell("%%sky --search cost --cpus 2+ -i X\nfit(X)", found)
    '%%sky -i X --nodes 2 --cloud aws --instance-type m5.large\nfit(X)'
    """
    from jupyter_sky.interfaces.forms.cell_line import read, write

    best = found.best
    assert best is not None and best.point.offer is not None
    offer, fields = best.point.offer, read(source).fields
    values = {key: value for key, value in fields.values.items() if key not in _REPLACED}
    values |= {"cloud": offer.cloud, "instance_type": offer.instance_type}
    if best.point.nodes > 1:
        values["nodes"] = str(best.point.nodes)
    if offer.spot:
        values["spot"] = True
    return write(source, replace(fields, values=values))
