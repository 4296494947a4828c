"""Start of the process that ends machines which cannot end themselves; see `lease_watcher`."""

from __future__ import annotations

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.json_types import JsonMapping
from jupyter_sky.base.settings.background_process import start_background_process
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.provider.values import LaunchRequest


def needs_watch(cloud: str, instance_type: str = "") -> bool:
    """Whether machines of a cloud that have powered themselves off stay, and are billed."""
    facts = find_facts(cloud)
    return facts.is_billed_when_off(instance_type) or not facts.deletes_itself


def is_watched(record: JsonMapping) -> bool:
    """Whether the machines of a launch record end by a request alone: by their cloud, or stopped.

    Examples
    --------
    >>> offer = {"instance_type": ""}
    >>> [is_watched({"cloud": cloud, "offer": offer}) for cloud in ("lambda", "aws")]
    [True, False]
    >>> is_watched({"cloud": "aws", "offer": offer, "stopped": 1795809600.0})
    True
    """
    if record.get("stopped"):
        return True
    return needs_watch(record["cloud"], record["offer"]["instance_type"])


def start_watch(request: LaunchRequest) -> None:
    """Watch the machines of a request in a process of its own, if its cloud needs that."""
    if needs_watch(request.offer.cloud, request.offer.instance_type):
        start_watch_process()


def start_watch_process() -> None:
    """Start the process that watches, which ends at once where another one does."""
    start_background_process(["-P", "-m", "jupyter_sky.clouds.lease_watcher"], Sky.load())
