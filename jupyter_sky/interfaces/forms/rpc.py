"""Requests of a form's view, answered as JSON by a kernel or by the Jupyter server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.forms.cell_line import Fields, read, write
from jupyter_sky.interfaces.forms.completion import CompletionContext, complete
from jupyter_sky.interfaces.forms.expected_place import expected_place
from jupyter_sky.interfaces.forms.fields import schema
from jupyter_sky.interfaces.forms.matching import match, summary
from jupyter_sky.interfaces.forms.measured_place import find_application, measured_place
from jupyter_sky.interfaces.forms.new_cluster import (
    COMMAND,
    cluster_fields,
    start_place,
    unused_name,
)

Json = dict[str, Any]


def make_handlers(
    known: Callable[[Json], CompletionContext] = lambda __: CompletionContext(),
) -> Mapping[str, Callable[[Json], Json]]:
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

    def completed(asked: Json) -> Json:
        fields = _fields(asked.get("fields"))
        found = complete(_text(asked, "key"), _text(asked, "text"), fields, known(asked))
        return {"choices": [asdict(choice) for choice in found]}

    def placed(asked: Json) -> Json:
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


def _schema(asked: Json) -> Json:
    fields = cluster_fields() if asked.get("command") == COMMAND else schema()
    return {"fields": [asdict(field) for field in fields], "aliases": dict(Sky.load().aliases)}


def _read(asked: Json) -> Json:
    return _reading(_text(asked, "source"))


def _reading(source: str) -> Json:
    found = read(source, Sky.load().aliases)
    return {
        "fields": {"values": dict(found.fields.values), "alias": found.fields.alias},
        "line": found.line,
        "errors": _errors(found.errors),
        "alias": dict(found.alias),
        "reads": list(found.reads),
        "makes": list(found.makes),
    }


def _write(asked: Json) -> Json:
    fields = asked.get("fields")
    source = write(_text(asked, "source"), None if fields is None else _fields(fields))
    return {"source": source, "line": read(source).line}


def _match(asked: Json) -> Json:
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


def _errors(errors: Mapping[str, tuple[str, str]]) -> Json:
    return {key: {"message": message, "hint": hint} for key, (message, hint) in errors.items()}


def _text(asked: Json, key: str) -> str:
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
