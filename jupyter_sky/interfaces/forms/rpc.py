"""Requests of a form's view, answered as JSON by a kernel or by the Jupyter server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.schema import OPTIONS
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.rows import ClusterRow
from jupyter_sky.base.translation import N_, _
from jupyter_sky.execution.clusters.cluster_fit import missing_labels, name_stem, preferred
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.interfaces.forms.cell_line import Field, Fields, check, read, schema, write
from jupyter_sky.interfaces.forms.completion import CompletionContext, complete
from jupyter_sky.interfaces.forms.expected_place import (
    ExpectedPlace,
    expected_place,
    launch_place,
    own_clusters,
)
from jupyter_sky.interfaces.forms.matching import match, request_with_settings, summary
from jupyter_sky.interfaces.forms.measured_place import find_application, measured_place
from jupyter_sky.knowledge.ledger.ledger import format_rate

if TYPE_CHECKING:
    from jupyter_sky.machines.provisioner.placement import Decision


def make_handlers(
    known: Callable[[JsonObject], CompletionContext] = lambda __: CompletionContext(),
) -> Mapping[str, Callable[[JsonObject], JsonObject]]:
    """Return the functions that answer requests, by the request's name.

    Parameters
    ----------
    known : callable
        Gives what can be told here of clusters and variables, to who asks what it is given.

    Examples
    --------
    >>> make_handlers()["read"]({"source": "%%sky --spot"})["fields"]["values"]
    {'spot': True}
    """

    def completed(asked: JsonObject) -> JsonObject:
        fields = _fields(asked.get("fields"))
        found = complete(_text(asked, "key"), _text(asked, "text"), fields, known(asked))
        return {"choices": [asdict(choice) for choice in found]}

    def placed(asked: JsonObject) -> JsonObject:
        fields = _fields(asked.get("fields"))
        context, is_start = known(asked), asked.get("command") == COMMAND
        if is_start:
            place = start_place(fields, context)
        else:
            place = expected_place(fields, known=context)
        measured = []
        if place.offer is not None and context.store is not None:
            application = "" if is_start else find_application(fields, _text(asked, "source"))
            with suppress(SkyStoreError):  # the place is told all the same
                measured = measured_place(place.offer, application, context.store)
        return {"words": place.text, "measured": [asdict(each) for each in measured]}

    return {
        "schema": _schema,
        "read": _read,
        "write": _write,
        "match": _match,
        "place": placed,
        "complete": completed,
        "new-name": lambda asked: {"name": unused_name(known(asked))},
    }


def _schema(asked: JsonObject) -> JsonObject:
    fields = cluster_fields() if asked.get("command") == COMMAND else schema()
    return {"fields": [asdict(field) for field in fields], "aliases": dict(Sky.load().aliases)}


def _read(asked: JsonObject) -> JsonObject:
    return _reading(_text(asked, "source"))


def _reading(source: str) -> JsonObject:
    found = read(source, Sky.load().aliases)
    return {
        "fields": {"values": dict(found.fields.values), "alias": found.fields.alias},
        "line": found.line,
        "errors": _errors(found.errors),
        "alias": dict(found.alias),
        "reads": list(found.reads),
        "makes": list(found.makes),
    }


def _write(asked: JsonObject) -> JsonObject:
    fields = asked.get("fields")
    source = write(_text(asked, "source"), None if fields is None else _fields(fields))
    return {"source": source, "line": read(source).line}


def _match(asked: JsonObject) -> JsonObject:
    fields, time = _fields(asked.get("fields")), _text(asked, "time").strip()
    seconds, late = None, {}
    try:
        seconds = parse_duration(time, "time") if time else None
    except SkyUsageError as error:
        late = {"time": (error.message, error.hint or "")}
    found = match(fields, seconds=seconds)
    return {
        **asdict(found),
        "errors": _errors({**found.errors, **late}),
        "line": read(write(_text(asked, "source"), fields)).line,
        "summary": summary(found),
    }


def _errors(errors: Mapping[str, tuple[str, str]]) -> JsonObject:
    return {key: {"message": message, "hint": hint} for key, (message, hint) in errors.items()}


def _text(asked: JsonObject, key: str) -> str:
    text = asked.get(key, "")
    if not isinstance(text, str):
        raise SkyUsageError(_("{key}: {text!r} is not a text").format(key=key, text=text))
    return text


def _fields(given: Any) -> Fields:
    """Fields of JSON, which anybody may send."""
    values = given.get("values", {}) if isinstance(given, dict) else None
    alias = given.get("alias", "") if isinstance(given, dict) else None
    if given is None:
        return Fields()
    if not isinstance(values, dict) or not isinstance(alias, str):
        raise SkyUsageError(
            _("fields: not understood"), hint=_('{"values": {"cpus": "4+"}, "alias": ""}')
        )
    for key, value in values.items():
        if not isinstance(value, str | bool) or "\n" in str(value) or "\n" in alias:
            raise SkyUsageError(
                _("{key}: {value!r} is neither a line of text nor true").format(
                    key=key, value=value
                )
            )
    return Fields(values, alias)


# -- Form of a new cluster: its fields, a name that is free, and the place where it would ---------

COMMAND = "%sky up"
_OF_CLUSTERS = {option.dest for option in OPTIONS if option.group == "Resources"}
_COMMON = {
    "cluster": ("Name", N_("Name of the cluster: cells with -c NAME run on it.")),
    "idle": ("Idle time", N_("It ends after that time without use.")),
}


def cluster_fields() -> tuple[Field, ...]:
    """Return the fields that a cluster has: none of those that are for cells.

    Examples
    --------
    >>> [field.label for field in cluster_fields()][-2:]
    ['Intel SGX', 'Service']
    """
    common, others = list[Field](), list[Field]()
    for field in schema():
        if field.key in _COMMON:
            label, text = _COMMON[field.key]
            common.append(replace(field, label=label, help=text, group=""))
        elif field.key in _OF_CLUSTERS or field.key == "market":
            (others if field.group else common).append(field)
    return (*common, *others)


def unused_name(known: CompletionContext) -> str:
    """Return a name for one more cluster of a notebook; empty if it has none that is up.

    Cells without ``-c`` run on a notebook's first cluster: another one needs a name to be found.

    Examples
    --------
    >>> unused_name(CompletionContext())
    ''
    """
    if not own_clusters(known):
        return ""
    taken, number = {row.name for row in known.up}, 2
    while (name := f"{name_stem(known.notebook)}-{number}") in taken:
        number += 1
    return name


def start_place(fields: Fields, known: CompletionContext) -> ExpectedPlace:
    """Return the place where a new cluster would start, or the one that would be found instead.

    Examples
    --------
    >>> start_place(Fields({"cloud": "local"}), CompletionContext()).text
    'would start on this machine, which costs nothing'
    """
    aliases = Sky.load().aliases
    if check(fields, aliases):
        return ExpectedPlace("")
    options = parse_cell_line(fields.line(), aliases)
    need, __ = request_with_settings(options)
    name = options.cluster or ""
    if name:
        present = [row for row in known.up if row.name == name]
    else:
        present = [row for row in preferred(own_clusters(known)) if not missing_labels(need, row)]
    return ExpectedPlace(_present_text(present[0])) if present else launch_place(need, _start_text)


def _present_text(row: ClusterRow) -> str:
    return _("{name} is up: {place}, {price}; give another name to start a new one").format(
        name=row.name, place=describe_place(row), price=format_rate(row.price)
    )


def _start_text(found: Decision) -> str:
    if found.offer.cloud == "local":
        return _("would start on this machine, which costs nothing")
    return _("would start on {place}, {price}").format(
        place=found.offer.place, price=format_rate(found.price)
    )
