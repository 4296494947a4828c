"""Machines that the reaper takes for orphans; ends of real ones are in test_rented."""

from __future__ import annotations

import pytest

from jupyter_sky.clouds import Machine
from jupyter_sky.execution.sessions.reaper import find_orphaned_machines

NOW = 1_000_000.0


def machine(name: str, token: str = "t-1", lease_end: float | None = NOW + 60) -> Machine:
    return Machine(name, "aws", "train", 0, "running", NOW - 60, token=token, lease_end=lease_end)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (machine("needed"), ""),
        (machine("other", token="launching"), ""),
        (machine("other", lease_end=None), "no cluster that is up has it"),
        (machine("other"), "no cluster that is up has it"),
        (machine("needed", lease_end=NOW - 1), "its lease has ended"),
        (machine("other", token="launching", lease_end=NOW - 1), "its lease has ended"),
        (machine("needed", lease_end=None), ""),
    ],
)
def test_orphaned_machines(found: Machine, why: str) -> None:
    told = list(find_orphaned_machines([found], {"needed"}, {"launching"}, NOW))
    assert told == ([(found, why)] if why else [])
