"""Help about verbs, public names and the guide, and its search."""

from __future__ import annotations

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.interfaces.magics.declaration import SHELL
from jupyter_sky.interfaces.magics.help import list_pages, search_help
from jupyter_sky.interfaces.magics.reference import describe_name, list_names
from jupyter_sky.interfaces.magics.verbs import VERBS, call_verb, find_page


@pytest.mark.parametrize("name", list_names())
def test_every_public_name_has_a_page(name: str) -> None:
    page = describe_name(name)
    assert page.name == f"sky.{name}" and page.title.startswith(f"sky.{name}")
    assert page.summary and page.text.startswith(page.summary)
    assert "doctest:" not in page.text and "'Any'" not in page.title


def test_verb_comes_before_the_name_and_points_to_it(capsys: pytest.CaptureFixture) -> None:
    call_verb(["help", "plan"], SHELL)
    shown = capsys.readouterr().out
    assert shown.startswith("jupyter sky plan [DAG]")
    assert "In Python: sky.plan(), see jupyter sky help sky.plan\n" in shown
    call_verb(["help", "sky.plan"], SHELL)
    shown = capsys.readouterr().out
    assert shown.startswith("sky.plan(what: Any = None, minimize: Any = 'cost'")
    assert "    Parameters\n    ----------\n" in shown and "jupyter sky help plan" in shown


def test_in_python_the_name_comes_before_the_verb() -> None:
    assert sky.help("plan").kind == "name" and sky.help("reap").kind == "verb"
    assert str(sky.help("sky.Nodes")).startswith("sky.Nodes(")
    assert "Number of nodes with which work can begin." in sky.help("Nodes").text
    listed = {row[0] for row in sky.help()}
    assert listed >= {"sky.plan", "down", "07-money"} and len(listed) == len(list_pages())


def test_names_of_classes_and_modules() -> None:
    assert "Fit a model by maximum likelihood" in sky.help("preemption.fit").summary
    assert "property" not in sky.help("Pool.dask").text.split()
    assert sky.help("AllocationStrategy").text.startswith("One of 'spot-if-available'")
    assert sky.help("accelerators").text.count("\n") < 120, "names alone where there are many"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pla", "did you mean plan"),
        ("Computer", "did you mean Compute"),
        ("moni", "did you mean money"),
        ("preemption.fitt", "did you mean fit"),
        ("sky.statsu", "did you mean status"),
    ],
)
def test_unknown_names_give_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        sky.help(name)
    assert str(caught.value.hint).startswith(hint)


def test_a_page_of_the_guide_by_number_and_name() -> None:
    pages = [find_page([word]) for word in ("7", "money", "07-money", "07-money.ipynb")]
    assert {page.name for page in pages} == {"07-money"}
    text = str(pages[0])
    assert text.startswith("Money\n\n") and "    %sky cost\n" in text
    assert "](" not in text and "Next:" not in text and "07-money.ipynb" in text


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("plan", "plan"),
        ("sky.sweep", "sky.sweep"),
        ("Money", "07-money"),
        ("lost  machine recover", None),
        ("budget_usd_day", "07-money"),
    ],
)
def test_search(query: str, first: str | None) -> None:
    found = search_help(query)
    assert found and (first is None or found[0].name == first)
    for page in found:
        text = f"{page.name} {page.title} {page.text}".lower()
        assert all(word in text for word in query.lower().split())


def test_search_of_nothing_gives_the_guide_and_of_nonsense_nothing() -> None:
    assert [page.kind for page in search_help(" ")] == ["guide"] * 10
    assert search_help("xyzzy plugh") == []


def test_all_verbs_are_found() -> None:
    assert {page.name for page in list_pages() if page.kind == "verb"} == set(VERBS)
