"""Outputs of cells: native messages, in order, in their own output area, as local cells have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Notebook, Ran

pytestmark = pytest.mark.slow

PAIR = "%%sky -c pair --nodes 2 --cpus 1"


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """The cluster of most tests here, up before the first of them."""
    assert notebook.run("%%sky\npass").status == "ok"
    yield


def later(notebook: Notebook, msg_id: str, text: str, timeout: float = 10.0) -> None:
    """Wait until `text` is printed into an ended cell."""
    deadline = time.monotonic() + timeout
    seen = notebook.other_messages
    while not any(_prints(message, msg_id, text) for message in seen):
        assert time.monotonic() < deadline, f"{text!r} did not reach its cell: {seen}"
        try:
            seen.append(notebook.client.get_iopub_msg(timeout=0.5))
        except Exception:
            continue


def _prints(message: dict[str, Any], msg_id: str, text: str) -> bool:
    own = message["parent_header"].get("msg_id") == msg_id
    return own and text in message["content"].get("text", message["content"].get("evalue", ""))


def kinds(ran: Ran) -> list[str]:
    """Types of the messages below the status line, in order."""
    found = []
    for message in ran.messages:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind in ("status", "execute_input"):
            continue
        if "☁" in content.get("data", {}).get("text/plain", ""):
            continue
        found.append(kind)
    return found


# -- streams and displays ----------------------------------------------------------------------


def test_stdout_and_stderr_are_native_streams_in_order_with_displays(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\n"
        "import sys\n"
        "from IPython.display import HTML, display\n"
        "print('one'); print('two', file=sys.stderr)\n"
        "display(HTML('<b>three</b>'))\n"
        "print('four')\n"
        "'five'"
    )
    assert (ran.stdout, ran.stderr) == ("one\nfour\n", "two\n")
    assert kinds(ran) == ["stream", "stream", "display_data", "stream", "execute_result"]
    html = [c["data"].get("text/html") for c in ran.of("display_data")]
    assert "<b>three</b>" in html


def test_result_is_shown_with_its_own_repr_and_bound_here(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\n{'a': [1, 2]}")
    [shown] = ran.of("execute_result")
    assert shown["data"]["text/plain"] == "{'a': [1, 2]}"
    number = shown["execution_count"]
    own = next(
        m["content"]["execution_count"]
        for m in ran.messages
        if m["header"]["msg_type"] == "execute_input"
    )
    assert number == own
    assert notebook.run(f"_['a'] + Out[{number}]['a']").result == "[1, 2, 1, 2]"


def test_a_semicolon_silences_the_result(notebook: Notebook) -> None:
    notebook.run("'before'")
    assert notebook.run("%%sky\n41 + 1;").of("execute_result") == []
    assert notebook.run("_").result == "'before'"
    assert notebook.run("%%sky\nNone").of("execute_result") == []


def test_a_display_is_updated_in_place(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\nfrom IPython.display import display\n"
        "handle = display('first', display_id=True)\nhandle.update('second')"
    )
    first = next(c for c in ran.of("display_data") if c["data"]["text/plain"] == "'first'")
    updates = [c for c in ran.of("update_display_data") if c["data"]["text/plain"] == "'second'"]
    assert [c["transient"]["display_id"] for c in updates] == [first["transient"]["display_id"]]


def visible(ran: Ran) -> list[str]:
    """The cell's outputs as a front end shows them at the end."""
    outputs: list[tuple[str | None, str]] = []
    clear_waits = False
    for message in ran.messages:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "clear_output":
            clear_waits = True
            if not content["wait"]:
                outputs, clear_waits = [], False
        elif kind == "update_display_data":
            key = content["transient"]["display_id"]
            text = content["data"]["text/plain"]
            outputs = [(k, text if k == key else t) for k, t in outputs]
        elif kind in ("stream", "display_data", "execute_result"):
            if clear_waits:
                outputs, clear_waits = [], False
            text = content["text"] if kind == "stream" else content["data"]["text/plain"]
            outputs.append((content.get("transient", {}).get("display_id"), text))
    return [text for _, text in outputs]


