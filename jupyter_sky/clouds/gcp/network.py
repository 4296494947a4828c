"""The network of our machines on Google Cloud, and who may reach them.

One network for all, made when it is missing. Each set of networks that may reach port 22 has one
rule, each cluster of several nodes another, by which they reach each other and nobody else does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from threading import Event
from typing import Any

from jupyter_sky.clouds.gcp import instances as machine
from jupyter_sky.clouds.gcp.clients import GcpClients, match_any
from jupyter_sky.clouds.gcp.errors import has_code, ignore_codes
from jupyter_sky.clouds.provider.naming import OWNER, TOKEN
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig

LAUNCH_GRACE_SECONDS = 900.0
"""A rule or a disk that is younger may belong to machines that are just being made."""


def ensure_network(
    access: GcpClients, order: LaunchRequest, config: MachineConfig, stop: Event
) -> None:
    """Make the network and the rules of an order, those that are missing."""
    wanted = {rule["name"]: rule for rule in _firewall_rules(order, config)}
    for there in access.call("Firewalls", "list", filter=match_any("name", wanted)):
        wanted.pop(there.name, None)
    if not wanted:  # a network with rules exists
        return
    _ensure_network(access, stop)
    made = []
    for rule in wanted.values():
        with ignore_codes("alreadyExists"):  # another notebook was faster
            asked = {"firewall_resource": rule}
            made.append(
                access.retry_until_ready(
                    lambda asked=asked: access.call("Firewalls", "insert_unary", **asked), stop
                )
            )
    access.await_operations(made, stop)


def remove_rule(access: GcpClients, name: str) -> bool:
    """Delete a rule; say whether it was there."""
    try:
        access.call("Firewalls", "delete_unary", firewall=name)
    except Exception as error:
        if has_code(error, "gone", "resourceNotReady"):
            return False
        raise
    return True


def list_unused_rules(access: GcpClients, owner: str, alive: Collection[str]) -> list[str]:
    """List rules of an owner's clusters of which no machine is left.

    Parameters
    ----------
    alive
        Tokens of the orders whose machines have not ended.
    """
    old = time.time() - LAUNCH_GRACE_SECONDS
    return [
        rule.name
        for rule in access.call("Firewalls", "list")
        if rule.network.endswith(f"/{machine.NETWORK}")
        and (noted := _rule_tags(rule)).get(OWNER) == owner
        and noted.get(TOKEN) not in alive
        and machine.parse_timestamp(rule.creation_timestamp) < old
    ]


def _ensure_network(access: GcpClients, stop: Event) -> None:
    network = {"name": machine.NETWORK, "auto_create_subnetworks": True}
    try:
        made = access.call("Networks", "insert_unary", network_resource=network)
    except Exception as error:
        if not has_code(error, "alreadyExists"):
            raise
        return  # while it is being made, rules are not taken yet: see `retry_until_ready`
    access.await_operations([made], stop)


def _firewall_rules(order: LaunchRequest, config: MachineConfig) -> list[dict[str, Any]]:
    network, ssh = f"global/networks/{machine.NETWORK}", machine.ssh_rule_name(config)
    cluster, rules = machine.resource_prefix(order.token), list[dict[str, Any]]()
    if config.ssh_from:
        rules.append(
            {
                "name": ssh,
                "network": network,
                "description": "SSH to machines of jupyter_sky",
                "source_ranges": list(config.ssh_from),
                "target_tags": [ssh],
                "allowed": [{"I_p_protocol": "tcp", "ports": ["22"]}],
            }
        )
    if order.resources.nodes * order.offer.hosts > 1:
        noted = {key: config.tags[key] for key in (OWNER, TOKEN)}
        rules.append(
            {
                "name": cluster,
                "network": network,
                "description": json.dumps(noted),
                "source_tags": [cluster],
                "target_tags": [cluster],
                "allowed": [{"I_p_protocol": "all"}],
            }
        )
    return rules


def _rule_tags(rule: Any) -> dict[str, str]:
    try:
        noted = json.loads(rule.description)
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}
