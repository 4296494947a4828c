"""Last values of widgets: lost where a message comes after the end of its cell."""

from __future__ import annotations

from pathlib import Path

import nbformat
from fidelity_runs import Recorder, execute, kernel_folders
from fidelity_variants import CLUSTER, SKY_LINE

LAST = 50
_CELL = f"""{SKY_LINE}
bar = IntProgress(max={LAST})
display(bar)
for step in range({LAST + 1}):
    bar.value = step"""


def lost_widget_values(cells: int, home: Path) -> int:
    """Return how many progress bars a saved notebook shows short of their last value."""
    new = nbformat.v4.new_code_cell
    start = f"{SKY_LINE}\nfrom ipywidgets import IntProgress"
    texts = ["%load_ext jupyter_sky", start, *[_CELL] * cells, f"%sky down {CLUSTER}"]
    notebook = nbformat.v4.new_notebook(cells=[new(text) for text in texts])
    with kernel_folders(home) as environment:
        client = Recorder(notebook, timeout=60, kernel_name="python3")
        if failure := execute(client, environment):
            raise RuntimeError(failure)
    saved = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    values = [e["state"]["value"] for e in saved.values() if e["model_name"] == "IntProgressModel"]
    return cells - values.count(LAST)
