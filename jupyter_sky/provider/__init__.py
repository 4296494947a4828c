"""Public protocol of a cloud: facts as class attributes, and the operations of a driver.

Another package adds a cloud by a subclass of `Provider`, named by an entry point of the group
``jupyter_sky.providers``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classification import ProviderError, Refinement
    from .cloud_facts import CloudFacts
    from .protocol import Provider
    from .quotas import AccountQuota
    from .values import CloudError, LaunchRequest, Machine, MachineConfig

__all__ = [
    "AccountQuota",
    "CloudError",
    "CloudFacts",
    "LaunchRequest",
    "Machine",
    "MachineConfig",
    "Provider",
    "ProviderError",
    "Refinement",
]

_MODULES = {
    "AccountQuota": "quotas",
    "CloudError": "values",
    "CloudFacts": "facts",
    "LaunchRequest": "values",
    "Machine": "values",
    "MachineConfig": "values",
    "Provider": "protocol",
    "ProviderError": "classification",
    "Refinement": "classification",
}


def __getattr__(name: str) -> Any:
    # geography reads the facts and the values need geography: neither may import the other here
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
