"""Rented machines end by themselves: also after a restart, and whatever is done to their clock."""

from __future__ import annotations

import queue
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.clouds import cloud_init, machine_lease, ssh_slot
from jupyter_sky.clouds.machine_setup import MachineSetup
from jupyter_sky.clouds.ssh_slot import Slot
from jupyter_sky.remote import ssh
from jupyter_sky.remote.ssh_address import runtime_dir
from tests.clouds.launched_machine import OPEN, WAIT, Keys, LaunchedMachine, needs_isolation, until
from tests.emulators.fleet import Fleet, Host
from tests.emulators.hosts import USABLE, keygen

needs_ssh = pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
HEARTBEAT_TIMEOUT, LEASE = 300, 7200


def _lease_files(
    user: str, lease: float = 3600.0, heartbeat_timeout: float = 3.0, ending: str = ""
) -> list[dict[str, Any]]:
    """Files of the lease of a machine without keys."""
    setup = MachineSetup(user, "", "", "", lease, heartbeat_timeout, ending)
    return machine_lease.lease_files(setup)


class Script:
    """The script of the lease in a folder of the test, with clocks that the test turns."""

    def __init__(self, folder: Path, lease: int = LEASE, ending: str = "echo end") -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.set(up=20, clock=1_000_000)
        (file, *_) = _lease_files("root", lease, HEARTBEAT_TIMEOUT, ending)
        text = file["content"]
        for there, here in {
            "/run/": f"{folder}/run/",
            "/var/lib/": f"{folder}/kept/",
            "date +%s": f"cat {folder}/clock",
            "/proc/uptime": f"{folder}/uptime",
            'while sleep "$pause"': f"while echo >>{folder}/rounds; sleep 0.02",
            '"$log"': "/dev/stdout",
            "  shutdown -P now\n": "  echo off; exit\n",
            "iptables": f"sh {folder}/iptables",
        }.items():
            assert there in text, there
            text = text.replace(there, here)
        self.text = text
        (folder / "iptables").write_text(f'echo "$*" >>{folder}/rules; [ "$2" != -C ]\n')

    def set(self, up: float | None = None, clock: int | None = None) -> None:
        """Turn the clocks: since boot, and of the day."""
        for name, value in (("uptime", up), ("clock", clock)):
            if value is not None:
                partial = self.folder / f"{name}.partial"
                partial.write_text(f"{value}.00 1.0\n" if name == "uptime" else f"{value}\n")
                partial.replace(self.folder / name)

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", self.text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        until((self.folder / "run/jupyter-sky-boot/times").exists)
        until((self.folder / "kept/jupyter-sky/lease").exists)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def restart(self, up: int, clock: int) -> None:
        """Restart the machine: what is in memory is lost, and the clock since boot is anew."""
        self.kill()
        subprocess.run(["rm", "-rf", self.folder / "run"], check=True)
        self.set(up, clock)
        self.start()

    def renew(self, at: object) -> None:
        path = self.folder / "run/jupyter-sky/renewed"
        until(path.parent.is_dir)
        path.write_text(str(at))
        self.pass_rounds()

    @property
    def begun(self) -> bool:
        return (self.folder / "kept/jupyter-sky/begun").exists()

    def is_up(self) -> bool:
        """Whether it has not ended, nor does within many rounds of the script."""
        self.pass_rounds(9)
        return self.process.poll() is None

    def pass_rounds(self, number: int = 1) -> None:
        """Wait until the script has seen what is there now in whole rounds, or has ended."""
        rounds = self.folder / "rounds"  # a byte is written at the begin of each
        last = rounds.stat().st_size + number + 1
        until(lambda: rounds.stat().st_size >= last or self.process.poll() is not None)

    def ends(self) -> bool:
        """Whether it ends, in the order that is due: first what the cloud needs, then the power."""
        return self.process.communicate(timeout=WAIT)[0] == "end\noff\n"


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    made = Script(tmp_path)
    yield made
    made.kill()


def test_lease_ends_machine_that_is_in_use(script: Script) -> None:
    script.start()
    script.renew(20)
    for up in range(20, LEASE, 280):
        script.set(up)
        script.renew(up)
        assert script.process and script.process.poll() is None
    script.set(LEASE + 21)
    assert script.ends()


def test_missing_heartbeat_ends_machine(script: Script) -> None:
    script.start()
    script.renew(20)
    script.set(20 + HEARTBEAT_TIMEOUT)
    assert script.is_up()
    script.set(21 + HEARTBEAT_TIMEOUT)
    assert script.ends()


def test_end_of_cluster_ends_machine(script: Script) -> None:
    script.start()
    script.renew(20)
    (script.folder / "run/jupyter-sky/end").touch()
    assert script.ends()


def test_machine_that_no_cluster_begins_on_ends(script: Script) -> None:
    script.start()
    script.set(20 + machine_lease.BOOT_SECONDS)
    assert script.is_up() and not script.begun
    script.set(21 + machine_lease.BOOT_SECONDS)
    assert script.ends()


def test_restart_ends_machine_within_heartbeat_timeout(script: Script) -> None:
    script.start()
    script.renew(20)
    assert script.begun
    script.restart(up=5, clock=1_000_100)
    script.set(5 + HEARTBEAT_TIMEOUT)
    assert script.is_up()
    script.set(6 + HEARTBEAT_TIMEOUT)
    assert script.ends()


