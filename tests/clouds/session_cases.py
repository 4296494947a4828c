"""Accounts of managed services that the process of the tests is pointed at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.provider import LaunchRequest, Machine, MachineConfig

Account = TypeVar("Account", bound=Any)


def as_new(
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    use: Callable[[pytest.MonkeyPatch, dict[str, str]], None],
) -> Iterator[Account]:
    """Yield an account that is as new, and an empty data directory.

    Parameters
    ----------
    use
        Points this process at the environment of an account.
    """
    account.reset()
    use(monkeypatch, account.env())
    monkeypatch.setenv("SKY_DATA_DIR", str(folder))
    Sky.clear_instance()
    yield account
    Sky.clear_instance()


def send(provider: Any, request: LaunchRequest, config: MachineConfig) -> list[Machine]:
    """Launch as notebooks do: again where that helps, and with errors of our own."""
    call = RetryingCaller(provider)
    return call(lambda: launch_machines(provider, request, config), request.offer)
