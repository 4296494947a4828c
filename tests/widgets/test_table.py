"""Tables in text, HTML and pandas."""

from __future__ import annotations

import pytest
from IPython.lib.pretty import pretty

from jupyter_sky.base.tables import Table

TABLE = Table(
    "clusters",
    ("name", "USD/h", "cost", "nodes", "where"),
    (
        ("train", "$1.01", "$0.0004", 1, "aws <us>"),
        ("a-longer-name", "unknown", "$1,234.50", 12, None),
    ),
    note="one more",
)


def test_text_is_aligned() -> None:
    assert str(TABLE).splitlines() == [
        "clusters",
        "name             USD/h       cost  nodes  where",
        "-------------  -------  ---------  -----  --------",
        "train            $1.01    $0.0004      1  aws <us>",
        "a-longer-name  unknown  $1,234.50     12",
        "one more",
    ]
    assert pretty(TABLE) == str(TABLE)


def test_html_has_headers_and_is_escaped() -> None:
    html = TABLE._repr_html_()
    assert html.count('<th scope="col"') == 5
    assert html.count("<tr") == 3
    assert "aws &lt;us&gt;" in html and "<us>" not in html
    # the title wraps on a narrow page, where the rows scroll
    assert 0 < html.index(">clusters</div>") < html.index("overflow-x: auto")
    assert "one more</div>" in html


def test_wide_tables_scroll_by_keyboard() -> None:
    html = TABLE._repr_html_()
    assert 'role="region" aria-label="clusters" tabindex="0"' in html and "overflow-x" in html
    assert 'aria-label="table"' in Table("", ("x",), ((1,),))._repr_html_()


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ((1, 2.5), True),
        (("$0.03", None), True),
        (("<$0.000001", "unknown"), True),
        (("0:41", "1:02:33"), True),
        (("97 %", "12 MB"), True),
        (("unknown", ""), False),
        (("3 nodes", "2"), False),
        (("g5.xlarge", "t3"), False),
        (("2026-01-01", "2026-01-02"), False),
    ],
)
def test_numbers_are_aligned_on_the_right(values: tuple[object, ...], right: bool) -> None:
    html = Table("", ("x",), tuple((value,) for value in values))._repr_html_()
    assert html.count("text-align: right") == (3 if right else 0)


def test_empty_table_shows_its_note() -> None:
    note = "no cluster is up: start one with %%sky above a cell"
    empty = Table("clusters", ("name",), (), empty=note)
    assert str(empty) == f"clusters\n{note}"
    assert note in empty._repr_html_() and "<table" not in empty._repr_html_()
    assert len(empty) == 0 and not empty


def test_long_words_can_be_broken_at_their_joints() -> None:
    html = Table("", ("to do",), (("set GOOGLE_CLOUD_PROJECT <now>, x86_64 only",),))._repr_html_()
    assert "set GOOGLE_<wbr>CLOUD_<wbr>PROJECT &lt;now&gt;, x86_64 only" in html


def test_thousands_of_whole_numbers_are_apart() -> None:
    counts = Table("", ("cloud", "offers"), (("aws", 123456), ("gcp", 835), ("ssh", True)))
    assert [line.split() for line in str(counts).splitlines()[2:]] == [
        ["aws", "123,456"],
        ["gcp", "835"],
        ["ssh", "True"],
    ]
    numbers = Table("", ("offers",), ((123456,), (835,)))
    assert "123,456</td>" in numbers._repr_html_()
    assert numbers._repr_html_().count("text-align: right") == 3
    assert numbers.to_dicts()[0] == {"offers": 123456}  # a number to calculate with


def test_rows_can_be_used() -> None:
    assert [row[0] for row in TABLE] == ["train", "a-longer-name"]
    assert len(TABLE) == 2
    assert TABLE.to_dicts()[0] == {
        "name": "train",
        "USD/h": "$1.01",
        "cost": "$0.0004",
        "nodes": 1,
        "where": "aws <us>",
    }


def test_to_pandas() -> None:
    pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert list(frame.columns) == list(TABLE.columns)
    assert frame["nodes"].sum() == 13
    assert Table("", ("a", "b"), ()).to_pandas().shape == (0, 2)


def test_row_of_the_wrong_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        str(Table("", ("a", "b"), ((1,),)))
