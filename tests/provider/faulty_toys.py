"""Providers of the toy cloud with one fault each, which the conformance suite must find."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

from sky_toy import Toy  # pyright: ignore[reportMissingImports]

from jupyter_sky.clouds.provider import LaunchRequest, Machine, MachineConfig, ProviderError


class Repeating(Toy):
    """Provider whose cloud cannot know a request that comes again."""

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Launch under another token each time."""
        return super().launch(replace(request, token=uuid.uuid4().hex), config, stop)


class Careless(Toy):
    """Provider with faults in lists, ends, errors and secrets."""

    def __init__(self) -> None:
        self.key = os.environ["TOY_KEY"]

    def __repr__(self) -> str:
        return f"Careless({self.key!r})"

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List the first page, of whatever owner."""
        page = self._request("GET", "/machines")["machines"]
        first = {entry["id"] for entry in page}
        return [each for each in super().machines(token=token) if each.id in first]

    def terminate(self, ids: Sequence[str]) -> None:
        """Fail at the first machine that is not there."""
        for name in ids:
            self._request("DELETE", f"/machines/{name}")

    def explain(self, error: Exception) -> Any:
        """Take every refusal for a lack of capacity."""
        return super().explain(ProviderError(str(error), code="no_capacity"))
