"""Outputs of a cell as values that two runs can be compared by.

Addresses, ids, folders and names of temporary files differ from run to run and are replaced.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fidelity_runs import NotebookRun
from fidelity_variants import CLUSTER

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
STATUS_LINE_KEY = "jupyter_sky"
"""Key in the metadata of the status line, which is no output of the cell."""
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_NEVER_AWAITED = re.compile(
    r"(?m)^\S+:\d+: RuntimeWarning: coroutine '\S+' was never awaited\n(  .*\n)?"
    r"(RuntimeWarning: Enable tracemalloc to get the object allocation traceback\n)?"
)
"""Warning of the garbage collector, which comes in any later cell, or in none."""
_UNSENT_TEXT = re.compile(
    r"(?m)^(?:(?:(?:ERROR:tornado\.general:)?Uncaught exception in|Exception in callback) "
    r"[^\n]*\n(?s:.*?)/ipykernel/iostream\.py\", line \d+, in _flush\n(?s:.*?)"
    r"^(UnicodeEncodeError: [^\n]*\n))+"
)
"""Tracebacks of a kernel that cannot encode a text: which of its callbacks meets it is chance."""
_REPLACED = (
    (re.compile(r"/\S*?/clusters/[^/\s]+/(work|\w+)\b"), "FOLDER"),
    (re.compile(rf"/[\w./-]*/local/{CLUSTER}-[0-9a-f]+/work"), "FOLDER"),
    (re.compile(r"/[\w./-]*/ipykernel_\d+/\d+\.py"), "<cell>"),
    (re.compile(r"\(\d{5,}\.py, line"), "(<cell>, line"),
    (re.compile(r"0x[0-9a-fA-F]{5,}"), "ADDRESS"),
    (re.compile(r"\bThread-\d+\b"), "Thread-N"),
    (re.compile(r"\bid=[\"']?[\w-]{20,}"), "id=ID"),
    (re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}"), "UUID"),
    (re.compile(r"(?m)^(Ran \d+ tests? in )\d+\.\d{3}s$"), r"\1TIME"),
    (re.compile(r"(?m)^(CPU times: )user [^\n]*$"), r"\1TIMES"),
    (re.compile(r"(?m)^(Wall time: )\d[^\n]*$"), r"\1TIME"),
    (_NEVER_AWAITED, ""),
    (_UNSENT_TEXT, r"\1"),
)
_SKY_LINE = re.compile(rf"(#\s*)?%%sky -c {CLUSTER}( --(auto|sync \.)| -o [\w,]+)*")
_MAGIC_CALL = re.compile(
    rf"get_ipython\(\)\.run_cell_magic\('sky', '-c {CLUSTER}[^']*', ('[^\n]*'|\"[^\n]*\")\)"
)
"""A cell under the line as IPython's history has it in Python."""

State = dict[str, Any]


@dataclass(frozen=True)
class Output:
    """One output of a cell.

    Attributes
    ----------
    kind
        Its type, and the name of a stream.
    texts
        Its texts by name: of a stream ``text``, of an error ``ename``, ``evalue`` and
        ``traceback``, of a display those of each MIME type and ``metadata``.
    count
        The number of a result.
    """

    kind: str
    texts: Mapping[str, str]
    count: int | None = None


@dataclass(frozen=True)
class CellView:
    """What a front end has received of one cell.

    Attributes
    ----------
    messages
        Kinds of messages in their order, with what identifies each.
    payloads
        Source and text of each payload of the reply.
    has_status_line
        Whether the cell has run under `%%sky`.
    """

    outputs: tuple[Output, ...]
    messages: tuple[tuple[Any, ...], ...]
    status: str | None
    execution_count: int | None
    payloads: tuple[tuple[str, str], ...]
    has_status_line: bool


