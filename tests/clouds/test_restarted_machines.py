"""Rented machines that are restarted: their lease goes on, and their keys are their own."""

from __future__ import annotations

import json
import queue
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import runtime_dir
from jupyter_sky.clouds.launches import cloud_init, machine_lease, ssh_slot
from jupyter_sky.clouds.launches.ssh_slot import Slot
from tests.clouds.launched_machine import (
    OPEN,
    WAIT,
    Keys,
    LaunchedMachine,
    lease_files,
    needs_isolation,
    until,
)
from tests.emulators.fleet import Fleet, Host
from tests.emulators.hosts import USABLE, keygen

needs_ssh = pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
RENEW = 'cd "${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky}" && cut -d. -f1 /proc/uptime >renewed'
Rented = Callable[..., tuple[Host, ssh.Address, "queue.Queue[str]"]]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Yield machines that are isolated where they can be: the lease is the same on both kinds."""
    with Fleet() as fleet:
        yield fleet


@pytest.fixture
def rented(fleet: Fleet, keys: Keys) -> Rented:
    """Rent a machine as a cloud does, with a lease of its own."""

    def rent(lease: float = 3600.0, heartbeat_timeout: float = 3.0, ending: str = "") -> object:
        user, ends = fleet.user or "ada", queue.Queue[str]()
        setup = keys.setup(user, heartbeat_timeout, lease=lease, ending=ending)
        text = cloud_init.render_user_data(setup)
        host = fleet.launch("n", text, ingress=OPEN, on_end=ends.put)
        assert host.booted(WAIT), host.console()
        return host, keys.address(host, user), ends

    return rent  # type: ignore[return-value]


def _begin(host: Host, address: ssh.Address) -> None:
    until(lambda: ssh.run(address, RENEW).code == 0)
    until(lambda: bool(ssh.run(address, f"ls {_kept(host)}/begun").text))


def _kept(host: Host) -> str:
    """Return the folder of the lease that outlasts restarts."""
    return f"{host.folder or ''}/var/lib/jupyter-sky"


@needs_ssh
@pytest.mark.slow
def test_restarted_machine_ends_within_heartbeat_timeout(rented: Rented) -> None:
    host, address, ends = rented()
    _begin(host, address)
    before = {process.pid for process in host.processes()}
    host.reboot()
    assert not before & {process.pid for process in host.processes()}, "nothing has survived"
    begun = time.monotonic()
    assert ssh.run(address, "true").code == 0, "it is up again, with the same keys"
    assert ends.get(timeout=WAIT) == "shutdown", host.console()
    assert time.monotonic() - begun < WAIT / 2, "long before its lease ends"


@needs_ssh
@pytest.mark.slow
def test_machine_that_was_stopped_by_request_awaits_its_next_cluster(rented: Rented) -> None:
    host, address, ends = rented(heartbeat_timeout=8.0)
    _begin(host, address)
    ssh_slot.announce_stop([Slot(0, "t.0", "n", address)])
    assert not ssh.run(address, f"ls {_kept(host)}/begun").text
    end = 'touch "${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky}/end"'
    assert ssh.run(address, f"{RENEW}; {end}; sleep 5").code == 0, "it is not the machine's end"
    host.halt()
    assert not host.processes(), "it is off"
    host.start()
    until(lambda: host.ready())
    time.sleep(12.0)
    assert ends.empty() and ssh.run(address, "true").code == 0, "longer than without a heartbeat"
    assert host.running
    _begin(host, address)
    assert ends.get(timeout=WAIT) == "shutdown", "as a machine that was never stopped"


@needs_ssh
@pytest.mark.slow
def test_files_of_stopped_machine_outlive_a_start_that_fails(rented: Rented) -> None:
    """The supervisor ends, and removes its folder, before anybody can stop the machine again."""
    host, address, ends = rented(heartbeat_timeout=60.0)
    node = ssh_slot.acquire_slot(Slot(0, "t.0", "n", address), {})
    read = f"cat {node.directory}/work/kept.txt"
    assert ssh.run(address, f"echo kept >{node.directory}/work/kept.txt").code == 0
    _begin(host, address)
    for supervised in (True, False):
        ssh_slot.announce_stop([node])
        host.halt()
        host.start()
        until(lambda: host.ready())
        node = ssh_slot.acquire_slot(Slot(0, "t.0", "n", address), {})
        assert ssh.run(address, read).text == "kept\n"
        if supervised:  # its controller ends at once
            module = "jupyter_sky.base.remote.supervisor"
            code = f"import sys; from {module} import main; main(sys.argv[1:])"
            go = f"exec {sys.executable} -c '{code}' {node.directory} false"
            ssh.run(address, f"cd {node.directory} && echo {shlex.quote(go)} >go && printf . >wake")
        else:
            ssh.run(address, f"kill $(cat {node.directory}/pid)")
        until(lambda folder=node.directory: ssh.run(address, f"[ -e {folder} ]").code == 1)
    time.sleep(5.0)  # the lease looks every 2 s
    assert ends.empty(), host.console()
    ssh_slot.announce_stop([node])
    node = ssh_slot.acquire_slot(Slot(0, "t.0", "n", address), {})
    assert ssh.run(address, read).text == "kept\n"
    ssh_slot.confirm_start([node])
    ssh_slot.withdraw_stop([node])
    assert ssh.run(address, read).text == "kept\n"
    cleanup = json.loads(ssh.run(address, f"cat {node.directory}/cleanup.json").text)
    assert cleanup["end"].endswith("/end"), "it ends with its cluster again"


@needs_ssh
@pytest.mark.slow
def test_restarted_machine_keeps_its_lease(rented: Rented) -> None:
    host, address, _ = rented(lease=600.0, heartbeat_timeout=600.0)

    def noted() -> list[int]:
        """Return the end of the lease, and when it was written, in seconds of the day's clock."""
        return [int(word) for word in ssh.run(address, f"cat {_kept(host)}/lease").text.split()]

    until(lambda: len(noted()) == 2)
    end, written = noted()
    for _ in range(2):
        time.sleep(3)
        host.reboot()
    until(lambda: any(at >= written + 6 for at in noted()[1:]))
    assert abs(noted()[0] - end) <= 2, "it has not begun anew"


