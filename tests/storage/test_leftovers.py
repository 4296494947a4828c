"""Remains of transfers: removed when nobody carries them on, and only then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.magics.verbs import call_verb
from jupyter_sky.remote.processes import identity
from jupyter_sky.storage.errors import SkyStoragePermission
from jupyter_sky.storage.files import PART_PREFIX, FilesStore
from jupyter_sky.storage.journal import Journal, JournalEntry, owner_token
from jupyter_sky.storage.leftovers import remove_leftovers
from jupyter_sky.storage.transfer import Transfer, TransferItem, TransferOptions
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
