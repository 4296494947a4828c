"""Manuals: their examples run, and their links resolve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_sky.optimizer.plan import Plan
from tests.markdown import is_dead, links

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / "CHANGELOG.md", ROOT / "catalog/README.md", ROOT / "labextension/README.md"),
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted((ROOT / "jupyter_sky").rglob("README.md")),
    *sorted(
        page
        for page in (ROOT / "tests").rglob("README.md")
        if "node_modules" not in page.parts  # of installed packages
    ),
]


def _examples(page: Path, word: str) -> list[str]:
    """Return the Python examples of a page that contain a word."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if word in block]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    assert [link for link in links(page) if is_dead(page, link)] == []


def test_architecture_names_existing_files() -> None:
    text = (ROOT / "jupyter_sky/README.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert len(names) > 30
    assert [name for name in names if not (ROOT / "jupyter_sky" / name).exists()] == []


def test_the_example_of_a_plan(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    (example,) = _examples(README, "sky.plan(")
    namespace: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), namespace)
    made = namespace["plan"]
    assert isinstance(made, Plan) and made.hours <= 24 and len(made) == 2
    assert {placed.offer.jurisdiction for placed in made.tasks} == {"US"}
    assert capsys.readouterr().out.count("the next best") == 2


def test_example_of_transfer_prices(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    (example,) = _examples(ROOT / "catalog/README.md", "egress(")
    namespace: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), namespace)
    assert 0 < eval(example.splitlines()[-1], namespace).hours < 24


@pytest.mark.slow
def test_quickstart_runs(fresh) -> None:
    book = fresh()
    (data,), (cell,) = _examples(README, "load_digits("), _examples(README, "%%sky")
    ran = book.run(data)
    assert ran.status == "ok", ran
    ran = book.run(cell)
    assert ran.status == "ok" and "$0.00" in ran.status_line, ran
    assert re.fullmatch(r"accuracy 0\.9\d\d\n", ran.stdout)
    assert book.run("0.9 < float(score) < 1").result == "True"
