"""Machines of Google Cloud that are real hosts: reached, taken back, ending by themselves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyPermission
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches import self_delete
from jupyter_sky.clouds.launches.cloud_init import NEXT_HOST_KEY
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.clouds.launches.launcher import Launcher, launch_machines
from tests.clouds.gcp_requests import OWNER, ZONE, machine_config, order, until, use
from tests.clouds.launched_machine import needs_isolation
from tests.emulators.fleet import Fleet
from tests.emulators.gce import Compute
from tests.emulators.loopback import loopback

pytest_plugins = ["tests.clouds.gcp_fixtures"]


def _run(folder: Path, address: str, port: int, command: str) -> subprocess.CompletedProcess[str]:
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=5"]
    options.append(f"UserKnownHostsFile={folder / 'known'}")
    words = [word for option in options for word in ("-o", option)]
    where = ["-p", str(port), "-i", str(folder / "id"), f"sky@{address}", command]
    return subprocess.run(["ssh", *words, *where], capture_output=True, text=True, timeout=30)


@pytest.mark.slow
@needs_isolation
def test_machines_are_real_hosts_that_are_reached_taken_back_and_power_themselves_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    public, theirs = (_key_pair(tmp_path / name) for name in ("id", "host"))
    keys = {"ed25519_private": (tmp_path / "host").read_text(), "ed25519_public": theirs}
    user = {"name": "sky", "shell": "/bin/bash", "ssh_authorized_keys": [public]}
    document = "#cloud-config\n" + json.dumps({"ssh_keys": keys, "users": [user]})
    born = replace(machine_config("real-00000001"), user_data=document, public_key=public)
    with Fleet() as fleet:
        compute = Compute(fleet, boot=0.02)
        use(monkeypatch, compute.env())
        provider = Gcp()
        made = launch_machines(provider, order("real-00000001", nodes=2, spot=True), born)
        hosts = {host.name: host for host in fleet.hosts()}
        for each in made:
            host = hosts[each.id.rpartition("/")[2]]
            assert (host.address, host.private) == (each.address, each.private)
            assert host.ready(30), host.console()
            known = each.address if host.port == 22 else f"[{each.address}]:{host.port}"
            with (tmp_path / "known").open("a") as file:
                file.write(f"{known} {theirs}\n")
        head = hosts["real-00000001-0"]
        said = _run(tmp_path, head.address, head.port, "hostname; id -un")
        assert said.stdout.split() == ["real-00000001-0", "sky"], said.stderr
        assert "ED25519" in provider.console(made[0].id)
        compute.preempt(made[1].id, notice=0.5)
        until(lambda: provider.describe([made[1].id])[0].preempted, 15)
        assert host_ended(hosts["real-00000001-1"])
        assert head.running
        head.shutdown()
        until(lambda: provider.describe([made[0].id])[0].state == "ended", 15)
        assert [m.id for m in provider.machines(owner=OWNER)] == [made[0].id]
        provider.terminate([made[0].id])
        until(lambda: not compute.machines(), 15)
        assert fleet.hosts() == []
        compute.close()


# -- ending itself -------------------------------------------------------------------------


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Compute]:
    """A Compute Engine of real hosts, isolated where they can be, which are to have an account."""
    with Fleet() as fleet:
        compute = Compute(fleet, boot=0.02)
        use(monkeypatch, compute.env())
        Sky.clear_instance()
        monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
        monkeypatch.setenv("SKY_LOGIN", fleet.user or "sky")
        monkeypatch.setenv("SKY_PROVIDERS_GCP_SERVICE_ACCOUNT", "default")
        monkeypatch.setattr(self_delete, "RETRY_DELAYS", (0.1, 0.1, 0.1, 0.1))
        yield compute
        compute.close()
        Sky.clear_instance()


def launch(cloud: Launcher) -> str:
    """Launch a machine whose lease ends in some seconds, with its own script; return its id."""
    mine = installation_id(Path(Sky.load().data_dir))
    (made,) = cloud.launch(order(owner=mine, lease=2.0))
    return made.id


@pytest.mark.slow
def test_a_machine_whose_lease_ends_deletes_itself(real: Compute) -> None:
    cloud, fleet = Launcher(Gcp()), real.world.fleet
    name = launch(cloud).partition("/")[2]
    assert fleet is not None and len(real.machines()) == len(real.world.disks) == 1
    until(lambda: not real.machines(), 25)
    assert real.world.disks == {}
    assert f"DELETE zones/{ZONE}/instances/{name}" in real.calls
    until(lambda: not fleet.hosts(), 15)
    assert cloud.list_mine() == []


@pytest.mark.slow
@pytest.mark.parametrize("why", ["account", "permission"])
def test_a_machine_that_may_not_delete_itself_is_off_and_found(real: Compute, why: str) -> None:
    cloud = Launcher(Gcp())
    if why == "account":
        real.accounts.add(real.accounts.default, lent=False)
    else:
        real.accounts.add(real.accounts.default, may=[])
    id = launch(cloud)
    until(lambda: real.machines()[0]["state"] == "TERMINATED", 25)
    asked = [call for call in real.calls if call.startswith("DELETE")]
    assert len(asked) == (0 if why == "account" else 4)  # and all were refused
    assert len(real.world.disks) == 1
    (kept,) = cloud.list_mine()
    assert (kept.id, kept.state) == (id, "running") and "disk is kept" in kept.reason
    cloud.terminate([id])  # as %sky reap does
    assert real.machines() == [] and real.world.disks == {}


@pytest.mark.slow
def test_a_cluster_that_nobody_uses_takes_its_machine_and_disk_with_it(fresh: Any) -> None:
    """The notebook is killed: nobody is there who could end it."""
    with loopback("gcp", minute=1.0) as opened:
        book = fresh("a.ipynb", **opened.env, SKY_PROVIDERS_GCP_SERVICE_ACCOUNT="default")
        ran = book.run("%%sky --cloud gcp --cpus 2 --idle 8s\n1 + 1", 90)
        assert (ran.status, ran.result) == ("ok", "2"), ran
        (made,) = opened.machines()
        book.kill()
        until(lambda: not opened.machines(), 40)
        assert opened.api.world.disks == {}
        zone, _, name = made["id"].partition("/")
        assert opened.api.calls[-1] == f"DELETE zones/{zone}/instances/{name}"
        until(lambda: not opened.fleet.hosts(), 15)


def host_ended(host: Any) -> bool:
    until(lambda: not host.running, 15)
    return True


def _key_pair(path: Path) -> str:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path.with_suffix(".pub").read_text().strip()


@pytest.mark.slow
def test_machine_ends_itself_when_credentials_are_revoked(real: Compute) -> None:
    cloud, fleet = Launcher(Gcp()), real.world.fleet
    mine = installation_id(Path(Sky.load().data_dir))
    machines = cloud.launch(order(owner=mine, lease=6000.0))
    cloud.await_slots(machines)
    (host,) = fleet.hosts()
    assert host.booted(20)
    folder = cloud.cluster_folder(machines)
    first = (folder / "host.pub").read_text().split()[1]
    until(lambda: first not in (folder / "known_hosts").read_text(), 20)
    assert not (folder / NEXT_HOST_KEY).exists(), "its second private host key is its own alone"
    real.refuse("forbidden", action="remove")
    with pytest.raises(SkyPermission) as raised:
        cloud.terminate([machines[0].id])
    assert f"{machines[0].id} was told by SSH to end itself" in raised.value.message
    assert "%sky reap" in str(raised.value.hint)
    until(lambda: not real.machines(), 25)
    cloud.close_ended_records()
    assert cloud.list_mine() == []


@pytest.mark.slow
def test_machine_that_cannot_be_told_ends_with_its_lease(real: Compute) -> None:
    cloud, fleet = Launcher(Gcp()), real.world.fleet
    mine = installation_id(Path(Sky.load().data_dir))
    machines = cloud.launch(order(owner=mine, lease=20.0))
    cloud.await_slots(machines)
    (host,) = fleet.hosts()
    host.unplug()
    real.refuse("forbidden", action="remove")
    with pytest.raises(SkyPermission, match=r"may still be up and billed: .* the end of its lease"):
        cloud.terminate([machines[0].id])
    host.unplug(False)
    until(lambda: not real.machines(), 40)
