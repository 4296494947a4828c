"""Rented machines end by themselves: also after a restart, and whatever is done to their clock."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from jupyter_sky.clouds.launches import machine_lease
from tests.clouds.launched_machine import WAIT, lease_files, until

HEARTBEAT_TIMEOUT, LEASE = 300, 7200


class Script:
    """The script of the lease in a folder of the test, with clocks that the test turns."""

    def __init__(self, folder: Path, lease: int = LEASE, ending: str = "echo end") -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.set(up=20, clock=1_000_000)
        (file, relay, *_) = lease_files("root", lease, HEARTBEAT_TIMEOUT, ending)
        self.relay = folder / "relay"
        self.relay.write_text(relay["content"])
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
            relay["path"]: str(self.relay),
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


def test_relay_of_notices_is_kept_running(script: Script) -> None:
    script.start()
    path = script.folder / "run/jupyter-sky-boot/notices"
    until(path.exists)
    first = path.read_text()
    assert script.process
    lease = psutil.Process(script.process.pid)

    def relays() -> list[psutil.Process]:
        with suppress(psutil.Error):  # one that is gone since
            return [p for p in lease.children() if str(script.relay) in p.cmdline()]
        return []

    until(relays)  # the shell has begun it, and it is itself a moment later
    (relay,) = relays()
    relay.kill()
    until(lambda: path.exists() and path.read_text() != first)
    until(relays)
    (relay,) = relays()
    script.kill()
    relay.wait(WAIT)  # another one comes with the script


@pytest.mark.slow
def test_renewed_machine_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_sky.machines.engines.node import keepalive

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

    files = lease_files("root") + lease_files("ada")
    files = [file for file in files if file["path"] != machine_lease.RELAY]  # has parts of URLs
    text = "\n".join(f"{file['path']}\n{file['content']}" for file in files)
    mapped = machine._ELSEWHERE.sub("BELOW/", text)
    assert "BELOW/etc/ssh/ssh_host_ed25519_key" in mapped
    left = set(re.findall(r"(?<![\w.}-])/[a-z][\w./-]*", mapped.replace("BELOW/", "BELOW")))
    assert left <= {"/bin/sh", "/dev/null", "/dev/console", "/proc/uptime"}, left
