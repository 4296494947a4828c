"""Accepted connection files of controllers: messages are signed, or encrypted by CURVE."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky.base.errors import SkyClusterLost
from jupyter_sky.machines.engines.wire.connection_file import LOOPBACK, PORTS, validate

CURVE = "a" * 40


def connection(**more: Any) -> dict[str, Any]:
    ports = {name: 40000 + number for number, name in enumerate(PORTS)}
    return {**ports, "key": "secret", "interface": LOOPBACK, **more}


def test_only_multi_node_clusters_have_curve_key() -> None:
    found = validate(connection(key="", curve_serverkey=CURVE), "train")
    assert found["key"] == "" and found["curve_serverkey"] == CURVE


@pytest.mark.parametrize("curve", [None, "", "short", 7])
def test_messages_without_any_protection_are_refused(curve: Any) -> None:
    with pytest.raises(SkyClusterLost, match="train is refused"):
        validate(connection(key="", curve_serverkey=curve), "train")
