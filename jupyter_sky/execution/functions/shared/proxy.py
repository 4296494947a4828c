"""Proxy of an object that tasks share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.shared.shared_client import SharedStateClient


class SharedProxy:
    """Proxy of a shared object, found by name."""

    kind = ""
    _async_methods: Mapping[str, str] = MappingProxyType({})
    """Methods whose coroutine has a name of its own."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise SkyUsageError(
                _("sky.{kind}({name!r}): not a name").format(kind=self.kind, name=name),
                hint=_('tasks find it by a text, such as sky.{kind}("progress")').format(
                    kind=self.kind
                ),
            )
        self.name = name

    def _ask(self, op: str, *frames: bytes, **arguments: Any) -> tuple[Any, list[bytes]]:
        from jupyter_sky.execution.functions.shared.shared_client import current_client

        client: SharedStateClient = current_client()
        request = {"kind": self.kind, "name": self.name, "op": op, **arguments}
        return client.ask(request, frames)

    def __getattr__(self, name: str) -> Any:
        """Return ``METHOD_async``: the method as a coroutine, run in a thread beside the loop."""
        plain = name.removesuffix("_async")
        plain = self._async_methods.get(plain, plain)
        if plain == name or not hasattr(type(self), plain):
            raise AttributeError(f"sky.{type(self).kind} has no attribute {name!r}")

        async def run(*args: Any, **kwargs: Any) -> Any:
            def call() -> Any:
                attribute = getattr(self, plain)
                return attribute(*args, **kwargs) if callable(attribute) else attribute

            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread(), context.run, call)

        return run

    def _thread(self) -> ThreadPoolExecutor | None:
        """Return the threads in which coroutines run; those of the loop for None."""
        return None

    def __repr__(self) -> str:
        return f"sky.{self.kind}({self.name!r})"

    def __reduce__(self) -> Any:
        return type(self), (self.name,)


CONSISTENCIES = ("strong", "eventual")


def check_consistency(what: str, consistency: str) -> None:
    """Raise SkyUsageError for a consistency that is not known.

    Every operation is strongly consistent, so whoever is content with less has it, too.
    """
    if consistency not in CONSISTENCIES:
        raise SkyUsageError(
            _("{what}(consistency={consistency!r}): not a consistency").format(
                what=what, consistency=consistency
            ),
            hint=_("'strong' or 'eventual'; all operations are strongly consistent"),
        )
