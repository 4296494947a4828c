"""Queries for the resource groups and machines of a subscription."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from threading import Event
from typing import Any

from jupyter_sky.clouds.azure import requests
from jupyter_sky.clouds.azure.clients import AzureClients
from jupyter_sky.clouds.provider.naming import OWNER, TOKEN, parse_rank, tagged_machine
from jupyter_sky.clouds.provider.values import Machine, MachineState


def list_groups(account: AzureClients, owner: str = "", token: str = "") -> Iterator[Any]:
    """Yield the groups of an owner or an order; Azure takes one tag at a time.

    A group of somebody's own that has come to carry our tags is none of ours: groups are deleted.
    """
    name, value = (TOKEN, token) if token else (OWNER, owner)
    wanted = f"tagName eq '{name}'"
    if value:
        wanted += " and tagValue eq '{}'".format(value[:256].replace("'", "''"))
    for group in account.resource.resource_groups.list(filter=wanted):
        written = group.tags or {}
        ours = group.name == requests.group_name(written.get(TOKEN, ""))
        if ours and (not owner or written.get(OWNER) == owner[:256]):
            yield group


def list_members(account: AzureClients, group: str, halt: Event | None = None) -> list[Machine]:
    """Return the machines of a group as they are."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        seen = list(account.compute.virtual_machines.list(group, expand="instanceView"))
        if not seen:
            return []
        inside = list(account.network.network_interfaces.list(group))
        outside = list(account.network.public_ip_addresses.list(group))
    except ResourceNotFoundError:
        return []
    public = {one.id.lower(): one.properties.ip_address or "" for one in outside}
    addresses: dict[str, tuple[str, str]] = {}
    for interface in inside:
        owner, ways = interface.properties.virtual_machine, interface.properties.ip_configurations
        if owner and ways:
            way = ways[0].properties
            ip = way.public_ip_address.id.lower() if way.public_ip_address else ""
            addresses[owner.id.lower()] = public.get(ip, ""), way.private_ip_address or ""
    return [parse_machine(group, one, *addresses.get(one.id.lower(), ("", ""))) for one in seen]


def describe_members(
    account: AzureClients, group: str, ids: Collection[str], halt: Event | None = None
) -> list[Machine]:
    """Return some machines of a group as they are, and those that were taken back."""
    from azure.core.exceptions import ResourceNotFoundError

    known = {one.id.lower(): one for one in list_members(account, group)}
    found = [known[id.lower()] for id in ids if id.lower() in known]
    missing = [id for id in ids if id.lower() not in known]
    if not missing:
        return found
    try:
        around = account.resource.resource_groups.get(group)
    except ResourceNotFoundError:
        return found
    written, about = around.tags or {}, around.properties
    if requests.SPOT_TAG in written and about.provisioning_state != "Deleting":
        found += [_preempted_machine(id, written) for id in missing]
    return found


def _preempted_machine(id: str, written: Mapping[str, str]) -> Machine:
    return tagged_machine(
        written,
        id=id,
        cloud="azure",
        rank=parse_rank(id),
        state="ended",
        started=float(written.get(requests.CREATED_TAG) or 0),
        reason="Azure took the spot machine back",
        preempted=True,
    )


def parse_machine(group: str, seen: Any, address: str, private: str) -> Machine:
    """Return a machine as Azure describes it, with its public and its private address."""
    about, written = seen.properties, seen.tags or {}
    codes = [status.code or "" for status in _status_codes(seen)]
    power = next((code.partition("/")[2] for code in codes if code.startswith("PowerState/")), "")
    reason, ended = "", False
    if about.provisioning_state == "Failed" and power != "running":
        ended, (_, reason) = True, provisioning_error(seen) or ("", "Azure could not make it")
    elif about.provisioning_state == "Deleting":
        reason = "it is being deleted"
    elif power in ("stopping", "stopped", "deallocating", "deallocated"):
        reason = f"it is {power}, and still costs"
    started = about.time_created.timestamp() if about.time_created else time.time()
    state: MachineState = "starting" if power in ("", "starting") else "running"
    return tagged_machine(
        written,
        id=f"{group}/{seen.name}",
        cloud="azure",
        rank=parse_rank(seen.name),
        state="ended" if ended else state,
        started=started,
        reason=reason,
        address=address,
        private=private,
        stopped=power == "deallocated",
    )


def provisioning_error(seen: Any) -> tuple[str, str] | None:
    """Return code and message of what kept a machine from being made."""
    for status in _status_codes(seen):
        where, _, code = (status.code or "").partition("/failed/")
        if where == "ProvisioningState" and code:
            return code, status.message or code
    return None


def _status_codes(seen: Any) -> list[Any]:
    view = seen.properties.instance_view
    return (view.statuses or []) if view else []
