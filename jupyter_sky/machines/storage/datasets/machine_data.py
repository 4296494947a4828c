"""Data on their way to or from a machine, by requests that the notebook signs.

The machine knows which bytes it lacks, the notebook alone holds credentials: the machine names
objects, and the notebook answers with requests for their parts, a few minutes' worth at a time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.cache import GROUP_OBJECTS, DatasetCache, Lease
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset, remove_tree
from jupyter_sky.machines.storage.stores.errors import SkyRequestExpired, SkyStorageError
from jupyter_sky.machines.storage.stores.file_parts import file_url, file_version
from jupyter_sky.machines.storage.stores.part_worker import PartOutcome
from jupyter_sky.machines.storage.stores.store import (
    PART_SIZE,
    PartRequest,
    Span,
    part_count,
    part_span,
)
from jupyter_sky.machines.storage.stores.uri import path_error
from jupyter_sky.machines.storage.transfers.downloads import DownloadPlan, download_objects

ASKED_AHEAD = 4 * GROUP_OBJECTS
"""Number of objects whose requests are asked for before they are needed."""
NOTEBOOK_SILENCE_SECONDS = 300.0
"""Silence of the notebook after which data that wait for its requests are given up."""
EXPIRY_MARGIN_SECONDS = 60.0
"""Time that a request must last when its part is begun."""


def request_to_json(request: PartRequest) -> list[Any]:
    """Return a request as a message holds it."""
    span = request.span
    expires = request.expires if request.expires != float("inf") else None
    return [request.method, request.url, dict(request.headers), span.start, span.stop, expires]


def request_from_json(values: Sequence[Any]) -> PartRequest:
    """Return the request of a message."""
    method, url, headers, start, stop, expires = values
    return PartRequest(
        method, url, headers, Span(start, stop), float("inf") if expires is None else expires
    )


def plan_to_json(plan: DownloadPlan) -> dict[str, Any]:
    """Return the requests for an object as a message holds them."""
    return {"parts": [request_to_json(each) for each in plan.requests], "sums": plan.sums}


def plan_from_json(values: Mapping[str, Any]) -> DownloadPlan:
    """Return the requests of a message."""
    requests = tuple(request_from_json(each) for each in values["parts"])
    return DownloadPlan(requests, tuple((name, text) for name, text in values["sums"]))


class DataTask:
    """Work of a machine in a thread of its own, of which the notebook asks how far it is."""

    def __init__(self) -> None:
        self.done_bytes = 0
        self.reads = self.received = 0
        self.error = ""
        self.has_ended = False
        self._cancelled = threading.Event()
        self._heard = time.monotonic()
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="sky-data", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cancel(self) -> None:
        """End it; parts under way are dropped."""
        self._cancelled.set()
        with self._condition:
            self._condition.notify_all()

    def state(self) -> dict[str, Any]:
        """Return how far it is, for the notebook."""
        self._heard = time.monotonic()
        counts = {"reads": self.reads, "received": self.received}
        return {"done": self.done_bytes, "ended": self.has_ended, "error": self.error} | counts

    def _work(self) -> None:
        try:
            self._run()
        except SkyError as error:
            self.error = str(error)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.has_ended = True

    def _run(self) -> None:
        raise NotImplementedError

    def _count(self, outcome: PartOutcome) -> None:
        """Count what its store bills, which is also what came in vain."""
        if outcome.reads:
            with self._condition:
                self.reads += outcome.reads
                self.received += outcome.received

    def _add_bytes(self, nbytes: int) -> None:
        with self._condition:
            self.done_bytes += nbytes


class Arrival(DataTask):
    """A dataset on its way to the cache of this machine.

    Parameters
    ----------
    cache
        Cache of the machine.
    dataset
        The dataset.
    link
        Path that will lead to it.
    single
        Whether it is one file, and not a folder.
    mounts
        Folder of mounted datasets, to one of which the path may lead until now.

    Attributes
    ----------
    link : Path
        The path.
    lease : Lease or None
        Use of the dataset, once it is there.
    """

    def __init__(
        self,
        cache: DatasetCache,
        dataset: Dataset,
        link: Path,
        single: bool = False,
        mounts: Path | None = None,
    ) -> None:
        super().__init__()
        check_paths(dataset)
        check_link(link, cache.root, mounts or cache.root)
        self._cache, self._dataset, self.link, self._single = cache, dataset, link, single
        self.lease: Lease | None = None
        self._spool = cache.root / "objects" / f"partial-sent-{os.getpid()}-{id(self)}"
        self._is_listed = self._has_lost_peer = False
        self._plans: dict[str, DownloadPlan] = {}
        self._wanted: dict[str, None] = {}
        self._missing: list[CachedObject] = []
        self._positions: dict[str, int] = {}

    def add_plans(self, plans: Mapping[str, DownloadPlan]) -> None:
        """Take the requests for the parts of objects, by identity."""
        with self._condition:
            for identity, plan in plans.items():
                if not (self._has_lost_peer and plan.is_of_peer):
                    self._plans[identity] = plan
                    self._wanted.pop(identity, None)
            self._condition.notify_all()

    def state(self) -> dict[str, Any]:
        """Return how far it is, and the objects whose requests it needs."""
        with self._condition:
            wanted = list(self._wanted)
        known = {
            "wanted": wanted,
            "missing": sum(each.size for each in self._missing),
            "listed": self._is_listed,
            "lost_peer": self._has_lost_peer,
        }
        return super().state() | known

    def _run(self) -> None:
        self._missing = self._cache.missing(self._dataset.objects)
        self._is_listed = True
        self._positions = {each.identity: n for n, each in enumerate(self._missing)}
        self._want(self._missing[:ASKED_AHEAD])
        try:
            self.lease = self._cache.lease(self._dataset, self._download)
        finally:
            remove_tree(self._spool)
        path = self.lease.path
        replace_link(self.link, path / self._dataset.objects[0].path if self._single else path)

    def _want(self, objects: Iterable[CachedObject]) -> None:
        with self._condition:
            for each in objects:
                if each.identity not in self._plans:
                    self._wanted[each.identity] = None

    def _download(self, pairs: Sequence[tuple[CachedObject, Path]]) -> None:
        objects = [each for each, __ in pairs]
        ahead = 1 + max(self._positions.get(each.identity, 0) for each in objects)
        self._want(objects)
        self._want(self._missing[ahead : ahead + ASKED_AHEAD])
        while True:
            plans = self._take_plans(objects)
            before = self.done_bytes
            try:
                download_objects(
                    [(plans[each.identity], path) for each, path in pairs],
                    self._add_bytes,
                    self._cancelled,
                    self._count,
                )
                break
            except SkyRequestExpired:  # clocks differ, or the line is slow: ask for new ones
                self.done_bytes = before
                self._want(objects)
            except SkyStorageError:
                if not any(plan.is_of_peer for plan in plans.values()):
                    raise
                self.done_bytes = before
                self._leave_peer(objects)
        for each in objects:
            self._spooled(each.identity).unlink(missing_ok=True)

    def _leave_peer(self, objects: Sequence[CachedObject]) -> None:
        """Ask for requests to the store from now on: the other machine does not answer well."""
        with self._condition:
            self._has_lost_peer = True
            dropped = [name for name, plan in self._plans.items() if plan.is_of_peer]
            for identity in dropped:
                del self._plans[identity]
            self._wanted |= dict.fromkeys([*dropped, *(each.identity for each in objects)])

    def add_piece(self, identity: str, start: int, size: int, buffers: Iterable[Any]) -> None:
        """Take a piece of an object that the notebook's own machine holds, in order."""
        path = self._spooled(identity)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("wb" if start == 0 else "ab") as file:
            for buffer in buffers:
                file.write(buffer)
            is_complete = file.tell() == size
        if is_complete:
            spans = [
                part_span(n, size, PART_SIZE) for n in range(1, part_count(size, PART_SIZE) + 1)
            ]
            url = file_url(path)
            requests = [PartRequest("GET", url, {}, span) for span in spans if span.size]
            self.add_plans({identity: DownloadPlan(tuple(requests))})

    def _spooled(self, identity: str) -> Path:
        return self._spool / identity

    def _take_plans(self, objects: Sequence[CachedObject]) -> dict[str, DownloadPlan]:
        """Wait until the notebook has sent the requests for some objects.

        Raises
        ------
        SkyCancelled
            The notebook has taken the cell back, or says nothing any more.
        """
        with self._condition:
            while True:
                self._ask_again_for_expired(objects)
                if all(each.identity in self._plans for each in objects):
                    return {each.identity: self._plans.pop(each.identity) for each in objects}
                if self._cancelled.is_set():
                    raise SkyCancelled(_("the data were not brought: the cell was cancelled"))
                if time.monotonic() - self._heard > NOTEBOOK_SILENCE_SECONDS:
                    raise SkyCancelled(_("the data were not brought: the notebook is gone"))
                self._condition.wait(1.0)

    def _ask_again_for_expired(self, objects: Iterable[CachedObject]) -> None:
        limit = time.time() + EXPIRY_MARGIN_SECONDS
        for each in objects:
            plan = self._plans.get(each.identity)
            if plan is not None and plan.expires < limit:
                del self._plans[each.identity]
                self._wanted[each.identity] = None


