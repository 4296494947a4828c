"""The placement notebook, headless: the paper's comparisons, and the curves it draws."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks import execute, read

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "placement.ipynb"
KEYS = {
    "%load_ext": "load",
    "def vision": "vision",
    "def beside": "figure 5",
    "for gb in": "larger input",
    "for goal in": "goals",
    'with sky.Dag("nlp")': "nlp",
    '"NLP: one cloud': "table 3",
    "explain()": "why",
    "def of_edges": "figure 9",
    "front =": "front",
    "clean =": "carbon",
    'deadline="4h"': "no plan",
    "refused =": "refused",
    "def points": "checks",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, sky_env: dict[str, str]) -> dict[str, Any]:
    """Return the code cells after a run, by a word of their source."""
    notebook = read(NOTEBOOK)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS))
    data = tmp_path_factory.mktemp("placement-notebook")
    return execute(notebook, KEYS, sky_env | {"SKY_DATA_DIR": str(data)}, cwd=data)


CHECKS = """
import json

def points(plans):
    return [(made.hours, made.usd, made.gco2, made.certificate.status) for made in plans]

ends = points([cheapest, fastest, cleanest])
print(json.dumps({"front": points(front), "clean": points(clean), "ends": ends}))
"""


def text(cell: Any) -> str:
    parts = []
    for out in cell.outputs:
        if out.output_type == "stream":
            parts.append(out.text)
        elif out.output_type == "error":
            parts.append(f"{out.ename}: {out.evalue}")
        else:
            parts.append(out.data.get("text/plain", ""))
    return "\n".join(parts)


def amounts(cell: Any) -> dict[str, float]:
    """USD by the first words of each row."""
    rows = re.findall(r"^(.*?)\s+\$([\d.,]+)\s", text(cell), re.MULTILINE)
    return {name: float(usd.replace(",", "")) for name, usd in rows}


def test_the_vision_pipeline_uses_two_clouds(cells: dict[str, Any]) -> None:
    shown = text(cells["vision"])
    assert re.search(r"train\s+gcp us-\S+ tpu-v3-8", shown)
    assert re.search(r"infer\s+aws us-\S+ inf1", shown) and "150 GB  $13.50" in shown
    (out,) = cells["vision"].outputs
    assert "<svg" in out.data["text/html"]


def test_figure_5_all_clouds_together_are_cheapest(cells: dict[str, Any]) -> None:
    usd = amounts(cells["figure 5"])
    alone = [usd[f"on {cloud} only"] for cloud in ("aws", "gcp", "azure")]
    assert usd["all clouds"] < min(alone)
    assert 0.4 < 1 - usd["all clouds"] / max(alone) < 0.6, "47 % in the paper"


def test_at_four_times_the_input_the_data_stays_in_place(cells: dict[str, Any]) -> None:
    said = text(cells["larger input"])
    assert "150 GB: train on gcp tpu-v3-8" in said and "600 GB: train on aws V100" in said


def test_for_time_infer_moves_to_a_tpu(cells: dict[str, Any]) -> None:
    cost, fast = text(cells["goals"]).strip().splitlines()
    assert "infer on Inferentia" in cost and "infer on tpu-v3-8" in fast


def test_table_3(cells: dict[str, Any]) -> None:
    usd, shown = amounts(cells["table 3"]), text(cells["table 3"])
    assert 0.75 < 1 - usd["all clouds"] / usd["on azure only"] < 0.85, "80 % in the paper"
    assert shown.count("there is no plan") == 2
    where = text(cells["nlp"])
    for cloud in ("azure", "gcp", "aws"):
        assert re.search(rf"(proc|train|infer)\s+{cloud} ", where)
    assert text(cells["why"]).count("the next best") == 3


def test_figure_9_every_graph_is_proven(cells: dict[str, Any]) -> None:
    rows = [line.split() for line in text(cells["figure 9"]).splitlines()[3:]]
    sizes = {row[0]: (int(row[1]), int(row[2])) for row in rows}
    assert sizes == {
        **{"vision": (2, 1), "nlp": (3, 2), "chain": (20, 19)},
        **{"fork-join": (42, 44), "complex": (38, 53)},
    }
    assert all(row[5] == "optimal" for row in rows)
    powers = {row[0]: int(row[3][3:]) for row in rows if row[3].startswith("10^")}
    assert powers["chain"] > 30 and powers["fork-join"] > 70 and powers["complex"] > 60


def test_the_curves_go_down_from_end_to_end(cells: dict[str, Any]) -> None:
    found = json.loads(text(cells["checks"]))
    cheapest, fastest, cleanest = found["ends"]
    for name, column, ends in (
        ("front", 0, (fastest, cheapest)),
        ("clean", 2, (cleanest, cheapest)),
    ):
        points = found[name]
        assert len({round(point[1], 2) for point in points}) >= 3, "a curve, not a point"
        for tight, loose in pairwise(points):
            if tight[3] == loose[3] == "optimal":
                assert loose[1] <= tight[1] * (1 + 1e-6), "a looser limit costs no more"
        assert points[-1][1] == pytest.approx(ends[1][1], rel=1e-5)
        assert points[0][column] <= ends[0][column] * (1 + 1e-5)
    for key in ("front", "carbon"):
        (picture,) = [out for out in cells[key].outputs if "image/png" in out.get("data", {})]
        assert picture.data["image/png"].startswith("iVBOR")


def test_impossible_request_names_alternatives(cells: dict[str, Any]) -> None:
    assert re.search(
        r"SkyNoPlan: no plan ends within 4:00:00: .*nearest: deadline=", text(cells["no plan"])
    )
    assert re.search(
        r"gcp us-\S+ tpu-v3-8 refuses: now gcp us-\S+ tpu-v3-8", text(cells["refused"])
    )


def test_notebook_is_kept_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
