"""``jupyter sky``: the verbs of ``%sky`` outside a notebook, and notebooks run headless."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any

from .errors import SkyError, SkyUsageError, suggest

RUN_USAGE = "run NOTEBOOK [-o FILE]"
RUN_HELP = "run a notebook and print what its cells show"


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit code.

    Parameters
    ----------
    argv
        The words after ``jupyter sky``.

    Returns
    -------
    int
        0, 1 for a failure, 2 for a command that is not understood, 130 when interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _call_verb(words)
    except SkyUsageError as error:
        print(f"jupyter sky: {error}", file=sys.stderr)
        return 2
    except SkyError as error:
        print(f"jupyter sky: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _call_verb(words: list[str]) -> int:
    from .config.settings import Sky
    from .executor import session as sessions
    from .magics import verbs

    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] == "--version":
        from ._version import __version__

        print(__version__)
        return 0
    if "-h" in words or "--help" in words:
        words = ["help", words[0]]
    if words[0] == "run":
        return run_notebook(*_run_arguments(words[1:]))
    known = [name for name, verb in verbs.VERBS.items() if verb.works_outside_notebook]
    if words[0] not in known:
        if words[0] in verbs.VERBS:
            raise SkyUsageError(f"{words[0]} works in a notebook only: %sky {words[0]}")
        raise SkyUsageError(
            f"unknown command {words[0]!r}", hint=suggest(words[0], [*known, "run"])
        )
    if words[:1] == ["help"] and words[1:]:
        print(_help_of(words[1]))
        return 0
    if words == ["help"]:
        print(_help())
        return 0
    name = str(Path.cwd() / "command line")
    session = sessions.open_session({}, name, lasting=True, everywhere=True)
    session.clusters.records.end_initiator = f"by `jupyter sky {words[0]}`"
    if notice := Sky.load().notice:
        print(f"jupyter sky: {notice}", file=sys.stderr)
    try:
        answer = verbs.call_verb(words)
    finally:
        sessions.close()
    if answer is not None:
        print(answer)
    return 0


def _help() -> str:
    from .magics import verbs

    lines = [
        f"  {verb.usage:34} {verb.help}"
        for verb in verbs.VERBS.values()
        if verb.works_outside_notebook
    ]
    lines.append(f"  {RUN_USAGE:34} {RUN_HELP}")
    return "\n".join(["usage: jupyter sky COMMAND", "", *lines])


def _help_of(name: str) -> str:
    from .magics import verbs

    if name == "run":
        return f"jupyter sky {RUN_USAGE}\n    {RUN_HELP}\n    example: jupyter sky run a.ipynb"
    return verbs.describe_verb(name, "jupyter sky")


# -- notebooks -----------------------------------------------------------------------------


def _run_arguments(words: list[str]) -> tuple[Path, Path | None]:
    out = None
    if "-o" in words:
        at = words.index("-o")
        if at + 1 == len(words):
            raise SkyUsageError("run: -o needs a file")
        out = Path(words[at + 1])
        del words[at : at + 2]
    if len(words) != 1 or words[0].startswith("-"):
        raise SkyUsageError(f"run: one notebook, not {' '.join(words) or 'none'}", hint=RUN_USAGE)
    path = Path(words[0])
    if not path.is_file():
        raise SkyUsageError(f"run: there is no notebook {path}")
    return path, out


def run_notebook(path: Path, out: Path | None = None) -> int:
    """Run a notebook headless; print each cell's outputs as text when it has ended.

    Background cells are waited for at the end, and shown again with what they have printed. Cells
    tagged ``raises-exception`` may fail.

    Parameters
    ----------
    path
        The notebook; it is not changed.
    out
        Where to write the notebook with its outputs.
    """
    import nbformat
    from nbclient.exceptions import CellExecutionError
    from nbformat.v4 import new_code_cell

    notebook: Any = nbformat.read(path, as_version=4)
    shown: dict[str, str] = {}

    def show(cell: Any, **_: Any) -> None:
        if cell.cell_type == "code" and cell is not waiting:
            text = shown[cell.id] = _cell_text(cell)
            print(text, flush=True)

    waiting = new_code_cell(_WAIT_CELL)
    if any("jupyter_sky" in cell.source for cell in notebook.cells):
        notebook.cells.append(waiting)
    code = 0
    try:
        named = {**os.environ, "SKY_NOTEBOOK": str(path.resolve())}
        _runner(notebook, path, show).execute(env=named)
    except CellExecutionError as error:
        print(f"jupyter sky: a cell failed: {error.ename}: {error.evalue}", file=sys.stderr)
        code = 1
    finally:
        notebook.cells = [cell for cell in notebook.cells if cell is not waiting]
        if out is not None:
            nbformat.write(notebook, out)
    for cell in notebook.cells:
        if cell.id in shown and shown[cell.id] != _cell_text(cell):
            print(f"In the end:\n{_cell_text(cell)}", flush=True)
    return code


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
        resources={"metadata": {"path": str(path.resolve().parent)}},
        on_cell_executed=show,
    )


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


if __name__ == "__main__":
    sys.exit(main())
