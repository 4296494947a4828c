"""Manuals: their examples run, and their links resolve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from jupyter_sky.decisions.optimizer.plan import Plan
from tests.markdown import is_dead, links
from tests.ui.recording import LONGEST, MOST_BYTES, SHORTEST

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


def test_recording_is_the_first_picture_small_and_short() -> None:
    pictures = [link for link in links(README) if link.startswith(".github/images/")]
    dark, light = pictures[:2]
    assert (dark, light) == tuple(
        f".github/images/recording-{name}.webp" for name in ("dark", "light")
    )
    for picture in (dark, light):
        assert (ROOT / picture).stat().st_size < MOST_BYTES
        shown = []
        with Image.open(ROOT / picture) as recording:
            for number in range(recording.n_frames):
                recording.seek(number)
                recording.load()
                shown.append(recording.info["duration"] / 1000)
        assert SHORTEST <= sum(shown) <= LONGEST
        assert len(shown) > 50 and max(shown) < 5, "it moves"


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
def test_pipeline_runs(fresh) -> None:
    (example,) = _examples(README, "sky.run(small)")
    ran = fresh().run(example)
    assert ran.status == "ok" and ran.result == "45", ran


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
