"""Fields of the form: the options of ``%%sky`` with labels, the common ones first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from jupyter_sky.base.requests.cell_options.schema import BY_DEST, OPTIONS, Option

Kind = Literal["text", "list", "flag", "named", "choice"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form.

    Attributes
    ----------
    key : str
        Key that it sets: the `dest` of its option. A choice has a name of its own, and its
        choices are such keys.
    label, help, example : str
        Label beside it, meaning, and a value that may be written into it.
    kind : str
        ``text``, ``list`` (separated by commas), ``flag``, ``named`` (a flag that may have a
        value) or ``choice``.
    flag : str
        The option as it is written.
    group : str
        Heading below which it stands; empty for the common ones.
    complete : str
        Kind of names that complete it.
    choices : tuple of (str, str)
        Key to set, empty for none, and its words.
    """

    key: str
    label: str
    help: str
    example: str
    kind: Kind
    flag: str = ""
    group: str = ""
    complete: str = ""
    choices: tuple[tuple[str, str], ...] = ()


COMMON = (
    "gpus cpus memory nodes cloud region market max_hourly_cost timeout max_cost input output"
).split()
"""Fields at the top, in this order; the others are folded away below their group's heading."""

_CHOICES = {
    "market": (
        "Machines",
        "Spot machines are cheaper, and the cloud may take them back while the cell runs.",
        (("", "on demand"), ("spot", "spot"), ("on_demand", "on demand, written out")),
    ),
    "send": (
        "Send",
        "Whether the cell's variables are found by reading the cell.",
        (("", "as the settings say"), ("auto", "send what it reads"), ("no_auto", "only inputs")),
    ),
}
_LABELS = {
    "gpus": "GPU",
    "gpu_memory": "GPU memory",
    "cpus": "vCPUs",
    "cpu_vendor": "CPU maker",
    "arch": "Processor",
    "max_hourly_cost": "Max USD/h",
    "max_cost": "Stop after (USD)",
    "timeout": "Time limit",
    "input": "Inputs",
    "output": "Outputs",
    "intel_sgx": "Intel SGX",
    "pip": "Packages",
    "env": "Env variables",
    "sync": "Folders",
    "data": "Data",
    "mount": "Mounted data",
    "out": "Uploads",
    "on": "Engines",
    "idle": "Idle time",
    "bg": "Background",
    "dry_run": "Dry run",
    "retry_until_up": "Wait if full",
    "burst": "Rent when busy",
    "recover": "Go on elsewhere",
    "checkpoint": "Save every",
    "yes": "Large values",
    "untrusted": "Data only",
    "instance_type": "Machine type",
}
_UNITS = {
    "memory": "GiB",
    "gpu_memory": "GiB",
    "disk": "GiB",
}
"""Units of bare numbers in fields."""
_KINDS: dict[str, Kind] = {
    "value": "text",
    "names": "list",
    "flag": "flag",
    "optional": "named",
}


@cache
def schema() -> tuple[Field, ...]:
    """All fields, the common ones first.

    Examples
    --------
    >>> [field.label for field in schema()[:3]]
    ['GPU', 'vCPUs', 'Memory (GiB)']
    """
    found = {field.key: field for field in (*_choices(), *map(_field, OPTIONS))}
    merged = {key for field in found.values() for key, _ in field.choices}
    rest = [key for key in found if key not in merged and key not in COMMON]
    order = {group: place for place, group in enumerate(_groups())}
    rest.sort(key=lambda key: order[found[key].group])
    return (*(found[key] for key in COMMON), *(found[key] for key in rest))


def _groups() -> list[str]:
    return list(dict.fromkeys(option.group for option in OPTIONS))


def _field(option: Option) -> Field:
    key = option.dest
    label = _LABELS.get(key, key.replace("_", " ").capitalize())
    unit = f" ({_UNITS[key]})" if key in _UNITS else ""
    return Field(
        key=key,
        label=label + unit,
        help=option.help,
        example=option.example.partition(" ")[2].strip('"') if option.metavar else "",
        kind=_KINDS[option.kind],
        flag=option.flags[-1],
        group="" if key in COMMON else option.group,
        complete=option.complete,
    )


def _choices() -> list[Field]:
    return [
        Field(
            key=key,
            label=label,
            help=text,
            example="",
            kind="choice",
            group="" if key in COMMON else BY_DEST[choices[1][0]].group,
            choices=choices,
        )
        for key, (label, text, choices) in _CHOICES.items()
    ]
