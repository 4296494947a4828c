"""Machines of Azure that end by themselves: their roles, their timers, their deletion."""

from __future__ import annotations

import json
import subprocess
import time
from functools import partial

import pytest

from jupyter_sky.clouds.azure import machine_roles
from jupyter_sky.clouds.azure.machine_roles import MARGIN_SECONDS
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.launches.self_delete import RETRY_DELAYS
from jupyter_sky.clouds.provider.values import LaunchRequest
from tests.clouds.azure_requests import GROUP, OWNER, an_order, launch, left, sent, until
from tests.clouds.launched_machine import needs_isolation
from tests.emulators.arm import SUBSCRIPTION, Arm
from tests.emulators.arm_state import action_of

pytest_plugins = ["tests.clouds.azure_fixtures"]


def test_a_machine_may_delete_its_own_group_and_no_other(arm: Arm, azure: Azure) -> None:
    launch(azure, an_order(nodes=2))
    launch(azure, an_order("other-00000000"))
    principal = sent(arm, 1)["identity"]["principalId"]
    mine = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    other = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/jupyter-sky-other-00000000"
    machine = "/providers/Microsoft.Compute/virtualMachines/m"
    may = partial(_may, arm, principal)
    assert may("DELETE", mine) and may("DELETE", mine + machine)
    assert not may("DELETE", other) and not may("DELETE", other + machine)
    for method in ("GET", "PUT", "POST"):
        assert not may(method, mine) and not may(method, mine + machine), method
    assert len(arm.state.names("roleassignments")) == 3
    assert len(arm.state.names("roledefinitions")) == 1
    assert arm.calls.count("PUT roleDefinitions") == 1


def _may(arm: Arm, who: str, method: str, path: str) -> bool:
    return arm.state.may(who, path, action_of(method, path))


@pytest.mark.parametrize("how", ["refused", "not known yet"])
def test_without_a_role_of_our_own_machines_get_contributor_of_their_group(
    arm: Arm, azure: Azure, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    if how == "refused":
        arm.refuse("AuthorizationFailed", action="define", times=9)
    arm.state.roles_lag = how != "refused"
    launch(azure, an_order())
    principal = sent(arm)["identity"]["principalId"]
    assert _may(arm, principal, "DELETE", f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}")
    assert ("they get Contributor" in caplog.text) == (how == "refused")


def test_azure_deallocates_at_the_end_of_a_lease(arm: Arm, azure: Azure) -> None:
    ends = time.time() + 3 * 86400
    launch(azure, an_order(nodes=2), lease_end=ends)
    whens = list(arm.state.schedules.values())
    assert len(whens) == 2 and all(0 <= when - ends - MARGIN_SECONDS + 1 <= 1 for when in whens)


@pytest.mark.parametrize("how", ["refused", "past", "unregistered"])
def test_without_a_timer_of_azure_machines_come_all_the_same(
    arm: Arm, azure: Azure, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    if how == "refused":
        arm.refuse("AuthorizationFailed", action="schedule")
    if how == "unregistered":
        arm.unregistered.add("Microsoft.ComputeSchedule")
    ends = 1000.0 if how == "past" else time.time() + 100
    assert len(launch(azure, an_order(), lease_end=ends)) == 1
    assert arm.state.schedules == {}
    (warning,) = caplog.messages
    assert "az provider register -n Microsoft.ComputeSchedule" in warning


def test_an_identity_may_come_after_the_answer(arm: Arm, azure: Azure) -> None:
    arm.state.late_identity = True
    launch(azure, an_order(nodes=2))
    assert len(arm.state.names("roleassignments")) == 2


def test_without_the_right_to_give_roles_machines_come_all_the_same(
    arm: Arm, azure: Azure, caplog: pytest.LogCaptureFixture
) -> None:
    arm.refuse("AuthorizationFailed", action="role", times=9)
    assert len(launch(azure, an_order(nodes=2))) == 2
    assert arm.state.names("roleassignments") == []
    assert "may not delete itself (AuthorizationFailed)" in caplog.text


def test_self_delete_script_needs_no_request(arm: Arm, azure: Azure) -> None:
    shell = azure.self_delete_script(an_order())
    assert f"{arm.url}/subscriptions/{SUBSCRIPTION}/resourcegroups/{GROUP}" in shell
    assert arm.calls == []
    checked = subprocess.run(["sh", "-n"], input=shell, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr


def end_at(azure: Azure, order: LaunchRequest, rank: int) -> str:
    """A document by which a machine of a rank ends as it starts."""
    ending = azure.self_delete_script(order).replace(repr(RETRY_DELAYS), "(0.1, 0.1, 0.1, 0.1)")
    script = f"case $(hostname) in *-{rank}) ;; *) exit;; esac\nsleep 2\n{ending}\nshutdown -P now"
    return "#cloud-config\n" + json.dumps({"runcmd": [["sh", "-c", script]]})


@needs_isolation
@pytest.mark.slow
def test_the_head_ends_the_whole_cluster(real: Arm) -> None:
    azure, order = Azure(poll=0.1), an_order(nodes=2)
    launch(azure, order, user_data=end_at(azure, order, 0))
    until(lambda: not left(real))
    until(lambda: not real.fleet.hosts())
    assert "DELETE resourceGroups" in real.calls


@needs_isolation
@pytest.mark.slow
def test_another_node_ends_itself_alone(real: Arm) -> None:
    azure, order = Azure(poll=0.1), an_order(nodes=2)
    made = launch(azure, order, user_data=end_at(azure, order, 1))
    until(lambda: len(real.machines()) == 1)
    assert [one.id for one in azure.machines(owner=OWNER)] == [made[0].id]
    until(lambda: len(real.state.names("disks")) == len(real.fleet.hosts()) == 1)
    assert "DELETE resourceGroups" not in real.calls


@needs_isolation
@pytest.mark.slow
def test_machine_without_the_right_stays_up_until_azure_deallocates_it(
    real: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_roles, "MARGIN_SECONDS", 0.0)
    azure, order = Azure(poll=0.1), an_order()
    real.refuse("AuthorizationFailed", action="role", times=9)
    ends = time.time() + 12
    (made,) = launch(azure, order, user_data=end_at(azure, order, 0), lease_end=ends)
    until(lambda: azure.console(made.id).count("AuthorizationFailed") > 5)
    assert real.machines()[0]["state"] == "running", "off, it would be billed and tried no more"
    until(lambda: real.machines()[0]["state"] == "deallocated")
    assert time.time() >= ends - 1


@needs_isolation
@pytest.mark.slow
def test_machine_deletes_itself_after_long_trouble(real: Arm) -> None:
    azure, order = Azure(poll=0.1), an_order()
    real.refuse("InternalServerError", action="remove", times=12)
    launch(azure, order, user_data=end_at(azure, order, 0))
    until(lambda: not real.machines())
    assert real.calls.count("DELETE resourceGroups") == 13


@needs_isolation
@pytest.mark.slow
def test_machine_deletes_itself_though_our_credentials_are_revoked(real: Arm) -> None:
    azure, order = Azure(poll=0.1), an_order()
    real.refuse("AuthorizationFailed", action="remove", times=1000)
    (made,) = launch(azure, order, user_data=end_at(azure, order, 0))
    with pytest.raises(Exception, match="AuthorizationFailed"):
        azure.terminate([made.id])
    until(lambda: not real.machines())
