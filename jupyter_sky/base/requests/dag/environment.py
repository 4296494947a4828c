"""Surroundings of a task: what its machine has before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """What the machine of a task has before it runs.

    Attributes
    ----------
    setup : str
        Shell command that prepares a machine, once for all tasks there that have the same.
    variables : mapping of str to str
        Environment variables of the task, for all to read: they are kept with the run.
    secrets : tuple of str
        Environment variables whose values are taken from this machine when the task begins.
    workdir : str
        Folder of this machine, below the present one, in whose copy the task works.
    files : mapping of str to str
        Folders and files by their path on the machine: addresses of stores, or paths here.
    mounts : mapping of str to str
        Addresses of stores by the path at which they are read as the task asks for them.

    Examples
    --------
    >>> TaskEnvironment(variables={"EPOCHS": "3"}).to_json()
    {'variables': {'EPOCHS': '3'}}
    """

    setup: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    workdir: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON, without those that are empty."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskEnvironment:
        """Return the environment of what `to_json` gave."""
        return cls(**{**data, "secrets": tuple(data.get("secrets", ()))})
