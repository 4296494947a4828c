"""Remains of transfers: removed when nobody carries them on, and only then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.remote.processes import identity
from jupyter_sky.interfaces.magics.verbs import call_verb
from jupyter_sky.machines.storage.stores.checksums import crc32c
from jupyter_sky.machines.storage.stores.errors import SkyStoragePermission
from jupyter_sky.machines.storage.stores.file_parts import write_file_part
from jupyter_sky.machines.storage.stores.files import PART_PREFIX, FilesStore
from jupyter_sky.machines.storage.stores.journal import Journal, JournalEntry, owner_token
from jupyter_sky.machines.storage.stores.object_transfer import content_name, object_name
from jupyter_sky.machines.storage.stores.store import Checksums, part_span
from jupyter_sky.machines.storage.transfers.leftovers import remove_leftovers
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions
from tests.benchmarks.storage_kills import KEYS, MOVES
from tests.conftest import wait_until
from tests.emulators.object_store import ObjectStore

from .conftest import store_of

pytestmark = pytest.mark.slow  # talks to servers

DATA = bytes(range(256)) * 100
OPTIONS = TransferOptions(part_size=4096)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open(tmp_path)
    yield journal
    journal.close()


def journal_of_the_dead(folder: Path) -> Journal:
    """The journal as a process used it that was killed since."""
    journal = Journal.open(folder)
    journal._owner = json.dumps({**identity(), "pid": 2**22 + 1, "born": 1.0}, sort_keys=True)
    return journal


def test_upload_whose_name_the_killed_process_never_learned(
    amazon: ObjectStore, tmp_path: Path, journal: Journal
) -> None:
    store = store_of(amazon)
    store.begin("in/a", 10_000, part_size=4096)
    store.begin("in/ab", 10_000, part_size=4096)
    dead = journal_of_the_dead(tmp_path)
    dead.begin(JournalEntry("a", "content", "", 4096, str(store.uri), "in/a"))
    dead.close()
    left = remove_leftovers(journal, lambda uri: store)
    assert (left.uploads, left.failures) == (1, ())
    assert [upload.key for upload in amazon.operations.buckets["bucket"].uploads.values()] == [
        "in/ab"
    ]
    assert remove_leftovers(journal, lambda uri: store).uploads == 0


def test_same_transfer_after_it_begins_anew(
    amazon: ObjectStore, tmp_path: Path, journal: Journal
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(DATA)
    files, store = FilesStore(tmp_path / "data"), store_of(amazon)
    store.begin("a", len(DATA), part_size=4096)
    dead = journal_of_the_dead(tmp_path)
    target = f"{amazon.url} s3://bucket/a"
    dead.begin(JournalEntry(target, "content", "", 4096, str(store.uri), "a"))
    dead.close()
    Transfer(files, store, [TransferItem(files.stat("a"), "a")], journal, OPTIONS).run()
    assert amazon.content("bucket", "a") == DATA and amazon.open_uploads("bucket") == 0


@pytest.mark.parametrize("is_kept", [False, True], ids=["new connection", "kept connection"])
def test_answer_to_the_beginning_that_is_lost_leaves_no_upload(
    amazon: ObjectStore, is_kept: bool
) -> None:
    store = store_of(amazon)
    if is_kept:
        assert list(store.list("nothing/")) == []
    amazon.fail("POST .*uploads", "lose")
    upload = store.begin("a", 10_000, part_size=4096)
    assert list(amazon.operations.buckets["bucket"].uploads) == [upload.id]


# -- kills ---------------------------------------------------------------------------------------


@dataclass
class Relay:
    """A copy of one file to a bucket by a process of its own, with a worker that is another."""

    server: ObjectStore
    folder: Path

    def start(self) -> subprocess.Popen[str]:
        file = self.folder / "from/d/a"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(DATA)
        address = f"s3://bucket/?endpoint={self.server.url}"
        command = [*MOVES, "relay", address, str(self.folder)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env={**os.environ, **KEYS}, stdout=pipe, stderr=pipe, text=True
        )

    def kill_at(self, request: str) -> None:
        """Kill the process as soon as it has sent a request."""
        process = self.start()
        wait_until(lambda: self.server.count(request) or process.poll() is not None)
        process.kill()
        __, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors

    def finish(self) -> None:
        process = self.start()
        __, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert self.server.content("bucket", "in/d/a") == DATA


@pytest.fixture
def relay(amazon: ObjectStore, tmp_path: Path) -> Relay:
    return Relay(amazon, tmp_path)


def test_kill_before_an_upload_is_aborted(relay: Relay, journal: Journal) -> None:
    relay.server.fail("PUT .*partNumber=2", "ConditionalRequestConflict")  # it begins anew
    relay.server.fail("DELETE", "SlowDown", times=1000)
    relay.kill_at("DELETE /bucket/in/d/a")
    relay.server.faults.clear()
    assert relay.server.open_uploads("bucket") == 1
    assert remove_leftovers(journal, lambda uri: store_of(relay.server)).uploads == 1
    assert relay.server.open_uploads("bucket") == 0


def test_kill_before_an_upload_is_aborted_and_the_same_command(relay: Relay) -> None:
    relay.server.fail("PUT .*partNumber=2", "ConditionalRequestConflict")
    relay.server.fail("DELETE", "SlowDown", times=1000)
    relay.kill_at("DELETE /bucket/in/d/a")
    relay.server.faults.clear()
    relay.finish()
    assert relay.server.open_uploads("bucket") == 0


def test_request_of_a_killed_process_that_is_served_late(relay: Relay, journal: Journal) -> None:
    """The store begins the upload of the killed process after the next one has ended."""
    relay.server.fail("POST .*uploads", "stall", seconds=8)
    relay.kill_at("POST /bucket/in/d/a")
    relay.finish()
    assert relay.server.open_uploads("bucket") == 0
    wait_until(lambda: relay.server.open_uploads("bucket"), "the late one is begun")
    remove_leftovers(journal, lambda uri: store_of(relay.server))
    assert relay.server.open_uploads("bucket") == 0
    assert not journal.resumable_ids(), "it is not looked for for ever"


def test_late_request_is_looked_for_without_harm_to_another_upload(
    amazon: ObjectStore, tmp_path: Path, journal: Journal
) -> None:
    store = store_of(amazon)
    late = store.begin("a", 10_000, part_size=4096)
    dead = journal_of_the_dead(tmp_path)
    dead.begin(JournalEntry("target", "content", "", 4096, str(store.uri), "a"))
    dead.close()
    entry = journal.take("target")
    assert entry is not None
    journal.set_aside(entry)
    own = store.begin("a", 10_000, part_size=4096)
    journal.begin(replace(entry, upload_id=own.id))
    name = journal.start(str(store.uri), "a")
    assert remove_leftovers(journal, lambda uri: store).uploads == 0, "this process is at work"
    own.abort()
    journal.forget("target")
    journal.finish(name)
    assert list(amazon.operations.buckets["bucket"].uploads) == [late.id]
    assert remove_leftovers(journal, lambda uri: store).uploads == 1
    assert amazon.open_uploads("bucket") == 0


def test_file_of_a_process_that_was_killed_between_its_name_and_its_notes(
    tmp_path: Path, journal: Journal
) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/a").write_bytes(DATA)
    source, target = FilesStore(tmp_path / "from"), FilesStore(tmp_path / "to")
    upload = target.begin("a", len(DATA), part_size=4096)
    for number in range(1, 8):
        span = part_span(number, len(DATA), 4096)
        piece = DATA[span.start : span.stop]
        write_file_part(upload.write(number, Checksums(crc32c(piece))), piece)
    part_path = tmp_path / "to" / f"{PART_PREFIX}{upload.id}"
    part_path.replace(tmp_path / "to/a")
    address, found = target.uri.child("a"), source.stat("a")
    content = content_name(source, found)
    dead = journal_of_the_dead(tmp_path)
    entry = (object_name(target, "a"), content, upload.id, 4096, str(address.root), address.key)
    dead.begin(JournalEntry(*entry))
    dead.close()
    Transfer(source, target, [TransferItem(found, "a")], journal, OPTIONS).run()
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["a"]
    assert (tmp_path / "to/a").read_bytes() == DATA


def test_files_of_a_killed_process_go_and_others_stay(tmp_path: Path, journal: Journal) -> None:
    target = tmp_path / "to" / "sub"
    target.mkdir(parents=True)
    dead = journal_of_the_dead(tmp_path)
    dead.start("file:/", str(target.parent).lstrip("/") + "/")
    token, other = owner_token(dead._owner), owner_token(journal._owner)
    dead.close()
    for name in (f"{token}-1", f"{token}-2", f"{token}-2.done", f"{other}-3"):
        (target / f"{PART_PREFIX}{name}").touch()
    assert remove_leftovers(journal).files == 2
    assert [path.name for path in target.iterdir()] == [f"{PART_PREFIX}{other}-3"]


def test_running_transfer_is_left_alone(
    amazon: ObjectStore, tmp_path: Path, journal: Journal
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(DATA)
    files, store, seen = FilesStore(tmp_path / "data"), store_of(amazon), list[int]()
    amazon.fail("PUT.*partNumber=3", "stall", seconds=0.7)
    Transfer(
        files,
        store,
        [TransferItem(files.stat("a"), "a")],
        journal,
        OPTIONS,
        on_progress=lambda _: seen.append(remove_leftovers(journal, lambda uri: store).uploads),
    ).run()
    assert amazon.content("bucket", "a") == DATA
    assert len(seen) > 1 and not any(seen)


def test_verb_removes_what_a_failed_copy_has_left(
    amazon: ObjectStore,
    tmp_path: Path,
    own_data: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    (tmp_path / "big").write_bytes(bytes(17 * 2**20))
    amazon.fail("PUT.*partNumber=2", "AccessDenied")
    with pytest.raises(SkyStoragePermission):
        sky.copy(tmp_path / "big", f"s3://bucket/big?endpoint={amazon.url}").wait()
    assert amazon.open_uploads("bucket") == 1
    call_verb(["storage", "gc"])
    assert "removed: 1 uploads and 0 unfinished files" in capsys.readouterr().out
    assert amazon.open_uploads("bucket") == 0
