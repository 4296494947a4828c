"""Machines of Lambda under the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import MARKS, assert_conforms

pytestmark = MARKS


def test_lambda_conforms(tmp_path: Path) -> None:
    assert_conforms(tmp_path, "lambdalabs:Lambda", "lambda_world:LambdaWorld")
