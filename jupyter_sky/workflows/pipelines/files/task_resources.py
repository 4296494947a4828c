"""Requests for machines as task files of SkyPilot write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.geography import parse_image
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.files.located_yaml import Located, error_at

OWN_LABELS = (
    "cpus memory gpu_memory arch cpu_vendor cloud region zone country jurisdiction "
    "instance_type intel_sgx service max_hourly_cost"
).split()
"""Labels that are written here as in a cell."""
RENAMED: Mapping[str, str] = MappingProxyType({"disk_size": "disk", "use_spot": "spot"})
"""Labels of cells by the names that SkyPilot has for them."""
_IGNORED = {
    "accelerator_args": "machines with TPUs are taken as their cloud offers them",
    "autostop": "machines are given back when their last task ends",
    "disk_tier": "disks are taken as the cloud offers them",
    "labels": "machines have the labels of jupyter_sky",
    "local_disk": "disks are taken as the cloud offers them",
    "network_tier": "networks are taken as the cloud offers them",
    "priority": "tasks start when their inputs are there",
}
_REFUSED = {
    "ports": "no port of a machine is opened: a task reads and writes stores",
}
_CONTAINER = "docker:"
"""Begin of an ``image_id`` that is a container's, and not a cloud's for its machines."""
_ALTERNATIVES = ("any_of", "ordered")
_KNOWN = [
    *OWN_LABELS,
    *RENAMED,
    *_IGNORED,
    *_REFUSED,
    *_ALTERNATIVES,
    "accelerators",
    "image_id",
    "infra",
    "job_recovery",
]


@dataclass(slots=True)
class FileNotes:
    """Errors and warnings of one file.

    Attributes
    ----------
    file
        Its name.
    warnings
        What is not done as the file says.
    """

    file: str
    warnings: list[str] = field(default_factory=list)

    def error(self, line: int, message: str, hint: str = "") -> SkyUsageError:
        """Return an error that names the line."""
        return error_at(self.file, line, message, hint)

    def warn(self, line: int, message: str) -> None:
        """Note something that is not done."""
        text = _("{file}, line {line}: {message}")
        self.warnings.append(text.format(file=self.file, line=line, message=message))

    def mapping(self, found: Located, name: str) -> dict[str, Located]:
        """Return the values of a mapping; of nothing none.

        Raises
        ------
        SkyUsageError
            It is something else.
        """
        if found.value is None:
            return {}
        if not isinstance(found.value, dict):
            raise self.error(found.line, _("{name} is no mapping").format(name=name))
        return found.value

    def unknown(self, line: int, key: str, name: str, known: Sequence[str]) -> SkyUsageError:
        """Return the error of a key that is not known."""
        text = _("{name} has no field {key!r}").format(name=name, key=key)
        return self.error(line, text, suggest(key, known))


@dataclass(frozen=True, slots=True)
class ReadResources:
    """Requests of a task, any of which will do, and its tries after an error of its own."""

    needs: tuple[Resources, ...]
    retries: int = 0


def read_resources(found: Located, notes: FileNotes) -> ReadResources:
    """Return the requests of a field ``resources``.

    SkyPilot rents on demand unless ``use_spot`` is true; so do requests that are read here, but for
    ``use_spot: null``, which leaves the choice to the plan.

    Parameters
    ----------
    found
        Value of the field.
    notes
        Gets warnings about what is not done here.

    Raises
    ------
    SkyUsageError
        A field is unknown or unsupported, or its value is invalid.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.files.located_yaml import read_documents
    >>> (found,) = read_documents("{infra: aws/us-east-1, accelerators: {V100: 1, T4: 2}}", "t")
    >>> [need.command_line() for need in read_resources(found, FileNotes("t")).needs]
    ['--gpus V100:1 --cloud aws --region us-east-1 --on-demand', \
'--gpus T4:2 --cloud aws --region us-east-1 --on-demand']
    """
    base = notes.mapping(found, "resources")
    _check(base, notes)
    given = [name for name in _ALTERNATIVES if name in base]
    if len(given) > 1:
        raise notes.error(base[given[1]].line, _("any_of and ordered exclude each other"))
    shared = {key: value for key, value in base.items() if key not in _ALTERNATIVES}
    needs: list[Resources] = []
    for alternative in _read_alternatives(base, notes) or [{}]:
        needs += _read_needs({**shared, **alternative}, notes)
    return ReadResources(tuple(dict.fromkeys(needs)), _read_retries(shared, notes))


def _check(labels: Mapping[str, Located], notes: FileNotes) -> None:
    for key, found in labels.items():
        if key in _REFUSED:
            text = _("resources.{key} is not supported").format(key=key)
            raise notes.error(found.line, text, _(_REFUSED[key]))
        if key in _IGNORED:
            text = _("resources.{key} is ignored: {why}").format(key=key, why=_(_IGNORED[key]))
            notes.warn(found.line, text)
        elif key not in _KNOWN:
            raise notes.unknown(found.line, key, "resources", _KNOWN)


def _read_alternatives(base: Mapping[str, Located], notes: FileNotes) -> list[dict[str, Located]]:
    name = next((each for each in _ALTERNATIVES if each in base), "")
    if not name:
        return []
    found = base[name]
    if not isinstance(found.value, list) or not found.value:
        raise notes.error(found.line, _("{name} is no list").format(name=name))
    if name == "ordered":
        notes.warn(found.line, _("ordered: the best is taken, whatever its place in the list"))
    alternatives = [notes.mapping(each, name) for each in found.value]
    for each in alternatives:
        if nested := next((key for key in _ALTERNATIVES if key in each), ""):
            raise notes.unknown(each[nested].line, nested, name, OWN_LABELS)
        _check(each, notes)
    return alternatives


def _read_needs(labels: Mapping[str, Located], notes: FileNotes) -> Iterator[Resources]:
    texts: dict[str, object] = {"spot": False}
    for key, found in labels.items():
        if key == "infra":
            texts |= _read_infra(found, notes)
        elif key == "image_id" and found.value is not None:
            texts["image"] = _read_image(found, notes)
        elif key in RENAMED or key in OWN_LABELS:
            texts[RENAMED.get(key, key)] = _read_label(key, found, notes)
    for gpus in _read_accelerators(labels.get("accelerators"), notes):
        line = next((found.line for found in labels.values()), 1)
        yield _parse({**texts, "gpus": gpus}, line, notes)


def _read_label(key: str, found: Located, notes: FileNotes) -> object:
    if isinstance(found.value, dict | list):
        raise notes.error(found.line, _("resources.{key} is one value").format(key=key))
    _parse({RENAMED.get(key, key): found.value}, found.line, notes)  # says the line of its error
    return found.value


def _read_image(found: Located, notes: FileNotes) -> str:
    """Return the image of a container; of a cloud's machines none can be chosen."""
    text = "" if isinstance(found.value, dict | list) else str(found.value)
    given = f"image_id {text}".rstrip()
    if not text.startswith(_CONTAINER):
        message = _("{given}: only images of containers are supported").format(given=given)
        hint = _("such as docker:python:3.12; what a machine needs is put into setup")
        raise notes.error(found.line, message, hint)
    try:
        return parse_image(text, "image_id")
    except SkyUsageError as error:
        raise notes.error(found.line, error.message, _("such as docker:python:3.12")) from None


