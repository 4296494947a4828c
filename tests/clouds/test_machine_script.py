"""Machines without cloud-init: a start-up script makes them what its document makes others."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.remote import ssh
from jupyter_sky.clouds.launches import machine_lease, machine_script
from tests.clouds.launched_machine import OPEN, WAIT, Keys, needs_isolation, until
from tests.emulators.fleet import Fleet, Host

pytestmark = [pytest.mark.slow, needs_isolation]
SSHD = f"/{machine_script.SSHD_PROGRAM}"
NO_SERVER = "pkill -x sshd; rm -f /usr/bin/systemctl /usr/sbin/systemctl"
"""A container has neither."""


@pytest.fixture
def script(keys: Keys) -> Callable[..., str]:
    """Write the script for a user with our keys."""

    def write(user: str = "ada", **terms: Any) -> str:
        known = {"heartbeat_timeout": 600.0} | terms
        return machine_script.render_script(keys.setup(user, **known))

    return write


def _host(fleet: Fleet, user_data: str = "") -> Host:
    host = fleet.launch("n", user_data, ingress=OPEN)
    assert host.booted(WAIT), host.console()
    return host


def _through(address: ssh.Address, *command: str) -> ssh.Address:
    """The same machine, reached by a command."""
    known = Path(address.known_hosts)
    known.write_text(f"n {known.read_text().partition(' ')[2]}")
    return replace(address, host="n", through=command)


def test_script_makes_a_machine_that_is_reached_by_its_address(
    isolated: Fleet, keys: Keys, script: Callable[..., str]
) -> None:
    host = _host(isolated, script())
    assert machine_script.READY_LINE in host.console()
    address = keys.address(host, "ada")
    assert ssh.run(address, "id -un; stat -c %U ~ ~/.ssh", patience=5).text.split() == ["ada"] * 3
    assert "nothing listens" not in host.console()
    assert host.root("ls /etc/ssh/ssh_host_*_key").split() == ["/etc/ssh/ssh_host_ed25519_key"]
    assert "jupyter-sky-lease.service" in host.console(), "its lease has begun"

    before = host.root("cat /etc/passwd /home/ada/.ssh/authorized_keys | sort")
    host.root("echo another >/etc/ssh/ssh_host_ed25519_key")  # as at the change of its host key
    again = host.root('sh -c "$1"', script())
    assert again.splitlines() == [machine_script.READY_LINE]
    assert host.root("cat /etc/passwd /home/ada/.ssh/authorized_keys | sort") == before
    assert host.root("cat /etc/ssh/ssh_host_ed25519_key") == "another\n"
    leases = [p for p in host.processes() if p.cmdline()[-1:] == [machine_lease.SCRIPT]]
    assert len(leases) == 1


def test_container_is_reached_by_a_command_and_ends_with_its_lease(
    isolated: Fleet, keys: Keys, script: Callable[..., str]
) -> None:
    host = _host(isolated)
    host.root(NO_SERVER)
    host.root('printf %s "$1" >/root/setup', script(lease=15.0, power_off="kill 1"))
    command = [*host.enter(), *"unshare --pid --fork --mount-proc sh /root/setup".split()]
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as container:
        assert container.stdout and container.stdout.readline().strip() == "jupyter-sky-ready"
        address = _through(keys.address(host, "ada"), *host.enter(), SSHD)
        assert ssh.run(address, "id -un").text == "ada\n"
        direct = keys.address(host, "ada")
        assert ssh.run(direct, "id -un", patience=5).text == "ada\n", "a server of ours listens"
        assert container.wait(WAIT) == 0
    assert time.monotonic() - begun > 10


def test_missing_server_is_installed(
    isolated: Fleet, keys: Keys, script: Callable[..., str]
) -> None:
    host = _host(isolated)
    host.root(NO_SERVER)
    sshd = host.root("readlink -f $(command -v sshd || echo /usr/sbin/sshd)").strip()
    installer = f'#!/bin/sh\necho "$*" >>/root/asked\n[ "$1" = update ] || mv {sshd}.away {sshd}\n'
    host.root(f"mv {sshd} {sshd}.away")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        host.root('rm -f /usr/bin/apt-get /sbin/apk; sh -c "$1"', script())
    assert "jupyter-sky-failed: no sshd" in failed.value.stdout
    host.root('printf %s "$1" >/usr/bin/apt-get; chmod 755 /usr/bin/apt-get', installer)
    assert machine_script.READY_LINE in host.root('sh -c "$1"', script())
    assert "install -y --no-install-recommends openssh-server" in host.root("cat /root/asked")
    assert ssh.run(keys.address(host, "ada"), "id -un", patience=5).text == "ada\n"


def test_user_without_root_is_reached_by_a_command(
    isolated: Fleet, keys: Keys, script: Callable[..., str]
) -> None:
    host = _host(isolated)
    host.root("useradd -m -p '*' eve")
    as_eve = [*host.enter(), "setpriv", "--reuid=eve", "--regid=eve", "--init-groups"]
    as_eve += ["env", "HOME=/home/eve"]
    text = script(lease=8.0, power_off="kill $PPID; touch /tmp/ended")
    job = subprocess.Popen([*as_eve, "sh", "-c", text, "sh", "stay"], stdout=subprocess.PIPE)
    assert job.stdout and job.stdout.readline().strip() == b"jupyter-sky-ready"
    program = f"/home/eve/{machine_script.USER_ROOT}/{machine_script.SSHD_PROGRAM}"
    address = _through(keys.address(host, "eve"), *as_eve, program)
    answer = ssh.run(address, 'id -un; cd "$JUPYTER_SKY_KEEPALIVE" && pwd')
    folder = f"/home/eve/{machine_script.USER_ROOT}/run/jupyter-sky"
    assert answer.text.split() == ["eve", folder]
    assert job.poll() is None, "the job goes on"
    assert not host.root("ls /home/eve/.ssh 2>/dev/null || true")
    assert not host.root("ls /etc/ssh/jupyter_sky_config 2>/dev/null || true")
    until(lambda: bool(host.root("ls /tmp/ended 2>/dev/null || true")))
    job.kill()  # the machine ends what it has started
    job.stdout.close()
    job.wait()
