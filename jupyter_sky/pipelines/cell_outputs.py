"""Outputs of tasks as notebooks have them, from the entries of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_DISPLAYS = ("display_data", "update_display_data", "execute_result")


def notebook_outputs(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
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
    outputs: list[dict[str, Any]] = []
    named: dict[str, list[dict[str, Any]]] = {}
    clears_next = False
    for entry in entries:
        kind, content = entry["type"], entry["content"]
        if kind == "clear_output":
            clears_next = bool(content.get("wait"))
            if not clears_next:
                outputs.clear()
            continue
        if kind == "update_display_data":
            for output in named.get(_display_id(content), ()):
                output |= {"data": content["data"], "metadata": content.get("metadata", {})}
            continue
        if kind not in ("stream", "error", *_DISPLAYS):
            continue
        if clears_next:
            outputs.clear()
            clears_next = False
        last = outputs[-1] if outputs else {}
        if kind == "stream" and last.get("name") == content["name"]:
            last["text"] += content["text"]
            continue
        outputs.append(_output(kind, content))
        named.setdefault(_display_id(content), []).append(outputs[-1])
    return outputs


def _display_id(content: Mapping[str, Any]) -> str:
    return str((content.get("transient") or {}).get("display_id", ""))


def _output(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "stream":
        return {"output_type": "stream", "name": content["name"], "text": content["text"]}
    if kind == "error":
        names = ("ename", "evalue", "traceback")
        return {"output_type": "error", **{name: content[name] for name in names}}
    shown = {"data": content["data"], "metadata": content.get("metadata", {})}
    number = {"execution_count": None} if kind == "execute_result" else {}
    return {"output_type": kind, **shown, **number}


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
