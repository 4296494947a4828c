"""Account of an emulated cluster of Kubernetes under the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.clouds.neo_worlds import SAME
from tests.clouds.rest_world import RestWorld
from tests.emulators import kube_cluster
from tests.emulators.loopback import machine_env

_PODS = f"/api/v1/namespaces/{kube_cluster.NAMESPACE}/pods"


class KubernetesWorld(RestWorld):
    """A cluster, and a kubeconfig with its only context."""

    cloud, account = "kubernetes", kube_cluster.KubeCluster
    requests: ClassVar = {
        "launch": f"POST {_PODS}",
        "machines": f"GET {_PODS}",
        "terminate": f"DELETE {_PODS}",
    }
    codes: ClassVar = SAME

    def settings(self) -> dict[str, str]:
        """Return how long a pod may wait for a node."""
        return {"schedule_seconds": "1"}

    def environment(self) -> dict[str, str]:
        """Return where the kubeconfig is."""
        hosts = "localhost,127.0.0.1"
        return {
            "KUBECONFIG": str(self.api.kubeconfig(Path(self._folder.name))),
            "SKY_PROVIDERS": repr({self.cloud: self.settings()}),
            "NO_PROXY": hosts,
            "no_proxy": hosts,
        } | machine_env(self.fleet)

    def secrets(self) -> list[str]:
        """Return the token of the kubeconfig."""
        return [kube_cluster.TOKEN]

    def require(self, capability: str) -> None:
        """Boot pods only where commands can enter their machines."""
        if capability in ("ssh", "leases", "cells") and not self.fleet.isolated:
            pytest.skip("pods need root and namespaces")
        super().require(capability)
