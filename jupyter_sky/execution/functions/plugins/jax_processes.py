"""JAX over a pool: one process a node, each seeing the devices of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, TypeVar

from jupyter_sky.base.errors import SkyError, SkyUsageError, SkyWorldChanged
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.plugins.rendezvous import (
    SINGLE_NODE,
    broadcast_id,
    must_create,
    require_single_slot,
)
from jupyter_sky.machines.engines.node.instance import instance_info

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind
    from jupyter_sky.execution.functions.pools.pool import Pool

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Jax:
    """Plug-in, see `plugins.jax`."""

    cuda: str | None = None

    group: ClassVar[GroupKind] = "processes"
    """JAX knows the other processes for the life of this one."""
    world: ClassVar[list[str]] = []
    """The set of processes that this one is in, by the broadcast that made it."""

    def __post_init__(self) -> None:
        if self.cuda is not None and not re.fullmatch(r"cu\d{2,3}", self.cuda):
            raise SkyUsageError(
                _("plugins.jax(cuda={cuda!r}): not a version of CUDA").format(cuda=self.cuda),
                hint=_("such as 'cu12'"),
            )

    def image(self, image: Image | None) -> Image | None:
        """Add JAX for a version of CUDA to the image if one is given."""
        if self.cuda is None:
            return image
        image = image or Image()
        return replace(image, pip=[*image.pip, f"jax[cuda{self.cuda[2:4]}]"])

    def setup(self, pool: Pool) -> None:
        """Raise SkyUsageError for pools that are not supported."""
        require_single_slot(pool, "jax")

    def around(self, call: Callable[[], T]) -> T:
        """Run a call in one set of processes with all nodes that were sent it."""
        if (name := broadcast_id()) and name != SINGLE_NODE:
            self._join(name)
        return call()

    def _join(self, name: str) -> None:
        if must_create("JAX", "".join(self.world)):
            self._enter()
            self.world[:] = [name]
        import jax

        info = instance_info()
        if jax.process_count() != info.total_nodes:
            raise SkyWorldChanged(
                _("JAX has {process_count} processes, the pool {total_nodes} nodes").format(
                    process_count=jax.process_count(), total_nodes=info.total_nodes
                )
            )

    @staticmethod
    def _enter() -> None:
        if find_spec("jax") is None:
            raise SkyError(
                _("plugins.jax(): there is no jax on the node"),
                hint=_('have it installed: Image(pip=["jax"])'),
            )
        import jax

        info = instance_info()
        # for nodes that have processors only; devices with a network of their own do not use it
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                f"{info.head_addr}:{info.head_port}", info.total_nodes, info.node
            )
        except RuntimeError as error:
            raise SkyError(
                _("JAX cannot join the other nodes: {error}").format(error=error),
                hint=_("it must not have computed anything here before: send the first call by @"),
            ) from error
