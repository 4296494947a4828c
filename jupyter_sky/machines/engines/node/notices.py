"""Notices of a cloud that a machine will be taken away, read on the machine itself.

Each cloud tells it in its metadata service, which only the machine can ask: AWS (two minutes before
a spot machine ends, and earlier that it is at risk), Google (up to thirty seconds), Azure (thirty
seconds and more, as one of its scheduled events). Lambda and RunPod tell nothing. It needs the
standard library alone.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.machines.engines.node.keepalive import keepalive_folder
from jupyter_sky.machines.engines.wire.messages import NoticeRecord

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from http.client import HTTPResponse

METADATA_ADDRESS = "http://169.254.169.254"
"""Origin of the metadata service of a machine, the same on all clouds."""
ADDRESS_VARIABLE = "JUPYTER_SKY_METADATA"
"""Environment variable with another origin, such as that of an emulator."""
RELAY_FILE = "jupyter-sky-boot/notices"
"""File with the origin of a relay, where only root may ask the service itself: see
`jupyter_sky.clouds.launches.notice_relay`. Beside the folder of the machine's keep-alive."""
NOTICES_FILE = "notices.json"
"""File with the notices that hold, in the folder of a cluster."""
POLL_SECONDS = 0.5
"""Time between two questions: AWS and Azure answer at once."""
ASK_SECONDS = 5.0
WAIT_SECONDS = 60
"""Time for which Google keeps a question until there is news."""
TOKEN_SECONDS = 21600
GOOGLE_SECONDS = 30.0
"""Time from Google's notice until the machine is switched off, at most."""
AZURE_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


@dataclass(frozen=True, slots=True)
class NoticeTerms:
    """Times and reliability of a cloud's notices.

    Attributes
    ----------
    share : float
        Share of losses of which it gives notice; assumed, for all of them say "best effort".
    seconds : float
        Time from the notice to the loss.
    """

    share: float
    seconds: float


TERMS = {
    "AwsNotices": NoticeTerms(0.9, 120.0),
    "GoogleNotices": NoticeTerms(0.8, GOOGLE_SECONDS),
    "AzureNotices": NoticeTerms(0.8, 30.0),
}
"""Terms by the name of the reader."""


class NoticeKind(Enum):
    """Event that a cloud announces for a machine."""

    PREEMPT = "preempt"
    """It is taken away."""
    AT_RISK = "at risk"
    """It is likelier than others to be taken away soon."""
    PAUSE = "pause"
    """It stands still for a while, or starts again."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Notice of a cloud about a machine.

    Attributes
    ----------
    kind
        What is going to happen.
    id
        Name by which the cloud knows it; one of ours where it gives none.
    seen
        Unix time at which it was read first.
    ends
        Unix time at which it happens at the earliest; None where that is not told.
    """

    kind: NoticeKind
    id: str
    seen: float
    ends: float | None = None

    def left(self, now: float) -> float | None:
        """Return the seconds until it happens; None where that is not told."""
        return None if self.ends is None else max(0.0, self.ends - now)

    def record(self) -> NoticeRecord:
        """Return it as JSON can hold it, for `of`."""
        return {"kind": self.kind.value, "id": self.id, "seen": self.seen, "ends": self.ends}

    @classmethod
    def of(cls, record: NoticeRecord) -> Self:
        """Make it from the result of `record`.

        Examples
        --------
        >>> notice = Notice(NoticeKind.PREEMPT, "terminate", 10.0, 130.0)
        >>> Notice.of(notice.record()) == notice
        True
        """
        return cls(NoticeKind(record["kind"]), record["id"], record["seen"], record["ends"])


class NoticeService(Protocol):
    """Metadata service of one cloud."""

    def ask(self) -> tuple[Notice, ...]:
        """Return the notices that hold now; raises OSError where the service does not answer."""
        ...


class AwsNotices:
    """Notices of a spot machine of AWS, by version 2 of its metadata service.

    Parameters
    ----------
    address : str
        Origin of the service; that of this machine unless given.
    """

    def __init__(self, address: str = "") -> None:
        self._address, self._token = address, ""

    def ask(self) -> tuple[Notice, ...]:
        """Return the notice of the end, else that of the risk, if there is one."""
        now = time.time()
        action = self._read("spot/instance-action")
        if action:
            return (parse_aws_action(action, now),)
        risk = self._read("events/recommendations/rebalance")
        return (parse_aws_risk(risk, now),) if risk else ()

    def _read(self, name: str) -> str:
        """Return a leaf, or an empty text where there is none; renew the token if it has ended."""
        from urllib.error import HTTPError

        origin = self._address or metadata_address()
        url = f"{origin}/latest/meta-data/{name}"
        for _attempt in range(2):
            if not self._token:
                header = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
                self._token = _fetch(f"{origin}/latest/api/token", header, "PUT")
            try:
                return _fetch(url, {"X-aws-ec2-metadata-token": self._token})
            except HTTPError as error:
                if error.code == 404:
                    return ""
                if error.code != 401:
                    raise
                self._token = ""
        raise OSError("the metadata service refuses its own tokens")


