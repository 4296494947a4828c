"""Amounts, durations and prices: how they are written, read and shown."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _, ngettext

GB = 1.0
"""Unit of sizes here, so that ``150 * GB`` says what it is."""

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
# Compiled when first used, and kept by re: an import should not pay for it.
_AMOUNT = rf"(?i:(?:(>=)\s*)?({_NUMBER})\s*([a-z]*)\s*(\+?))"
_UNITS = (r"d(?:ays?)?", r"h(?:(?:ou)?rs?)?", r"m(?:in(?:ute)?s?)?", r"s(?:ec(?:ond)?s?)?")
_DURATION = "(?i:" + "".join(rf"(?:({_NUMBER})\s*{unit}\s*)?" for unit in _UNITS) + ")"
_USD = rf"\$?\s*({_NUMBER})"
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
        low, high = self.bounds()
        return low <= amount <= high

    def bounds(self) -> tuple[float, float]:
        """Least and largest amount that is what was asked for.

        A tenth of a percent to either side: a figure that we printed rounded must match what it
        stands for. A third and a sixth of a GPU are listed with three decimals.
        """
        near = max(self.value * 1e-3, 5e-4)
        return self.value - near, math.inf if self.at_least else self.value + near

    def __str__(self) -> str:
        return plain_number(self.value) + ("+" if self.at_least else "")


def plain_number(value: float) -> str:
    """Format a number without a needless ``.0``.

    Examples
    --------
    >>> plain_number(4.0), plain_number(0.5)
    ('4', '0.5')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def parse_amount(text: str, label: str, *, units: bool = True) -> Amount:
    """Read ``4``, ``4+`` or ``>=4``, ``1.5`` or, with units, ``16GB``, ``512MB+``, ``1T`` (in GiB).

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
    match = re.fullmatch(_AMOUNT, text.strip())
    unit = match[3].lower().removesuffix("b").removesuffix("i") if match else ""
    known_unit = unit in _GIB and (units or not (match and match[3]))
    value = float(match[2]) * _GIB[unit] if match and known_unit else 0.0
    if not match or not known_unit or not 0 < value < math.inf:
        raise SkyUsageError(
            _("{label} {text}: not an amount").format(label=label, text=text), hint=hint
        )
    return Amount(value, bool(match[1] or match[4]))


def parse_count(text: str, label: str) -> int:
    """Read a whole number of at least 1."""
    if not re.fullmatch(r"\d{1,9}", text.strip()) or int(text) < 1:
        raise SkyUsageError(
            _("{label} {text}: not a count").format(label=label, text=text),
            hint=_("write a whole number from 1, such as {label} 2").format(label=label),
        )
    return int(text)


def parse_duration(text: str, label: str) -> float:
    """Read ``90s``, ``20m``, ``1h30m``, ``2 hours`` or ``0``; the answer is in seconds.

    A bare number is refused: some tools read it as minutes and others as seconds.

    Examples
    --------
    >>> parse_duration("1h30m", "--timeout")
    5400.0
    """
    match = re.fullmatch(_DURATION, text.strip())
    if text.strip() != "0" and not (match and any(match.groups())):
        raise SkyUsageError(
            _("{label} {text}: not a duration").format(label=label, text=text),
            hint=_("write it with a unit, such as {label} 90s, {label} 20m or {label} 2h").format(
                label=label
            ),
        )
    parts = match.groups() if match else "0000"
    days, hours, minutes, seconds = (float(part or 0) for part in parts)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def is_time_unit(word: str) -> bool:
    """Return whether a word is a unit of time, such as ``h`` or ``hours``.

    Examples
    --------
    >>> [is_time_unit(word) for word in ("h", "Minutes", "hours,", "month")]
    [True, True, False, False]
    """
    return any(re.fullmatch(f"(?i:{unit})", word) for unit in _UNITS)


def join_durations(words: Sequence[str]) -> list[str]:
    """Return words in which a number and the unit of time after it are one word.

    Units of one letter stay by themselves: they may be names.

    Examples
    --------
    >>> join_durations(["extend", "train", "2", "hours"]), join_durations(["wait", "7", "m"])
    (['extend', 'train', '2hours'], ['wait', '7', 'm'])
    """
    joined: list[str] = []
    for word in words:
        if joined and len(word) > 1 and is_time_unit(word) and re.fullmatch(_NUMBER, joined[-1]):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


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
    """Seconds that something took: tenths below ten seconds, a clock above.

    Examples
    --------
    >>> format_elapsed(0.31), format_elapsed(4.2), format_elapsed(72)
    ('0.3 s', '4.2 s', '1:12')
    """
    # from 9.95 s on the tenth would be rounded to a whole second
    return f"{max(0.0, seconds):.1f} s" if seconds < 9.95 else format_duration(round(seconds))


def format_run_time(run: float, boot: float = 0.0) -> str:
    """Seconds of a cell: until it was sent to a cluster, if it had to wait, and since then.

    Examples
    --------
    >>> format_run_time(1.04, boot=4.2), format_run_time(1.04)
    ('boot 4.2 s, run 1.0 s', '1.0 s')
    """
    if boot < 0.95:
        return format_elapsed(run)
    times = {"boot": format_elapsed(boot), "run": format_elapsed(run)}
    return _("boot {boot}, run {run}").format(**times)


def format_vcpus(count: float) -> str:
    """Return a number of vCPUs in words.

    Examples
    --------
    >>> format_vcpus(1), format_vcpus(0.5), format_vcpus(8)
    ('1 vCPU', '0.5 vCPUs', '8 vCPUs')
    """
    several = 1 if count == 1 else 2  # half a vCPU is no singular
    return ngettext("{count:g} vCPU", "{count:g} vCPUs", several).format(count=count)


def parse_usd(text: str, label: str) -> float:
    """Read ``2.5`` or ``$2.5``, in USD.

    Examples
    --------
    >>> parse_usd("$2.5", "--max-cost")
    2.5
    """
    match = re.fullmatch(_USD, text.strip())
    if not match or math.isinf(float(match[1])):
        raise SkyUsageError(
            _("{label} {text}: not an amount of USD").format(label=label, text=text),
            hint=_("write a number, such as {label} 2.5").format(label=label),
        )
    return float(match[1])


def format_size(nbytes: float) -> str:
    """Return a number of bytes in words.

    Examples
    --------
    >>> format_size(2_400_121)
    '2.4 MB'
    """
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        nbytes /= 1000
        if nbytes < 1000 or unit == "GB":
            break
    return f"{nbytes:.1f} {unit}"


def format_objects(count: int) -> str:
    """Return a number of objects of a store in words.

    Examples
    --------
    >>> format_objects(1), format_objects(1200)
    ('1 object', '1,200 objects')
    """
    return _("1 object") if count == 1 else _("{count:,} objects").format(count=count)
