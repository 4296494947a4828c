"""Base class of clouds that launch one machine per request and cannot recognize it again.

Machines are told apart by what is written on them, and looked for before a request is sent again.
"""

from __future__ import annotations

import os
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlencode

from jupyter_sky.base.json_types import JsonMapping
from jupyter_sky.base.requests.offers import LIVE
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.launches.rest import RestClient
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.naming import NOTEBOOK, fit_name, tagged_machine
from jupyter_sky.clouds.provider.parallel_requests import StopRequested, pause, send_parallel
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig

LISTED_SECONDS = 20.0
"""Time after which a machine is listed whose launch was not answered."""
RANK, STARTED = "jupyter-sky-rank", "jupyter-sky-started"
_POLL_SECONDS = 0.5
_MARK = "jupyter-sky?"

T = TypeVar("T", str, float)


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """Machine as a cloud lists it.

    Attributes
    ----------
    region : str
        Where it is; empty where the list does not say.
    is_billed : bool
        Whether it costs, be it for its disk; one that has ended may.
    """

    machine: Machine
    region: str = ""
    is_billed: bool = True


def write_mark(tags: Mapping[str, str]) -> str:
    """Return tags as one text, for clouds that have a label or a description only.

    Examples
    --------
    >>> read_mark(write_mark({"jupyter-sky-owner": "ada & co", "jupyter-sky-rank": "1"}))
    {'jupyter-sky-owner': 'ada & co', 'jupyter-sky-rank': '1'}
    """
    return _MARK + urlencode({name: tags[name] for name in tags if tags[name] and name != NOTEBOOK})


def read_mark(text: str | None) -> dict[str, str]:
    """Return the tags in a text of `write_mark`; empty for any other text."""
    return dict(parse_qsl((text or "").removeprefix(_MARK))) if _MARK in (text or "") else {}


