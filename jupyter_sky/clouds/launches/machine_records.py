"""Machines as their launch records have them, beside what their cloud says."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.launches.launch_records import LaunchRecords
from jupyter_sky.clouds.provider.values import Machine

VISIBILITY_SECONDS = 60.0
"""A machine that was just launched may not be in the cloud's listings yet."""
_KEPT_FIELDS = "cluster token owner started lease_end address private user port through".split()


def launch_records() -> LaunchRecords:
    """Return the notes of what was launched on clouds that rent machines."""
    return LaunchRecords(Path(Sky.load().data_dir) / "machines")


def update_record(token: str, **values: Any) -> None:
    """Write some values of a launch record anew.

    Raises
    ------
    SkyStoreError
        The disk refuses.
    """
    records = launch_records()
    records.write(token, records.read(token) | values)


def has_request_ended(token: str) -> bool:
    """Whether the machines of a request have ended."""
    record = launch_records().read(token)
    return not record or "ended" in record


def record_contains(record: JsonObject, ids: Collection[str]) -> bool:
    """Whether a launch record has one of some machines."""
    return any(machine["id"] in ids for machine in record["machines"])


def merge_with_records(cloud: str, ids: Sequence[str], found: Sequence[Machine]) -> list[Machine]:
    """Complete what a cloud says of machines from their launch records."""
    noted = _recorded_machines(cloud, ids)
    reported = {machine.id: machine for machine in found}
    now, answers = time.time(), list[Machine]()
    for name in ids:
        old, was_there = noted.get(name, (None, False))
        if seen := reported.get(name):
            answers.append(_merge_with_record(seen, old))
        elif old is not None:
            ended = was_there or old.state == "ended"
            new = not ended and now - old.started < VISIBILITY_SECONDS
            why = "" if new else "the cloud no longer knows it"
            answers.append(replace(old, state="starting" if new else "ended", reason=why))
    return answers


def assume_running(cloud: str, ids: Sequence[str], why: str) -> list[Machine]:
    """Return machines that cannot be asked about as running, with the reason."""
    noted = _recorded_machines(cloud, ids)
    return [replace(noted[name][0], state="running", reason=why) for name in ids if name in noted]


def _recorded_machines(cloud: str, ids: Collection[str]) -> dict[str, tuple[Machine, bool]]:
    """Return each machine that is noted, with whether it has answered once, or its end is known."""
    return {
        machine["id"]: (Machine(**machine), bool(record.get("nodes") or "ended" in record))
        for record in launch_records().records_naming(ids)
        if record.get("cloud") == cloud
        for machine in record["machines"]
    }


def _merge_with_record(seen: Machine, old: Machine | None) -> Machine:
    """Return a machine as its cloud says; what it no longer knows is taken from our note."""
    if old is None:
        return seen
    kept = {name: getattr(seen, name) or getattr(old, name) for name in _KEPT_FIELDS}
    return replace(seen, rank=old.rank, **kept)


class MachineNotes:
    """Machines of launches, also while the disk refuses to note them."""

    def __init__(self) -> None:
        self._unrecorded = dict[str, list[Machine]]()

    def read(self, token: str) -> list[Machine]:
        """Return the machines that a request is known to have made, up or not."""
        if token in self._unrecorded:
            return self._unrecorded[token]
        return [Machine(**machine) for machine in launch_records().read(token).get("machines", ())]

    def write(self, token: str, machines: Sequence[Machine]) -> None:
        """Note the machines of a request; keep them in memory while the disk refuses."""
        self._unrecorded[token] = list(machines)
        update_record(token, machines=[asdict(machine) for machine in machines])
        del self._unrecorded[token]
