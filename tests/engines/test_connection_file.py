"""Connection files of controllers: keys that are needed, and those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky.engines.connection_file import LOOPBACK, PORTS, checked
from jupyter_sky.errors import SkyClusterLost

CURVE = "x" * 40
FILE = {**dict.fromkeys(PORTS, 1234), "interface": LOOPBACK}


@pytest.mark.parametrize("keys", [{"key": "k"}, {"key": "", "curve_serverkey": CURVE}])
def test_messages_are_signed_or_under_curve(keys: dict[str, Any]) -> None:
    found = checked({**FILE, **keys}, "train")
    assert found["key"] == keys["key"] and found["unpack"] == "json"


@pytest.mark.parametrize("keys", [{}, {"key": ""}, {"key": "", "curve_serverkey": ""}])
def test_neither_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(SkyClusterLost, match="it has no key"):
        checked({**FILE, **keys}, "train")
