"""The quickstart notebook, headless, output by output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ANSI, processes_of, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.emulators.loopback import CLOUDS, loopback
from tests.notebooks import execute, read

pytestmark = pytest.mark.slow
QUICKSTART = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"
KEYS = {
    "load_ext": "load",
    "load_digits": "data",
    "tqdm(grid": "search",
    "scores.iloc": "best",
    "ConfusionMatrixDisplay": "picture",
    "--bg forest": "background",
    "meanwhile": "meanwhile",
    "forest.result()": "result",
    "raise ValueError": "error",
    "%sky cost": "cost",
    "%sky down": "down",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    return run(tmp_path_factory.mktemp("quickstart"), sky_env)


def run(data: Path, sky_env: dict[str, str], options: str = "") -> dict[str, Any]:
    """Run the notebook, with `options` after every ``%%sky``; return its code cells."""
    notebook = read(QUICKSTART)
    for cell in notebook.cells:
        cell.source = cell.source.replace("%%sky", f"%%sky {options}".rstrip())
    found = execute(notebook, KEYS, sky_env | {"SKY_DATA_DIR": str(data)})
    wait_until(lambda: not processes_of(data), "the notebook ends its clusters itself")
    return found


def text_of(cell: Any, kind: str, name: str = "") -> str:
    parts = []
    for output in cell.outputs:
        if output.output_type == kind and (not name or output.name == name):
            parts.append(output.text if kind == "stream" else output.data.get("text/plain", ""))
    return "".join(parts)


def cost_table(cell: Any) -> str:
    """Return the table of ``%sky cost``, without the figures above it and the notes below."""
    return text_of(cell, "display_data").partition("Cost by cell")[2].partition("\n\n")[0]


def test_loading_shows_nothing(cells: dict[str, Any]) -> None:
    assert cells["load"].outputs == []


def test_search_shows_status_progress_print_and_table(cells: dict[str, Any]) -> None:
    search = cells["search"]
    first = search.outputs[0]
    assert first.output_type == "display_data"
    assert first.data["text/plain"].startswith("☁ done ")
    assert "$0.00 this cell" in first.data["text/plain"] and "$0.00/h" in first.data["text/plain"]
    assert 'role="status"' in first.data["text/html"]
    assert "9/9" in text_of(search, "stream", "stderr")
    assert text_of(search, "stream", "stdout") == "9 combinations tried\n"
    (table,) = [out for out in search.outputs if out.output_type == "execute_result"]
    assert "<table" in table.data["text/html"] and "accuracy" in table.data["text/plain"]
    assert table.execution_count == search.execution_count


def test_collected_results_are_used_locally(cells: dict[str, Any]) -> None:
    assert "best: C=10, gamma=0.001, accuracy 0.99" in text_of(cells["best"], "stream")


def test_picture_is_a_png_below_the_status_line(cells: dict[str, Any]) -> None:
    first, picture = cells["picture"].outputs
    assert first.data["text/plain"].startswith("☁ done ")
    assert picture.data["image/png"].startswith("iVBOR")
    assert picture.output_type == "display_data"


def test_background_cell_does_not_hold_the_notebook_up(cells: dict[str, Any]) -> None:
    said = text_of(cells["meanwhile"], "stream")
    assert said.startswith("meanwhile, here: 540 test digits; forest is ")
    assert "forest: 0.97" in text_of(cells["result"], "stream")
    assert text_of(cells["result"], "execute_result") == "True"


def test_error_is_an_error_with_the_cells_own_lines(cells: dict[str, Any]) -> None:
    (error,) = [out for out in cells["error"].outputs if out.output_type == "error"]
    assert error.ename == "ValueError" and "below 0.999" in error.evalue
    traceback = "\n".join(error.traceback)
    assert "jupyter_sky" not in traceback and "line 4" in ANSI.sub("", traceback)
    assert cells["error"].outputs[0].data["text/plain"].startswith("☁ failed ")


def test_cost_lists_every_cell_and_its_price(cells: dict[str, Any]) -> None:
    table = cost_table(cells["cost"])
    assert table.count("$0.00/h") == 4 and "[forest]" in table and "this machine" in table


def test_down_says_what_ended(cells: dict[str, Any]) -> None:
    assert text_of(cells["down"], "stream").startswith("ended: ")


def test_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(QUICKSTART.read_text())
    for cell in kept["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


EVERYWHERE = ("load", "data", "search", "best", "picture", "background", "result", "error")


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
@pytest.mark.parametrize("cloud", CLOUDS)
def test_on_a_cloud_the_outputs_are_the_same(
    cloud: str, cells: dict[str, Any], tmp_path: Path, sky_env: dict[str, str]
) -> None:
    with loopback(cloud) as there:
        found = run(tmp_path, sky_env | there.env, f"--cloud {cloud}")
        wait_until(lambda: not there.machines())
    for name in EVERYWHERE:
        assert shown(found[name]) == shown(cells[name]), name
    status = text_of(found["search"], "display_data")
    assert f" {cloud} " in status and status.startswith("☁ done ")
    table = cost_table(found["cost"])
    assert len(re.findall(r"\$0\.\d+/h", table)) == 4 and "$0.00/h" not in table


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_on_a_machine_reached_by_ssh_the_outputs_are_the_same(
    cells: dict[str, Any], tmp_path: Path, sky_env: dict[str, str]
) -> None:
    host = SshHost(81)
    try:
        (tmp_path / "hosts.toml").write_text(host.toml("box"))
        there = run(tmp_path, sky_env, "--cloud ssh")
        wait_until(lambda: not host.held() and not host.clusters() + host.taken())
    finally:
        host.close()
    for name in EVERYWHERE:
        assert shown(there[name]) == shown(cells[name]), name
    status = text_of(there["search"], "display_data")
    assert "ssh pool box" in status and status.startswith("☁ done ")
    assert cost_table(there["cost"]).count("hosts.toml, ") == 4


def shown(cell: Any) -> list[tuple[str, str]]:
    """Return a cell's outputs without place and time."""
    found = []
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            # a progress bar draws itself as often as there is time for it
            text = re.sub(r"search: .*?(?=\r|$)", "", output.text).replace("\r", "")
        elif output.output_type == "error":
            text = re.sub(r" --cloud \w+", "", ANSI.sub("", "\n".join(output.traceback)))
        elif data.get("text/plain", "").startswith("☁"):
            continue
        else:
            text = data.get("image/png") or data.get("text/html") or data.get("text/plain", "")
        if text:
            found.append((output.get("name") or output.output_type, text))
    return found
