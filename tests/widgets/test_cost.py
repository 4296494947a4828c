"""`sky.cost()` as an object: a table, static forms, files, and a view that is kept up to date."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.store.store import Store
from jupyter_sky.interfaces.widgets import cost as module
from jupyter_sky.interfaces.widgets.cost import Cost
from jupyter_sky.knowledge.ledger.report import make_report, parse_since, report_signature
from tests.ledger.test_ledger import put_cluster

NOON = datetime(2026, 3, 10, 12).timestamp()
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    yield store
    store.close()


@pytest.fixture
def made(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cost]:
    monkeypatch.setattr(module, "_ticker", module._Ticker())  # another's may be asleep
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.1)  # within which its thread ends
    monkeypatch.setattr(module, "MAX_CPU_SHARE", 1.0)
    put_cluster(store, "train", 2.0, NOON)
    put_cluster(store, "<rack>", None, NOON, cloud="ssh")
    budgets: list[float | None] = []

    def make_one(**more: Any) -> Cost:
        read = lambda by, since: make_report(store, "a.ipynb", by, parse_since(since))  # noqa: E731
        one = Cost(read, budgets.append, lambda: report_signature(store), "cluster", **more)
        one.budgets = budgets  # type: ignore[attr-defined]
        return one

    return make_one


def wait_until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.fixture
def shown() -> Iterator[list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Return the displayed bundles, as in a kernel."""
    calls: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def display(bundle: dict[str, Any], **how: Any) -> None:
        calls.append((bundle, how))

    shell = mock.Mock(kernel=object())
    with (
        mock.patch("IPython.display.display", display),
        mock.patch("IPython.get_ipython", return_value=shell),
    ):
        yield calls


def test_cost_is_a_table(made: Callable[..., Cost]) -> None:
    cost = made()
    assert len(cost) == 2 and {row[0] for row in cost} == {"train", "<rack>"}
    assert cost.to_dicts()[0]["cluster"] in ("train", "<rack>")
    frame = cost.to_pandas()
    assert frame.set_index("cluster").loc["train", "price"] == 2.0
    assert frame.set_index("cluster").loc["<rack>"].isna()["usd"]
    assert str(frame["started"].dt.tz) == "UTC"


def test_static_forms_have_the_figures_their_time_and_what_is_unknown(
    made: Callable[..., Cost],
) -> None:
    cost = made()
    text, html = str(cost), cost._repr_html_()
    for form in (text, html):
        assert "running, est." in form and "As of 20" in form
        assert "unknown" in form and "aws catalog, 1 Mar 2026" in form
    assert "<rack>" not in html and "&lt;rack&gt;" in html
    assert "<script" not in html and "class=" in html
    line = str(made(compact=True))
    assert line.startswith("☁ ") and "\n" not in line and "$2.00/h" in line


def test_csv_into_a_file_and_as_text(made: Callable[..., Cost], tmp_path: Path) -> None:
    cost = made()
    assert cost.to_csv(tmp_path / "costs.csv") is None
    assert (tmp_path / "costs.csv").read_text() == (cost.to_csv() or "").replace("\r\n", "\n")
    with pytest.raises(SkyUsageError, match="cannot be written"):
        cost.to_csv(tmp_path / "no" / "costs.csv")


def test_notebook_view_is_live_with_static_fallback(
    made: Callable[..., Cost], store: Store, shown: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.02)
    monkeypatch.setattr(module, "MAX_CPU_SHARE", 1.0)
    cost = made()
    cost._ipython_display_()
    bundle, how = shown[0]
    assert VIEW in bundle and bundle["text/plain"] == str(cost)
    assert bundle["text/html"] == cost._repr_html_()
    assert cost._view is not None
    view = cost._view
    assert {line["what"] for line in view.state["bill"]["lines"]} == {"train", "<rack>"}
    put_cluster(store, "late", 1.0, NOON)
    wait_until(lambda: len(view.state["bill"]["lines"]) == 3)
    cost.close()
    cost.close()
    static, again = shown[-1]
    assert VIEW not in static and "late" in static["text/plain"]
    assert again["update"] and again["display_id"] == how["display_id"]
    wait_until(lambda: module._ticker._thread is None)
    store.end_cluster(store.cluster("late").id, "down", NOON + 1)
    assert len(view.state["bill"]["lines"]) == 3


def test_view_is_updated_on_changes_and_periodically(
    made: Callable[..., Cost], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = made()
    first = cost.bill
    store.record_heartbeat(store.cluster("train").id, NOON + 60)
    cost.refresh()
    assert cost.bill is first, "a heartbeat is no news"
    store.set_setting("budget_usd_day", '{"usd": 3}')
    cost.refresh()
    assert cost.bill.verdict.budget.usd == 3.0
    second = cost.bill
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.0)
    cost.refresh()
    assert cost.bill is not second


def test_only_the_latest_views_are_kept_up_to_date(
    made: Callable[..., Cost], shown: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LIVE_VIEWS", 2)
    many = [made() for _ in range(4)]
    for one in many:
        one._ipython_display_()
    assert module._ticker._shown == many[2:]
    for one in many:
        one.close()


def test_locked_store_does_not_end_updates(
    made: Callable[..., Cost], shown: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(module, "MAX_CPU_SHARE", 1.0)
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.0)
    cost, calls = made(), []
    read = cost._read

    def failing(by: Any, since: str) -> Any:
        calls.append(by)
        if len(calls) == 1:
            raise OSError("locked")
        return read(by, since)

    cost._read = failing
    cost._ipython_display_()
    wait_until(lambda: len(calls) > 2)
    cost.close()


def test_requests_of_the_view(made: Callable[..., Cost], shown: list) -> None:
    cost = made()
    cost._ipython_display_()
    assert cost._view is not None
    answers = cost._view._answers
    by_day = answers["bill"]({"by": "day", "since": "all"})
    assert by_day["by"] == "day" and cost.bill.by == "day"
    file = answers["csv"]({"by": "cloud", "since": "all"})
    assert file["text"].startswith("cloud,") and file["name"].endswith(".csv")
    assert cost.bill.by == "day", "a file changes nothing in view"
    assert answers["budget"]({"by": "day", "since": "all", "usd": 5})["by"] == "day"
    assert cost.budgets == [5.0]  # type: ignore[attr-defined]
    for bad in ({"by": "colour"}, {"since": "soon"}):
        with pytest.raises(SkyUsageError):
            answers["bill"]({"by": "day", "since": "all"} | bad)
    with pytest.raises(SkyUsageError, match="not an amount"):
        answers["budget"]({"by": "day", "since": "all", "usd": "much"})
    cost.close()


def test_import_loads_no_widgets() -> None:
    code = (
        "import sys, jupyter_sky.interfaces.widgets.cost, jupyter_sky.base.tables; "
        "print(sorted({'anywidget', 'ipywidgets', 'pandas', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
