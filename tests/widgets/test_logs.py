"""A log as text, as a view, and in a saved notebook."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.lib.pretty import pretty

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import RunRow
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.interfaces.widgets.logs import SHOWN_LINES, Log, format_entries, static_html
from jupyter_sky.machines.engines.controller.controller import Runs
from jupyter_sky.machines.engines.controller.journal import Journal
from jupyter_sky.machines.engines.wire.controller_requests import JournalReply, ReadJournal


def message(kind: str, **content: Any) -> tuple[str, bytes]:
    return kind, json.dumps(content).encode()


def stream(text: str, name: str = "stdout") -> tuple[str, bytes]:
    return message("stream", name=name, text=text)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    made = Session({}, "analysis.ipynb", is_persistent=True)
    yield made
    made.close()
    Sky.clear_instance()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "local" / "train" / "journal")


def begin(session: Session, run_id: str = "17-ab", **other: Any) -> RunRow:
    row = RunRow(
        **{
            **{"run_id": run_id, "notebook": session.notebook, "session": "gone", "cell": 7},
            **{"name": None, "cluster": "train", "code": "print(1)", "price": None, "nodes": 2},
            **{"started": 100.0, "ended": None, "last_beat": 100.0, "status": "running"},
            **{"shown": 0},
            **other,
        }
    )
    session.store.begin_run(row)
    return row


def test_a_log_is_text(session: Session, journal: Journal) -> None:
    row = begin(session)
    journal.append("17-ab", 0, *stream("loss 3\nloss"))
    journal.append("17-ab", 0, *stream(" 2\n"))
    journal.flush()
    log = Log.of(session.history, row)
    assert isinstance(log, str) and log == "loss 3\nloss 2\n" and "loss 2" in log
    assert pretty(log) == "loss 3\nloss 2"
    assert log.caption == "log of cell 7"


def test_view_is_answered_in_pages(session: Session, journal: Journal) -> None:
    journal.append("17-ab", 1, *stream("one\n", "stderr"))
    journal.flush()
    log = Log.of(session.history, begin(session))
    view = log.view()
    assert view.state == {"run_id": "17-ab", "title": "log of cell 7"}
    first = log._answer({"run_id": "17-ab"})
    assert [(line["rank"], line["stream"], line["text"]) for line in first["lines"]] == [
        (1, "stderr", "one\n")
    ]
    assert first["run"]["ended"] is None and first["next"] == 1
    journal.append("17-ab", 0, *stream("two\n"))
    journal.flush()
    session.store.end_run("17-ab", "ok", 160.0)
    second = json.loads(json.dumps(log._answer({"since": first["next"]})))
    assert [line["text"] for line in second["lines"]] == ["two\n"]
    assert second["run"]["ended"] == 160.0 and second["next"] == 2
    assert log._answer({"since": 2})["lines"] == []


def test_long_journal_is_paged_completely(session: Session, journal: Journal) -> None:
    row = begin(session)
    for number in range(40):
        journal.append("17-ab", 0, *stream(f"{number:04}" * 25_000 + "\n"))
    journal.flush()
    part, following = session.history.read_journal("17-ab")
    assert 0 < len(part) < 40 and following == len(part)
    assert Log.of(session.history, row).count("\n") == 40


def test_log_of_a_waiting_run_and_of_a_lost_journal(session: Session) -> None:
    assert Log.of(session.history, begin(session, nodes=0, status="waiting")) == ""
    session.store.end_run("17-ab", "cancelled", 120.0)
    with pytest.raises(SkyUsageError, match="no longer kept"):
        session.history.log_text("17-ab")


class SlowController:
    """Connection to a controller that gets the outputs of a cell after the cell's end."""

    is_lost = False

    def __init__(self, journal: Journal) -> None:
        self.runs, self.journal = Runs(), journal
        facts: Any = {"run": "17-ab", "rank": 0}
        self.runs.record_sent(facts, "message", True)
        self.asked = 0

    def ask_controller(self, request: ReadJournal) -> JournalReply:
        run = request.run
        self.asked += 1
        if self.asked == 3:
            self.journal.append(run, 0, *stream("late\n"))
            self.journal.flush()
            known = self.runs.get(run)
            assert known is not None
            known.mark_finished("message", quiet=True)
        status = self.runs._runs[run].status
        entries, following = self.journal.read(run, request.start)
        return JournalReply(entries, following, status, None)


def test_log_of_an_ended_run_waits_for_its_late_outputs(
    session: Session, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(session)
    controller = SlowController(journal)
    connected = {"train": SimpleNamespace(connection=controller)}
    monkeypatch.setattr(session.history, "_connected", connected)
    assert session.history.log_text("17-ab") == "", "nobody waits for one that goes on"
    session.store.end_run("17-ab", "ok", 160.0)
    assert session.history.log_text("17-ab") == "late\n" and controller.asked > 2


def test_a_log_is_followed_to_the_end_of_its_run(
    session: Session, journal: Journal, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_sky.execution.sessions.session.current", lambda: session)
    begin(session)
    told = ["one\n", "two\n"]

    def sleep(seconds: float) -> None:
        journal.append("17-ab", 0, *stream(told.pop(0)))
        journal.flush()
        if not told:
            session.store.end_run("17-ab", "ok", 160.0)

    monkeypatch.setattr("time.sleep", sleep)
    verbs.call_verb(["logs", "-f", "7"])
    assert capsys.readouterr().out == "one\ntwo\n"


def test_everything_printed_has_its_stream() -> None:
    entries = [
        {"time": 5.0, "rank": 0, "type": kind, "content": content}
        for kind, content in [
            ("stream", {"name": "stderr", "text": "careful"}),
            ("error", {"ename": "ValueError", "traceback": ["a", "b"]}),
            ("execute_result", {"data": {"text/plain": "41"}}),
            ("display_data", {"data": {"image/png": "…"}}),
            ("clear_output", {"wait": True}),
        ]
    ]
    assert [(line["stream"], line["text"]) for line in format_entries(entries)] == [
        ("stderr", "careful"),
        ("error", "a\nb\n"),
        ("stdout", "41\n"),
    ]


def test_saved_notebook_holds_the_end_of_the_log() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    html = static_html(text, "log of cell 7", "7")
    assert "line 999" in html and "line 800" in html and "line 799" not in html
    assert f"the last {SHOWN_LINES} of 1,000 lines; all: %sky logs 7" in html
    assert "left" not in static_html("one\n", "log", "7") and "one" in static_html(
        "one", "log", "7"
    )
    assert "nothing was printed" in static_html("", "log", "7")


def test_html_is_safe_and_without_sequences() -> None:
    html = static_html("\x1b[31m<img src=x>\x1b[0m 10%\r20%\n", "<b>", "7")
    assert "<img" not in html and "<b>" not in html and "\x1b" not in html
    assert "20%" in html and "10%" not in html


def test_terminal_has_no_view(session: Session, journal: Journal) -> None:
    journal.append("17-ab", 0, *stream("one\n"))
    journal.flush()
    log = Log.of(session.history, begin(session))
    assert log._repr_mimebundle_() == {}