class RestProvider(Provider):
    """A cloud with a REST API and one request per machine.

    Subclasses have ``offers``, ``create_machine``, ``list_machines`` and ``delete_machine``.

    Attributes
    ----------
    api : str
        Address of the API, unless the setting ``endpoint`` names another.
    launch_seconds : float
        Seconds from one launch to the next that the API takes, unless the setting of this name says
        so.
    live_source : str
        Source of prices that were asked for just now.
    error_code, error_message : str
        Paths of code and text in a refusal.
    leftover : str
        Name of what is left of a machine that has ended, until it is swept.
    """

    api: ClassVar[str]
    launch_seconds: ClassVar[float] = 0.0
    live_source: ClassVar[str]
    error_code: ClassVar[str] = "code"
    error_message: ClassVar[str] = "message"
    leftover: ClassVar[str] = "disk of {id}"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.live_source = f"{cls.name}{LIVE}"

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        self._made: dict[str, dict[int, Machine]] = {}
        """Machines by token and rank, as lists may not have them yet."""

    # -- of each cloud --------------------------------------------------------------------------

    @abstractmethod
    def list_machines(self) -> Iterable[ListedMachine]:
        """Return all machines of the account that are ours, those that have just ended, too."""

    @abstractmethod
    def create_machine(
        self, request: LaunchRequest, config: MachineConfig, tags: Mapping[str, str], prepared: Any
    ) -> Machine:
        """Send the request for one machine; `tags` is what is written on it."""

    @abstractmethod
    def delete_machine(self, id: str) -> None:
        """Send the request that ends a machine; HTTP status 404 means that there is none."""

    def list_in(self, regions: Collection[str] | None) -> Iterable[ListedMachine]:
        """Return the machines of some regions, or all; more where lists have no regions."""
        return self.list_machines()

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> Any:
        """Make what all machines of a request need, such as a key; it may be there already."""

    def started_machines(self, machines: Sequence[Machine]) -> Sequence[Machine]:
        """Return those of some new machines that are billed already."""
        return machines

    def headers(self) -> dict[str, str]:
        """Return the headers of each request: the key."""
        return {"Authorization": f"Bearer {os.environ.get(self.variables[0], '')}"}

    # -- machines -------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Launch machines one by one; all are terminated where one is refused."""
        with self._locks.setdefault(request.token, threading.Lock()):
            made = self._made.setdefault(request.token, {})
            made |= {machine.rank: machine for machine in self._list_launched(request)}
            prepared = self.prepare_launch(request, config)
            try:
                for rank in range(request.resources.nodes):
                    if rank not in made:
                        made[rank] = self._launch_one(request, config, rank, prepared, stop)
            except (ProviderError, StopRequested) as error:
                if not self.is_transient(error):  # else the same request comes again and finds them
                    self._give_up(request.token, list(made.values()))
                raise
            return [made[rank] for rank in sorted(made)]

    def _give_up(self, token: str, machines: Sequence[Machine]) -> None:
        self._made.pop(token, None)
        if machines:
            if billed := self.started_machines(machines):
                self.on_created(token, billed)
            self.terminate([machine.id for machine in machines])

    def _launch_one(
        self, request: LaunchRequest, config: MachineConfig, rank: int, prepared: Any, stop: Event
    ) -> Machine:
        pause(stop, self.setting("launch_seconds", self.launch_seconds) if rank else 0.0)
        tags = dict(config.tags) | {RANK: str(rank), STARTED: str(int(time.time()))}
        try:
            return self.create_machine(request, config, tags, prepared)
        except ConnectionError:
            if found := self._await_listed(request, rank, stop):
                return found
            raise

    def _list_launched(self, request: LaunchRequest) -> list[Machine]:
        return self.machines(token=request.token, regions=[request.offer.region])

    def _await_listed(self, request: LaunchRequest, rank: int, stop: Event) -> Machine | None:
        """Return the machine of a launch whose answer was lost; None where it made none."""
        until = time.monotonic() + LISTED_SECONDS
        while time.monotonic() < until:
            for machine in self._list_launched(request):
                if machine.rank == rank:
                    return machine
            pause(stop, _POLL_SECONDS)
        return None

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that are billed: those that are off, too."""
        return [
            listed.machine
            for listed in self.list_in(regions)
            if listed.machine.state != "ended"
            and listed.machine.token
            and owner in ("", listed.machine.owner)
            and token in ("", listed.machine.token)
            and (regions is None or listed.region in ("", *regions))
        ]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return the machines of these ids, those that have ended a short while ago, too."""
        return [each.machine for each in self.list_machines() if each.machine.id in ids]

    def terminate(self, ids: Sequence[str]) -> None:
        """Terminate machines; an unknown one is no error, a refused one saves no other."""
        requests = [partial(self._terminate_one, id) for id in ids]
        if errors := list(filter(None, send_parallel(requests, self.is_transient))):
            raise min(errors, key=self.is_transient)

    def _terminate_one(self, id: str, __: Event) -> Exception | None:
        """Return why a machine could not be terminated."""
        try:
            self.delete_machine(id)
        except (ProviderError, ConnectionError) as error:
            return None if getattr(error, "status", 0) == 404 else error
        return None

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete machines that were taken back and are billed for their disks."""
        left = [
            each.machine.id
            for each in self.list_in(regions)
            if each.machine.state == "ended"
            and each.is_billed
            and each.machine.owner == owner
            and each.machine.token not in alive
        ]
        self.terminate(left)
        return [self.leftover.format(id=id) for id in left]

    @classmethod
    def tagged(cls, tags: Mapping[str, str], **fields: Any) -> Machine:
        """Return a machine of this cloud by the tags that are written on it."""
        started = tags.get(STARTED, "")
        return tagged_machine(
            tags,
            cloud=cls.name,
            rank=int(tags.get(RANK, 0)),
            started=float(started) if started.isdigit() else time.time(),
            **fields,
        )

    # -- the API --------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request to the API; see `RestClient.call`."""
        return self.client(self.setting("endpoint", self.api)).call(method, path, body, query)

    def client(self, base: str) -> RestClient:
        """Return a client for an address of the cloud, with the key."""
        return RestClient(base, self.headers(), self.error_code, self.error_message)

    @classmethod
    def setting(cls, key: str, default: T) -> T:
        """Return a setting of this cloud, of the type of its default."""
        value = Sky.load().provider_setting(cls.name, key)
        return type(default)(value) if value else default


def owner_prefix(owner: str) -> str:
    """Return the beginning of the names of what an owner keeps in an account, such as keys.

    Examples
    --------
    >>> owner_prefix("ada-1234abcd")
    'jupyter-sky-ada-1234abcd-'
    """
    return f"{fit_name(f'jupyter-sky-{owner}', 48)}-"


def register_key(
    listed: Iterable[JsonMapping], field: str, owner: str, public_key: str
) -> tuple[JsonMapping | None, str]:
    """Return the registered key that is ours, else None, and a name for a new one.

    Parameters
    ----------
    listed
        Keys of the account.
    field
        Name of the public key in them; comments at its end are not compared.
    """
    wanted = public_key.split()[:2]
    found = next((key for key in listed if key[field].split()[:2] == wanted), None)
    digest = re.sub(r"[^0-9A-Za-z]", "", wanted[1])[-8:]
    return found, f"{owner_prefix(owner)}{digest}"
