"""Notebooks that are run headless, with their outputs as text."""

from __future__ import annotations

import os
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from traitlets.config import Config


def run_notebook(path: Path, output: Path | None = None) -> None:
    """Run a notebook headless; print each cell's outputs as text when it has ended.

    Background cells are waited for at the end, and shown again with what they have printed. Cells
    tagged ``raises-exception`` may fail.

    Parameters
    ----------
    path
        The notebook; it is not changed.
    output
        Where to write the notebook with its outputs.

    Raises
    ------
    SkyError
        A cell failed; those after it did not run.
    """
    import nbformat
    from nbclient.exceptions import CellExecutionError
    from nbformat.v4 import new_code_cell

    notebook: Any = nbformat.read(path, as_version=4)
    shown: dict[str, str] = {}
    failure = None

    def show(cell: Any, **__: Any) -> None:
        if cell.cell_type == "code" and cell is not waiting:
            text = shown[cell.id] = _cell_text(cell)
            print(text, flush=True)

    waiting = new_code_cell(_WAIT_CELL)
    if any("jupyter_sky" in cell.source for cell in notebook.cells):
        notebook.cells.append(waiting)
    try:
        named = {**os.environ, "SKY_NOTEBOOK": str(path.resolve())}
        _runner(notebook, path, show).execute(env=named)
    except CellExecutionError as error:
        failure = SkyError(
            _("a cell failed: {ename}: {evalue}").format(ename=error.ename, evalue=error.evalue)
        )
    finally:
        notebook.cells = [cell for cell in notebook.cells if cell is not waiting]
        if output is not None:
            nbformat.write(notebook, output)
    for cell in notebook.cells:
        if cell.id in shown and shown[cell.id] != _cell_text(cell):
            print(_("In the end:\n{cell}").format(cell=_cell_text(cell)), flush=True)
    if failure is not None:
        raise failure


def _runner(notebook: Any, path: Path, show: Any) -> Any:
    """Return a client that also takes in what cells print after they have returned.

    nbclient itself drops it: a background cell would stay as it was in its first moment.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionComplete

    class Runner(NotebookClient):
        async def _async_poll_output_msg(
            self, parent_msg_id: str, cell: Any, cell_index: int
        ) -> None:
            sent[parent_msg_id] = (cell, cell_index)
            assert self.kc is not None
            while True:
                message: Any = self.kc.iopub_channel.get_msg(timeout=None)
                message = await message if isawaitable(message) else message
                mine = sent.get(message["parent_header"].get("msg_id"))
                if mine is None:
                    continue
                try:
                    self.process_message(message, *mine)
                except CellExecutionComplete:
                    if mine[0] is cell:
                        return

    sent: dict[str, tuple[Any, int]] = {}
    return Runner(
        notebook,
        timeout=None,
        kernel_name="python3",
        config=_kernel_config(),
        resources={"metadata": {"path": str(path.resolve().parent)}},
        on_cell_executed=show,
    )


def _kernel_config() -> Config:
    """Return the configuration of kernels that talk encrypted, where Jupyter's client can."""
    from jupyter_client.manager import KernelManager
    from traitlets.config import Config

    can = KernelManager.class_traits().get("transport_encryption") is not None
    return Config({"KernelManager": {"transport_encryption": "auto"}} if can else {})


# not the magic: a notebook may use the package without loading the extension
_WAIT_CELL = "__import__('jupyter_sky').wait()"


def _cell_text(cell: Any) -> str:
    prompt = f"In [{cell.execution_count or ' '}]: "
    indent = " " * len(prompt)
    source = ("\n" + indent).join(cell.source.rstrip().splitlines())
    shown = [text for output in _merge_streams(cell.outputs) if (text := _output_text(output))]
    return "\n".join([f"{prompt}{source}", *shown, ""])


def _merge_streams(outputs: list[Any]) -> list[Any]:
    """Join neighbouring pieces of one stream, as a front end does."""
    from copy import copy

    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        streams = last is not None and output.output_type == last.output_type == "stream"
        if streams and output.name == last.name:
            last.text += output.text
        else:
            joined.append(copy(output))
    return joined


def _output_text(output: Any) -> str:
    import re

    if output.output_type == "stream":
        # of a progress bar only the last state
        lines = (line.rpartition("\r")[2] for line in output.text.split("\n"))
        return "\n".join(lines).rstrip("\n")
    if output.output_type == "error":
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback)).rstrip()
    pictures = [kind for kind in output.data if kind.startswith("image/")]
    text = output.data.get("text/plain", "")
    return f"[{pictures[0]}] {text}" if pictures else text
