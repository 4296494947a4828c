"""Launches that are interrupted, or take long, when their machines have just come up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.clusters import cluster_launch
from jupyter_sky.execution.clusters.cluster_launch import _LaunchAttempt
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.machines.engines.client.connection import ClusterConnection
from jupyter_sky.machines.provisioner import _bring_up, provision
from tests.conftest import nothing_left
from tests.provisioner.interrupting import interrupt_at

pytestmark = pytest.mark.slow


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterRegistry]:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    store = Store.open(tmp_path)
    clusters = ClusterRegistry(store, "a.ipynb", "session")
    yield clusters
    clusters.budget_monitor.close()
    store.close()
    Sky.clear_instance()


@pytest.mark.timeout(400)
def test_no_step_after_the_start_leaves_a_machine(
    registry: ClusterRegistry, tmp_path: Path
) -> None:
    traced = [_LaunchAttempt._launch.__code__, provision.__code__, _bring_up.__code__]
    for step in count():
        name = f"late{step}"

        def is_up(name: str = name) -> bool:
            return any(tmp_path.glob(f"local/{name}-*/security/client.json"))

        request = ClusterRequest(Resources(clouds=("local",)), name)
        try:
            with interrupt_at(step, lambda frame: frame.f_code in traced, is_up):
                registry.launch(request, lambda stage, detail: None)
        except KeyboardInterrupt:
            if name not in registry.connected:  # else it came when the launch had ended
                assert registry.store.live_clusters() == [], step
                nothing_left(tmp_path)
                continue
        break
    registry.terminate(name)
    assert step > 5, "the interrupts came too late"


def test_launch_that_takes_long_to_answer_is_not_taken_for_abandoned(
    registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_ranks = ClusterConnection.wait_ranks

    def wait_long(
        connection: ClusterConnection,
        ranks: Iterable[int],
        timeout: float,
        check_alive: Callable[[], None],
    ) -> None:
        check_alive()
        wait_ranks(connection, ranks, timeout, check_alive)

    monkeypatch.setattr(cluster_launch, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(ClusterConnection, "wait_ranks", wait_long)
    registry.launch(ClusterRequest(Resources(clouds=("local",)), "slow"), lambda *__: None)
    assert [row.state for row in registry.store.live_clusters()] == ["up"]
    registry.terminate("slow")
