"""Registry of the pools that are up, and the interface of what calls are sent to."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, NoReturn

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.instance import instance_info, is_on_node


class CallTarget(ABC):
    """Right operand of the operators that send calls: a pool, or a `Compute` that holds one.

    Lazy calls know pools by this class alone, so that pools may import lazy calls.
    """

    @abstractmethod
    def resolve_pool(self) -> Any:
        """Return the `Pool` that takes the calls."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise SkyTransferError(
            _(
                "a pool cannot be sent to a node, nor pickled: its connections belong "
                "to this process"
            ),
            hint=_(
                "send calls to it from here, and pass their results on; on a node, "
                "sky.instance_info() describes the pool"
            ),
        )


_active: list[Any] = []
_had_pool = False


def register(pool: Any) -> None:
    """Add a pool that has come up."""
    global _had_pool
    _had_pool = True
    _active.append(pool)


def unregister(pool: Any) -> None:
    """Remove a pool that is going down, if it is registered."""
    if pool in _active:
        _active.remove(pool)


def _disown() -> None:
    """Leave the pools to the parent of a forked process: its connections cannot be shared."""
    for pool in _active:
        pool.disown()
    _active.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def had_pool() -> bool:
    """Return whether this process has brought up a pool, even if it has ended."""
    return _had_pool


def active() -> Any:
    """Return the `Pool` of the innermost ``with``, or the last one that came up, or None."""
    return next(iter(active_pools()), None)


def active_pools() -> list[Any]:
    """Return the pools that are up, the newest first."""
    return [pool for pool in reversed(_active) if not pool.connection.is_lost]


def refuse_untrusted() -> None:
    """Raise SkyUsageError where machines are not trusted: results of calls are pickles."""
    from jupyter_sky.base.settings.settings import Sky

    if not Sky.load().trust:
        raise SkyUsageError(
            _(
                "Sky.trust is False, and calls (>>, sky.Compute, sky.up) bring their "
                "results home as pickles, which run code here when they are opened"
            ),
            hint=_(
                "use %%sky cells, whose -o and results then come back as data; or, for "
                "machines that you trust: %config Sky.trust = True"
            ),
        )


def current() -> Any:
    """Return the `Pool` of the innermost ``with``, or the last one that came up.

    Raises
    ------
    SkyUsageError
        There is none, or machines are not trusted.
    """
    refuse_untrusted()
    pool = active()
    if pool is None and is_on_node():
        raise SkyUsageError(
            _("calls cannot be sent from node {node} of a pool, where this runs").format(
                node=instance_info().node
            ),
            hint=_(
                "call f.local(...) to run it here, or return and send the call from the notebook"
            ),
        )
    if pool is None:
        raise SkyUsageError(
            _("no pool is up to send calls to"),
            hint=_("with sky.Compute(nodes=2) as compute: ..., or pool = sky.up(nodes=2)"),
        )
    return pool


class CurrentPool(CallTarget):
    """The pool that is up, as the right operand of calls: ``train(10) >> sky.sky``."""

    def resolve_pool(self) -> Any:
        """Return the `Pool` of the innermost ``with``, or the last one that came up."""
        return current()

    def __repr__(self) -> str:
        return f"<sky: {active() or _('no pool is up')}>"


sky = CurrentPool()
"""The pool that is up. The package itself means the same: ``train(10) >> sky``."""
