"""Log of what was read when: a small file in the data directory, written by one process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.store.process_lock import only_process
from jupyter_sky.machines.renewal.schedule import Reading, Subject

_NAME, _LOCK = "renewal.json", "renewal.lock"


def read_log(folder: Path) -> dict[Subject, Reading]:
    """Return the last attempts; none where the file is missing or damaged: all is read again."""
    try:
        rows = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        return {Subject(row.pop("kind"), row.pop("cloud")): Reading(**row) for row in rows}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_log(folder: Path, readings: Mapping[Subject, Reading]) -> None:
    """Write all attempts; only for the process that holds `only_reader`."""
    rows = [asdict(subject) | asdict(reading) for subject, reading in readings.items()]
    write_atomically(folder / _NAME, json.dumps(rows).encode(), mode=0o600, durable=False)


@contextmanager
def only_reader(folder: Path) -> Iterator[bool]:
    """Yield whether no other process of this user reads from the clouds now."""
    folder.mkdir(parents=True, exist_ok=True)
    with only_process(folder / _LOCK) as is_only:
        yield is_only
