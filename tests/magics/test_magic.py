"""The extension in a real kernel: loading, help, completion, dry run, verbs."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook, processes_of

pytestmark = pytest.mark.slow


def complete(notebook: Notebook, code: str) -> list[str]:
    msg_id = notebook.client.complete(code, len(code))
    while True:
        reply = notebook.client.get_shell_msg(timeout=60)
        if reply["parent_header"]["msg_id"] == msg_id:
            return reply["content"]["matches"]


def test_loading_starts_nothing_and_imports_nothing_heavy(notebook: Notebook, data_dir) -> None:
    heavy = ["ipyparallel", "cvxpy", "boto3", "pandas", "numpy", "cloudpickle", "sqlite3"]
    ran = notebook.run(f"import sys; [m for m in {heavy} if m in sys.modules]")
    loaded = ran.result
    assert "ipyparallel" not in loaded and "cvxpy" not in loaded and "boto3" not in loaded
    assert processes_of(data_dir) == [] and not (data_dir / "sky.db").exists()


def test_help_shows_every_option_with_an_example(notebook: Notebook) -> None:
    msg_id = notebook.client.execute("%%sky?")
    reply = notebook.client.get_shell_msg(timeout=20)
    while reply["parent_header"]["msg_id"] != msg_id:
        reply = notebook.client.get_shell_msg(timeout=20)
    (page,) = reply["content"]["payload"]
    text = page["data"]["text/plain"]
    from jupyter_sky.base.requests.cell_options.schema import OPTIONS

    for option in OPTIONS:
        assert option.flags[-1] in text and option.example in text


def test_help_of_a_cell_runs_nothing(notebook: Notebook, data_dir) -> None:
    ran = notebook.run("%%sky --help\nprint('ran')")
    assert ran.status == "ok" and "--gpus V100:1" in ran.stdout and "ran\n" not in ran.stdout
    for alone in ("%%sky --help", "\n%%sky -h\n"):  # nothing stands below it
        ran = notebook.run(alone)
        assert ran.status == "ok" and "--gpus V100:1" in ran.stdout, ran
    assert processes_of(data_dir) == []


@pytest.mark.parametrize(
    ("line", "expected", "unexpected"),
    [
        ("%%sky --g", "--gpus", "globals"),
        ("%%sky --gpus V1", "V100", "vars"),
        ("%%sky --cloud lo", "local", "locals"),
        ("%%sky -i some_lo", "some_local", "--input"),
        ("%sky st", "status", "staticmethod"),
        ("%sky help lo", "logs", "locals"),
    ],
)
def test_tab_completes(notebook: Notebook, line: str, expected: str, unexpected: str) -> None:
    notebook.run("some_local = 1")
    found = complete(notebook, line)
    assert any(match.endswith(expected) for match in found), found
    assert unexpected not in found


def test_dry_run_launches_nothing(notebook: Notebook, data_dir) -> None:
    ran = notebook.run("x = b'0' * 100_000")
    ran = notebook.run("%%sky --dry-run --cpus 1 -i x\nx")
    assert "this machine" in ran.result and "$0.00/h" in ran.result
    assert "x 100," in ran.result and "nothing was launched" in ran.result
    assert processes_of(data_dir) == []


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%sky --frobnicate\n1", "--frobnicate"),
        ("%%sky --spot --on-demand\n1", "--spot"),
        ("%%sky --cpus four\n1", "--cpus"),
        ("%%sky --nodes 0\n1", "--nodes"),
        ("%%sky --timeout 5\n1", "--timeout"),
        ("%%sky -i nothing_here\n1", "nothing_here"),
        ("%%sky --cpus 4096\n1", "--cpus 4096 cannot be met"),
        ("%%sky --gpus V100:1\n1", "no account of a cloud is set up here"),
        ("%%sky --gpus V1000\n1", "V100"),
        ("%%sky --cloud moon\n1", "moon"),
        ("%%sky\n   \n", "no body"),
        ("%sky frob", "frob"),
    ],
)
def test_invalid_lines_launch_nothing_and_show_no_frames_of_the_package(
    notebook: Notebook, data_dir, cell: str, said: str
) -> None:
    ran = notebook.run(cell)
    assert ran.status == "error" and ran.ename.startswith("Sky")
    assert said in ran.evalue
    assert "jupyter_sky/" not in ran.traceback and "line " not in ran.traceback.splitlines()[0]
    assert processes_of(data_dir) == []


def test_syntax_error_is_found_before_anything_is_launched(notebook: Notebook, data_dir) -> None:
    ran = notebook.run("%%sky --cpus 1\nx = 1\ndef broken(:\n    pass")
    assert ran.ename == "SyntaxError" and "line 3" in ran.traceback
    assert "def broken(:" in ran.traceback and "jupyter_sky/" not in ran.traceback
    assert processes_of(data_dir) == []


def test_settings_hold_where_the_cell_says_nothing(notebook: Notebook) -> None:
    notebook.run("%config Sky.cloud = 'aws'")
    planned = notebook.run("%%sky --dry-run\n1").result
    assert "aws" in planned and "aws: cannot launch here yet" in planned
    assert notebook.run("%%sky --dry-run --cloud local\n1").status == "ok"
    assert "--cloud aws: no credentials" in notebook.run("%%sky\n1").evalue
    notebook.run("%config Sky.cloud = ''")


def test_outputs_are_completed_from_what_cells_have_made(fresh) -> None:
    book = fresh()
    assert book.run("%%sky\nfar_away = 1\nfor far_index in [1]: pass").status == "ok"
    assert "far_away" in complete(book, "%%sky -o far_a")
    assert "far_index" in complete(book, "%%sky -o far_")
    assert book.run("%sky down").status == "ok"


def test_meter_shows_the_figures_and_settles_into_html(fresh) -> None:
    book = fresh()
    book.run("%%sky\n1")
    ran = book.run("import jupyter_sky as sky\nmeter = sky.meter()\nmeter")
    shown = [*ran.of("display_data"), *ran.of("execute_result")]
    bundle = next(
        c["data"] for c in shown if "application/vnd.jupyter.widget-view+json" in c["data"]
    )
    assert "this notebook: $0.00" in bundle["text/plain"] and 'role="status"' in bundle["text/html"]
    assert book.run("meter.close()").status == "ok"


def test_alias_and_config(notebook: Notebook, data_dir) -> None:
    assert notebook.run("%sky alias tiny --cpus 1").status == "ok"
    assert "--cpus 1" in notebook.run("%%sky tiny --dry-run\n1").result
    assert notebook.run("%sky alias bad --nope").status == "error"
    assert notebook.run("%config Sky.idle = '3m'").status == "ok"
    assert notebook.run("%sky config idle").result == "'3m'"
    assert (
        "3m" in notebook.run("%sky config idle=soon").evalue
        or notebook.run("%sky config idle").result == "'3m'"
    )


def test_unload_takes_everything_back(fresh) -> None:
    book = fresh()
    assert book.run("%unload_ext jupyter_sky").status == "ok"
    assert "not found" in book.run("%sky status").stderr
    assert "--gpus" not in complete(book, "%%sky --g")
    assert book.run("%load_ext jupyter_sky").status == "ok"
    assert "--gpus" in complete(book, "%%sky --g")
