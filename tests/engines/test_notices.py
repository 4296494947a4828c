"""Notices of a cloud that a machine is taken away, asked of an emulated metadata service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.remote.supervisor import ENGINE_VARIABLE
from jupyter_sky.execution.checkpoints.leaving import leaving
from jupyter_sky.machines.engines.node import notices
from jupyter_sky.machines.engines.node.notices import (
    AwsNotices,
    AzureNotices,
    GoogleNotices,
    Notice,
    NoticeKind,
    NoticeService,
    NoticeWatch,
)
from jupyter_sky.machines.engines.wire.messages import NoticeRecord
from tests.emulators.metadata import Metadata, start_server

SERVICES: dict[str, Callable[[str], NoticeService]] = {
    "aws": AwsNotices,
    "gcp": GoogleNotices,
    "azure": lambda address: AzureNotices("vm-0", address),
}
StartMachine = Callable[..., tuple[Metadata, NoticeService]]


@pytest.fixture(params=SERVICES)
def cloud(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def machine() -> Iterator[StartMachine]:
    """Start the metadata service of a machine; yield how, and end it."""
    servers = []

    def start(cloud: str, **facts: Any) -> tuple[Metadata, NoticeService]:
        metadata = Metadata({"cloud": cloud, "name": "vm-0", "id": "i-0", "spot": True, **facts})
        servers.append(start_server(metadata, "127.0.0.1", 0))
        return metadata, SERVICES[cloud](f"http://127.0.0.1:{servers[-1].server_address[1]}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(notices, "WAIT_SECONDS", 1)


@pytest.mark.slow
def test_a_notice_comes_and_is_withdrawn(cloud: str, machine: StartMachine, quick: None) -> None:
    metadata, service = machine(cloud)
    told = list[tuple[Notice, ...]]()
    watch = NoticeWatch(service, told.append)
    watch.start()
    ends = float(int(time.time()) + 120)
    metadata.change({"notice": ends})
    wait(lambda: len(told) == 1)
    (notice,) = told[0]
    assert notice.kind is NoticeKind.PREEMPT
    if cloud == "gcp":
        assert 0 < (notice.left(time.time()) or 0) <= 30, "Google does not tell the time"
    else:
        assert notice.ends == ends
    time.sleep(0.1)
    assert len(told) == 1, "the same notice is told once"
    metadata.change({"notice": None})
    wait(lambda: len(told) == 2)
    assert told[1] == ()
    watch.stop()
    watch.join()


def test_risk_of_aws_gives_way_to_the_end(machine: StartMachine) -> None:
    metadata, service = machine("aws", rebalance=1_800_000_000.0)
    assert [n.kind for n in service.ask()] == [NoticeKind.AT_RISK]
    assert service.ask()[0].id == service.ask()[0].id
    metadata.change({"notice": 1_800_000_600.0})
    (found,) = service.ask()
    assert (found.kind, found.ends) == (NoticeKind.PREEMPT, 1_800_000_600.0)


def test_hibernation_of_aws_begins_at_once(machine: StartMachine) -> None:
    _metadata, service = machine("aws", notice=time.time() + 120, action="hibernate")
    assert service.ask()[0].left(time.time()) == 0


def test_a_token_that_has_ended_is_renewed(machine: StartMachine) -> None:
    metadata, service = machine("aws", notice=1_800_000_000.0)
    assert service.ask()
    metadata._tokens.clear()
    assert service.ask()


def test_azure_approves_events_of_one_machine_alone(machine: StartMachine) -> None:
    metadata, service = machine("azure", notice=time.time() + 60)
    assert isinstance(service, AzureNotices)
    (notice,) = service.ask()
    assert service.approve(notice)
    (started,) = service.ask()
    assert started.id == notice.id
    assert started.left(time.time()) == 0
    metadata.change({"notice": time.time() + 90, "others": ["vm-1"]})
    (shared,) = service.ask()
    assert not service.approve(shared)
    assert (service.ask()[0].left(time.time()) or 0) > 80


@pytest.mark.slow
def test_the_end_of_a_machine_is_approved_where_its_cloud_asks(
    cloud: str, machine: StartMachine, quick: None
) -> None:
    _metadata, service = machine(cloud, notice=time.time() + 600)
    told = list[tuple[Notice, ...]]()
    watch = NoticeWatch(service, told.append)
    assert not watch.approve_end(), "there is no notice yet"
    watch.start()
    wait(lambda: len(told) == 1)
    assert watch.approve_end() is (cloud == "azure")
    watch.stop()
    if cloud == "azure":
        assert service.ask()[0].left(time.time()) == 0


def test_azure_events_of_other_machines_are_not_ours() -> None:
    event = {"EventId": "e", "EventType": "Preempt", "Resources": ["vm-1"], "NotBefore": ""}
    assert notices.parse_azure_events({"Events": [event]}, "vm-0", 0.0) == ()
    mine = {**event, "EventType": "Freeze", "Resources": ["vm-0"]}
    (found,) = notices.parse_azure_events({"Events": [mine]}, "vm-0", 0.0)
    assert found.kind is NoticeKind.PAUSE


@pytest.mark.slow
def test_a_service_that_is_away_is_asked_again(quick: None) -> None:
    told = list[tuple[Notice, ...]]()

    class Flaky:
        asked = 0

        def ask(self) -> tuple[Notice, ...]:
            self.asked += 1
            if self.asked % 2:
                raise ConnectionRefusedError
            return (Notice(NoticeKind.PREEMPT, "n", time.time(), None),)

    flaky = Flaky()
    watch = NoticeWatch(flaky, told.append)
    watch.start()
    wait(lambda: flaky.asked > 6)
    watch.stop()
    watch.join()
    assert len(told) == 1, "an answer that fails is no news"


@pytest.mark.slow
def test_work_on_a_machine_learns_of_its_notices(
    machine: StartMachine, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _metadata, service = machine("aws", notice=time.time() + 120)
    assert isinstance(service, AwsNotices)
    monkeypatch.setenv(notices.ADDRESS_VARIABLE, service._address)
    monkeypatch.setenv(ENGINE_VARIABLE, f"{tmp_path}:1")
    assert leaving() is None
    told = list[list[NoticeRecord]]()
    watch = notices.start_watch("AwsNotices", tmp_path, told.append)
    assert watch is not None
    wait(lambda: bool(told))
    assert 110 < (leaving() or 0) <= 120
    watch.stop()
    watch.join()
    assert notices.start_watch("", tmp_path, told.append) is None


@pytest.mark.parametrize("facts", list(BUILT_IN.values()), ids=lambda facts: facts.name)
def test_every_cloud_names_a_reader_that_exists(facts: type[CloudFacts]) -> None:
    service = notices.make_service(facts.notice_service)
    assert type(service).__name__ == (facts.notice_service or "NoneType")


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ('{"notices": [{"kind": "preempt", "id": "a", "seen": 1.0, "ends": null}]}', True),
        ('{"notices": [{"kind": "at risk", "id": "a", "seen": 1.0, "ends": null}]}', False),
        ('{"notices": []}', False),
        ('{"notices": [7]}', False),
        ("[]", False),
        (None, False),
    ],
)
def test_machine_that_is_taken_away(tmp_path: Path, text: str | None, is_taken: bool) -> None:
    if text is not None:
        (tmp_path / notices.NOTICES_FILE).write_text(text)
    assert notices.is_taken_away(tmp_path) is is_taken
