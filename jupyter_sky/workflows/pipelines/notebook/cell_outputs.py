"""Outputs of tasks as notebooks have them, from the entries of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_sky.execution.cells.output_area import Entry, OutputArea, output_data


def notebook_outputs(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the outputs of a cell.

    Parameters
    ----------
    entries
        Messages in their order, each with its ``type`` and ``content``.

    Examples
    --------
    >>> said = [{"type": "stream", "content": {"name": "stdout", "text": text}} for text in "ab"]
    >>> notebook_outputs(said)
    [{'output_type': 'stream', 'name': 'stdout', 'text': 'ab'}]
    """
    shown = _CellOutputs.of(entries).shown
    return [{key: output[key] for key in output if key != "transient"} for output in shown]


class _CellOutputs(OutputArea):
    """Outputs of a cell from its begin: an update without its display was cleared away."""

    def add_result(self, content: Mapping[str, Any]) -> None:
        """Show the value of the last expression, whose cell has no number."""
        result = {"output_type": "execute_result", **output_data(content), "execution_count": None}
        self.shown.append(result)

    def add_unmatched_update(self, content: Mapping[str, Any]) -> None:
        """Leave the update out."""


def output_text(outputs: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of outputs.

    Examples
    --------
    >>> output_text([{"output_type": "stream", "name": "stdout", "text": "x"}])
    'x'
    """
    parts = []
    for output in outputs:
        if output["output_type"] == "stream":
            parts.append(output["text"])
        elif output["output_type"] == "error":
            parts.append("\n".join(output["traceback"]) + "\n")
        elif text := output["data"].get("text/plain"):
            parts.append(f"{text}\n")
    return "".join(parts)
