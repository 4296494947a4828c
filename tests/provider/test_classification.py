"""Classification of refusals by a table of codes and by their messages."""

from __future__ import annotations

import pytest

from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.provider import ProviderError, Refinement
from jupyter_sky.clouds.provider.classification import (
    MAX_MESSAGE_CHARS,
    classify,
    first_known,
    group_codes,
    is_html,
)

TABLE = group_codes(("quota", "region", "ask for more", "Quota Limit"))
RULES = (
    Refinement("Quota", r"of (\w+) cores", scope="family", fix=r"ask for more \1"),
    Refinement("Quota", "cores", "invalid"),
)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        ("Quota", "no more", ("quota", "region", "ask for more")),
        ("Quota", "no more of T4 cores", ("quota", "family", "ask for more T4")),
        ("Quota", "no more cores", ("invalid", "region", "ask for more")),
        ("Limit", "no more cores", ("quota", "region", "ask for more")),
    ],
)
def test_first_rule_that_matches_refines(
    code: str, message: str, expected: tuple[str, str, str]
) -> None:
    found = classify(ProviderError(message, code=code), TABLE[code], RULES)
    assert (found.cause, found.scope, found.fix) == expected
    assert (found.code, found.message) == (code, message)


def test_long_messages_are_cut_to_one_line() -> None:
    found = classify(ProviderError("no\n" * 1000, status=418), ("unknown", "region", ""))
    assert len(found.message) == MAX_MESSAGE_CHARS and "\n" not in found.message
    assert found.code == "418"


def test_known_code_is_preferred() -> None:
    assert first_known([("Other", "a"), ("Limit", "b")], TABLE) == ("Limit", "b")
    assert first_known([("Other", "a")], TABLE) == ("Other", "a")
    assert first_known([], TABLE) == ("", "")


def test_pages_are_told_from_messages() -> None:
    assert is_html(" <!DOCTYPE html>") and is_html("<?xml version='1.0'?>")
    assert not is_html("no <html> here")


@pytest.mark.parametrize("kind", [Aws, Azure, Gcp])
def test_codes_of_refinements_are_in_the_table(kind: type[Aws] | type[Azure] | type[Gcp]) -> None:
    for rule in kind.refinements:
        codes = [code for code in rule.codes.split() if not code.isdigit()]
        assert codes and set(codes) <= set(kind.errors), rule