class GoogleNotices:
    """Notices of a spot machine of Google Cloud, which answers as soon as there is one.

    Parameters
    ----------
    address : str
        Origin of the service; that of this machine unless given.
    """

    def __init__(self, address: str = "") -> None:
        self._address, self._etag = address, ""

    def ask(self) -> tuple[Notice, ...]:
        """Wait for news, for `WAIT_SECONDS` at most, and return the notice if there is one."""
        origin = self._address or metadata_address()
        url = f"{origin}/computeMetadata/v1/instance/preempted"
        if self._etag:
            url += f"?wait_for_change=true&last_etag={self._etag}&timeout_sec={WAIT_SECONDS}"
        headers = {"Metadata-Flavor": "Google"}
        with _open(url, headers, timeout=WAIT_SECONDS + ASK_SECONDS) as answer:
            self._etag = answer.headers.get("ETag", "")
            is_preempted = answer.read().strip() == b"TRUE"
        now = time.time()
        found = Notice(NoticeKind.PREEMPT, "preempted", now, now + GOOGLE_SECONDS)
        return (found,) if is_preempted else ()


class AzureNotices:
    """Scheduled events of a machine of Azure.

    Parameters
    ----------
    name : str
        Name of the machine, as events call it.
    address : str
        Origin of the service; that of this machine unless given.
    """

    def __init__(self, name: str, address: str = "") -> None:
        self._name, self._address = name, address
        self._resources: dict[str, list[str]] = {}

    def ask(self) -> tuple[Notice, ...]:
        """Return the notices of the events that concern the machine."""
        document = json.loads(_fetch(self._url(), {"Metadata": "true"}))
        self._resources = {e["EventId"]: e["Resources"] for e in document["Events"]}
        return parse_azure_events(document, self._name, time.time())

    def approve(self, notice: Notice) -> bool:
        """Tell Azure that it may go on at once; only if the event concerns no other machine.

        Returns
        -------
        bool
            Whether it was told.
        """
        if self._resources.get(notice.id) != [self._name]:
            return False
        body = json.dumps({"StartRequests": [{"EventId": notice.id}]}).encode()
        _fetch(self._url(), {"Metadata": "true"}, "POST", body)
        return True

    def _url(self) -> str:
        return (self._address or metadata_address()) + AZURE_EVENTS


def metadata_address() -> str:
    """Return the origin at which this machine's metadata service is asked for notices."""
    if address := os.environ.get(ADDRESS_VARIABLE):
        return address
    try:
        return (keepalive_folder().parent / RELAY_FILE).read_text()
    except OSError:
        return METADATA_ADDRESS


def parse_aws_action(text: str, now: float) -> Notice:
    """Return the notice of ``spot/instance-action``.

    Examples
    --------
    >>> found = parse_aws_action('{"action": "terminate", "time": "2027-01-15T08:00:00Z"}', 0.0)
    >>> found.kind.value, found.ends
    ('preempt', 1800000000.0)
    """
    told = json.loads(text)
    if told["action"] == "hibernate":  # begins at once
        return Notice(NoticeKind.PREEMPT, f"hibernate {told['time']}", now, now)
    return Notice(NoticeKind.PREEMPT, f"{told['action']} {told['time']}", now, _utc(told["time"]))


def parse_aws_risk(text: str, now: float) -> Notice:
    """Return the notice of ``events/recommendations/rebalance``.

    Examples
    --------
    >>> parse_aws_risk('{"noticeTime": "2027-01-15T08:00:00Z"}', 1.0).kind
    <NoticeKind.AT_RISK: 'at risk'>
    """
    return Notice(NoticeKind.AT_RISK, f"rebalance {json.loads(text)['noticeTime']}", now)


def parse_azure_events(document: Mapping[str, Any], name: str, now: float) -> tuple[Notice, ...]:
    """Return the notices of the scheduled events that concern a machine.

    Examples
    --------
    >>> event = {"EventId": "e", "EventType": "Preempt", "Resources": ["vm"], "NotBefore": ""}
    >>> parse_azure_events({"Events": [event]}, "vm", 7.0)
    (Notice(kind=<NoticeKind.PREEMPT: 'preempt'>, id='e', seen=7.0, ends=7.0),)
    """
    notices = []
    for event in document["Events"]:
        if name not in event["Resources"]:
            continue
        ends = parsedate_to_datetime(event["NotBefore"]).timestamp() if event["NotBefore"] else now
        is_end = event["EventType"] in ("Preempt", "Terminate", "Redeploy")
        kind = NoticeKind.PREEMPT if is_end else NoticeKind.PAUSE
        notices.append(Notice(kind, event["EventId"], now, ends))
    return tuple(notices)


