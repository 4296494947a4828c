"""The conformance suite on the toy cloud, and on providers of it that have faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulators.hosts import USABLE
from tests.provider.conformance import CHECKS, run_suite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # each is a run of pytest
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
WORLD = ("--world", "tests.provider.toy_world:ToyWorld")
PROMPT_WORLD = ("--world", "tests.provider.toy_world:PromptToyWorld")


def test_toy_cloud_conforms(toy_site: Path, tmp_path: Path) -> None:
    results = run_suite(tmp_path, "--provider", "sky_toy:Toy", *WORLD, path=toy_site)
    assert (results.passed, results.failed, results.skipped) == (CHECKS, set(), 0), results.text


def test_driver_that_repeats_launches_is_found(toy_site: Path, tmp_path: Path) -> None:
    provider = ("--provider", "tests.provider.faulty_toys:Repeating", "-k", "06 or 07 or 12")
    results = run_suite(tmp_path, *provider, *PROMPT_WORLD, path=toy_site)
    assert {"06", "07"} <= results.failed and results.passed >= {"12"}, results.text


def test_faults_of_a_driver_are_found(toy_site: Path, tmp_path: Path) -> None:
    checks = {"09", "12", "14", "17", "18"}
    provider = ("--provider", "tests.provider.faulty_toys:Careless", "-k", " or ".join(checks))
    assert run_suite(tmp_path, *provider, *PROMPT_WORLD, path=toy_site).failed == checks


def test_sdk_that_is_imported_with_the_class_is_found(toy_site: Path, tmp_path: Path) -> None:
    provider = ("--provider", "tests.provider.eager_toy:EagerToy", "-k", "01 or 03")
    results = run_suite(tmp_path, *provider, *PROMPT_WORLD, path=toy_site)
    assert (results.failed, results.passed) == ({"01"}, {"03"}), results.text
    assert "'boto3'" in results.text


def test_missing_options_are_told(tmp_path: Path) -> None:
    results = run_suite(tmp_path, "-k", "01")
    assert results.failed == {"01"} and "name the provider: --provider" in results.text
