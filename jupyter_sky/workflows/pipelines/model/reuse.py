"""Reuse of kept results: the key of each task, whether its result is kept, and why it is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.model.identity import (
    TaskIdentity,
    TaskKey,
    address_version,
    path_digest,
    product_version,
)
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults, TaskResult
from jupyter_sky.workflows.pipelines.model.module_identity import module_identity
from jupyter_sky.workflows.pipelines.model.shared_results import SharedResults


@dataclass(frozen=True, slots=True)
class Freshness:
    """Whether the result of a task is kept.

    Attributes
    ----------
    result
        The kept result; None where the task has to run.
    why
        Why it has to run; empty where it has not.
    key
        Its key; None where it is not known, or not yet.
    """

    result: TaskResult | None = None
    why: str = ""
    key: TaskKey | None = None


Substitute = Callable[[str, Mapping[str, Freshness]], TaskResult | None]
"""From a task without a kept result, and the tasks before it, to what stands for its result."""


class Reuse:
    """Kept results for the tasks of a graph.

    Parameters
    ----------
    graph
        Whose bodies have identities.
    kept
        Results of all runs.
    origin
        Notebook or graph: a task of the same name there is compared with, to say what differs.
    results
        Of the run so far; None before it has begun.
    is_fresh
        Whether every task runs, whatever is kept.
    substitute
        Returns what stands for a result that is not kept; None for nothing.
    shared
        Results of other machines; None without any.
    """

    def __init__(
        self,
        graph: RunGraph,
        kept: KeptResults,
        origin: str,
        results: RunResults | None = None,
        is_fresh: bool = False,
        substitute: Substitute | None = None,
        shared: SharedResults | None = None,
    ) -> None:
        self._substitute, self._shared = substitute, shared
        self._graph, self._kept, self._origin = graph, kept, origin
        self._results, self._is_fresh = results, is_fresh
        self._identities: dict[str, TaskIdentity] = {}

    def preview(self) -> Mapping[str, Freshness]:
        """Return for each task whether it would run, as far as that is known before."""
        self.bring_shared(self._graph.tasks)
        found = self.judge(self._graph.tasks)
        return {name: self._with_followers(name, found) for name in found}

    def bring_shared(self, tasks: Iterable[str]) -> None:
        """Bring what other machines have kept for tasks, and for those that they follow from.

        Raises
        ------
        SkyStorageError
            The store of these results does not answer.
        """
        if self._shared is None or self._is_fresh:
            return
        asked = set[str]()
        while True:
            missing = [f.key for f in self.judge(tasks).values() if f.key and f.result is None]
            keys = [key for key in missing if key.digest not in asked]
            asked |= {key.digest for key in keys}
            if not keys or not self._shared.bring(keys):  # what was found gives keys of others
                return

    def look_up(self, task: str) -> Freshness:
        """Return whether a task runs, whose producers have all ended well.

        Where a result is taken for a task whose variables others would find on its engine, the
        results of these are taken at once: none of them runs without those before it.
        """
        found = self.judge([task, *self._followers[task]])
        decided = self._with_followers(task, found)
        for name, each in found.items():
            if self._results is None or self._results.find(name) is not None:
                continue
            is_taken = decided.result is not None and each.result is not None
            if name == task or is_taken:
                self._results.save_key(name, each.key)
            if is_taken and each.key is not None and each.result is not None:
                self._kept.note_use(each.key, each.result, self._origin, name)
                self._results.adopt(name, each.result)
        return decided

    def keep(self, tasks: Iterable[str]) -> dict[str, str]:
        """Keep results that tasks of this run have given; return why those of some are not kept.

        Nothing is kept under a key that may not be that of what has run: files and modules are
        looked at again.
        """
        assert self._results is not None
        kept: dict[str, tuple[TaskKey, TaskResult]] = {}
        problems: dict[str, str] = {}
        for task in tasks:
            problem = self._problem(task)
            key, result = self._results.key(task), self._results.find(task)
            if problem or key is None or result is None:
                problems[task] = problem
            else:
                kept[task] = key, result
        self._kept.keep(kept, self._origin)
        if self._shared is not None:
            self._shared.publish(kept.values())
        return problems

    def _problem(self, task: str) -> str:
        """Return why the result of a task is not kept; empty where it is."""
        assert self._results is not None
        if problem := self._identity(task).problem:
            return problem
        if (before := self._results.key(task)) is None:
            for producer, __ in self._identity(task).values.values():
                if self._results.find(producer) is None:
                    return _("{task} has given it nothing").format(task=producer)
            return _("its key was not known when it began")
        try:
            after = self._key(task, dict(before.inputs))
        except (OSError, SkyError) as error:
            return str(error)
        if after != before:
            parts = ", ".join(before.differences(after))
            return _("changed while it ran: {parts}").format(parts=parts)
        return ""

    def shown_and_written(self, task: str) -> dict[str, Any]:
        """Return what a task of this run has shown and written, as its result names it."""
        assert self._results is not None
        outputs = json.dumps(self._results.outputs(task) or []).encode()
        return {
            "outputs": self._kept.write_files([outputs])[0],
            "products": {each: product_version(each) for each in self._identity(task).products},
        }

    # -- freshness -----------------------------------------------------------------------------

    def _with_followers(self, task: str, found: Mapping[str, Freshness]) -> Freshness:
        """Return the freshness of a task, which runs if one that needs its variables does."""
        own = found[task]
        if own.result is not None:
            for name in self._followers[task]:
                if found[name].result is None:
                    why = _("{task} needs its variables").format(task=name)
                    return Freshness(None, why, own.key)
        return own

    @cached_property
    def _followers(self) -> Mapping[str, tuple[str, ...]]:
        """Tasks that find variables on their engine which each, or one that follows it, leaves."""
        needed: dict[str, set[str]] = {}
        followers: dict[str, list[str]] = {name: [] for name in self._graph.tasks}
        for name in self._graph.tasks:
            before = set(self._identity(name).tasks.values())
            needed[name] = before.union(*(needed[each] for each in before))
            for each in needed[name]:
                followers[each].append(name)
        return {name: tuple(found) for name, found in followers.items()}

    def judge(self, tasks: Iterable[str]) -> dict[str, Freshness]:
        """Return whether the results of tasks are kept, and of those that their inputs come from.

        One that is kept may have to run even so, for another that needs its variables.
        """
        needed, waiting = set[str](), list(tasks)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                if self._results is None or self._results.find(name) is None:
                    waiting += self._graph.tasks[name].after
                    waiting += self._identity(name).tasks.values()
        found: dict[str, Freshness] = {}
        for name in sorted(needed, key=self._positions.__getitem__):
            own = self._freshness(name, found)
            if own.result is None and self._substitute is not None:
                own = replace(own, result=self._substitute(name, found))
            found[name] = own
        return found

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self._graph.tasks)}

    def _freshness(self, name: str, found: Mapping[str, Freshness]) -> Freshness:
        if self._results is not None and (result := self._results.find(name)):
            key = self._results.key(name) if self._followers[name] else None
            return Freshness(result, "", key)
        identity = self._identity(name)
        if identity.problem:
            return Freshness(None, identity.problem)
        inputs: dict[str, str] = {}
        for label, (producer, value) in identity.values.items():
            if (result := found[producer].result) is None:
                return Freshness(None, _("after {task}").format(task=producer))
            inputs[label] = result.digest(value)
        for label, producer in identity.tasks.items():
            if (key := found[producer].key) is None:
                return Freshness(None, _("after {task}").format(task=producer))
            inputs[label] = key.digest
        try:
            key = self._key(name, inputs)
        except (OSError, SkyError) as error:
            return Freshness(None, str(error))
        if self._is_fresh:
            return Freshness(None, "--fresh", key)
        return self._find(name, key)

    def _find(self, name: str, key: TaskKey) -> Freshness:
        """Return the kept result of a key; else what differs from the last one."""
        result = self._kept.find(key)
        if result is not None:
            why = self._kept.find_damage(result)
            return Freshness(None if why else result, why, key)
        before = self._kept.latest(self._origin, name)
        parts = before.differences(key) if before else ()
        return Freshness(None, ", ".join(parts) or _("no result is kept"), key)

    # -- keys ----------------------------------------------------------------------------------

    def _identity(self, name: str) -> TaskIdentity:
        if name not in self._identities:
            data = self._graph.tasks[name].body["identity"]
            self._identities[name] = TaskIdentity.from_json(data)
        return self._identities[name]

    def _key(self, name: str, inputs: Mapping[str, str]) -> TaskKey:
        """Return the key of a task with what files, modules and stores have now."""
        identity = self._identity(name)
        files = {name: path_digest(Path(path)) for name, path in identity.paths.items()}
        files |= {address: address_version(address) for address in identity.addresses}
        return TaskKey(
            identity.code,
            inputs,
            identity.parameters,
            identity.definitions,
            identity.packages,
            {name: module_identity(name) for name in identity.modules},
            files,
        )


def describe(freshness: Freshness) -> str:
    """Return a few words about whether a task would run."""
    if freshness.result is not None:
        return _("kept")
    return _("runs: {why}").format(why=freshness.why)
