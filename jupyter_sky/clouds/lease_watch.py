"""Start of the process that ends machines which cannot end themselves; see `lease_watcher`."""

from __future__ import annotations

from ..config.background_process import start_background_process
from ..config.settings import Sky
from ..provider.register import find_facts
from .base import LaunchRequest


def needs_watch(cloud: str, instance_type: str = "") -> bool:
    """Whether machines of a cloud that have powered themselves off stay, and are billed."""
    facts = find_facts(cloud)
    return facts.is_billed_when_off(instance_type) or not facts.deletes_itself


def start_watch(order: LaunchRequest) -> None:
    """Watch the machines of an order in a process of its own, if its cloud needs that."""
    if needs_watch(order.offer.cloud, order.offer.instance_type):
        start_background_process(["-P", "-m", f"{__package__}.lease_watcher"], Sky.load())
