"""A cloud with a store beside it, for tests of runs whose results lie there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulators.loopback import Loopback, bucket_beside, loopback
from tests.emulators.object_store import ObjectStore


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws") as opened:
        yield opened


@pytest.fixture(scope="module")
def bucket(cloud: Loopback) -> Iterator[ObjectStore]:
    with bucket_beside(cloud) as made:
        yield made
