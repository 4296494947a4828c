"""Identity of processes across the reuse of PIDs, across boots and machines."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from jupyter_sky.base.remote import processes
from jupyter_sky.base.remote.processes import FOREIGN_SECONDS, identity, is_alive, liveness


def test_own_process_is_alive() -> None:
    assert liveness(identity()) == "alive" and is_alive(identity())


def test_ended_process_is_dead_even_before_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identity(child.pid)
    assert liveness(known) == "alive"
    child.kill()
    deadline = time.monotonic() + 10
    while liveness(known) == "alive" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert liveness(known) == "dead"
    child.wait()
    assert liveness(known) == "dead"


def test_reused_pid_is_another_process() -> None:
    assert liveness(identity() | {"born": identity()["born"] - 50.0}) == "dead"


@pytest.mark.parametrize("boot", ["", "4026531836", "of-another-boot/4026531836"])
def test_process_of_another_boot_lives_by_its_last_sign_of_life(boot: str) -> None:
    known, now = identity() | {"boot": boot}, time.time()
    assert liveness(known) == "foreign"
    assert not is_alive(known), "of which nothing was ever heard"
    assert is_alive(known, seen=now - FOREIGN_SECONDS + 5)
    assert not is_alive(known, seen=now - FOREIGN_SECONDS - 5)


def test_name_of_the_host_does_not_matter() -> None:
    assert liveness(identity() | {"host": "laptop.cafe.example"}) == "alive"


@pytest.mark.parametrize(
    "known", [{}, {"pid": 1}, {"pid": None, "born": 1.0}, {"pid": "1", "born": 1.0}, {"pid": -1}]
)
def test_damaged_record_is_no_process(known: dict) -> None:
    assert liveness(known) == "dead"


def test_boot_is_told_once() -> None:
    assert processes.boot_id() and processes.boot_id() is processes.boot_id()
