"""Scratch: noted before it is made, private and short-lived, swept after its process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.datasets.scratch import (
    BUCKET_LEASE_SECONDS,
    Scratch,
    ScratchNotes,
)
from jupyter_sky.machines.storage.stores.dialects import AmazonDialect
from jupyter_sky.machines.storage.stores.errors import SkyStoragePermission
from jupyter_sky.machines.storage.stores.signing import BearerToken
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.stores import google_store, s3_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.emulators.object_store import ObjectStore
from tests.storage.conftest import CREDENTIALS

PLACE = "aws/us-east-1"
OWNER = "0123456789abcdef"
BUCKET = "sky-scratch-0123456789ab-us-east-1"


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[ScratchNotes]:
    notes = ScratchNotes.open(tmp_path)
    yield notes
    notes.close()


def scratch_of(server: ObjectStore, notes: ScratchNotes, **configured: str) -> Scratch:
    def open_store(uri: StorageUri) -> Store:
        region = uri.options.get("region", "us-east-1")
        if uri.scheme == "gs":
            server.account.tokens["token"] = server.account.now() + 3600
            return google_store(uri, server.url, lambda: BearerToken("token"))
        return s3_store(uri, server.url, region, lambda: CREDENTIALS, AmazonDialect())

    return Scratch(notes, OWNER, configured, open_store, project="project-1")


def write(scratch: Scratch, uri: StorageUri, name: str) -> None:
    """An object, and an upload that nobody completes."""
    store = scratch.open_store(uri)
    from jupyter_sky.machines.storage.datasets.writing import write_object

    write_object(store, uri.child(name).key, b"data")
    store.begin(uri.child("open").key, 4096, part_size=2048)


def end_owner(notes: ScratchNotes) -> None:
    """Let the notes be those of a process that has ended."""
    from jupyter_sky.base.remote.processes import identity

    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended = json.dumps(identity(child.pid), sort_keys=True)
    child.communicate()
    notes._database.write(("UPDATE scratch SET owner = ?", (ended,)))


def test_bucket_of_ours_is_private_encrypted_and_short_lived(
    amazon: ObjectStore, notes: ScratchNotes
) -> None:
    uri = scratch_of(amazon, notes).prefix(PLACE)
    assert str(uri).startswith(f"s3://{BUCKET}/sky/{OWNER}/") and uri.is_folder
    settings = amazon.operations.buckets[BUCKET].settings
    assert settings.keys() == {"publicAccessBlock", "encryption", "lifecycle", "tagging"}
    assert "<Days>1</Days>" in settings["lifecycle"]
    assert "<DaysAfterInitiation>1</DaysAfterInitiation>" in settings["lifecycle"]
    assert settings["publicAccessBlock"].count("true") == 4
    assert f"<Value>{OWNER}</Value>" in settings["tagging"]
    requests = len(amazon.requests)
    scratch_of(amazon, notes).prefix(PLACE)
    assert amazon.count("PUT") == 5 and len(amazon.requests) == requests + 1, "one list"


def test_bucket_for_outputs_keeps_them(amazon: ObjectStore, notes: ScratchNotes) -> None:
    scratch = scratch_of(amazon, notes)
    uri = scratch.output_root(PLACE)
    assert uri.bucket == BUCKET.replace("scratch", "outputs")
    settings = amazon.operations.buckets[uri.bucket].settings
    assert settings.keys() == {"publicAccessBlock", "encryption", "tagging"}
    assert "lease" not in settings["tagging"] and scratch.output_root(PLACE) == uri
    list(scratch.sweep(now=4e9))
    assert uri.bucket in amazon.operations.buckets, "nothing removes it"


def test_bucket_of_google_is_made_whole_by_one_request(
    servers: dict[str, ObjectStore], notes: ScratchNotes
) -> None:
    server = servers["google"]
    server.reset()
    scratch_of(server, notes).prefix("gcp/us-central1")
    ((name, bucket),) = server.operations.buckets.items()
    assert name == "sky-scratch-0123456789ab-us-central1"
    settings = {key: json.loads(text) for key, text in bucket.settings.items()}
    assert settings["location"] == "US-CENTRAL1"
    assert settings["softDeletePolicy"] == {"retentionDurationSeconds": "0"}
    kinds = {rule["action"]["type"] for rule in settings["lifecycle"]["rule"]}
    assert kinds == {"Delete", "AbortIncompleteMultipartUpload"}
    assert settings["iamConfiguration"]["publicAccessPrevention"] == "enforced"


@pytest.mark.parametrize("step", ["PUT /sky-scratch", "encryption", "lifecycle", "tagging"])
def test_bucket_is_noted_before_it_is_made_and_completed_later(
    amazon: ObjectStore, notes: ScratchNotes, step: str
) -> None:
    """A process that dies at any step leaves nothing that nobody knows of."""
    amazon.fail(step, "AccessDenied", times=1)
    with pytest.raises(SkyStoragePermission):
        scratch_of(amazon, notes).prefix(PLACE)
    (note,) = notes.all()
    assert note.kind == "bucket" and BUCKET in note.uri
    end_owner(notes)
    findings = list(scratch_of(amazon, notes).sweep(note.at + BUCKET_LEASE_SECONDS + 1))
    assert BUCKET not in amazon.operations.buckets and notes.all() == []
    assert all(not finding.error for finding in findings)


def test_prefixes_of_dead_runs_are_swept_and_those_of_live_ones_stay(
    amazon: ObjectStore, notes: ScratchNotes
) -> None:
    scratch = scratch_of(amazon, notes, **{PLACE: "s3://bucket/tmp"})
    amazon.put("bucket", "tmp/mine", b"of the user")
    dead = scratch.prefix(PLACE)
    write(scratch, dead, "a")
    end_owner(notes)
    live = scratch.prefix(PLACE)
    write(scratch, live, "b")
    (found,) = scratch.sweep()
    assert found.uri == str(dead) and len(found.removed) == 2 and not found.error
    assert amazon.keys("bucket") == ["tmp/mine", live.child("b").key]
    assert amazon.open_uploads("bucket") == 1, "that of the live run"
    assert [note.uri for note in notes.all()] == [str(live)]
    scratch.remove(live)
    assert amazon.keys("bucket") == ["tmp/mine"] and amazon.open_uploads("bucket") == 0


def test_bucket_goes_when_its_lease_has_ended_and_nobody_uses_it(
    amazon: ObjectStore, notes: ScratchNotes
) -> None:
    scratch = scratch_of(amazon, notes)
    write(scratch, scratch.prefix(PLACE), "a")
    late = notes.all()[0].at + BUCKET_LEASE_SECONDS + 60
    assert list(scratch.sweep(late)) == [], "this process lives"
    end_owner(notes)
    assert [each.uri for each in scratch.sweep()] != [], "its prefix, not yet the bucket"
    assert BUCKET in amazon.operations.buckets
    end_owner(notes)
    (found,) = scratch.sweep(late)
    assert found.removed == ("",) and BUCKET not in amazon.operations.buckets
    assert notes.all() == []


def test_bucket_with_data_of_others_stays_and_is_said(
    amazon: ObjectStore, notes: ScratchNotes
) -> None:
    scratch = scratch_of(amazon, notes)
    scratch.remove(scratch.prefix(PLACE))
    amazon.put(BUCKET, "theirs", b"kept")
    late = notes.all()[0].at + BUCKET_LEASE_SECONDS + 60
    end_owner(notes)
    (found,) = scratch.sweep(late)
    assert "others keep data in it" in found.error and amazon.keys(BUCKET) == ["theirs"]
    assert len(notes.all()) == 1


def test_what_cannot_be_removed_is_tried_again(amazon: ObjectStore, notes: ScratchNotes) -> None:
    scratch = scratch_of(amazon, notes, **{PLACE: "s3://bucket"})
    write(scratch, scratch.prefix(PLACE), "a")
    end_owner(notes)
    amazon.fail("DELETE /bucket/sky", "AccessDenied", times=1)
    (found,) = scratch.sweep()
    assert "AccessDenied" in found.error and len(notes.all()) == 1
    assert [each.error for each in scratch.sweep()] == [""] and notes.all() == []
    assert amazon.keys("bucket") == [] and amazon.open_uploads("bucket") == 0


def test_places_without_a_store_say_so(amazon: ObjectStore, notes: ScratchNotes) -> None:
    with pytest.raises(SkyUsageError, match="vast/DE: there is no scratch"):
        scratch_of(amazon, notes).prefix("vast/DE")
    with pytest.raises(SkyUsageError, match=r"s3://bucket/ is in aws/us-east-1"):
        scratch_of(amazon, notes, **{"aws/eu-west-1": "s3://bucket/"}).prefix("aws/eu-west-1")
    assert notes.all() == []
    uri = scratch_of(amazon, notes, ssh="s3://bucket/").prefix("ssh")
    assert uri.bucket == "bucket", "machines of one's own have no region"


@pytest.mark.parametrize("text", ["s3://mine/tmp{}", "s3://mine/tmp/{}", "s3://mine{}"])
def test_address_of_the_settings_is_a_folder_and_keeps_its_options(
    amazon: ObjectStore, notes: ScratchNotes, text: str
) -> None:
    configured = {"local": text.format("?endpoint=http://store:9000")}
    uri = scratch_of(amazon, notes, **configured).prefix("local")
    assert uri.options == {"endpoint": "http://store:9000"}
    assert f"mine{'/tmp' * ('tmp' in text)}/sky/{OWNER}/" in str(uri) and uri.is_folder
