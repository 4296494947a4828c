"""Copies: directory rules, what is there already, nothing replaced or deleted unasked."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.interfaces.magics.verbs import call_verb
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing, SkyTargetExists
from tests.emulators.object_store import ObjectStore


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, own_data: None) -> Iterator[ObjectStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket", "other")
        yield server
        assert not server.crashes, server.crashes[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "set"
    (made / "sub").mkdir(parents=True)
    (made / "a").write_text("one")
    (made / "sub/b").write_text("three")
    return made


def at(server: ObjectStore, key: str, bucket: str = "bucket") -> str:
    return f"s3://{bucket}/{key}?endpoint={server.url}"


@pytest.mark.parametrize(
    ("source", "target", "keys"),
    [
        ("set/", "x/", ["x/a", "x/sub/b"]),
        ("set", "x/", ["x/set/a", "x/set/sub/b"]),
        ("set/", "x", ["x/a", "x/sub/b"]),
        ("set", "x", ["x/a", "x/sub/b"]),
        ("set/a", "x/", ["x/a"]),
        ("set/a", "x", ["x"]),
        ("set/", "", ["a", "sub/b"]),
    ],
)
def test_folders_are_copied_as_cp_does(
    server: ObjectStore, folder: Path, source: str, target: str, keys: list[str]
) -> None:
    sky.copy(f"{folder.parent}/{source}", at(server, target)).wait()
    assert server.keys("bucket") == keys


def test_round_trip_and_second_copy_moves_nothing(
    server: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    sky.copy(f"{folder}/", at(server, "x/")).wait()
    sky.copy(at(server, "x/"), f"{tmp_path}/back/").wait()
    assert (tmp_path / "back/sub/b").read_text() == "three"
    server.forget_counts()
    again = sky.copy(at(server, "x/"), at(server, "y/")).wait()
    assert len(again.plan.items) == 2
    assert server.count("GET /bucket/x/a") == 0, "the store copies by itself"
    third = sky.copy(at(server, "x/"), at(server, "y/")).wait()
    assert (third.plan.items, third.plan.same) == ((), 2)


def test_target_that_differs_is_named_and_not_replaced(server: ObjectStore, folder: Path) -> None:
    server.put("bucket", "x/a", b"mine")
    server.put("bucket", "x/kept", b"kept")
    with pytest.raises(SkyTargetExists, match="other contents in x/a, as far as checksums tell"):
        sky.copy(f"{folder}/", at(server, "x/"))
    assert server.keys("bucket") == ["x/a", "x/kept"]
    sky.copy(f"{folder}/", at(server, "x/"), overwrite=True).wait()
    assert server.content("bucket", "x/a") == b"one"
    assert server.keys("bucket") == ["x/a", "x/kept", "x/sub/b"], "nothing is deleted"


def test_dry_run_says_how_much_and_copies_nothing(server: ObjectStore, folder: Path) -> None:
    estimate = sky.copy(f"{folder}/", at(server, "x/"), dry_run=True)
    assert "8 B in 2 objects" in str(estimate) and "$0.00 egress" in str(estimate)
    assert server.keys("bucket") == []


def test_copy_between_two_endpoints_does_not_pass_here_unasked(
    server: ObjectStore, folder: Path
) -> None:
    with ObjectStore("r2", min_part=1024) as second:
        second.create("bucket")
        server.put("bucket", "x/a", b"one")
        with pytest.raises(SkyUsageError, match="pass through this machine, 3 B down and up"):
            sky.copy(at(server, "x/"), at(second, "y/"))
        assert second.keys("bucket") == []
        sky.copy(at(server, "x/"), at(second, "y/"), via="here").wait()
        assert second.content("bucket", "y/a") == b"one"


def test_copy_into_itself_is_refused(server: ObjectStore, folder: Path) -> None:
    with pytest.raises(SkyUsageError, match="part of the source"):
        sky.copy(f"{folder}/", f"{folder}/sub/")
    server.put("bucket", "x/a", b"one")
    with pytest.raises(SkyUsageError, match="part of the source"):
        sky.copy(at(server, "x/"), at(server, "x/"))


def test_keys_that_no_folder_can_hold(server: ObjectStore, tmp_path: Path) -> None:
    server.put("bucket", "x/../../up", b"1")
    with pytest.raises(SkyUsageError, match="climbs out"):
        sky.copy(at(server, "x/"), f"{tmp_path}/y/")
    assert not (tmp_path / "y").exists()


def test_nothing_to_copy(server: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(SkyObjectMissing, match="0 objects below"):
        sky.copy(at(server, "none/"), f"{tmp_path}/y/")


def test_verb_copies_and_says_what(
    server: ObjectStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = call_verb(["storage", "cp", f"{folder}/", at(server, "x/"), "--dry-run"])
    assert "8 B in 2 objects" in str(planned)
    call_verb(["storage", "cp", f"{folder}/", at(server, "x/")])
    assert "copied: 8 B in 2 objects" in capsys.readouterr().out
    assert server.keys("bucket") == ["x/a", "x/sub/b"]


def interrupt(server: ObjectStore, times: int) -> None:
    """Interrupt this process, as Ctrl-C does, once the first part is on its way."""
    while not server.count("partNumber"):
        threading.Event().wait(0.001)
    for _ in range(times):
        _thread.interrupt_main()
        threading.Event().wait(0.15)  # the wait of a copy looks ten times a second


@pytest.mark.slow
def test_first_interrupt_keeps_what_was_sent_and_the_second_gives_it_up(
    server: ObjectStore, tmp_path: Path
) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(100_000_000)  # six parts
    for times, kept in ((2, 0), (1, 1)):
        server.forget_counts()
        server.fail("PUT .*partNumber", "none", times=4, seconds=0.5)
        interrupter = threading.Thread(target=interrupt, args=(server, times))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            sky.copy(path, at(server, "big")).wait()
        interrupter.join()
        server.faults.clear()
        assert server.open_uploads("bucket") == kept
        sent = server.count("partNumber")
        assert 1 <= sent <= 4, "parts that were not begun are not sent"
    server.forget_counts()
    sky.copy(path, at(server, "big")).wait()
    assert server.count("PUT") == 6 - sent and server.keys("bucket") == ["big"]
