"""Verbs for cells: their logs, their costs, background cells, whole notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, parse_path, word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, SHELL, verb


@verb(
    "logs",
    "logs 7",
    word("[CELL]", "Name or number of a cell; the last one unless given.", "run"),
    option("-f --follow", "", "Print what arrives until the cell ends."),
    option("--provision", "", "Print the steps of the launch of its cluster."),
    option("--spark", "", "Print the stages of its queries of Spark."),
)
def logs(cell: str | None, follow: bool, provision: bool, spark: bool) -> None:
    """Print the output of a cell."""
    from jupyter_sky.interfaces.api import cells

    given = {"--follow": follow, "--provision": provision, "--spark": spark}
    if sum(given.values()) > 1:
        names = _(" and ").join(name for name, is_given in given.items() if is_given)
        raise SkyUsageError(
            _("{names} exclude each other").format(names=names), hint=_("give one of them")
        )
    if follow:
        _follow(cell)
    elif spark:
        print(cells.logs(cell, spark=True))
    else:
        print(cells.provision_log(cell) if provision else cells.logs(cell), end="")


def _follow(cell: str | None) -> None:
    """Print the output of a run as it arrives, until the run ends."""
    import time

    from jupyter_sky.execution.sessions import session as sessions
    from jupyter_sky.interfaces.widgets.logs import format_entries

    session = sessions.current()
    run_id, start = session.history.find_run(cell).run_id, 0
    while True:
        # read before the entries: what arrives between the two is printed in the next round
        run = session.store.run(run_id)
        entries, start = session.history.read_journal(run_id, start)
        print("".join(line["text"] for line in format_entries(entries)), end="", flush=True)
        if entries:
            continue
        if run is None or run.ended is not None:
            return
        time.sleep(0.5)


@verb(
    "wait",
    "wait train",
    word("[CELL]", "Name or number of a cell; all unless given.", "run"),
    only=NOTEBOOK,
)
def wait(cell: str | None) -> Any:
    """Wait for background cells."""
    from jupyter_sky.interfaces.api import cells

    return cells.wait(cell)


@verb("cancel", "cancel train", word("CELL", "Name or number of a cell or command.", "run"))
def cancel(cell: str) -> None:
    """Stop a background cell; a second time it restarts an engine that does not answer."""
    import time

    from jupyter_sky.execution.sessions import session as sessions
    from jupyter_sky.interfaces.api import cells

    if sessions.current().everywhere:  # a shell, whose runs are those of other processes
        from jupyter_sky.interfaces.forms.run_queue import stop_run

        print(stop_run(cell))
        return
    from jupyter_sky.execution.cells.run_monitor import ANSWER_SECONDS

    run = cells.handle(cell)
    was_warned = bool(run.warning)
    run.cancel()
    deadline = time.monotonic() + ANSWER_SECONDS + 1.0
    while not run.done() and time.monotonic() < deadline:
        if run.warning and not was_warned:
            print(run.warning)
            return
        time.sleep(0.05)


@verb(
    "cost",
    "cost --by day --since 30d",
    word("[GROUPING]", "The same as --by.", "grouping"),
    option("--by", "GROUPING", "cell, notebook, cluster, cloud or day.", "--by day", "grouping"),
    option("--since", "TIME", "A day, today, an age such as 12h, or all.", "--since 30d"),
    option("--csv", "FILE", "Write a CSV file.", "--csv costs.csv", "path", parse_path),
)
def cost(grouping: str | None, by: str | None, since: str | None, csv: Path | None) -> Any:
    """Show costs: spent, still to come, and saved."""
    from jupyter_sky.interfaces.api import costs
    from jupyter_sky.knowledge.ledger.report import parse_by

    report = costs.cost(parse_by(by or grouping or "cell"), since)
    if csv is None:
        return report
    report.to_csv(str(csv))
    print(_("{report_count} lines are in {csv}").format(report_count=len(report), csv=csv))
    return None


@verb(
    "run",
    "run analysis.ipynb -o result.ipynb",
    word("NOTEBOOK", "Notebook; it is not changed.", "path", parse_path),
    option("-o --output", "FILE", "Write the outputs there.", "-o out.ipynb", "path", parse_path),
    only=SHELL,
    needs_session=False,
)
def run(notebook: Path, output: Path | None) -> None:
    """Run a notebook and print the outputs of its cells."""
    from jupyter_sky.interfaces.api.notebooks import run_notebook

    if not notebook.is_file():
        raise SkyUsageError(_("run: there is no notebook {notebook}").format(notebook=notebook))
    run_notebook(notebook, output)
