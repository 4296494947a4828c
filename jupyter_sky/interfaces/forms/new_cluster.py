"""Form of a new cluster: its fields, a name that is free, and the place where it would start."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.schema import OPTIONS
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.rows import ClusterRow
from jupyter_sky.base.translation import N_, _
from jupyter_sky.execution.clusters.cluster_fit import missing_labels, name_stem, preferred
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.interfaces.forms.cell_line import Fields, check
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.forms.expected_place import ExpectedPlace, launch_place, own_clusters
from jupyter_sky.interfaces.forms.fields import Field, schema
from jupyter_sky.interfaces.forms.matching import request_with_settings
from jupyter_sky.knowledge.ledger.ledger import format_rate

if TYPE_CHECKING:
    from jupyter_sky.machines.provisioner.placement import Decision

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
