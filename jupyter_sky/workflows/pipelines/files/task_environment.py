"""Environment of a task as task files of SkyPilot write it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.register import find_store
from jupyter_sky.base.requests.dag.environment import TaskEnvironment
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.files.located_yaml import Located
from jupyter_sky.workflows.pipelines.files.task_resources import FileNotes

_SCHEMES = {"gcs": "gs"}
"""Schemes of addresses that SkyPilot's names of stores do not begin with."""
_STORAGE = ("name", "source", "store", "mode", "persistent")
_NOTHING = Located(None, 1)


@dataclass(frozen=True, slots=True)
class FileEnvironment:
    """Environment of a task of a file."""

    values: TaskEnvironment

    def fill(self, text: str) -> str:
        """Return a text in which the variables of the task are replaced by their values.

        Examples
        --------
        >>> FileEnvironment(TaskEnvironment(variables={"SIZE": "7b"})).fill("model-${SIZE}-$X")
        'model-7b-$X'
        """
        return _fill(text, self.values.variables)


def _fill(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return variables.get(found[1] or found[2], found[0])

    return re.sub(r"\$\{(\w+)\}|\$(\w+)", value, text)


def read_environment(
    fields: Mapping[str, Located], values: Mapping[str, Any], notes: FileNotes
) -> FileEnvironment:
    """Return the environment that the fields of a task describe.

    Parameters
    ----------
    fields
        Of the task.
    values
        In place of those of ``envs``.
    notes
        Gets warnings.

    Raises
    ------
    SkyUsageError
        A field is invalid.
    """
    variables, secrets = _read_variables(fields, values, notes)
    files: dict[str, str] = {}
    mounts: dict[str, str] = {}
    given = notes.mapping(fields.get("file_mounts", _NOTHING), "file_mounts")
    for path, source in given.items():
        if isinstance(source.value, dict):
            kind = files if _mode(source, notes) == "COPY" else mounts
            address = _storage_address(source, notes)
        else:
            kind, address = files, str(source.value or "")
        if not address:
            raise notes.error(source.line, _("{path} has no source").format(path=path))
        kind[_fill(path, variables)] = _fill(address, variables)
    setup = fields.get("setup", _NOTHING)
    if isinstance(setup.value, dict | list):
        raise notes.error(setup.line, _("setup is no text"))
    workdir = _read_workdir(fields.get("workdir", _NOTHING), variables, notes)
    files = {path: _own_path(source) for path, source in files.items()}
    text = str(setup.value or "")
    return FileEnvironment(TaskEnvironment(text, variables, secrets, workdir, files, mounts))


def _read_variables(
    fields: Mapping[str, Located], values: Mapping[str, Any], notes: FileNotes
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables with values, and those whose values are taken from this machine."""
    variables: dict[str, str] = {}
    secrets: list[str] = []
    for key in ("envs", "secrets"):
        for name, found in notes.mapping(fields.get(key, _NOTHING), key).items():
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
                text = _("{name} is no name of a variable").format(name=name)
                raise notes.error(found.line, text)
            if isinstance(found.value, dict | list):
                raise notes.error(found.line, _("{name} has no text").format(name=name))
            if key == "secrets" and found.value not in (None, ""):
                raise notes.error(
                    found.line,
                    _("the value of the secret {name} stands in the file").format(name=name),
                    _("leave it empty: it is taken from the environment of this machine"),
                )
            if key == "envs" and name in values:
                variables[name] = str(values[name])
            elif found.value is None or key == "secrets":
                secrets.append(name)
            else:
                variables[name] = str(found.value)
    return variables, tuple(dict.fromkeys(secrets))


def _read_workdir(found: Located, variables: Mapping[str, str], notes: FileNotes) -> str:
    if isinstance(found.value, dict | list):
        raise notes.error(
            found.line,
            _("a workdir of git is not supported"),
            _("clone it here, or in setup"),
        )
    text = _fill(str(found.value or ""), variables)
    return _own_path(text) if text else ""


def _own_path(source: str) -> str:
    """Return a path of this machine relative to the present folder where it is below it."""
    if "://" in source or source.startswith("file:"):
        return source
    path, here = Path(source).expanduser().resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _mode(source: Located, notes: FileNotes) -> str:
    for key, each in source.value.items():
        if key not in _STORAGE:
            raise notes.unknown(each.line, key, "file_mounts", list(_STORAGE))
    mode = source.value.get("mode", Located("MOUNT", source.line))
    if mode.value not in ("COPY", "MOUNT", "MOUNT_CACHED"):
        text = _("mode {mode} is not supported").format(mode=mode.value)
        raise notes.error(mode.line, text, _("COPY or MOUNT"))
    if mode.value != "COPY":
        text = _("it is mounted for reading: what the task writes belongs into outputs")
        notes.warn(mode.line, text)
    return mode.value


def _storage_address(source: Located, notes: FileNotes) -> str:
    """Return the address of a store that is described by its parts."""
    parts = {key: each.value for key, each in source.value.items()}
    if "://" in str(parts.get("source") or ""):
        return str(parts["source"])
    if parts.get("source"):
        text = _("{source} is not uploaded").format(source=parts["source"])
        raise notes.error(source.line, text, _("copy it first: %sky storage copy"))
    store = parts.get("store")
    scheme = _SCHEMES.get(str(store), str(store)[:2])
    if not find_store(scheme) or not parts.get("name"):
        text = _("a store is named by source, or by name and store")
        raise notes.error(source.line, text, _("such as source: s3://mine/data"))
    return f"{scheme}://{parts['name']}"