def view_cells(run: NotebookRun) -> list[CellView]:
    """Return the views of the compared cells of a run."""
    states, display_ids = _widget_states(run), dict[str, int]()
    views = []
    for index in run.variant.compared:
        reply = run.client.replies.get(index, {})
        received = run.client.messages.get(index, [])
        payloads = (_payload(entry, run) for entry in reply.get("payload", []))
        views.append(
            CellView(
                outputs=tuple(_outputs(run, index, states)),
                messages=_message_kinds(received, display_ids),
                status=reply.get("status"),
                execution_count=run.cells[index].get("execution_count"),
                payloads=tuple(payloads),
                has_status_line=any(is_status_line(m["content"]) for m in received),
            )
        )
    return views


def is_status_line(content: Mapping[str, Any]) -> bool:
    """Return whether an output is the status line of a cell."""
    return STATUS_LINE_KEY in (content.get("metadata") or {})


def clean(text: str, run: NotebookRun) -> str:
    """Replace what differs from run to run in a text."""
    for folder in (str(run.folder), os.path.realpath(run.folder)):
        text = text.replace(folder, "FOLDER")
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    text = _MAGIC_CALL.sub(lambda call: f"SKY LINE\n{ast.literal_eval(call[1])}".rstrip(), text)
    return _SKY_LINE.sub("SKY LINE", text)


def _payload(entry: Mapping[str, Any], run: NotebookRun) -> tuple[str, str]:
    text = entry.get("data", {}).get("text/plain", entry.get("text", ""))
    return str(entry.get("source")), clean(ANSI.sub("", str(text)), run)


# -- outputs ---------------------------------------------------------------------------------------


def _outputs(run: NotebookRun, index: int, states: dict[str, State]) -> list[Output]:
    """Return the outputs of a cell without the status line, adjacent pieces of a stream joined."""
    outputs: list[Output] = []
    for output in run.cells[index].get("outputs", []):
        kind = output["output_type"]
        if kind == "stream":
            stream, text = f"stream:{output['name']}", output["text"]
            if outputs and outputs[-1].kind == stream:
                text = outputs.pop().texts["text"] + text
            outputs.append(Output(stream, {"text": text}))
        elif kind == "error":
            outputs.append(Output(kind, _error_texts(output, run)))
        elif not is_status_line(output):
            texts = _display_texts(output, run, states)
            outputs.append(Output(kind, texts, output.get("execution_count")))
    cleaned = [_cleaned_stream(output, run) for output in outputs]
    has_lost = any(_has_lost(output.texts.get("text", "")) for output in outputs)
    return [output for output in cleaned if not _is_rest(output.texts.get("text", "x"), has_lost)]


def _has_lost(text: str) -> bool:
    """Return whether a text tells that another one could not be encoded."""
    return _UNSENT_TEXT.search(text) is not None


def _is_rest(text: str, has_lost: bool) -> bool:
    """Return whether a text is empty, or the end of a line that has been lost but for it."""
    return text == "" or (has_lost and text == "\n")


def _cleaned_stream(output: Output, run: NotebookRun) -> Output:
    """Clean the text of a stream after its pieces have been joined: a piece may end anywhere."""
    if not output.kind.startswith("stream:"):
        return output
    return Output(output.kind, {"text": clean(output.texts["text"], run)})


def _error_texts(output: Mapping[str, Any], run: NotebookRun) -> dict[str, str]:
    traceback = clean(ANSI.sub("", "\n".join(output["traceback"])), run)
    evalue = clean(ANSI.sub("", output["evalue"]), run)
    return {"ename": output["ename"], "evalue": evalue, "traceback": traceback}


def _display_texts(
    output: Mapping[str, Any], run: NotebookRun, states: dict[str, State]
) -> dict[str, str]:
    texts = {"metadata": json.dumps(output.get("metadata") or {}, sort_keys=True)}
    for kind, value in sorted(output["data"].items()):
        if kind == WIDGET_VIEW:
            tree = _widget_tree(value.get("model_id"), states)
            texts[kind] = json.dumps(tree, sort_keys=True, default=str)
            continue
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        is_binary = kind.startswith("image/") and kind != "image/svg+xml"
        texts[kind] = text if is_binary else clean(text, run)
    return texts


