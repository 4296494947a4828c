"""Notebooks that compare documents statement by statement: what they name exists, and they run."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import jupyter_sky as sky
from jupyter_sky.base.requests.cell_options.schema import BY_FLAG
from jupyter_sky.interfaces.magics.verbs import find_verb
from notebooks.papers.claims import REASONS, STATES, Claim, Document, parse_way
from tests.conftest import processes_of, wait_until
from tests.notebooks import outside, printed

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "notebooks/papers"
NAMES = sorted(path.stem for path in PAPERS.glob("*.toml"))
every_document = pytest.mark.parametrize("name", NAMES)


@cache
def headings(path: Path) -> set[str]:
    """Return the headings of a notebook."""
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return {*re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@cache
def named_tests(path: Path) -> set[str]:
    """Return the tests of a file; those of a class after its name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if hasattr(one, "name")}
    return found


def find_test(name: str, target: str, heading: str) -> None:
    path, _, test = target.partition("::")
    assert (ROOT / path).is_file()
    assert not test or test in named_tests(ROOT / path)


def find_benchmark(name: str, target: str, heading: str) -> None:
    source = (ROOT / "tests/benchmarks" / f"{target}.py").read_text(encoding="utf-8")
    assert "\ndef main(" in source


def find_heading(name: str, target: str, heading: str) -> None:
    path = PAPERS / f"{name}.ipynb" if not target else PAPERS.parent / target
    assert not heading or heading in headings(path)


def find_option(name: str, target: str, heading: str) -> None:
    assert target.removeprefix("%%sky ") in BY_FLAG


def find_command(name: str, target: str, heading: str) -> None:
    words = target.removeprefix("jupyter sky ").split()
    assert not find_verb(words, "jupyter sky")[1]


def find_file(name: str, target: str, heading: str) -> None:
    assert (ROOT / target).is_file()


def find_name(name: str, target: str, heading: str) -> None:
    if target.startswith("sky."):
        assert reduce(getattr, target.split(".")[1:], sky) is not None
        return
    module, _, attribute = target.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


FINDERS: dict[str, Callable[[str, str, str], None]] = {
    "test": find_test,
    "benchmark": find_benchmark,
    "notebook": find_heading,
    "option": find_option,
    "verb": find_command,
    "file": find_file,
    "name": find_name,
}


def is_there(name: str, text: str) -> bool:
    """Whether what repeats a statement exists."""
    way = parse_way(text)
    try:
        FINDERS[way.kind](name, way.target, way.heading)
    except (AssertionError, OSError, AttributeError, ImportError, sky.SkyError):
        return False
    return True


@every_document
def test_what_repeats_a_statement_exists(name: str) -> None:
    ways = {text for one in Document.read(name).claims for text in one.again}
    assert len(ways) > 20
    assert [text for text in sorted(ways) if not is_there(name, text)] == []


def test_what_is_not_there_is_found() -> None:
    absent = (
        "tests/test_paper_notebooks.py::test_none",
        "run.py none",
        "catalog.ipynb#None",
        "#None",
        "%%sky --none",
        "jupyter sky none",
        "notebooks/none.py",
        "sky.none",
    )
    assert [text for text in absent if is_there("skypilot", text)] == []


def is_whole(one: Claim) -> bool:
    """Whether a statement says all that belongs to it."""
    answered = bool(one.ours) != bool(one.key)  # said there, or computed in the notebook
    repeatable = bool(one.again) or one.state == "not"
    explained = bool(one.reason) == (one.state in ("differs", "not"))
    known = one.state in STATES and (not one.reason or one.reason in REASONS)
    return bool(one.where and one.says) and answered and repeatable and explained and known


@every_document
def test_statements_are_whole(name: str) -> None:
    claims = Document.read(name).claims
    assert len(claims) > 40
    assert [one for one in claims if not is_whole(one)] == []


@every_document
def test_keys_and_subjects_are_unique(name: str) -> None:
    claims = Document.read(name).claims
    keys = [one.key for one in claims if one.key]
    assert len(keys) == len({*keys})
    assert len(claims) == len({(one.section, one.where) for one in claims})


@every_document
def test_every_section_is_shown(name: str) -> None:
    code = "\n".join(sources(name, "code"))
    shown = re.findall(r"document\.show\(([^)]*)\)", code)
    sections = re.findall(r'"([^"]+)"', " ".join(shown))
    assert sorted(sections) == sorted({one.section for one in Document.read(name).claims})


@every_document
def test_cells_that_are_borrowed_exist(name: str) -> None:
    code = "\n".join(sources(name, "code"))
    for notebook, ids in re.findall(r'run_cells\(\s*"([\w.]+)",([^()*]*)\)', code):
        cells = nbformat.read(PAPERS.parent / notebook, as_version=4).cells
        known = {cell.id for cell in cells if cell.cell_type == "code"}
        assert {*re.findall(r'"([\w-]+)"', ids)} <= known


def sources(name: str, kind: str) -> list[str]:
    cells = nbformat.read(PAPERS / f"{name}.ipynb", as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == kind]


@every_document
def test_texts_are_short_and_their_links_resolve(name: str) -> None:
    texts = sources(name, "markdown")
    assert sum(map(len, texts)) < 3000
    for text in texts:
        assert not re.search(r"(?<!\\)\$\d", re.sub(r"`[^`]*`", "", text)), "no formula"
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            assert link.startswith("http") or (PAPERS / link).exists(), link


@every_document
def test_notebook_is_kept_without_outputs(name: str) -> None:
    for cell in json.loads((PAPERS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_a_statement_that_no_longer_holds_is_told(capsys: pytest.CaptureFixture) -> None:
    document = Document.read("skypilot")
    document.found("table-1", "nothing", holds=False)
    document.finish()
    said = capsys.readouterr().out
    assert "no longer as said: Table 1" in said and "not computed: within-a-cloud, " in said
    assert "(no longer)" in document.show("4.1 Requirements").html


@pytest.mark.slow
@pytest.mark.timeout(600)
@every_document
def test_notebook_computes_what_it_says(name: str, tmp_path: Path, sky_env: dict[str, str]) -> None:
    notebook = nbformat.read(PAPERS / f"{name}.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=500, kernel_name="python3")
    env = outside() | sky_env | {"SKY_DATA_DIR": str(tmp_path)}
    client.execute(env=env, cwd=str(PAPERS))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" for output in shown)
    assert printed(code[-1]).strip().endswith("all as said"), printed(code[-1])
    claims = Document.read(name).claims
    assert f"<b>{len(claims)} statements</b>" in summary(code[0])
    assert any("image/png" in output.get("data", {}) for output in shown), "a plot"
    wait_until(lambda: not processes_of(tmp_path), "no cluster is left")


def summary(cell: Any) -> str:
    (html,) = [out.data["text/html"] for out in cell.outputs if "text/html" in out.get("data", {})]
    return html
