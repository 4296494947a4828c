"""Pods of an emulated cluster under the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import MARKS, assert_conforms
from tests.clouds.launched_machine import needs_isolation

pytestmark = MARKS


@needs_isolation
def test_kubernetes_conforms(tmp_path: Path) -> None:
    assert_conforms(tmp_path, "kubernetes.provider:Kubernetes", "kube_world:KubernetesWorld")
