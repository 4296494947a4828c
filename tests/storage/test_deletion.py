"""Deletion: what it would remove is said before, with what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky import catalog
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.files.scratch import reap_scratch
from jupyter_sky.interfaces.magics.verbs import call_verb
from jupyter_sky.machines.storage.datasets.deletion import DeletionPlan
from jupyter_sky.machines.storage.datasets.local_cache import data_cache
from jupyter_sky.machines.storage.stores.journal import Journal, JournalEntry
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.object_transfer import object_name
from jupyter_sky.machines.storage.stores.store import StoredObject
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.emulators.object_store import ObjectStore


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, own_data: None) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        for number in range(5):
            server.put("bucket", f"x/{number}", b"12345")
        yield server
        assert not server.crashes, server.crashes[0]


def at(server: ObjectStore, key: str) -> str:
    return f"s3://bucket/{key}?endpoint={server.url}&place=aws/us-east-1"


def test_dry_run_says_what_would_go_and_deletes_nothing(
    server: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    call_verb(["storage", "rm", at(server, "x/"), "--dry-run"])
    text = capsys.readouterr().out
    assert "5 objects (25 B) below s3://bucket/x/" in text
    assert ": 0, 1, 2 and 2 more" in text and "a month; nothing was deleted" in text
    assert len(server.keys("bucket")) == 5


def test_deletion_is_asked_about(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(SkyUsageError, match=r"5 objects \(25 B\).* would be deleted"):
        call_verb(["storage", "rm", at(server, "x/")])
    assert len(server.keys("bucket")) == 5
    call_verb(["storage", "rm", at(server, "x/"), "--yes"])
    assert server.keys("bucket") == [] and "deleted: 5 objects" in capsys.readouterr().out


def test_price_of_keeping_is_that_of_the_catalog() -> None:
    uri = StorageUri.parse("s3://bucket/x/")
    manifest = Manifest(uri, (StoredObject("x/1", 10**12, "v"),), "x/")
    usd = catalog.load().storage("aws", "us-east-1", 1000).usd
    assert ", $23.00 a month" in str(DeletionPlan(manifest, usd))


def test_abandoned_uploads_are_given_up(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = StorageUri.parse(f"s3://bucket/?endpoint={server.url}")
    store = open_store(uri)
    upload = store.begin("y", 4096, part_size=2048)
    folder = Path(Sky.load().data_dir)
    journal = Journal.open(folder)
    entry = JournalEntry(object_name(store, "y"), "content", upload.id, 2048, str(uri), "y")
    journal.begin(entry)
    ended = '{"pid": 1, "born": 0.0, "boot": "another", "host": "other"}'
    journal._database.write(("UPDATE uploads SET owner = ?", (ended,)))
    assert reap_scratch() == [] and server.open_uploads("bucket") == 1, "it may go on"
    journal._database.write(("UPDATE uploads SET beat = 1.0", ()))
    (found,) = reap_scratch()
    assert found.gone and found.cloud == "aws" and server.open_uploads("bucket") == 0
    assert reap_scratch() == []
    journal.close()


def test_gc_says_what_it_would_remove(
    server: ObjectStore,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    sky.Storage(at(server, "x/")).fetch(tmp_path / "copy")
    call_verb(["storage", "gc", "--dry-run"])
    text = capsys.readouterr().out
    assert "1 datasets that no cell uses: 25 B of" in text and "nothing was removed" in text
    assert data_cache().unused() == (1, 25)
    call_verb(["storage", "gc"])
    assert data_cache().unused() == (0, 0)
