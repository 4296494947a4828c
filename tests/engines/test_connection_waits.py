"""Waiting for an answer that does not come."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from jupyter_sky.base.errors import SkyTimeout
from jupyter_sky.machines.engines.client.connection import ClusterConnection


def test_missing_answer_is_a_clear_error() -> None:
    link = ClusterConnection.__new__(ClusterConnection)  # no controller is needed to wait
    link.cluster, link._waiting = "train", set()
    with pytest.raises(SkyTimeout, match=r"train has not answered within 0\.01 s") as caught:
        link.wait(Future(), 0.01)
    assert caught.value.hint and not link._waiting