def test_restart_keeps_lease(script: Script) -> None:
    script.start()
    script.set(20 + LEASE - 100, 1_000_000 + LEASE - 100)  # no cluster: just within
    script.restart(up=5, clock=1_000_000 + LEASE - 100)
    assert script.is_up()
    script.set(5 + 99)
    assert script.is_up()
    script.set(5 + 101)
    assert script.ends()


def test_restart_after_lease_ends_machine(script: Script) -> None:
    script.start()
    script.restart(up=5, clock=1_000_000 + LEASE + 1)
    assert script.ends()


@pytest.mark.parametrize(
    "clock",
    [
        1_000_000 + 10 * LEASE,
        *(pytest.param(at, marks=pytest.mark.slow) for at in (0, 4_000_000_000)),
    ],
)
def test_clock_that_is_set_changes_nothing_within_a_boot(script: Script, clock: int) -> None:
    script.start()
    script.renew(20)
    script.set(100, clock)
    script.renew(100)
    assert script.is_up(), "set forward at first contact with a time server"
    for up in range(200, LEASE, 280):
        script.set(up)
        script.renew(up)
    script.set(LEASE + 21)
    assert script.ends(), "set back"


def test_clock_that_was_set_is_followed_over_a_restart(tmp_path: Path) -> None:
    script = Script(tmp_path, lease=1000)
    script.start()
    script.set(100, 2_000_000_000)  # it was years behind until now
    kept = script.folder / "kept/jupyter-sky/lease"
    until(lambda: kept.read_text() == f"{2_000_000_000 + 1000 - 80} 2000000000\n")
    script.restart(up=5, clock=2_000_000_010)
    assert script.is_up()
    script.set(5 + 1000 - 89)
    assert script.ends()


def test_clock_set_back_before_a_restart_adds_nothing(tmp_path: Path) -> None:
    script = Script(tmp_path, lease=1000)
    script.start()
    script.set(120, 1_000_100)
    kept = script.folder / "kept/jupyter-sky/lease"
    until(lambda: kept.read_text().endswith(" 1000100\n"))
    script.restart(up=5, clock=3)
    script.set(5 + 1000 - 101)
    assert script.is_up()
    script.set(5 + 1000 - 99)
    assert script.ends()


@pytest.mark.parametrize("renewed", ["", "soon", "-1", "9" * 40, "99999999", "1 || 1", "x\n20"])
def test_odd_renewal_counts_as_none(script: Script, renewed: str) -> None:
    script.start()
    script.renew(20)
    script.renew(renewed)
    assert script.is_up()
    script.set(21 + HEARTBEAT_TIMEOUT)
    assert script.ends()


@pytest.mark.parametrize("text", ["", "never", "1e9 1", "99999999999999999999 1", "5"])
def test_damaged_note_of_lease_is_not_believed(script: Script, text: str) -> None:
    script.start()
    script.kill()
    (script.folder / "kept/jupyter-sky/lease").write_text(text)
    script.restart(up=5, clock=1_000_000)
    assert script.is_up()
    script.renew(5)
    script.set(6 + HEARTBEAT_TIMEOUT)
    assert script.ends()


def test_script_that_is_killed_goes_on_where_it_was(script: Script) -> None:
    script.start()
    script.renew(20)
    script.kill()
    script.set(20 + LEASE - 10, 5)
    script.start()
    script.renew(20 + LEASE - 10)
    assert script.is_up()
    script.set(20 + LEASE)
    assert script.ends()


def test_only_root_reaches_the_machines_identity(script: Script) -> None:
    script.start()
    rules = (script.folder / "rules").read_text().splitlines()
    rule = "OUTPUT -d 169.254.169.254 -p tcp --dport 80 -m owner ! --uid-owner 0 -j REJECT"
    assert rules == [f"-w -C {rule}", f"-w -I {rule}"]


@pytest.mark.slow
def test_renewed_machine_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_sky.engines.node import keepalive

    made = Script(tmp_path)
    made.text = made.text.replace(f"{tmp_path}/uptime", "/proc/uptime").replace("=300", "=2")
    monkeypatch.setenv("JUPYTER_SKY_KEEPALIVE", str(tmp_path / "run/jupyter-sky"))
    monkeypatch.setattr(keepalive, "RENEW_SECONDS", 0.2)
    made.start()
    held, last = keepalive.KeepAlive(), time.monotonic() + 4
    while time.monotonic() < last:
        held.renew()
        time.sleep(0.05)
    assert made.process and made.process.poll() is None
    assert made.ends(), "and then no longer"


def test_emulated_machines_hide_no_module_of_a_cloud() -> None:
    from tests.emulators import machine

    assert str(Path(machine.__file__).parent) not in sys.path


def test_emulated_machines_write_nothing_of_this_machine() -> None:
    from tests.emulators import machine

    files = _lease_files("root") + _lease_files("ada")
    text = "\n".join(f"{file['path']}\n{file['content']}" for file in files)
    mapped = machine._ELSEWHERE.sub("BELOW/", text)
    assert "BELOW/etc/ssh/ssh_host_ed25519_key" in mapped
    left = set(re.findall(r"(?<![\w.}-])/[a-z][\w./-]*", mapped.replace("BELOW/", "BELOW")))
    assert left <= {"/bin/sh", "/dev/null", "/dev/console", "/proc/uptime"}, left


# -- machines that are restarted -----------------------------------------------------------------

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
    files = _lease_files("ada")
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
