"""The `ssh` cloud against real SSH servers: checks, slots, leases, what is left behind."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyBootstrapError, SkyNoCapacity, SkyUnreachable
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest, get, ssh
from jupyter_sky.clouds.launches import ssh_slot
from jupyter_sky.machines.provisioner import bootstrap
from tests.clouds.launched_machine import Keys, LaunchedMachine, needs_isolation
from tests.conftest import wait_until
from tests.emulators.fleet import Fleet
from tests.emulators.hosts import USABLE, SshHost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
cloud = get("ssh")


@pytest.fixture(scope="module")
def host() -> Iterator[SshHost]:
    made = SshHost(51)
    yield made
    made.close()


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write the list of machines."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    yield lambda *tables: (tmp_path / "hosts.toml").write_text("\n".join(tables)) and None
    for token in [path.parent.name for path in tmp_path.glob("ssh/*/machines.json")]:
        cloud.terminate([f"{token}/0"])  # with all of its nodes
    Sky.clear_instance()


def order(token: str, **labels: str) -> LaunchRequest:
    resources = Resources.parse(**labels)
    offer = cloud.offers(resources)[0]
    return LaunchRequest(token, "train", offer, resources, 60.0, "me", "a.ipynb")


def test_hosts_that_answer_and_how_to_mend_those_that_do_not(
    host: SshHost, pool: Callable[..., None], tmp_path: Path
) -> None:
    readable, other = tmp_path / "readable", tmp_path / "other"
    shutil.copy(host.key, readable)
    readable.chmod(0o644)
    shutil.copy(host.folder / "host", other)
    other.chmod(0o600)
    nobody = host.address.replace(str(host.port), "9")
    pool(
        host.toml("good"),
        host.toml("open", key=str(readable)),
        host.toml("absent", key=str(tmp_path / "none")),
        host.toml("wrong", key=str(other)),
        host.toml("down", address=nobody),
    )
    check = cloud.check()
    assert check.usable, "one is enough"
    found = dict(text.partition(": ")[::2] for text in check.found.split("; "))
    fixes = dict(text.partition(": ")[::2] for text in check.fix.split("; "))
    assert found["good"].startswith("answers") and "good" not in fixes
    assert "can be read by others (mode 0644)" in found["open"]
    assert fixes["open"] == f"chmod 600 {readable}"
    assert "no key file" in found["absent"]
    assert "does not let user" in found["wrong"] and "ssh-copy-id" in fixes["wrong"]
    assert "does not answer" in found["down"] and "-p 9" in fixes["down"]
    pool(host.toml("down", address=nobody))
    assert not cloud.check().usable


def test_a_host_with_another_key_is_refused(pool: Callable[..., None]) -> None:
    stranger = SshHost(52)
    try:
        pool(stranger.toml("box"))
        assert cloud.check().usable
        stranger.change_key()
        check = cloud.check()
        assert not check.usable and "another host key" in check.found
        assert "ssh-keygen -R" in check.fix
        with pytest.raises(SkyUnreachable, match="another host key"):
            cloud.launch(order("changed"))
        # the way out that was named
        (Sky.load().data_dir / Path("ssh/known_hosts")).unlink()
        assert cloud.check().usable
        wrong = (stranger.folder / "id.pub").read_text().strip()
        (Sky.load().data_dir / Path("ssh/known_hosts")).unlink()
        pool(stranger.toml("box", host_key=wrong))
        assert "another host key" in cloud.check().found, "the key that its owner gives is pinned"
    finally:
        stranger.close()


def test_a_slot_is_one_clusters_only(host: SshHost, pool: Callable[..., None]) -> None:
    pool(host.toml("box"))
    (first,) = cloud.launch(order("one"))
    assert [machine.id for machine in cloud.launch(order("one"))] == [first.id], "the same order"
    with pytest.raises(SkyNoCapacity, match="its slot is taken"):
        cloud.launch(order("two"))
    assert [machine.id for machine in cloud.list_mine()] == [first.id]
    cloud.terminate([first.id])
    wait_until(lambda: not cloud.list_mine() + host.clusters() + host.taken())
    (second,) = cloud.launch(order("two"))
    assert cloud.describe([first.id, second.id])[0].state == "ended"
    assert cloud.describe([second.id])[0].state == "running"
    cloud.terminate([second.id])


def test_a_cluster_that_has_to_be_killed_leaves_no_slot(
    host: SshHost, pool: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_slot, "GRACE_SECONDS", 1)
    pool(host.toml("box"))
    (machine,) = cloud.launch(order("stuck"))
    agents = [process for process in host.own() if "slot-agent" in process.cmdline()]
    for process in agents:
        process.suspend()  # as one is on a machine without memory
    assert agents and host.taken()
    cloud.terminate([machine.id])
    wait_until(lambda: not host.taken() + host.clusters(), "folders or slots are left")


def test_slots_are_spread_and_all_or_none(host: SshHost, pool: Callable[..., None]) -> None:
    other = SshHost(53)
    try:
        pool(host.toml("a", slots=2), other.toml("b", slots=2))
        machines = cloud.launch(order("three", nodes="3"))
        nodes = cloud.await_slots(machines)
        assert [node.rank for node in nodes] == [0, 1, 2]
        assert cloud.recorded_slots(machines) == nodes
        assert sorted(node.host for node in nodes[:2]) == ["a", "b"]
        with pytest.raises(SkyNoCapacity, match=r"2 slots .* were asked for, 1 could be had"):
            cloud.launch(order("more", nodes="2"))
        wait_until(lambda: len(host.taken() + other.taken()) == 3, "the fourth was given back")
        cloud.terminate([machine.id for machine in machines])
        wait_until(lambda: not host.taken() + other.taken())
    finally:
        other.close()


def test_a_slot_that_nobody_goes_on_with_is_given_back(
    host: SshHost, pool: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_slot, "CLAIM_SECONDS", 1)
    pool(host.toml("box"))
    (machine,) = cloud.launch(order("forgotten"))
    assert host.taken()
    wait_until(lambda: not host.taken() and not host.clusters())
    assert cloud.describe([machine.id])[0].state == "ended"


def test_remains_of_a_power_cut_are_swept(host: SshHost, pool: Callable[..., None]) -> None:
    pool(host.toml("box"))
    (machine,) = cloud.launch(order("cut"))
    (left,) = host.clusters()
    os.kill(int((left / "pid").read_text()), 9)
    assert left.exists()
    (after,) = cloud.launch(order("after"))
    assert [path.name for path in host.clusters()] == ["after.box.0"]
    assert cloud.describe([machine.id])[0].state == "ended"
    cloud.terminate([after.id])


@needs_isolation
def test_restarted_host_is_free_and_says_so(pool: Callable[..., None], tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    with Fleet(isolated=True) as fleet:
        born = LaunchedMachine(fleet, keys, document={"ssh_pwauth": False})
        assert born.host.ready(20), born.host.console()
        key = keys.public(keys.host)
        table = {"key": str(keys.user), "vcpus": 2, "memory": 4, "host_key": key}
        lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        address = f"{born.user}@{born.host.address}"
        pool("\n".join(["[box]", f'address = "{address}"', *lines]))
        machines = [cloud.launch(order("first"))[0]]
        before = born.host.processes()
        born.host.reboot()
        assert not any(process.is_running() for process in before)
        (seen,) = cloud.describe([machines[0].id])
        assert (seen.state, seen.reason) == ("ended", "the machine was restarted")
        machines += cloud.launch(order("second"))
        born.host.reboot()
        machines += cloud.launch(order("third"))  # it sweeps what the second has left
        (seen,) = cloud.describe([machines[1].id])
        assert (seen.state, seen.reason) == ("ended", "the machine was restarted")
        left = born.sh("ls .cache/jupyter_sky/run/* /tmp/jupyter_sky-slots | xargs")
        node, first, slots, slot = left.split()
        assert node == ".cache/jupyter_sky/run/node-0:" and slots == "/tmp/jupyter_sky-slots:"
        assert (first, slot) == ("third.box.0", "0"), "of the others nothing is left"
        cloud.terminate([machines[2].id])


def test_slots_that_another_user_has_made(pool: Callable[..., None], tmp_path: Path) -> None:
    host = SshHost(55)
    try:
        pool(host.toml("box"))
        host.slots.symlink_to(tmp_path)
        with pytest.raises(SkyBootstrapError, match=r"cannot take slots in .*made by") as raised:
            cloud.launch(order("denied"))
        assert "sudo mkdir -m 1777" in str(raised.value.hint)
        host.slots.unlink()
        host.slots.mkdir()
        os.mkfifo(host.slots / "0")
        with pytest.raises(SkyNoCapacity):
            cloud.launch(order("denied"))
    finally:
        host.close()


def test_a_host_that_is_away_is_not_said_to_have_ended(pool: Callable[..., None]) -> None:
    host = SshHost(54)
    try:
        pool(host.toml("box"))
        (machine,) = cloud.launch(order("away"))
        host.stop(connections=True)
        (known,) = cloud.describe([machine.id])
        assert known.state == "running" and "does not answer" in known.reason
        with pytest.raises(SkyUnreachable):
            cloud.terminate([machine.id])
        host.start()
        cloud.terminate([machine.id])
        wait_until(lambda: not host.taken())
    finally:
        host.close()


# -- bootstrap --------------------------------------------------------------------------------


@pytest.fixture
def taken(host: SshHost, pool: Callable[..., None]) -> Iterator[Callable[..., ssh_slot.Slot]]:
    def take(**settings: object) -> ssh_slot.Slot:
        pool(host.toml("box", **settings))
        return cloud.await_slots(cloud.launch(order(f"boot-{time.monotonic_ns()}")))[0]

    yield take


def test_no_python_there(taken: Callable[..., ssh_slot.Slot], tmp_path: Path) -> None:
    for name in "cat chmod cut getconf ln mkdir mv rm tar touch".split():
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    never = {"UV_PYTHON_PREFERENCE": "only-managed", "UV_PYTHON_DOWNLOADS": "never"}
    node = taken(python=None, env=never | {"PATH": str(tmp_path)})
    with pytest.raises(SkyBootstrapError, match="that of this notebook, is not there") as raised:
        bootstrap.prepare([node], lambda what: None)
    assert "python = " in str(raised.value)
    ssh_slot.release_slots([node])
    node = taken(python="/usr/bin/false")
    with pytest.raises(SkyBootstrapError, match="is not there and cannot be had"):
        bootstrap.prepare([node], lambda what: None)


def test_a_full_disk(taken: Callable[..., ssh_slot.Slot]) -> None:
    node = replace(taken(packages=["a-new-environment"]), free=1000)
    with pytest.raises(SkyBootstrapError, match="the disk is full: 1 MB are free"):
        bootstrap.prepare([node], lambda what: None)
    full = ssh_slot.slot_error(
        node, "packages cannot be installed", "write: No space left on device"
    )
    assert "the disk is full" in full.message and full.hint


def test_a_host_without_an_index_gets_all_through_the_connection(
    taken: Callable[..., ssh_slot.Slot],
) -> None:
    said: list[str] = []
    node = taken(offline=True)
    bootstrap.prepare([node], said.append)
    assert "Python and packages" in said and "packages" not in said
    assert Path(node.engine_python).is_relative_to(node.base)
    again: list[str] = []
    second = ssh_slot.acquire_slot(node, {})
    bootstrap.prepare([second], again.append)
    assert second.engine_python == node.engine_python
    assert not any(again), "the second time it is there"


def test_a_package_that_does_not_exist(taken: Callable[..., ssh_slot.Slot]) -> None:
    node = taken(packages=["./no-such-folder-of-a-package"])
    with pytest.raises(SkyBootstrapError, match="packages cannot be installed"):
        bootstrap.prepare([node], lambda what: None)


def test_the_keys_file_of_known_hosts_is_private(host: SshHost, pool: Callable[..., None]) -> None:
    pool(host.toml("box", host_key=(host.folder / "host.pub").read_text().strip()))
    assert cloud.check().usable
    assert (ssh.records_folder() / "known_hosts").stat().st_mode & 0o077 == 0
