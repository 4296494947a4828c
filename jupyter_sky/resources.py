"""What a cell asks for, as a value: amounts, durations, prices, and the whole request."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_sky import accelerators
from jupyter_sky.errors import SkyUsageError, suggest
from jupyter_sky.offers import Offer

CLOUDS = ("aws", "azure", "gcp", "local", "ssh")

Label = str | int | float | bool | tuple[str, ...] | list[str] | None

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_AMOUNT = re.compile(rf"({_NUMBER})\s*([a-z]*)\s*(\+?)", re.IGNORECASE)
_DURATION = re.compile("".join(rf"(?:({_NUMBER})\s*{unit}\s*)?" for unit in "dhms"), re.IGNORECASE)
_USD = re.compile(rf"\$?\s*({_NUMBER})")
# Clouds write GB and mean GiB, and people copy what they read: all units are binary.
_GIB = {"": 1.0, "m": 1 / 1024, "g": 1.0, "t": 1024.0}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number, or with ``+`` at least that number.

    Examples
    --------
    >>> Amount(4, at_least=True).admits(8), str(Amount(4, at_least=True))
    (True, '4+')
    """

    value: float
    at_least: bool = False

    def admits(self, amount: float) -> bool:
        """Whether an amount is what was asked for."""
        # A tenth of a percent: a figure that we printed rounded must match what it stands for.
        close = math.isclose(amount, self.value, rel_tol=1e-3)
        return close or (self.at_least and amount > self.value)

    def __str__(self) -> str:
        return plain_number(self.value) + ("+" if self.at_least else "")