def _parse(texts: Mapping[str, object], line: int, notes: FileNotes) -> Resources:
    try:
        return Resources.parse(**texts)  # pyright: ignore[reportArgumentType]
    except SkyUsageError as error:
        raise notes.error(line, error.message, error.hint or "") from None


def _read_infra(found: Located, notes: FileNotes) -> dict[str, str]:
    """Return the labels of ``cloud/region/zone``, each of which may be ``*``."""
    if found.value in (None, "*"):
        return {}
    parts = str(found.value).split("/")
    if parts[0] in ("k8s", "kubernetes", "slurm") or len(parts) > 3:
        text = _("infra {infra} is not supported").format(infra=found.value)
        raise notes.error(found.line, text, _("such as aws, aws/us-east-1 or */eu-west-1"))
    labels = dict(zip(("cloud", "region", "zone"), parts, strict=False))
    given = {key: text for key, text in labels.items() if text not in ("", "*")}
    _parse(given, found.line, notes)
    return given


def _read_accelerators(found: Located | None, notes: FileNotes) -> list[str | None]:
    """Return the alternatives of accelerators: a name, names with counts, or a list."""
    if found is None or found.value is None:
        return [None]
    if isinstance(found.value, dict):
        given = [
            name if count.value is None else f"{name}:{count.value}"
            for name, count in found.value.items()
        ]
    elif isinstance(found.value, list):
        given = [str(each.value) for each in found.value]
        if len(given) > 1:
            notes.warn(found.line, _("accelerators: the best is taken, not the first of the list"))
    else:
        given = [str(found.value)]
    for each in given:
        _parse({"gpus": each}, found.line, notes)
    return [*given] or [None]


def _read_retries(labels: Mapping[str, Located], notes: FileNotes) -> int:
    """Return the tries after an error; where a machine is lost its task goes elsewhere anyway."""
    found = labels.get("job_recovery")
    if found is None or not isinstance(found.value, dict):
        return 0
    known = ["strategy", "max_restarts_on_errors"]
    for key, each in found.value.items():
        if key not in known:
            raise notes.unknown(each.line, key, "job_recovery", known)
        if key == "strategy":
            notes.warn(each.line, _("job_recovery.strategy is ignored: the plan decides where"))
    restarts = found.value.get("max_restarts_on_errors", Located(0, found.line))
    if not isinstance(restarts.value, int) or restarts.value < 0:
        raise notes.error(restarts.line, _("max_restarts_on_errors is a number from 0"))
    return restarts.value


def write_resources(need: Resources) -> dict[str, object]:
    """Return a request as a field ``resources``, without its nodes.

    Examples
    --------
    >>> write_resources(Resources.parse(gpus="V100:2", spot=True))
    {'accelerators': 'V100:2', 'use_spot': True}
    """
    written: dict[str, object] = {}
    names = {"gpus": "accelerators", "disk": "disk_size"}
    for key, text in need.labels().items():
        if key == "image":
            written["image_id"] = f"{_CONTAINER}{text}"
        elif key not in ("nodes", "spot", "on_demand"):
            written[names.get(key, key)] = int(text) if text.isdigit() else text
    if need.spot is not False:  # without it, on demand
        written["use_spot"] = need.spot
    return written
