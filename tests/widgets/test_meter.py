"""The live meter: it follows what it reads, and stops."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from jupyter_sky.executor.display import Status
from jupyter_sky.widgets.meter import cost_meter
from jupyter_sky.widgets.statusline import to_html, to_text

RUNNING = Status("running", 41, "train", "aws us-east-1", 1.0, 0.03, 0.3)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def test_meter_follows_the_status_and_stops() -> None:
    now = [RUNNING]
    meter = cost_meter(lambda: now[0], period=0.01)
    assert meter.widget.value == to_html(RUNNING)
    now[0] = replace(RUNNING, seconds=42)
    wait_until(lambda: meter.widget.value == to_html(now[0]))
    meter.close()
    meter.close()
    assert not meter._thread.is_alive()
    now[0] = replace(RUNNING, seconds=99)
    time.sleep(0.05)
    assert "1:39" not in meter.widget.value


def test_saved_notebook_has_a_static_form() -> None:
    meter = cost_meter(lambda: RUNNING)
    bundle = meter._repr_mimebundle_()
    meter.close()
    assert bundle["text/html"] == to_html(RUNNING)
    assert bundle["text/plain"] == to_text(RUNNING)
    view = bundle["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == meter.widget.model_id


def test_closing_leaves_the_static_form_in_place_of_the_widget() -> None:
    meter = cost_meter(lambda: RUNNING)
    with mock.patch("IPython.display.display") as display:
        meter._ipython_display_()
        meter.close()
    (shown,), (static,) = (call.args for call in display.call_args_list)
    first, last = (call.kwargs for call in display.call_args_list)
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert static == {"text/html": to_html(RUNNING), "text/plain": to_text(RUNNING)}
    assert first["display_id"] == last["display_id"] and last["update"]


def test_meter_outlives_a_failing_read() -> None:
    answers = iter([RUNNING, OSError("locked"), replace(RUNNING, seconds=50)])

    def read() -> Status | None:
        answer = next(answers, None)
        if isinstance(answer, OSError):
            raise answer
        return answer

    meter = cost_meter(read, period=0.03)
    wait_until(lambda: "0:50" in meter.widget.value)
    wait_until(lambda: meter.widget.value == "")  # None shows nothing
    meter.close()


def test_import_loads_no_widgets() -> None:
    code = (
        "import sys, jupyter_sky.widgets.meter, jupyter_sky.widgets.table; "
        "print(sorted({'ipywidgets', 'pandas', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