def plain_number(value: float) -> str:
    """A number without a needless ``.0``.

    Examples
    --------
    >>> plain_number(4.0), plain_number(0.5)
    ('4', '0.5')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def parse_amount(text: str, label: str, *, units: bool = True) -> Amount:
    """Read ``4``, ``4+``, ``1.5`` or, with units, ``16GB``, ``512MB+``, ``1T`` (in GiB).

    Raises
    ------
    SkyUsageError
        When the text is malformed, zero or negative.

    Examples
    --------
    >>> parse_amount("512MB+", "--memory")
    Amount(value=0.5, at_least=True)
    """
    hint = f"write a positive number, with + for at least, such as {label} 4 or {label} 4+"
    if units:
        hint += f"; {label} 16 is in GiB, 512MB and 1T are understood"
    match = _AMOUNT.fullmatch(text.strip())
    unit = match[2].lower().removesuffix("b").removesuffix("i") if match else ""
    known_unit = unit in _GIB and (units or not (match and match[2]))
    value = float(match[1]) * _GIB[unit] if match and known_unit else 0.0
    if not match or not known_unit or not 0 < value < math.inf:
        raise SkyUsageError(f"{label} {text}: not an amount", hint=hint)
    return Amount(value, bool(match[3]))


def parse_count(text: str, label: str) -> int:
    """Read a whole number of at least 1."""
    if not re.fullmatch(r"\d{1,9}", text.strip()) or int(text) < 1:
        raise SkyUsageError(
            f"{label} {text}: not a count", hint=f"write a whole number from 1, such as {label} 2"
        )
    return int(text)


def parse_duration(text: str, label: str) -> float:
    """Read ``90s``, ``20m``, ``1h30m`` or ``0``; the answer is in seconds.

    A bare number is refused: some tools read it as minutes and others as seconds.

    Examples
    --------
    >>> parse_duration("1h30m", "--timeout")
    5400.0
    """
    match = _DURATION.fullmatch(text.strip())
    if text.strip() != "0" and not (match and any(match.groups())):
        raise SkyUsageError(
            f"{label} {text}: not a duration",
            hint=f"write it with a unit, such as {label} 90s, {label} 20m or {label} 2h",
        )
    parts = match.groups() if match else "0000"
    days, hours, minutes, seconds = (float(part or 0) for part in parts)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_duration(seconds: float) -> str:
    """Seconds as a clock shows them.

    Examples
    --------
    >>> format_duration(41), format_duration(725), format_duration(3753)
    ('0:41', '12:05', '1:02:33')
    """
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def format_elapsed(seconds: float) -> str:
    """Seconds that something took: tenths below one second, a clock above.

    Examples
    --------
    >>> format_elapsed(0.31), format_elapsed(72)
    ('0.3 s', '1:12')
    """
    # from 0.95 s on the tenth would be rounded to a whole second
    return f"{max(0.0, seconds):.1f} s" if seconds < 0.95 else format_duration(max(1.0, seconds))


def parse_usd(text: str, label: str) -> float:
    """Read ``2.5`` or ``$2.5``, in USD.

    Examples
    --------
    >>> parse_usd("$2.5", "--max-cost")
    2.5
    """
    match = _USD.fullmatch(text.strip())
    if not match or math.isinf(float(match[1])):
        raise SkyUsageError(
            f"{label} {text}: not an amount of USD", hint=f"write a number, such as {label} 2.5"
        )
    return float(match[1])


def parse_clouds(text: str, label: str) -> tuple[str, ...]:
    """Read a list of clouds, such as ``aws,gcp``."""
    clouds = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    for cloud in clouds:
        if cloud not in CLOUDS:
            raise SkyUsageError(f"{label} {cloud}: not a known cloud", hint=suggest(cloud, CLOUDS))
    if not clouds:
        raise SkyUsageError(f"{label} needs a cloud", hint=f"known: {', '.join(CLOUDS)}")
    return clouds


def parse_gpus(text: str, label: str) -> tuple[str, int]:
    """Read ``V100`` or ``V100:4`` into a canonical name and a count."""
    name, colon, count = text.strip().partition(":")
    if not name or name.isdigit():
        raise SkyUsageError(
            f"{label} {text}: not an accelerator",
            hint=f"write a name and a count, such as {label} V100:1",
        )
    if colon and not re.fullmatch(r"[1-9]\d{0,5}", count):
        raise SkyUsageError(
            f"{label} {text}: {count!r} is not a count", hint=f"such as {label} {name}:1"
        )
    return accelerators.canonical(name), int(count or 1)


def option(key: str, value: str = "") -> str:
    """A label as it is written on a command line.

    Examples
    --------
    >>> option("instance_type", "g5.xlarge")
    '--instance-type g5.xlarge'
    """
    flag = "--" + key.replace("_", "-")
    return flag if key in _FLAGS or not value else f"{flag} {value}"


def _word(text: str, label: str) -> str:
    if not re.fullmatch(r"[\w.:/-]+", text):
        raise SkyUsageError(f"{label} {text}: not a name", hint=f"{label} takes one name")
    return text


def _gpu_fields(text: str, label: str) -> dict[str, Any]:
    gpu, count = parse_gpus(text, label)
    return {"gpu": gpu, "gpu_count": count}


_FLAGS = ("spot", "on_demand")
_PARSERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "cpus": lambda text, label: {"cpus": parse_amount(text, label, units=False)},
    "memory": lambda text, label: {"memory": parse_amount(text, label)},
    "gpus": _gpu_fields,
    "nodes": lambda text, label: {"nodes": parse_count(text, label)},
    "disk": lambda text, label: {"disk": parse_amount(text, label)},
    "cloud": lambda text, label: {"clouds": parse_clouds(text, label)},
    "region": lambda text, label: {"region": _word(text, label)},
    "zone": lambda text, label: {"zone": _word(text, label)},
    "instance_type": lambda text, label: {"instance_type": _word(text, label)},
    "spot": lambda text, label: {"spot": True},
    "on_demand": lambda text, label: {"spot": False},
    "max_hourly_cost": lambda text, label: {"max_hourly_cost": parse_usd(text, label)},
}


@dataclass(frozen=True, slots=True)
class Resources:
    """What a cell needs. ``Resources()`` is content with anything.

    Attributes
    ----------
    cpus, memory, disk : Amount, optional
        vCPUs, GiB of memory and GiB of disk, of each node. A larger disk always will do.
    gpu, gpu_count
        Canonical name of the accelerator, and how many each node has.
    nodes : int
        Number of machines.
    clouds : tuple of str
        Clouds to choose from; empty for all.
    region, zone, instance_type : str, optional
        In the cloud's own words.
    spot : bool, optional
        True for spot machines, False for on-demand ones, None for either.
    max_hourly_cost : float, optional
        Most USD/h that all nodes together may cost.

    Examples
    --------
    >>> Resources.parse(cpus="4+", gpus="v100").command_line()
    '--cpus 4+ --gpus V100:1'
    """

    cpus: Amount | None = None
    memory: Amount | None = None
    gpu: str | None = None
    gpu_count: int = 0
    nodes: int = 1
    disk: Amount | None = None
    clouds: tuple[str, ...] = ()
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    spot: bool | None = None
    max_hourly_cost: float | None = None

    @classmethod
    def parse(cls, **labels: Label) -> Resources:
        """Request of option strings, named as the options are; None and False mean not given.

        Raises
        ------
        SkyUsageError
            For an unknown or malformed label, or for both ``spot`` and ``on_demand``.
        """
        fields: dict[str, Any] = {}
        given = {key: _text(value) for key, value in labels.items() if _is_given(value)}
        for key, text in given.items():
            if key not in _PARSERS:
                raise SkyUsageError(f"{key!r} is not a label", hint=suggest(key, _PARSERS))
            fields |= _PARSERS[key](text, option(key))
        if "spot" in given and "on_demand" in given:
            raise SkyUsageError(
                "--spot and --on-demand exclude each other", hint="give one of them, or none"
            )
        return cls(**fields)

    def labels(self) -> dict[str, str]:
        """Canonical option strings; ``Resources.parse(**r.labels()) == r``."""
        market = {None: None, True: "spot", False: "on_demand"}[self.spot]
        cost = self.max_hourly_cost
        everything = {
            "cpus": self.cpus,
            "memory": self.memory,
            "gpus": f"{self.gpu}:{self.gpu_count}" if self.gpu else None,
            "nodes": self.nodes if self.nodes > 1 else None,
            "disk": self.disk,
            "cloud": ",".join(self.clouds) or None,
            "region": self.region,
            "zone": self.zone,
            "instance_type": self.instance_type,
            market: "true" if market else None,
            "max_hourly_cost": None if cost is None else plain_number(cost),
        }
        return {key: str(text) for key, text in everything.items() if key and text is not None}

    def command_line(self) -> str:
        """The request as it is written above a cell."""
        return " ".join(option(key, text) for key, text in self.labels().items())

    def unmet_labels(self, offer: Offer) -> tuple[str, ...]:
        """Keys of `labels` that an offer fails to meet."""
        failed = [key for key, meets in _MEETS.items() if not meets(self, offer)]
        if self.spot is not None and self.spot != offer.spot:
            failed.append("spot" if self.spot else "on_demand")
        return tuple(failed)

    def unmet(self, offer: Offer) -> list[str]:
        """Labels that an offer fails to meet, as they are written: ``['--cpus 4+']``."""
        texts = self.labels()
        return [option(key, texts[key]) for key in self.unmet_labels(offer)]

    def satisfied_by(self, offer: Offer) -> bool:
        """Whether an offer meets every label."""
        return not self.unmet_labels(offer)


def _is_given(value: Label) -> bool:
    return value is not None and value is not False and str(value).lower() != "false"


def _text(value: Label) -> str:
    return ",".join(value) if isinstance(value, tuple | list) else str(value)


# Label -> whether an offer meets it; a label that was not given is met by every offer.
_MEETS: dict[str, Callable[[Resources, Offer], bool]] = {
    "cpus": lambda need, offer: need.cpus is None or need.cpus.admits(offer.vcpus),
    "memory": lambda need, offer: need.memory is None or need.memory.admits(offer.memory),
    "gpus": lambda need, offer: (
        need.gpu is None or (need.gpu, need.gpu_count) == (offer.gpu, offer.gpu_count)
    ),
    "disk": lambda need, offer: (
        need.disk is None or offer.disk is None or offer.disk >= need.disk.value
    ),
    "cloud": lambda need, offer: not need.clouds or offer.cloud in need.clouds,
    "region": lambda need, offer: need.region in (None, offer.region),
    "zone": lambda need, offer: need.zone in (None, offer.zone),
    "instance_type": lambda need, offer: need.instance_type in (None, offer.instance_type),
    "max_hourly_cost": lambda need, offer: (
        # A limit on an unknown price cannot be shown to be kept.
        need.max_hourly_cost is None
        or (offer.price is not None and offer.price * need.nodes <= need.max_hourly_cost)
    ),
}
