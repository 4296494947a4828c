"""Machines that are reached by SSH: by their address, and through a command."""

from __future__ import annotations

import getpass
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUnreachable, SkyUsageError
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.clouds.launches import cloud_init
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.provider.values import Machine
from tests.emulators.hosts import SSHD, USABLE, SshHost, keygen


def test_command_that_connects_is_passed_on_literally() -> None:
    address = Address("ada", "pod-0", 2222, through=("kubectl", "exec", "a b", "50%", "--"))
    timeouts = [
        next(word for word in each.command() if word.startswith("-oConnectTimeout="))
        for each in (address, replace(address, through=()))
    ]
    assert timeouts == ["-oConnectTimeout=40", "-oConnectTimeout=10"], "programs take a while"
    assert "-oProxyCommand=kubectl exec 'a b' 50%% --" in address.command()
    assert "-oHostKeyAlias=pod-0" in address.command()
    assert address.known_as == "pod-0" and address.name == "ada@pod-0", "the port has no meaning"
    assert "ProxyCommand" in ssh.manual_command(address)
    assert not any("Proxy" in word for word in Address("ada", "pod-0").command())
    with pytest.raises(SkyUsageError, match="not a command"):
        replace(address, through=("kubectl", "exec\nLocalCommand"))


def test_way_to_a_machine_survives_its_record(tmp_path: Path) -> None:
    machine = Machine("m", "toy", "c", 0, "running", 0.0, through=("docker", "exec"))
    assert Machine(**json.loads(json.dumps(asdict(machine)))) == machine
    slot = Slot(0, "t.0", "m", Address("ada", "m", through=("docker", "exec")))
    assert Slot.load(json.loads(json.dumps(asdict(slot)))) == slot


@pytest.fixture
def host() -> Iterator[SshHost]:
    """A machine without an address: its sshd listens nowhere."""
    host = SshHost(85)
    host.stop()
    yield host
    host.close()


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_machine_that_listens_nowhere_is_reached_through_a_command(
    host: SshHost, tmp_path: Path
) -> None:
    config = tmp_path / "100% a" / "sshd_config"  # what ssh and shells would take for their own
    config.parent.mkdir()
    config.write_text((host.folder / "sshd_config").read_text())
    log = tmp_path / "connections"
    wrapper = 'echo once >>"$1"; shift; exec "$@"'
    through = ("sh", "-c", wrapper, "sh", str(log), SSHD, "-i", "-f", str(config))
    folder = tmp_path / "launch"
    folder.mkdir()
    (folder / "id").write_text(host.key.read_text())
    (folder / "id").chmod(0o600)
    (folder / "host.pub").write_text((host.folder / "host.pub").read_text())
    found = cloud_init.pinned_address(folder, "node-0", getpass.getuser(), 9, through)
    assert ssh.run(found, "echo $HOME").text.strip() == str(host.home)
    assert ssh.run(found, 'cat; echo "$1"', "x", data=b"sent ").text == "sent x\n"
    assert len(log.read_text().split()) == 1, "the second command shares the connection"

    command = ssh.manual_command(found)
    logged_in = subprocess.run(["sh", "-c", f"{command} echo in"], capture_output=True, text=True)
    assert logged_in.stdout == "in\n", logged_in.stderr

    keygen(tmp_path / "other")
    public = (tmp_path / "other.pub").read_text().split()[:2]
    (tmp_path / "other_hosts").write_text(f"node-0 {' '.join(public)}\n")
    with pytest.raises(SkyUnreachable, match="another host key"):
        ssh.run(replace(found, known_hosts=str(tmp_path / "other_hosts")), "true")
    with pytest.raises(SkyUnreachable, match="does not answer"):
        ssh.run(replace(found, through=(sys.executable, "-c", "")), "true")
