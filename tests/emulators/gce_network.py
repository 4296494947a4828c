"""Networks of Compute Engine, and the rules by which their machines may be reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import gce_validation as bodies
from .gce_operations import BASE, Operations, now
from .gce_validation import Refused


@dataclass
class Networks(Operations):
    """Networks of one project, with the machines in them.

    Attributes
    ----------
    instances : dict
        Machines by zone and name.
    """

    instances: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    networks: dict[str, dict[str, Any]] = field(default_factory=dict)
    firewalls: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._not_ready: set[str] = set()

    def insert_network(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begin to make a network; rules in it are not taken before it is ready."""
        bodies.check("Network", body)
        bodies.check_name(body["name"])
        name = body["name"]
        if name in self.networks:
            raise self._exists(f"global/networks/{name}")
        link = f"{BASE.format(self.project)}/global/networks/{name}"
        made = {"kind": "compute#network", "id": str(next(self._ids)), "selfLink": link}
        self.networks[name] = {**body, **made, "creationTimestamp": now()}
        self._not_ready.add(name)
        return self._operation(
            "", "insert", f"networks/{name}", lambda: self._not_ready.discard(name)
        )

    def insert_firewall(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make a rule."""
        bodies.check("Firewall", body)
        bodies.check_name(body["name"])
        name, network = body["name"], body.get("network", "").rpartition("/")[2]
        if name in self.firewalls:
            raise self._exists(f"global/firewalls/{name}")
        if network not in self.networks:
            raise self._missing(f"global/networks/{network}")
        if network in self._not_ready:
            raise self._unready(network)
        base = BASE.format(self.project)
        made = {
            "kind": "compute#firewall",
            "id": str(next(self._ids)),
            "network": f"{base}/global/networks/{network}",
            "creationTimestamp": now(),
            "selfLink": f"{base}/global/firewalls/{name}",
        }
        self.firewalls[name] = {**body, **made}
        return self._operation("", "insert", f"firewalls/{name}", self._admit)

    def delete_global(self, kind: str, name: str) -> dict[str, Any]:
        """Delete a rule, or a network that nothing uses."""
        held = self.firewalls if kind == "firewalls" else self.networks
        if name not in held:
            raise self._missing(f"global/{kind}/{name}")
        if kind == "networks" and (users := self._users(name)):
            link = f"projects/{self.project}/global/networks/{name}"
            words = f"The network resource '{link}' is already being used by '{users[0]}'"
            raise Refused(400, "resourceInUseByAnotherResource", words)
        del held[name]
        return self._operation("", "delete", f"{kind}/{name}", self._admit)

    def network_of(self, body: dict[str, Any]) -> str:
        """Return the name of the network that a machine is to be in."""
        interfaces = body.get("networkInterfaces") or [{"network": "global/networks/default"}]
        network = interfaces[0].get("network", "").rpartition("/")[2]
        if network not in self.networks:
            why = "The referenced network resource cannot be found."
            field = "resource.networkInterfaces[0].network"
            raise bodies.invalid(field, interfaces[0].get("network", ""), why)
        if network in self._not_ready:
            raise self._unready(network)
        return network

    def _users(self, network: str) -> list[str]:
        links = [rule["selfLink"] for rule in self.firewalls.values()
                 if rule["network"].endswith(f"/{network}")]  # fmt: skip
        return links + [
            machine["selfLink"]
            for machine in self.instances.values()
            if machine["networkInterfaces"][0]["network"].endswith(f"/{network}")
        ]

    def ingress(self, machine: dict[str, Any]) -> list[tuple[str, int]]:
        """Return who may reach a machine, by the rules of its network and its tags."""
        tags, found = set(machine.get("tags", {}).get("items", [])), list[tuple[str, int]]()
        network = machine["networkInterfaces"][0]["network"]
        for rule in self.firewalls.values():
            targets = rule.get("targetTags")
            if rule["network"] != network or (targets and not tags & set(targets)):
                continue
            others = [
                f"{address}/32"
                for other in self.instances.values()
                if set(rule.get("sourceTags", [])) & set(other.get("tags", {}).get("items", []))
                and (address := other["networkInterfaces"][0].get("networkIP"))
            ]
            for allowed in rule.get("allowed", []):
                ports = [int(port) for port in allowed.get("ports", [])] or [0]
                sources = rule.get("sourceRanges", []) + others
                found += [(source, port) for source in sources for port in ports]
        return found

    def _admit(self) -> None:
        """Let machines be reached as the rules now say."""
