"""Transfers between all pairs of kinds of stores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.database import Database
from jupyter_sky.machines.storage.stores.errors import SkyStoragePermission, SkyTargetExists
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.journal import MIGRATIONS, Journal
from jupyter_sky.machines.storage.stores.part_worker import (
    PartJob,
    PartOutcome,
    PartWorker,
    SignWrite,
)
from jupyter_sky.machines.storage.stores.store import IF_ABSENT
from jupyter_sky.machines.storage.transfers.movers import Report
from jupyter_sky.machines.storage.transfers.transfer import (
    Transfer,
    TransferItem,
    TransferOptions,
    TransferResult,
)
from tests.emulators.object_store import ObjectStore

from .conftest import DIALECTS, store_of

pytestmark = pytest.mark.slow  # talks to servers

PART = 4096
DATA = random.Random(5).randbytes(40_000)  # ten parts
CONTENTS = {"a b/ü+&": b"odd", "big": DATA, "empty": b"", "part": DATA[:PART]}
OPTIONS = TransferOptions(part_size=PART)
KINDS = (*DIALECTS, "file")
PAIRS = [(source, target) for source in KINDS for target in KINDS]


@dataclass
class End:
    """Source or target of a pair."""

    store: Any
    server: ObjectStore | None
    bucket: str

    def put(self, key: str, content: bytes) -> None:
        if self.server:
            self.server.put(self.bucket, key, content)
            return
        path = self.store.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def content(self, key: str) -> bytes:
        if self.server:
            return self.server.content(self.bucket, key)
        return self.store.path(key).read_bytes()

    def keys(self) -> list[str]:
        if self.server:
            return self.server.keys(self.bucket)
        return [obj.key for obj in self.store.list()]


@dataclass
class Pair:
    """Two ends and a journal."""

    source: End
    target: End
    journal: Journal

    def move(self, *keys: str, **options: Any) -> TransferResult:
        items = [TransferItem(self.source.store.stat(key), f"in/{key}") for key in keys]
        return self.carry(items, **options)

    def carry(self, items: list[TransferItem], **options: Any) -> TransferResult:
        changed = replace(OPTIONS, **options)
        return Transfer(self.source.store, self.target.store, items, self.journal, changed).run()


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(
    request: pytest.FixtureRequest, servers: dict[str, ObjectStore], tmp_path: Path
) -> Iterator[Pair]:
    ends = []
    for server in servers.values():
        server.reset()
    for kind, bucket in zip(request.param, ("source", "target"), strict=True):
        if kind == "file":
            (tmp_path / bucket).mkdir()
            ends.append(End(FilesStore(tmp_path / bucket), None, ""))
            continue
        servers[kind].create(bucket)
        ends.append(End(store_of(servers[kind], bucket), servers[kind], bucket))
    journal = Journal(Database.open(tmp_path / "transfers.db", MIGRATIONS))
    yield Pair(ends[0], ends[1], journal)
    journal.close()
    for server in servers.values():
        assert not server.crashes, server.crashes[0]


class StoppingWorker(PartWorker):
    """Worker that refuses after three parts, for ends that are folders."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._refuse, self._left = report, 3

    def submit(self, job: PartJob, sign_write: SignWrite) -> None:
        self._left -= 1
        if self._left < 0:
            self._refuse(PartOutcome(job.id, error=SkyStoragePermission("stopped by the test")))
        else:
            super().submit(job, sign_write)


def test_contents_arrive_whole(pair: Pair) -> None:
    for key, content in CONTENTS.items():
        pair.source.put(key, content)
    result = pair.move(*CONTENTS, condition=IF_ABSENT)
    assert {key: pair.target.content(f"in/{key}") for key in CONTENTS} == CONTENTS
    assert pair.target.keys() == sorted(f"in/{key}" for key in CONTENTS)
    assert result.progress.bytes_done == sum(map(len, CONTENTS.values()))
    is_copy = pair.target.store.can_copy_from(pair.source.store)
    assert is_copy == (pair.source.server is pair.target.server is not None)
    assert result.progress.bytes_sent == (0 if is_copy else result.progress.bytes_done)


def test_interrupted_transfer_goes_on_by_part(pair: Pair) -> None:
    pair.source.put("big", DATA)
    if pair.target.server:
        pair.target.server.fail("PUT .*partNumber=4", "AccessDenied", times=100)
    elif pair.source.server:
        pair.source.server.fail("GET /source/big", "AccessDenied", times=100, after=3)
    with pytest.raises(SkyStoragePermission):
        pair.move("big", memory=PART, start_worker=StoppingWorker)
    assert pair.target.keys() == []
    for end in (pair.source, pair.target):
        if end.server:
            end.server.faults.clear()
    result = pair.move("big")
    resumed = result.progress.bytes_resumed
    if pair.target.store.can_copy_from(pair.source.store):  # copies go on beside the one refused
        assert 3 * PART <= resumed < len(DATA)
    else:
        assert resumed == 3 * PART
    assert pair.target.content("in/big") == DATA


def test_target_of_another_is_left_alone_and_changed_source_never_mixes(pair: Pair) -> None:
    for key in ("big", "part"):
        pair.source.put(key, CONTENTS[key])
        pair.target.put(f"in/{key}", b"theirs")
        with pytest.raises(SkyTargetExists):
            pair.move(key, condition=IF_ABSENT)
        assert pair.target.content(f"in/{key}") == b"theirs"
    items = [TransferItem(pair.source.store.stat(key), f"in/{key}") for key in ("big", "part")]
    for key in ("big", "part"):
        pair.source.put(key, CONTENTS[key][::-1] + b"longer")
    pair.carry(items)
    for key in ("big", "part"):
        assert pair.target.content(f"in/{key}") == CONTENTS[key][::-1] + b"longer"


def test_flipped_bit_of_what_is_read_is_noticed(pair: Pair) -> None:
    if pair.source.server is None or pair.target.store.can_copy_from(pair.source.store):
        pytest.skip("nothing is read by us over a network")
    for key in ("part", "big"):
        pair.source.put(key, CONTENTS[key])
        pair.source.server.fail(f"GET /source/{key}", "flip")
        result = pair.move(key)
        if pair.target.content(f"in/{key}") != CONTENTS[key]:
            assert result.unverified == 1 and key == "big", "its sum is of the whole alone"
        else:
            assert result.unverified == 0