@pytest.mark.parametrize("wait", [True, False])
def test_outputs_are_cleared_and_the_status_line_stays(notebook: Notebook, wait: bool) -> None:
    ran = notebook.run(
        "%%sky\nfrom IPython.display import clear_output\n"
        f"print('old', flush=True)\nclear_output(wait={wait})\nprint('new')"
    )
    status, *rest = visible(ran)
    assert status.startswith("☁ done")
    assert rest == ["new\n"]


def test_pictures_and_tables_are_those_of_a_local_cell(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nimport matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);", timeout=120)
    assert any("image/png" in c["data"] for c in ran.of("display_data"))
    ran = notebook.run("%%sky\nimport pandas as pd\npd.DataFrame({'a': [1, 2]})")
    [shown] = ran.of("execute_result")
    assert "<table" in shown["data"]["text/html"]


def test_late_output_of_a_thread_is_shown_in_its_cell(notebook: Notebook) -> None:
    sent = notebook.send(
        "%%sky\nimport threading, time\n"
        "def late():\n    time.sleep(1.0)\n    print('from the thread')\n"
        "threading.Thread(target=late).start()"
    )
    assert notebook.collect(sent).status == "ok"
    ran = notebook.run("%%sky\ntime.sleep(1.5); print('other')")
    assert ran.stdout == "other\n"
    later(notebook, sent, "from the thread")


def test_output_of_a_process_pool_is_shown_in_its_cell(notebook: Notebook) -> None:
    """A pool of threads outlives the cell that made it."""
    first = notebook.run(
        "%%sky\nfrom concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "pool.submit(print, 'one').result()"
    )
    second = notebook.run("%%sky\npool.submit(print, 'two').result()")
    assert (first.stdout, second.stdout) == ("one\n", "two\n")


def test_forked_processes_print_and_end(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\nimport multiprocessing, os\n"
        "def work(i):\n    print(f'forked {i}', flush=True)\n    return i\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    print('sum', sum(pool.map(work, range(40))), flush=True)\n"
        "os.system('echo from a shell');"
    )
    expected = [f"forked {number}" for number in range(40)] + ["from a shell", "sum 780"]
    assert ran.status == "ok" and sorted(ran.stdout.splitlines()) == sorted(expected), ran.stdout