# -- paths ---------------------------------------------------------------------------------------


def check_paths(dataset: Dataset) -> None:
    """Raise SkyUsageError for a path that leads out of the dataset's folder."""
    for path in [*(each.path for each in dataset.objects), *dataset.folders]:
        if reason := path_error(path):
            raise SkyUsageError(
                _("{path!r} cannot be in a folder: {reason}").format(path=path, reason=reason)
            )


def check_link(link: Path, *folders: Path) -> None:
    """Raise SkyUsageError where a path is taken by something that is not in one of our folders."""
    if link.is_symlink():
        if any(Path(os.readlink(link)).is_relative_to(folder) for folder in folders):
            return
        problem = "a link to something else"
    elif link.exists():
        problem = "a folder" if link.is_dir() else "a file"
    else:
        return
    raise SkyUsageError(
        _("there is {problem} at {link} already").format(problem=problem, link=link),
        hint=_("give another path: URI:./data/other"),
    )


def replace_link(link: Path, target: Path) -> None:
    """Let a path lead to a dataset; one that led to another one never leads nowhere."""
    link.parent.mkdir(parents=True, exist_ok=True)
    partial = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}")
    partial.symlink_to(target)
    partial.replace(link)


def file_facts(root: Path, path: str) -> dict[str, tuple[int, str]]:
    """Return sizes and versions of the files at a path, by relative path.

    Links inside the root are followed, those that lead out of it are not.
    """
    target, facts = root / path, dict[str, tuple[int, str]]()
    if target.is_file():
        status = target.stat()
        return {target.name: (status.st_size, file_version(status))}
    inside = root.resolve()
    for base, folders, names in os.walk(target):
        folders.sort()
        for name in sorted(names):
            file = Path(base, name)
            if file.is_file() and file.resolve().is_relative_to(inside):
                status = file.stat()
                below = file.relative_to(target).as_posix()
                facts[below] = (status.st_size, file_version(status))
    return facts
