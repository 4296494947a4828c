"""TPU slices of Google Cloud under the conformance suite.

Their cells run in a test of their own: the catalog's cheapest machine is none.
"""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import LISTS, MARKS, assert_conforms

pytestmark = MARKS


def test_tpu_slices_conform(tmp_path: Path) -> None:
    assert_conforms(tmp_path, "gcp.provider:Gcp", "emulated_worlds:GcpTpu", {*LISTS, "20"})