def test_progress_bars(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nfrom tqdm import tqdm\nfor _ in tqdm(range(5)): pass")
    assert "\r" in ran.stderr and "5/5" in ran.stderr
    ran = notebook.run("%%sky\nfrom tqdm.auto import tqdm\nfor _ in tqdm(range(5)): pass")
    views = [
        c for c in ran.of("display_data") if "application/vnd.jupyter.widget-view+json" in c["data"]
    ]
    assert len(views) == 1 and ran.of("comm_open")


# -- the body ----------------------------------------------------------------------------------


def test_the_body_is_ordinary_ipython(notebook: Notebook) -> None:
    assert notebook.run("%%sky\nimport asyncio\nawait asyncio.sleep(0.01, 'awaited')").result == (
        "'awaited'"
    )
    assert notebook.run("%%sky\n!echo shell").stdout.strip() == "shell"
    assert notebook.run("%%sky\n%%bash\necho $((20 + 22))").stdout == "42\n"
    ran = notebook.run("%%sky\n%time 6 * 7")
    assert ran.result == "42" and "Wall time" in ran.stdout
    body = "def f(x):\n    if x:\n\n        return x\n\n    return -1\n\nf(0) + f(3)"
    assert notebook.run(f"%%sky\n{body}").result == "2"


def test_magics_above_the_cell_magic(notebook: Notebook) -> None:
    ran = notebook.run("%%time\n%%sky\nprint('timed')")
    assert ran.status == "ok" and "timed" in ran.stdout and "Wall time" in ran.stdout
    assert notebook.run("%%capture got\n%%sky\nprint('kept')\n7").status == "ok"
    assert "kept" in notebook.run("got.stdout").result


def test_local_and_remote_names_are_apart(notebook: Notebook) -> None:
    notebook.run("here = 1")
    notebook.run("%%sky\nthere = 2")
    assert notebook.run("'there' in globals()").result == "False"
    assert notebook.run("%%sky\n'here' in globals(), there").result == "(False, 2)"


# -- results that do not travel ------------------------------------------------------------------


def test_a_big_or_odd_result_is_a_handle_with_the_remote_repr(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nimport numpy as np\nnp.arange(1_000_000.0)")
    assert notebook.run("_").result == ran.result != ""
    assert notebook.run("type(_).__name__, _.fetch().sum()").result.startswith("('RemoteValue'")
    ran = notebook.run("%%sky\nimport threading\nthreading.Lock()")
    assert "unlocked" in ran.result
    assert notebook.run("_").result == ran.result


def test_a_long_list_is_not_spelled_out_for_its_handle(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nlist(range(3_000_000))")
    assert notebook.run("_").result[:40] == ran.result[:40]
    assert len(ran.result) < 20_000


# -- widgets -------------------------------------------------------------------------------------


def front_end_says(notebook: Notebook, comm: str, value: int, subshell: str | None = None) -> str:
    """Move a slider as a browser does."""
    content = {
        "comm_id": comm,
        "data": {"method": "update", "state": {"value": value}, "buffer_paths": []},
    }
    client = notebook.client
    message = client.session.msg("comm_msg", content)
    if subshell:
        message["header"]["subshell_id"] = subshell
    client.shell_channel.send(message)
    return message["header"]["msg_id"]


def slider(notebook: Notebook, name: str) -> str:
    """Make a slider remotely; return the id of its comm."""
    ran = notebook.run(
        "%%sky\nimport ipywidgets\n"
        f"{name} = ipywidgets.IntSlider(value=1)\nheard = []\n"
        f"{name}.observe(lambda change: (heard.append(change.new), print('now', change.new)),"
        " 'value')\n"
        f"{name}"
    )
    [opened] = [
        c for c in ran.of("comm_open") if c["data"]["state"]["_model_name"] == "IntSliderModel"
    ]
    [shown] = ran.of("execute_result")
    view = shown["data"]["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == opened["comm_id"]
    return opened["comm_id"]


def test_widgets_work_both_ways(notebook: Notebook) -> None:
    comm = slider(notebook, "s")
    said = front_end_says(notebook, comm, 42)
    later(notebook, said, "now 42")
    assert notebook.run("%%sky\ns.value, heard").result == "(42, [42])"
    changed = notebook.run("%%sky\ns.value = 7")
    states = [c["data"].get("state", {}) for c in changed.of("comm_msg") if c["comm_id"] == comm]
    assert {"value": 7} in states


def test_a_widget_moves_while_another_cell_blocks_the_kernel(notebook: Notebook) -> None:
    comm = slider(notebook, "t")
    client = notebook.client
    client.control_channel.send(client.session.msg("create_subshell_request"))
    subshell = client.get_control_msg(timeout=10)["content"]["subshell_id"]
    sent = notebook.send(
        "%%sky\nimport asyncio\nprint('begun', flush=True)\n"
        "for _ in range(800):\n    await asyncio.sleep(0.1)\n    if t.value == 5: break\n"
        "t.value"
    )
    notebook.wait_output("begun")
    front_end_says(notebook, comm, 5, subshell)
    ran = notebook.collect(sent)
    assert ran.result == "5" and ran.seconds < 40


def test_an_output_widget_captures(notebook: Notebook) -> None:
    sent = notebook.send(
        "%%sky\nimport ipywidgets\nfrom IPython.display import clear_output\n"
        "out = ipywidgets.Output()\ndisplay(out)\n"
        "with out:\n    print('caught')\n    clear_output(wait=True)\n    print('again')\n"
        "print('free')"
    )
    ran = notebook.collect(sent)
    states = [
        c["data"]["state"]["msg_id"]
        for c in ran.of("comm_msg")
        if "msg_id" in c["data"].get("state", {})
    ]
    assert states == [sent, ""]  # the front end captures by this cell's own id
    order = kinds(ran)
    assert order == [
        *order[: order.index("comm_msg")],
        "comm_msg",
        "stream",
        "clear_output",
        "stream",
        "comm_msg",
        "stream",
    ]
    assert ran.stdout == "caught\nagain\nfree\n"
    inside = ran.messages[[m["header"]["msg_type"] for m in ran.messages].index("clear_output") :]
    assert "display_data" not in [m["header"]["msg_type"] for m in inside]  # no status line


def test_an_output_widget_captures_what_a_click_prints(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\nimport ipywidgets\n"
        "u = ipywidgets.IntSlider(value=1)\nout = ipywidgets.Output()\n"
        "@out.capture(clear_output=True, wait=True)\n"
        "def moved(change): print('moved to', change.new)\n"
        "u.observe(moved, 'value')\nu"
    )
    [shown] = ran.of("execute_result")
    comm = shown["data"]["application/vnd.jupyter.widget-view+json"]["model_id"]
    said = front_end_says(notebook, comm, 9)
    later(notebook, said, "moved to 9")
    captured = [
        m["content"]["data"]["state"]["msg_id"]
        for m in notebook.other_messages
        if m["parent_header"].get("msg_id") == said
        and m["header"]["msg_type"] == "comm_msg"
        and "msg_id" in m["content"]["data"].get("state", {})
    ]
    assert captured[0] == said  # the front end captures by the id of its own message


# -- several engines -----------------------------------------------------------------------------


def test_ranks_are_told_apart_when_several_print(notebook: Notebook) -> None:
    ran = notebook.run(f"{PAIR}\nimport os\nprint('pid', os.getpid())", timeout=120)
    lines = sorted(ran.stdout.splitlines())
    assert [line.split("pid")[0] for line in lines] == ["[0] ", "[1] "]
    assert len({line.split()[-1] for line in lines}) == 2


def test_one_rank_alone_has_no_prefix(notebook: Notebook) -> None:
    ran = notebook.run(f"{PAIR} --on 1\nprint('alone')\n5")
    assert (ran.stdout, ran.result) == ("alone\n", "5")
    assert notebook.run("_").result == "5"


def test_results_of_two_ranks_are_told_apart_and_bound_as_a_list(notebook: Notebook) -> None:
    ran = notebook.run(f"{PAIR}\n6 * 7")
    assert [c["data"]["text/plain"] for c in ran.of("execute_result")] == ["[0] 42", "[1] 42"]
    assert notebook.run("_").result == "[42, 42]"
    ran = notebook.run(f"{PAIR}\nimport pandas as pd\npd.DataFrame({{'a': [1]}})", timeout=120)
    assert ran.stdout == "[0]\n[1]\n"  # a label above each: its HTML is what is seen
    assert all("<table" in c["data"]["text/html"] for c in ran.of("execute_result"))


def test_streams_keep_their_order(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky --on 0\nimport sys\n"
        "print('one'); print('two', file=sys.stderr)\n"
        "print('three'); print('four', file=sys.stderr)"
    )
    pieces = [(content["name"], content["text"]) for content in ran.of("stream")]
    joined = "".join(text for _, text in pieces)
    assert joined == "one\ntwo\nthree\nfour\n", pieces


def test_request_that_cannot_be_read_is_no_run(notebook: Notebook) -> None:
    assert notebook.run("%%sky\n1").status_line.startswith("☁ done")
    for line in ("--gpu-s 3", "-i absent", "--on 7"):
        ran = notebook.run(f"%%sky {line}\nprint('ran')")
        assert (ran.status, ran.ename) == ("error", "SkyUsageError"), line
        assert ran.status_line == "" and "ran" not in ran.stdout, line
