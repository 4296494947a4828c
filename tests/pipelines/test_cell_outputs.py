"""Outputs of a task as a notebook has them."""

from __future__ import annotations

from typing import Any

from jupyter_sky.workflows.pipelines.notebook.cell_runs import notebook_outputs, output_text


def _stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"type": "stream", "content": {"name": name, "text": text}}


def _shown(text: str, kind: str = "display_data", display_id: str = "") -> dict[str, Any]:
    transient = {"display_id": display_id} if display_id else {}
    data = {"text/plain": text}
    return {"type": kind, "content": {"data": data, "metadata": {}, "transient": transient}}


def _texts(*entries: dict[str, Any]) -> list[str]:
    return [output_text([output]) for output in notebook_outputs(entries)]


def test_streams_are_joined_as_long_as_nothing_comes_between() -> None:
    entries = _stream("a"), _stream("b"), _stream("c", "stderr"), _stream("d")
    assert _texts(*entries) == ["ab", "c", "d"]


def test_a_display_is_updated_in_its_place() -> None:
    update = _shown("50 %", "update_display_data", "bar")
    assert _texts(_shown("0 %", display_id="bar"), _stream("x"), update) == ["50 %\n", "x"]


def test_cleared_outputs_are_gone_at_once_or_with_the_next() -> None:
    now = {"type": "clear_output", "content": {"wait": False}}
    later = {"type": "clear_output", "content": {"wait": True}}
    assert _texts(_stream("a"), now, _stream("b")) == ["b"]
    assert _texts(_stream("a"), later) == ["a"]
    assert _texts(_stream("a"), later, _stream("b"), _stream("c")) == ["bc"]


def test_errors_and_results_keep_their_parts() -> None:
    error = {"ename": "E", "evalue": "v", "traceback": ["line", "E: v"]}
    found = notebook_outputs([_shown("1", "execute_result"), {"type": "error", "content": error}])
    assert found[0]["execution_count"] is None
    assert found[1] == {"output_type": "error", **error}
    assert output_text(found) == "1\nline\nE: v\n"


def test_other_messages_are_left_out() -> None:
    assert notebook_outputs([{"type": "comm_open", "content": {}}]) == []
