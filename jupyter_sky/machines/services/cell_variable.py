"""Variables by which cells have a data engine, and the file that says where it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote.supervisor import ENGINE_VARIABLE
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.machines.engines.node.files import import_first
from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.machines.engines.node.service_orders import endpoint_file


class CellVariable:
    """Variable of a cell that stands for something which begins at its first use."""

    names: tuple[str, ...] = ()
    """Attributes to complete before that."""

    def begin(self) -> Any:
        """Return what this stands for, begun at the first call."""
        raise NotImplementedError

    def has_begun(self) -> bool:
        """Return whether it has begun, and goes on."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return the data engine and its size in words."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # questions of IPython and of pickle begin nothing
            raise AttributeError(name)
        return getattr(self.begin(), name)

    def __dir__(self) -> Iterable[str]:
        if self.has_begun():
            return dir(self.begin())
        return [name for name in object.__dir__(self) if name.startswith("_")] + [*self.names]

    def __repr__(self) -> str:
        shown = self.describe()
        if not self.has_begun():
            shown = _("{shown}, not used yet").format(shown=shown)
        return f"<{shown}>"


def describe_size(endpoint: dict[str, Any], title: str) -> str:
    """Return a data engine with its version and its nodes, in words.

    Examples
    --------
    >>> describe_size({"version": "2.60.0", "nodes": 2}, "Ray")
    'Ray 2.60.0 on 2 nodes'
    """
    nodes = endpoint["nodes"]
    text = ngettext("{engine} on {nodes} node", "{engine} on {nodes} nodes", nodes)
    return text.format(engine=f"{title} {endpoint['version']}", nodes=nodes)


def read_endpoint(engine: str) -> tuple[Path, dict[str, Any]]:
    """Return the file that says where a data engine of this cluster is, and what it says.

    This process then finds its packages, where those are in a folder of their own.

    Raises
    ------
    SkyError
        The data engine does not run on this cluster, or this is not its head node.
    """
    folder = os.environ.get(ENGINE_VARIABLE, "").rpartition(":")[0]
    path = endpoint_file(folder, engine)
    try:
        endpoint = json.loads(path.read_text())
    except (OSError, ValueError):
        raise _describe_lack(engine, bool(folder)) from None
    if packages := endpoint.get("folder"):
        import_first(packages)
    return path, endpoint


def _describe_lack(engine: str, is_engine: bool) -> SkyError:
    """Return the error of a process that finds no data engine."""
    info, title = instance_info(), engine.capitalize()
    if is_engine and not info.is_head:
        return SkyError(
            _("node {node} has no session of {title}: its driver is on node 0").format(
                node=info.node, title=title
            ),
            hint=_("run it there, with --on 0"),
        )
    return SkyError(
        _("{title} does not run here").format(title=title),
        hint=_('%%sky --engine {engine}; for functions: sky.up(engine="{engine}")').format(
            engine=engine
        ),
    )