@needs_ssh
@pytest.mark.slow
def test_lease_that_is_killed_is_started_again(rented: Rented) -> None:
    host, address, ends = rented()
    _begin(host, address)

    def script() -> list[int]:
        return [
            each.pid
            for each in host.processes()
            if machine_lease.SCRIPT in shlex.join(each.cmdline())
        ]

    (first,) = script()
    host.root(f"kill -9 {first}" if host.folder else "pkill -9 -f sbin/jupyter-sky-leas[e]")
    until(lambda: bool(script()) and script() != [first])
    assert ends.get(timeout=WAIT) == "shutdown"


@needs_ssh
@pytest.mark.slow
def test_host_key_of_user_data_is_of_no_use_later(
    rented: Rented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, first, _ = rented(lease=1e6, heartbeat_timeout=600.0)
    for name in ("host", cloud_init.NEXT_HOST_KEY):
        keygen(tmp_path / name)
    public = " ".join(ssh.read_known_hosts(first, Path(first.known_hosts)).split()[:3]) + "\n"
    (tmp_path / "host.pub").write_text(public.partition(" ")[2])
    known = tmp_path / "known_hosts"
    address = replace(first, known_hosts=str(known))
    known.write_text(
        public + cloud_init._known_hosts_line(first, tmp_path / cloud_init.NEXT_HOST_KEY)
    )
    secret = cloud_init.read_next_host_key(tmp_path)
    node = ssh_slot.acquire_slot(Slot(0, "t.0", "n", address), {}, secret)
    monkeypatch.setattr(cloud_init, "KEY_ROTATION_SECONDS", WAIT)
    assert cloud_init.await_host_key_rotation(tmp_path, [address]), host.console()
    assert known.read_text() == cloud_init._known_hosts_line(
        first, tmp_path / cloud_init.NEXT_HOST_KEY
    )
    assert cloud_init.read_next_host_key(tmp_path) == "", "it is the machine's alone"
    assert ssh.run(replace(address, port=address.port), ":").code == 0
    runtime = [path for path in runtime_dir().glob("c-*")]
    for path in runtime:  # connections that were made with the first key
        subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={path}", "x"], capture_output=True)
    with pytest.raises(ssh.SkyUnreachable, match="another host key"):
        ssh.run(first, ":")
    assert not ssh.run(address, f"ls {node.base}/host_key").text, "nor is a copy left"
    host.reboot()
    assert ssh.run(address, ":", patience=10).code == 0, "it is kept over a restart"


@needs_ssh
@pytest.mark.slow
def test_odd_host_key_is_not_installed(rented: Rented) -> None:
    host, address, _ = rented(heartbeat_timeout=600.0)
    ssh_slot.acquire_slot(Slot(0, "t.0", "n", address), {}, "no key at all")
    base = "$HOME/.cache/jupyter_sky/host_key"
    until(lambda: ssh.run(address, f"[ -e {base} ]").code == 1)
    host.reboot()
    assert ssh.run(address, ":", patience=10).code == 0


@needs_isolation
@pytest.mark.slow
def test_machine_without_systemd_starts_its_lease_at_each_boot(isolated: Fleet, keys: Keys) -> None:
    files = lease_files("ada")
    document = {"write_files": files, "bootcmd": ["rm -f /usr/bin/systemctl /usr/sbin/systemctl"]}
    born = LaunchedMachine(isolated, keys, document=document)
    assert born.host.booted(WAIT)
    assert "cannot" not in born.host.console()
    until(lambda: ssh.run(born.address, RENEW).code == 0)
    until(lambda: bool(born.sh("ls /var/lib/jupyter-sky/begun || true")))
    born.host.reboot()
    assert born.ends.get(timeout=WAIT) == "shutdown"


@needs_isolation
@pytest.mark.slow
def test_restart_from_within_ends_machine(rented: Rented, fleet: Fleet) -> None:
    if not fleet.isolated:
        pytest.skip("its user is not root there")
    host, address, ends = rented()
    _begin(host, address)
    old = ssh.run(address, "cat /proc/sys/kernel/random/boot_id").text
    assert re.fullmatch(r"[0-9a-f-]{36}\n", old)
    host.root("reboot")
    until(lambda: "Restarted." in host.console())
    assert ssh.run(address, "cat /proc/sys/kernel/random/boot_id").text != old
    assert ends.get(timeout=WAIT) == "shutdown"
