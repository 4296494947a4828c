"""Outputs of a cell from the entries of its journal."""

from __future__ import annotations

from typing import Any

from jupyter_sky.execution.cells.output_area import OutputArea
from jupyter_sky.execution.cells.relay import filter_entries


def entry(kind: str, rank: int = 0, **content: Any) -> dict[str, Any]:
    return {"type": kind, "rank": rank, "time": 1.5, "content": content}


def text(said: str, rank: int = 0, name: str = "stdout") -> dict[str, Any]:
    return entry("stream", rank, name=name, text=said)


def shown(*entries: dict[str, Any]) -> list[Any]:
    return [out.get("text") or out.get("data") or out for out in OutputArea.of(entries).shown]


def test_text_of_one_stream_is_one_output() -> None:
    found = OutputArea.of([text("a\n"), text("b"), text("!", name="stderr"), text("c")]).shown
    assert [(out["name"], out["text"]) for out in found] == [
        ("stdout", "a\nb"),
        ("stderr", "!"),
        ("stdout", "c"),
    ]


def test_lines_of_several_nodes_say_whose_they_are() -> None:
    assert shown(text("a\nb\n", 0), text("c\n", 1)) == ["[0] a\n[0] b\n[1] c\n"]
    # one that is not at its end is ended where another node begins, and not where it goes on
    assert shown(text("a", 0), text("b\n", 0), text("c", 1), text("d\n", 0)) == [
        "[0] ab\n[1] c\n[0] d\n"
    ]


def test_results_and_errors_are_outputs_of_a_notebook() -> None:
    traceback = ["Traceback", "ValueError: no"]
    found = OutputArea.of(
        [
            entry("execute_result", data={"text/plain": "42"}, metadata={}, execution_count=9),
            entry("error", ename="ValueError", evalue="no", traceback=traceback),
        ]
    ).shown
    assert found == [
        {"output_type": "display_data", "data": {"text/plain": "42"}, "metadata": {}},
        {
            "output_type": "error",
            "ename": "ValueError",
            "evalue": "no",
            "traceback": traceback,
        },
    ]


def test_updates_replace_and_clearing_clears() -> None:
    bar = {"transient": {"display_id": "d1"}, "metadata": {}}
    first = entry("display_data", data={"text/plain": "10 %"}, **bar)
    then = entry("update_display_data", data={"text/plain": "90 %"}, **bar)
    assert shown(first, text("a"), then) == [{"text/plain": "90 %"}, "a"]
    (alone,) = OutputArea.of([then]).shown
    assert alone["output_type"] == "update_display_data", "what it replaces was answered before"
    assert alone["transient"] == {"display_id": "d1"}
    cleared = OutputArea.of([text("old"), entry("clear_output", wait=False), text("new")])
    assert cleared.cleared and [out["text"] for out in cleared.shown] == ["new"]
    waiting = OutputArea.of([text("old"), entry("clear_output", wait=True)])
    assert not waiting.cleared and [out["text"] for out in waiting.shown] == ["old"]
    waiting.add(text("new"))
    assert waiting.cleared and [out["text"] for out in waiting.shown] == ["new"]


def test_update_without_a_name_replaces_nothing() -> None:
    first = entry("display_data", data={"text/plain": "kept"}, metadata={})
    then = entry("update_display_data", data={"text/plain": "new"}, metadata={})
    assert shown(first, then) == [{"text/plain": "kept"}, {"text/plain": "new"}]


def test_entry_that_the_disk_has_cut_is_not_shown() -> None:
    assert shown(text("0 "), {"type": "lost"}, text("2 ")) == ["0 2 "]


def test_entries_of_untrusted_runs_are_text_and_pictures() -> None:
    data = {"text/html": "<script>", "text/plain": "5", "image/svg+xml": "<svg onload=x()>"}
    content = {"data": data, "metadata": {"isolated": True}, "transient": {"display_id": "a"}}
    entries = [
        {"type": "display_data", "rank": 0, "content": content},
        {"type": "stream", "rank": 0, "content": {"name": "stdout", "text": "said"}},
        {"type": "execute_result", "rank": 0, "content": {"data": "nonsense"}},
    ]
    shown = OutputArea.of(filter_entries(entries)).shown
    assert [out.get("data", out.get("text")) for out in shown] == [{"text/plain": "5"}, "said", {}]
    assert "script" not in str(shown) and "isolated" not in str(shown)
