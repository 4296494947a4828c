"""Waiting for machines that never answer."""

from __future__ import annotations

import pytest

from jupyter_sky.base.errors import SkyClusterLost
from jupyter_sky.clouds.launches import launcher
from jupyter_sky.clouds.launches.machine_records import launch_records, update_record
from jupyter_sky.clouds.provider.values import Machine
from tests.clouds import neo_worlds
from tests.clouds.rest_launches import launches_fixture

launches = launches_fixture(
    neo_worlds.HyperstackWorld,
    neo_worlds.NebiusWorld,
    neo_worlds.RunPodWorld,
    neo_worlds.VastWorld,
    neo_worlds.VerdaWorld,
)


@pytest.mark.timeout(60)
def test_machine_that_was_powered_off_is_not_waited_for(launches):
    machines = launches.account.managed.launch(launches.account.request())
    launches.world.stop(machines[0].id)
    with pytest.raises(SkyClusterLost, match="it was powered off as it started"):
        launches.account.managed.await_slots(machines)
    (listed,) = launches.provider.machines()
    assert listed.stopped and listed.state == "running", "it costs until it is ended"


@pytest.mark.timeout(60)
def test_machine_that_somebody_has_ended_is_not_waited_for(launches, monkeypatch):
    monkeypatch.setattr(launcher, "VISIBILITY_SECONDS", 0.2)
    machines = launches.account.managed.launch(launches.account.request())
    launches.provider.terminate([machines[0].id])
    with pytest.raises(SkyClusterLost, match=r"no longer knows it|it ended as it started"):
        launches.account.managed.await_slots(machines)


def test_machines_that_come_up_during_a_listing_are_not_closed(launches, monkeypatch):
    """The listing is older than they are, and slow where a cloud has many."""
    cloud = launches.account.managed
    request = launches.account.request()

    def list_mine(everywhere: bool = False) -> list[Machine]:
        cloud.launch(request)
        update_record(request.token, launching=None)
        return []

    monkeypatch.setattr(cloud, "list_mine", list_mine)
    cloud.close_ended_records()
    assert "ended" not in launch_records().read(request.token)
