"""Comparison of a cell's outputs in two runs, and differences by design."""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fidelity_outputs import ANSI, CellView, Output
from fidelity_variants import changed_names

MAX_COLOR_GAP = 8
"""Largest difference of a pixel's channel that nobody sees (of 255)."""
MAX_PIXEL_SHARE = 0.001
"""Share of pixels that may differ more: edges of letters and markers."""
VISIBLE = {"ename", "evalue", "traceback"}
"""Differences in the words of an error, which is shown in both runs."""

_NUMBER = re.compile(r"[-+]?(\d[\d,]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_DURATION = re.compile(r"\b\d[\d.,]*(e[-+]?\d+)?\s*(ns|us|µs|μs|ms|s|min)\b")
_SLOWEST_RUN = re.compile(r"The slowest run took .* being cached\.\n")
"""Remark of ``%timeit`` that depends on the load of the machine."""
_MISSING_NAME = re.compile(r"name '(\w+)' is not defined")
_FILLING = re.compile(r"[\s#|█▏▎▍▌▋▊▉.…-]+")

Same = Callable[[str, str], bool]


@dataclass(frozen=True)
class Rule:
    """A difference by design, with its reason.

    Attributes
    ----------
    source, output
        Patterns that the cell and its outputs under `%%sky` contain.
    differences
        The differences that it accounts for; all when empty.
    """

    reason: str
    source: str = ""
    output: str = ""
    differences: tuple[str, ...] = ()

    def explains(self, row: Row) -> bool:
        """Return whether it accounts for all differences of a cell."""
        if self.differences and not row.differences <= set(self.differences):
            return False
        shown = json.dumps([asdict(output) for output in row.outputs], ensure_ascii=False)
        return bool(re.search(self.source, row.source) and re.search(self.output, shown))


@dataclass(frozen=True)
class Row:
    """Result for one cell.

    Attributes
    ----------
    differences
        Names of the differences between the plain run and the other one.
    is_silent
        Whether a reader of the notebook cannot know of a difference: the cell ends with the same
        status, and no error tells of it.
    extra_seconds
        Time of the cell beyond that of the plain one.
    cause
        Difference by design of an earlier cell, of which this one is a consequence.
    """

    notebook: str
    index: int
    source: str
    differences: frozenset[str]
    is_silent: bool = False
    is_remote: bool = True
    extra_seconds: float = 0.0
    outputs: tuple[Output, ...] = ()
    plain_outputs: tuple[Output, ...] = field(default=(), repr=False)
    cause: Rule | None = None

    @property
    def has_failed(self) -> bool:
        """Whether an error is shown that the plain run does not show."""
        kinds = [{o.kind for o in outputs} for outputs in (self.plain_outputs, self.outputs)]
        return "error" in kinds[1] - kinds[0]


def read_rules(path: Path) -> list[Rule]:
    """Return the differences by design that a file names."""
    return [
        Rule(**{**entry, "differences": tuple(entry.get("differences", ()))})
        for entry in json.loads(path.read_text())
    ]


def explain(row: Row, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule that accounts for the differences of a cell, if any."""
    if row.differences and row.cause is not None:
        return row.cause
    return next((rule for rule in rules if row.differences and rule.explains(row)), None)


def name_causes(rows: Sequence[Row], rules: Sequence[Rule]) -> list[Row]:
    """Return the rows of a notebook with the causes of errors that earlier cells have led to.

    A cell that fails by design makes no variables, and whatever reads them raises a NameError.
    """
    unmade: dict[str, Row] = {}
    named = []
    for row in rows:
        missing = _missing_names(row.outputs)
        if missing and missing <= unmade.keys() and not explain(row, rules):
            first = unmade[min(missing)]
            reason = f"{min(missing)} is not there: cell {first.index} has failed by design"
            row = replace(row, cause=Rule(reason))
        if row.has_failed and explain(row, rules):
            unmade |= dict.fromkeys(changed_names(row.source), row)
        else:
            unmade = {name: unmade[name] for name in unmade.keys() - changed_names(row.source)}
        named.append(row)
    return named


def _missing_names(outputs: Sequence[Output]) -> set[str]:
    """Return the names of the NameErrors of a cell; nothing where it has other errors."""
    errors = [output.texts for output in outputs if output.kind == "error"]
    matches = [_MISSING_NAME.fullmatch(texts["evalue"]) for texts in errors]
    return {match[1] for match in matches if match} if all(matches) else set()


def is_silent(plain: CellView, other: CellView, differences: frozenset[str]) -> bool:
    """Return whether nothing that is shown tells of the differences."""
    errors = [
        {o.texts["ename"] for o in view.outputs if o.kind == "error"} for view in (plain, other)
    ]
    if plain.status != other.status or errors[1] - errors[0]:
        return False
    return not differences <= {f"error:{name}" for name in VISIBLE}


def compare(plain: CellView, other: CellView, again: CellView | None = None) -> frozenset[str]:
    """Return the names of the differences between two runs of a cell.

    Parameters
    ----------
    again
        Another plain run. What differs from it too differs by chance: then numbers and images may
        differ, and only the rest counts.
    """
    differences = _exact_differences(plain, other)
    if not differences or again is None:
        return differences
    noise = _exact_differences(plain, again)
    outputs = output_differences(plain.outputs, other.outputs)
    if not noise or differences - outputs - {"messages"}:
        return differences
    if "messages" in differences and "messages" not in noise:
        return differences
    unlike = output_differences(plain.outputs, other.outputs, same_shape)
    return unlike - output_differences(plain.outputs, again.outputs, same_shape)


def _exact_differences(plain: CellView, other: CellView) -> frozenset[str]:
    found = set(output_differences(plain.outputs, other.outputs))
    if not found and plain.messages != other.messages:
        found.add("messages")
    if plain.status != other.status:
        found.add("status")
    if plain.execution_count != other.execution_count:
        found.add("execution_count")
    if plain.payloads != other.payloads:
        found.add("payloads")
    return frozenset(found)


def output_differences(
    one: Sequence[Output], other: Sequence[Output], same: Same = str.__eq__
) -> frozenset[str]:
    """Return the names of the differences between two lists of outputs."""
    if _kinds(one) == _kinds(other):
        pairs = zip(one, other, strict=True)
        return frozenset().union(*(_text_differences(a, b, same) for a, b in pairs))
    if _streams(one) != _streams(other) or _kinds(_rest(one)) != _kinds(_rest(other)):
        return frozenset({"outputs"})
    return output_differences(_rest(one), _rest(other), same) | {"stream order"}


def _kinds(outputs: Sequence[Output]) -> list[tuple[str, tuple[str, ...]]]:
    return [(output.kind, tuple(output.texts)) for output in outputs]


def _is_stream(output: Output) -> bool:
    return output.kind.startswith("stream:")


def _rest(outputs: Sequence[Output]) -> list[Output]:
    return [output for output in outputs if not _is_stream(output)]


def _streams(outputs: Sequence[Output]) -> dict[str, str]:
    """Return the whole text of each stream."""
    texts: dict[str, str] = {}
    for output in filter(_is_stream, outputs):
        texts[output.kind] = texts.get(output.kind, "") + output.texts["text"]
    return texts


def _text_differences(one: Output, other: Output, same: Same) -> set[str]:
    found = {"count"} if one.count != other.count else set()
    for name, text in one.texts.items():
        if name in ("image/png", "image/jpeg"):
            if same is not same_shape and not same_image(text, other.texts[name]):
                found.add("image")
        elif not same(text, other.texts[name]):
            found.add(one.kind if _is_stream(one) else f"{_short(one.kind)}:{name}")
    return found


def _short(kind: str) -> str:
    return "error" if kind == "error" else "data"


def same_shape(one: str, other: str) -> bool:
    """Return whether two texts are equal but for their numbers, durations and bars."""
    return _shape(one) == _shape(other)


def _shape(text: str) -> str:
    text = _DURATION.sub("DURATION", ANSI.sub("", text))
    text = re.sub(r"\bloops\b", "loop", _SLOWEST_RUN.sub("", text))
    return _FILLING.sub(" ", _NUMBER.sub("#", text))


def same_image(one: str, other: str) -> bool:
    """Return whether two images look the same."""
    if one == other:
        return True
    import numpy as np
    from PIL import Image, ImageChops

    try:
        images = [
            Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA") for text in (one, other)
        ]
    except (OSError, binascii.Error):  # no image, in one of them
        return False
    if images[0].size != images[1].size:
        return False
    gaps = np.asarray(ImageChops.difference(images[0], images[1]))
    return bool((gaps > MAX_COLOR_GAP).mean() < MAX_PIXEL_SHARE)
