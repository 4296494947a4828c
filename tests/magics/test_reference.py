"""Reference tables of the magics' README."""

from tests.magics.reference import README, render


def test_reference_tables_are_current() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == render(text), "run: python -m tests.magics.reference"
