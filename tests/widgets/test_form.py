"""The form as a widget, without a browser: its requests, and the contents of a saved notebook."""

from __future__ import annotations

import pytest

from jupyter_sky import form
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.widgets.view import MIME


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield
    sessions.close()
    Sky.clear_instance()


@pytest.fixture
def asked():
    """Send a question as a page does; returns what comes back."""

    def ask(view, kind, payload=None):
        replies = []
        view.send = replies.append
        view._handle_custom_msg({"id": "7", "kind": kind, "payload": payload}, [])
        return replies

    return ask


def test_form_starts_from_a_line_or_labels():
    assert form().line == ""
    assert form("--gpus V100:1 --timeout 2h").line == "--gpus V100:1 --timeout 2h"
    assert form(gpus="v100", spot=True, nodes=2).line == "--gpus V100:1 --nodes 2 --spot"
    with pytest.raises(SkyUsageError):
        form(gpu="V100")


def test_a_saved_notebook_holds_the_line_and_the_answer():
    data, _ = form("--gpus T4:1 --cloud aws")._repr_mimebundle_()
    line, answer = data["text/plain"].splitlines()
    assert line == "%%sky --gpus T4:1 --cloud aws" and "offers match, the cheapest $" in answer
    assert f">{line}</code>" in data["text/html"] and answer in data["text/html"]
    assert data[MIME] == {
        "version": 1,
        "view": "form",
        "state": {"line": "--gpus T4:1 --cloud aws"},
    }
    assert "application/vnd.jupyter.widget-view+json" in data
    hostile, _ = form("--name '<b>'")._repr_mimebundle_()
    assert "<b>" not in hostile["text/html"]


def test_form_answers_like_the_server_and_stores_its_line(asked):
    view = form()
    fields = {"values": {"gpus": "T4:1", "cpus": "8+"}, "alias": ""}
    [reply] = asked(view, "match", {"source": "", "fields": fields})
    assert reply["id"] == "7" and reply["answer"]["count"] > 3
    assert view.line == "--cpus 8+ --gpus T4:1"
    [reply] = asked(view, "complete", {"key": "region", "text": "us-e"})
    assert reply["answer"]["choices"]


def test_error_has_no_traceback(asked):
    view = form()
    [reply] = asked(view, "match", {"fields": 7})
    assert reply["error"]["kind"] == "SkyUsageError" and reply["error"]["hint"]
    [reply] = asked(view, "march")
    assert "march" in reply["error"]["message"] and "answer" not in reply
    view._handle_custom_msg({"kind": "match"}, [])  # of nobody who waits for an answer
    view._handle_custom_msg("match", [])


def test_cell_inserts_a_cell_with_the_line(monkeypatch):
    given = []

    class Shell:
        def set_next_input(self, text):
            given.append(text)

    monkeypatch.setattr("IPython.core.getipython.get_ipython", Shell)
    form("--cpus 2").cell("x = 1")
    form().cell()
    assert given == ["%%sky --cpus 2\nx = 1", "%%sky\n"]
