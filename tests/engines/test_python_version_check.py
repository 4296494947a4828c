"""The notebook's end of a cluster: versions that cannot work together."""

from __future__ import annotations

import platform

import pytest

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.machines.engines.client.connection import _check_python


def test_the_same_minor_version_is_taken() -> None:
    here = platform.python_version_tuple()
    _check_python("train", f"{here[0]}.{here[1]}.99")


@pytest.mark.parametrize("there", ["3.10.13", "3.9.0", "2.7.18", "4.0.0"])
def test_other_python_version_is_refused(there: str) -> None:
    with pytest.raises(SkyVersionError) as raised:
        _check_python("train", there)
    here = ".".join(platform.python_version_tuple()[:2])
    short = there.rpartition(".")[0]
    assert raised.value.message.startswith(
        f"cluster train runs Python {short}, this notebook {here}"
    )
    assert "\n" not in raised.value.message and raised.value.hint
