"""Launches on an emulated account without machines that boot, for the tests of a provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import get_launcher
from jupyter_sky.clouds.provider import Machine, Provider
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.testing import World
from jupyter_sky.clouds.testing.provider import Account


def launches_fixture(*worlds: type[World]) -> Any:
    """Return a fixture with `Launches` on each of some accounts by the provider of its cloud."""

    @pytest.fixture(params=worlds)
    def launches(
        request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Launches]:
        provider = type(get_launcher(request.param.cloud).provider)
        with Launches(request.param, provider) as launches:
            yield from (launches for _ in launches.prepare(tmp_path, monkeypatch))

    return launches


class Launches:
    """An account, and launches by its provider.

    Parameters
    ----------
    world
        Type of the account.
    provider
        Type of the provider.
    """

    def __init__(self, world: type[World], provider: type[Provider]) -> None:
        self._driver, self.world = provider, cast(Any, world())
        self.account: Account

    def __enter__(self) -> Launches:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    @property
    def provider(self) -> Any:
        """The provider."""
        return self.account.provider

    def prepare(self, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Begin with an empty account; leave none of it."""
        for name, value in self.world.environment().items():
            patch.setenv(name, value)
        patch.setenv("SKY_DATA_DIR", str(folder))
        Sky.clear_instance()
        self.account = Account(self._driver(), self.world, folder)
        yield
        self.world.reset()
        Sky.clear_instance()

    def launch(self, **request: Any) -> list[Machine]:
        """Launch by one call of the provider; see `Account.request`."""
        return self.account.launch(self.account.request(**request))

    def refusal(self, **request: Any) -> str:
        """Return the cause for which a launch is refused, as the provider reads it."""
        with pytest.raises(ProviderError) as refused:
            self.launch(**request)
        trouble = self.provider.explain(refused.value)
        assert trouble is not None, repr(refused.value)
        return trouble.cause

    def entry(self, machine: Machine) -> dict[str, Any]:
        """Return a machine as the account has it."""
        return self.world.api.rented[machine.id].entry
