"""The storage notebook, headless: its estimates, plans, copies and the bill."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from tests.notebooks import execute, printed, read, texts

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "storage.ipynb"
KEYS = {
    "%load_ext": "load",
    "images.write": "measured",
    "asked =": "estimate",
    "PAPER =": "paper",
    "HOMES =": "plans",
    "moved =": "moved",
    "here.fetch": "cached",
    "sky.cost": "paid",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    data = tmp_path_factory.mktemp("storage-notebook")
    own = {"SKY_DATA_DIR": str(data / "sky"), "HOME": str(data)}
    return execute(read(NOTEBOOK), KEYS, sky_env | own, cwd=NOTEBOOK.parent)


def rows(cell: Any) -> list[list[str]]:
    """Return the rows of the table that a cell ends with."""
    (html,) = [out.data["text/html"] for out in cell.outputs if out.output_type == "execute_result"]
    return [texts(row) for row in BeautifulSoup(html, "html.parser").select("tr")[1:]]


def test_nothing_is_printed_on_stderr(cells: dict[str, Any]) -> None:
    for cell in cells.values():
        assert [out for out in cell.outputs if out.get("name") == "stderr"] == []


def test_size_is_measured_and_priced(cells: dict[str, Any]) -> None:
    assert "6.0 MB in 60 objects" in printed(cells["measured"])
    assert re.search(
        r"\$0\.00054 egress \(listed\) \+ \$0\.\d+ requests", printed(cells["estimate"])
    )


def test_paper_and_ours_agree(cells: dict[str, Any]) -> None:
    found = [row[-6:] for row in rows(cells["paper"])]
    out = {row[0]: row for row in found if row[2]}
    assert set(out) == {"150 GB", "1000 GB"} and len(found) == 4
    for __, __, minutes, usd, our_minutes, our_usd in out.values():
        assert float(our_usd.strip("$")) == pytest.approx(float(usd.strip("$")), rel=0.05)
        assert float(our_minutes.split()[0]) == pytest.approx(float(minutes.split()[0]), rel=0.4)
    back = [row for row in found if not row[2]]
    assert all(float(row[5].strip("$")) > float(out[row[0]][5].strip("$")) for row in back)


def test_data_go_to_the_tpu_only_where_that_pays(cells: dict[str, Any]) -> None:
    places = {(row[-4], row[-3]): (row[-2], row[-1]) for row in rows(cells["plans"])}
    assert places["150 GB", "s3://imagenet"][0].startswith("gcp tpu")
    assert all(place[0].startswith("gcp") for (_, home), place in places.items() if "gs" in home)
    moved, there = (float(places["150 GB", home][1].strip("$")) for home in HOMES)
    assert moved == pytest.approx(there + 13.5, abs=2)


HOMES = ("s3://imagenet", "gs://imagenet")


def test_second_copy_and_second_use_move_nothing(cells: dict[str, Any]) -> None:
    said = printed(cells["moved"])
    assert "6.0 MB in 60 objects" in said and "again: 0 objects, 60 there already" in said
    first, then = re.findall(r"([\d.]+) s", printed(cells["cached"]))
    assert "60 files" in printed(cells["cached"]) and float(then) < float(first)


def test_bill_is_the_estimate(cells: dict[str, Any]) -> None:
    said = printed(cells["paid"])
    assert "this notebook: $0.00" in said
    share = float(said.rpartition("estimated: ")[2])
    assert 0.99 <= share <= 1.01
