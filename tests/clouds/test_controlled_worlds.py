"""Accounts that another process controls: what their clouds' own words become."""

from __future__ import annotations

from tests.clouds import neo_worlds
from tests.clouds.controlled_worlds import ControlledWorld
from tests.clouds.kube_world import KubernetesWorld
from tests.clouds.lambda_world import LambdaWorld
from tests.clouds.rest_launches import launches_fixture

launches = launches_fixture(
    KubernetesWorld,
    LambdaWorld,
    neo_worlds.HyperstackWorld,
    neo_worlds.NebiusWorld,
    neo_worlds.RunPodWorld,
    neo_worlds.VastWorld,
    neo_worlds.VerdaWorld,
)


def test_machines_are_listed_by_order_until_they_cost_no_more(launches):
    world = ControlledWorld(launches.world.cloud, launches.world)
    assert world.machines() == []
    (machine,) = launches.launch()
    listed = [(one["id"], one["tags"]["jupyter-sky-token"]) for one in world.machines()]
    assert listed == [(machine.id, machine.token)]
    launches.provider.terminate([machine.id])
    assert world.machines() == []


def test_faults_have_the_words_of_other_emulators(launches):
    launches.world.api.refills = True
    world = ControlledWorld(launches.world.cloud, launches.world)
    world.refuse("capacity")
    assert launches.refusal() == "capacity"
    world.throttle("create")
    assert launches.refusal() == "throttled"
    world.world.reset()
    world.lose("create")
    (machine,) = launches.launch()
    world.preempt(machine.id)
    world.preempt("gone")
