"""The catalog notebook, headless: the figures in its tables and the pictures it draws."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from tests.notebooks import execute, printed, read, texts

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "catalog.ipynb"
KEYS = {
    "days since": "age",
    "table1 =": "table1",
    "table4 =": "table4",
    "CONTINENTS": "map",
    "GPUS =": "gpus",
    "catalog.egress": "egress",
    "answer =": "question",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    data = tmp_path_factory.mktemp("catalog-notebook")
    return execute(read(NOTEBOOK), KEYS, sky_env | {"SKY_DATA_DIR": str(data)}, cwd=data)


def table(cell: Any, levels: int = 1) -> pd.DataFrame:
    """Return the table that a cell ends with, as a reader of its HTML sees it."""
    (html,) = [out.data["text/html"] for out in cell.outputs if out.output_type == "execute_result"]
    soup = BeautifulSoup(html, "html.parser")
    heads = [texts(row)[1:] for row in soup.select("thead tr")[:levels]]
    body = [texts(row) for row in soup.select("tbody tr")]
    columns = heads[0] if levels == 1 else pd.MultiIndex.from_arrays(heads)
    frame = pd.DataFrame([row[1:] for row in body], [row[0] for row in body], columns)
    return frame.apply(_numbers)


def _numbers(column: pd.Series) -> pd.Series:
    """Return a column of numbers, where all its texts are."""
    found = pd.to_numeric(column.replace("NaN", None), errors="coerce")
    return found if (found.notna() | (column == "NaN")).all() else column


def pictures(cell: Any) -> list[bytes]:
    found = [out for out in cell.outputs if out.output_type == "display_data"]
    return [base64.b64decode(out.data["image/png"]) for out in found]


def test_nothing_is_printed_on_stderr(cells: dict[str, Any]) -> None:
    """A warning of pandas or matplotlib would be the first thing that a reader sees."""
    for cell in cells.values():
        assert [o for o in cell.outputs if o.get("name") == "stderr"] == []


def test_age_of_prices_is_shown(cells: dict[str, Any]) -> None:
    said = printed(cells["age"])
    offers = int(said.split()[0].replace(",", ""))
    assert offers > 150_000
    assert all(f"{cloud} " in said for cloud in ("aws", "azure", "gcp")) and "None" not in said


def test_table_1_matches_the_paper(cells: dict[str, Any]) -> None:
    found = table(cells["table1"])
    assert list(found["regions, paper"]) == [20, 51, 35]
    assert list(found["in the US, paper"]) == [4, 8, 9]
    assert list(found["zones, paper"]) == [64, 124, 106]
    assert list(found["machine types, paper"]) == [558, 714, 155]
    for what in ("regions", "in the US", "zones", "machine types"):
        assert (found[what] >= found[f"{what}, paper"]).all(), "clouds grow"
        assert (found[what] <= 4 * found[f"{what}, paper"]).all(), what
    assert (found.zones > found.regions).all() and (found["in the US"] < found.regions).all()


def test_table_4_matches_the_paper(cells: dict[str, Any]) -> None:
    found = table(cells["table4"], levels=2)
    paper = found.xs("paper", axis=1, level=1)
    assert list(paper.loc["A100, 8"]) == [46, 1.9, 23, 6.4, 84]
    assert list(paper.loc["TPU v3-8"]) == [4, 1.1, 4, 1.1, 4]
    assert list(paper.zones) == [146, 88, 248, 56, 146, 79, 46, 5, 4]
    ours = found.xs("ours", axis=1, level=1)
    assert ours.notna().drop(index="K80, 1").all(axis=None)
    assert (ours[["on-demand max/min", "spot max/min"]].dropna() >= 1).all(axis=None)
    on_demand, spot = ours["on-demand max/min"], ours["spot max/min"]
    assert (spot >= on_demand).drop(index="K80, 1").all(), "spot prices differ more"
    cpus = ours.filter(like="vCPUs", axis=0)
    near = cpus["on-demand CV %"] - paper.filter(like="vCPUs", axis=0)["on-demand CV %"]
    assert near.abs().max() <= 5, "the text says that these are close"
    zones = ours.zones
    assert zones.idxmax() == "Intel, 8 vCPUs" and zones[["TPU v2-8", "TPU v3-8"]].max() <= 5
    assert zones["A100, 8"] < zones["V100, 1"] < zones["T4, 1"] < zones["AMD, 8 vCPUs"]


def test_the_map_is_drawn_with_both_ends_of_its_prices(cells: dict[str, Any]) -> None:
    (picture,) = pictures(cells["map"])
    assert picture.startswith(b"\x89PNG") and len(picture) > 30_000
    ends = table(cells["map"])
    assert len(ends) == 8 and ends.usd_h.is_monotonic_increasing
    assert 0 < ends.usd_h.min() < 0.3 < ends.usd_h.max() < 2
    assert ends.region.is_unique


def test_spot_is_drawn_against_on_demand_for_each_gpu(cells: dict[str, Any]) -> None:
    (picture,) = pictures(cells["gpus"])
    assert len(picture) > 30_000
    saving = table(cells["gpus"])
    assert list(saving.index) == ["T4", "L4", "A10G", "V100", "A100", "A100-80GB", "H100", "H200"]
    assert saving.stack().dropna().between(0, 95).all()
    assert saving.loc["T4"].notna().all() and saving.loc["A10G", ["azure", "gcp"]].isna().all()


def test_the_egress_matrix_is_whole(cells: dict[str, Any]) -> None:
    (picture,) = pictures(cells["egress"])
    assert len(picture) > 10_000
    matrix = table(cells["egress"])
    assert matrix.shape == (6, 7) and matrix.notna().all(axis=None)
    for source in matrix.index:
        cloud = source.split("/")[0]
        outside = matrix.loc[source, [c for c in matrix.columns if not c.startswith(cloud)]]
        assert outside.nunique() == 1, "the text says that the way out has one price"
        assert matrix.loc[source, source] < outside.iloc[0]
    assert matrix.loc["aws/us-east-1", "internet"] == 90


def test_query_is_filtered_by_its_labels(cells: dict[str, Any]) -> None:
    (shown,) = cells["question"].outputs
    title, _, _, *lines = shown.data["text/plain"].splitlines()
    assert int(title.split()[0]) >= 5 and "A100:8" in title
    offers = [line for line in lines if line.startswith(("aws", "azure", "gcp"))]
    assert len(offers) >= 5
    assert all("A100:8" in line and " spot " in line for line in offers)
    prices = [[float(usd) for usd in re.findall(r"\d+\.\d{4}", line)] for line in offers]
    assert prices == sorted(prices)
    assert all(abs(whole / 8 - one) < 0.001 for whole, one in prices)


def test_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(NOTEBOOK.read_text())
    for cell in kept["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
