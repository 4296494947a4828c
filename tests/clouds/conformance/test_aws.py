"""Machines of EC2 under the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import LISTS, MARKS, assert_conforms

pytestmark = MARKS


def test_aws_conforms(tmp_path: Path) -> None:
    assert_conforms(tmp_path, "aws.provider:Aws", "emulated_worlds:Aws", LISTS)
