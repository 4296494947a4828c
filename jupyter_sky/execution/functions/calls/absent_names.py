"""Names of Skyward that this package does not have, each with a reason and what to use instead.

Programs written for Skyward find them missing by this message and not by a bare AttributeError.
"""

from __future__ import annotations

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


class SkyAbsentName(SkyUsageError, AttributeError):
    """Name of Skyward that does not exist here."""


_CLOUD = "no cloud here: sky.check() lists those that are, and jupyter_sky.provider adds others"
_EVENT = "a message between Skyward's actors; see sky.status(), sky.logs() and sky.meter()"
_EVENTS = """
ClusterDestroyed ClusterId ClusterProvisioned ClusterReady ClusterRequested Error Event Fact
InstanceBootstrapped InstanceDestroyed InstanceId InstanceMetadata InstancePreempted
InstanceProvisioned InstanceReplaced InstanceRequested Log Metric NodeId NodeInstance ProviderName
Request RequestId ShutdownCompleted ShutdownRequested TaskCompleted TaskStarted
"""

_CLOUDS = "JarvisLabs MassedCompute Novita Salad Scaleway TensorDock Vultr"

REASONS = {
    **dict.fromkeys(_EVENTS.split(), _EVENT),
    **dict.fromkeys(
        "JarvisLabs MassedCompute Novita Salad Scaleway TensorDock Vultr".split(), _CLOUD
    ),
    "Accelerator": "its place is sky.accelerators.Accelerator",
    "App": "an application is not needed around pools: with sky.Compute(...) as compute: ...",
    "Cluster": "clusters are records: sky.status() lists them, sky.up(...) gives a pool",
    "ComputePool": "its older name: sky.Compute",
    "Executor": "its name: sky.Worker(concurrency=..., executor=...)",
    "Group": "its name: sky.PendingFunctionGroup",
    "HealthChecker": "nodes are checked by their heartbeat alone; lost ones are replaced",
    "Instance": "machines are records: sky.status() lists them, sky.instance_info() is a node's",
    "LogConfig": "messages go to the logger 'jupyter_sky': logging.getLogger('jupyter_sky')",
    "Lost": "lost calls are sent again by sky.function(retry=...), or raise sky.SkyTaskLost",
    "OfferRepository": "sky.offers('A100:8+', region='eu', spot=True); to_pandas() for the rest",
    "Pending": "its name: sky.PendingFunction",
    "PendingCompute": "its older name: sky.PendingFunction",
    "PendingComputeGroup": "its older name: sky.PendingFunctionGroup",
    "PoolSpec": "what a pool asks for is sky.Spec(...), and the pool itself sky.Compute(...)",
    "Provider": "your own clouds: subclasses of jupyter_sky.provider.Provider, by entry points",
    "ProviderConfig": "clouds are values: sky.AWS(region=...); jupyter_sky.provider adds others",
    "Session": "a session is not needed: several pools may be up at once, each by sky.Compute(...)",
    "SpecKwargs": "a type of keywords: those of sky.Spec, which checkers know by its signature",
    "Streaming": "functions that yield stream by themselves: sky.function",
    "TaskFailedError": "a call raises the exception of its function, with the node's traceback",
    "compute": "its older name: sky.function",
    "emit": "what a function prints is shown; values that tasks share are in sky.dict(...)",
    "integrations": "its older name: sky.plugins",
    "main": "no entry point is needed: call functions below if __name__ == '__main__'",
    "metrics": "nodes always report processors, memory and accelerators: sky.status(), the panel",
    "registry": "values that tasks share by name are in sky.dict(...)",
    "stream": "functions that yield stream by themselves: sky.function",
    "pool": "its older name: with sky.Compute(...) as compute, or compute = sky.up(...)",
}
"""Reason of each name, and what to use instead."""


def absent_name(name: str) -> SkyAbsentName:
    """Return the error of an absent name.

    Examples
    --------
    >>> absent_name("Session").message
    'sky.Session does not exist in jupyter_sky'
    """
    return SkyAbsentName(
        _("sky.{name} does not exist in jupyter_sky").format(name=name), hint=REASONS[name]
    )