def _utc(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def _fetch(
    url: str, headers: Mapping[str, str], method: str = "GET", body: bytes | None = None
) -> str:
    with _open(url, headers, method, body) as answer:
        return answer.read().decode()


def _open(
    url: str,
    headers: Mapping[str, str],
    method: str = "GET",
    body: bytes | None = None,
    timeout: float = ASK_SECONDS,
) -> AbstractContextManager[HTTPResponse]:
    from urllib.request import Request, urlopen  # notebooks, which read notices, ask nobody

    return urlopen(Request(url, body, dict(headers), method=method), timeout=timeout)


class NoticeWatch(threading.Thread):
    """Thread that asks a metadata service and tells of notices that come, change or go.

    Parameters
    ----------
    service : NoticeService
        Service of the machine's cloud.
    tell : callable
        Takes all notices that hold, whenever they have changed; a notice that was withdrawn is
        absent. Called in the thread.
    """

    def __init__(self, service: NoticeService, tell: Callable[[tuple[Notice, ...]], None]) -> None:
        super().__init__(name="notices", daemon=True)
        self._service, self._tell = service, tell
        self._known: tuple[Notice, ...] = ()
        self._ended = threading.Event()

    def run(self) -> None:
        """Ask until stopped; a service that does not answer is asked again."""
        from http.client import HTTPException

        while not self._ended.is_set():
            begun = time.monotonic()
            try:
                found = self._service.ask()
            except (OSError, HTTPException, ValueError, KeyError):  # away, or half an answer
                found = self._known
            self._compare(found)
            self._ended.wait(max(0.0, POLL_SECONDS - (time.monotonic() - begun)))

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()

    def approve_end(self) -> bool:
        """Tell the cloud that it may take this machine away at once, where it lets us say so.

        Returns
        -------
        bool
            Whether it was told.
        """
        from http.client import HTTPException

        service = self._service
        if not isinstance(service, AzureNotices):
            return False
        ends = [notice for notice in self._known if notice.kind is NoticeKind.PREEMPT]
        with suppress(OSError, HTTPException):  # then it ends when its notice says
            return any([service.approve(notice) for notice in ends])
        return False

    def _compare(self, found: tuple[Notice, ...]) -> None:
        seen = {notice.id: notice.seen for notice in self._known}
        now = tuple(replace(notice, seen=seen.get(notice.id, notice.seen)) for notice in found)
        if [(n.kind, n.id) for n in now] != [(n.kind, n.id) for n in self._known]:
            self._known = now
            self._tell(now)


def is_taken_away(folder: Path) -> bool:
    """Return whether a notice holds that this machine is taken away.

    Parameters
    ----------
    folder
        Folder of the cluster on this machine.
    """
    try:
        records = json.loads((folder / NOTICES_FILE).read_text())["notices"]
        return any(Notice.of(record).kind is NoticeKind.PREEMPT for record in records)
    except (OSError, ValueError, KeyError, TypeError):  # there is none
        return False


def start_watch(
    name: str, folder: Path, tell: Callable[[list[NoticeRecord]], None]
) -> NoticeWatch | None:
    """Watch the notices of this machine in a thread; None where its cloud gives none.

    Parameters
    ----------
    name
        Name of the reader, as of `make_service`.
    folder
        Folder of the cluster on this machine, in which engines find the notices: work on them saves
        its state at its next safe point.
    tell
        Takes all notices that hold, whenever they have changed; called in the thread.
    """
    service = make_service(name)
    if service is None:
        return None

    def write(records: list[NoticeRecord]) -> None:
        with suppress(OSError):  # a full disk: the controller is told all the same
            write_private(folder / NOTICES_FILE, {"service": name, "notices": records})

    def publish(notices: tuple[Notice, ...]) -> None:
        records = [notice.record() for notice in notices]
        write(records)
        tell(records)

    write([])  # work that saves its state learns that there will be notices
    watch = NoticeWatch(service, publish)
    watch.start()
    return watch


def make_service(name: str, address: str = "") -> NoticeService | None:
    """Return the reader that the facts of a cloud name; None where they name none.

    Parameters
    ----------
    name
        `CloudFacts.notice_service`.
    address
        Origin of the service; that of this machine unless given.
    """
    services: dict[str, Callable[[], NoticeService]] = {
        "AwsNotices": lambda: AwsNotices(address),
        "GoogleNotices": lambda: GoogleNotices(address),
        "AzureNotices": lambda: AzureNotices(socket.gethostname(), address),
    }
    return services[name]() if name else None