# -- widgets ---------------------------------------------------------------------------------------


def _widget_states(run: NotebookRun) -> dict[str, State]:
    """Return the last state of every widget, from the messages of its comm."""
    states: dict[str, State] = {}
    for identity, kind, state in _widget_messages(run):
        if kind == "comm_open":
            states[identity] = dict(state)
        elif identity in states:
            states[identity].update(state)
    for identity, state in states.items():
        widget = run.client.comm_objects.get(identity)
        if state.get("_model_name") == "OutputModel" and widget is not None:
            captured = [output for output in widget.outputs if not is_status_line(output)]
            state["captured"] = [_captured(output, run) for output in captured]
    return states


def _widget_messages(run: NotebookRun) -> Iterator[tuple[str, str, State]]:
    for _, messages in sorted(run.client.messages.items()):
        for message in messages:
            kind, content = message["header"]["msg_type"], message["content"]
            state = content.get("data", {}).get("state") if kind.startswith("comm_") else None
            if isinstance(state, dict):
                yield content["comm_id"], kind, state


def _captured(output: Mapping[str, Any], run: NotebookRun) -> list[Any]:
    data = output.get("data", {})
    shown = clean(output.get("text", "") or str(data.get("text/plain", "")), run)
    return [output["output_type"], output.get("name"), output.get("ename"), sorted(data), shown]


def _widget_tree(identity: Any, states: dict[str, State], seen: tuple[str, ...] = ()) -> Any:
    """Return the state of a widget with those of its children in the place of their ids."""
    if identity not in states:
        return "missing"
    if identity in seen:
        return "loop"

    def expand(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("IPY_MODEL_"):
            return _widget_tree(value.removeprefix("IPY_MODEL_"), states, (*seen, identity))
        if isinstance(value, dict):
            kept = sorted(value.items())
            return {key: expand(v) for key, v in kept if key not in ("msg_id", "outputs")}
        if isinstance(value, list | tuple):
            return [expand(item) for item in value]
        return value

    return expand(states[identity])


# -- messages --------------------------------------------------------------------------------------


def _message_kinds(
    messages: list[dict[str, Any]], display_ids: dict[str, int]
) -> tuple[tuple[Any, ...], ...]:
    """Return the kinds of a cell's messages, repeated text and clearings once."""
    kinds: list[tuple[Any, ...]] = []
    has_lost = any(_has_lost(str(message["content"].get("text", ""))) for message in messages)
    for message in messages:
        kind = message["header"]["msg_type"]
        content = message["content"]
        if kind in ("status", "execute_input") or is_status_line(content):
            continue
        if _is_rest(_NEVER_AWAITED.sub("", str(content.get("text", "x"))), has_lost):
            continue
        item = _message_kind(kind, message, display_ids)
        if not (kinds and kinds[-1] == item and kind in ("stream", "clear_output")):
            kinds.append(item)
    while kinds and kinds[-1] == ("clear_output",):
        kinds.pop()  # nothing follows that it could clear for
    return tuple(kinds)


def _message_kind(
    kind: str, message: dict[str, Any], display_ids: dict[str, int]
) -> tuple[Any, ...]:
    content = message["content"]
    if kind == "stream":
        return kind, content["name"]
    if kind == "error":
        return kind, content["ename"]
    if kind in ("display_data", "update_display_data", "execute_result"):
        identity = (content.get("transient") or {}).get("display_id")
        number = display_ids.setdefault(identity, len(display_ids)) if identity else None
        return kind, tuple(sorted(content["data"])), number
    if kind.startswith("comm_"):
        data = content.get("data", {})
        state = data.get("state")
        keys = tuple(sorted(state)) if isinstance(state, dict) else ()
        sizes = tuple(memoryview(buffer).nbytes for buffer in message.get("buffers") or ())
        return kind, content.get("target_name"), data.get("method"), keys, sizes
    return (kind,)
