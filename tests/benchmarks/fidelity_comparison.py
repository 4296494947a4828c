"""Comparison of a cell's outputs in two runs, and differences by design."""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from fidelity_outputs import ANSI, CellView, Output
from fidelity_variants import changed_names, mentioned_names

MAX_COLOR_GAP = 8
"""Largest difference of a pixel's channel that nobody sees (of 255)."""
MAX_PIXEL_SHARE = 0.001
"""Share of pixels that may differ more: edges of letters and markers."""
VISIBLE = {"ename", "evalue", "traceback"}
"""Differences in the words of an error, which is shown in both runs."""
SHOWN_TEXT = {"outputs", "data:text/plain", "stream:stdout", "stream:stderr"}
"""Differences in what a cell shows."""

_NUMBER = re.compile(r"[-+]?(\d[\d,]*(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_DURATION = re.compile(r"\b\d[\d.,]*(e[-+]?\d+)?\s*(ns|us|µs|μs|ms|s|min)\b")
_SLOWEST_RUN = re.compile(r"The slowest run took .* being cached\.\n")
"""Remark of ``%timeit`` that depends on the load of the machine."""
_MISSING_NAME = re.compile(r"name '(\w+)' is not defined$|(\w+) is a handle: its value, an? \w+")
_MISSING_FILE = re.compile(
    r"No such file or directory: '([^'\n]+)'|^\w+: ([^\s:]+): No such file or directory"
    r"|\bls: cannot access '([^'\n]+)': No such file or directory",
    re.M,
)
_FILLING = re.compile(r"[\s#|█▏▎▍▌▋▊▉.…-]+")

Same = Callable[[str, str], bool]


@dataclass(frozen=True)
class Rule:
    """A difference by design, with its reason, as narrow as it can be told.

    Attributes
    ----------
    differences
        The differences that it accounts for.
    source, output
        Patterns that the cell and its outputs under `%%sky` contain.
    only
        Pattern of the texts in which the outputs differ. Without them they are equal.
    error
        Pattern of the errors that only the run under `%%sky` shows. What is shown before the first
        is what the plain run shows first.
    """

    reason: str
    differences: tuple[str, ...]
    source: str = ""
    output: str = ""
    only: str = ""
    error: str = ""

    def explains(self, row: Row) -> bool:
        """Return whether it accounts for all differences of a cell."""
        if not row.differences <= set(self.differences):
            return False
        if not re.search(self.source, row.source):
            return False
        shown = (text for output in row.outputs for text in output.texts.values())
        if self.output and not any(re.search(self.output, text) for text in shown):
            return False
        if self.only and not _equal_without(self.only, row.plain_outputs, row.outputs):
            return False
        return not self.error or _ends_by(self.error, row.plain_outputs, row.outputs)


def _equal_without(pattern: str, plain: Sequence[Output], other: Sequence[Output]) -> bool:
    """Return whether outputs are equal once all that a pattern matches is removed."""
    one, two = (
        [
            (output.kind, {name: re.sub(pattern, "", text) for name, text in output.texts.items()})
            for output in outputs
        ]
        for outputs in (plain, other)
    )
    return [entry for entry in one if any(_shown(entry[1]))] == [
        entry for entry in two if any(_shown(entry[1]))
    ]


def _shown(texts: Mapping[str, str]) -> Iterable[str]:
    return (text.strip() for name, text in texts.items() if name != "metadata")


def _ends_by(pattern: str, plain: Sequence[Output], other: Sequence[Output]) -> bool:
    """Return whether a run ends by errors of a pattern, and is the other one until then."""
    shared = [output.texts for output in plain if output.kind == "error"]
    new = [o for o in other if o.kind == "error" and o.texts not in shared]
    if not new or not all(re.search(pattern, _named(output)) for output in new):
        return False
    before = other[: list(other).index(new[0])]
    begun = _streams(before).items()
    is_start = all(_streams(plain).get(name, "").startswith(text) for name, text in begun)
    return is_start and _rest(before) == _rest(plain)[: len(_rest(before))]


def _named(error: Output) -> str:
    return f"{error.texts['ename']}: {error.texts['evalue']}"


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
        Rule(**{**entry, "differences": tuple(entry["differences"])})
        for entry in json.loads(path.read_text())
    ]


def explain(row: Row, rules: Sequence[Rule]) -> Rule | None:
    """Return the rule that accounts for the differences of a cell, if any."""
    if row.differences and row.cause is not None:
        return row.cause
    return next((rule for rule in rules if row.differences and rule.explains(row)), None)


def name_causes(rows: Sequence[Row], rules: Sequence[Rule]) -> list[Row]:
    """Return the rows of a notebook with the causes of errors that earlier cells have led to.

    A cell that fails by design makes no variables, and whatever reads them fails. A file that a
    cell has written is in the folder of its side.
    """
    unmade: dict[str, Row] = {}
    named: list[Row] = []
    for row in rows:
        if row.differences and not explain(row, rules):
            reason = _unmade_reason(row, unmade) or _file_reason(row, named)
            if reason:
                row = replace(row, cause=Rule(reason, tuple(row.differences)))
        if row.has_failed and explain(row, rules):
            unmade |= dict.fromkeys(changed_names(row.source), row)
        else:
            unmade = {name: unmade[name] for name in unmade.keys() - changed_names(row.source)}
        named.append(row)
    return named


def _unmade_reason(row: Row, unmade: Mapping[str, Row]) -> str:
    """Return why the variables of a cell's errors are not there, if cells before tell it.

    A cell on an engine reads the engine's own, which the notebook could not have.
    """
    if row.is_remote and not row.has_failed and row.differences <= SHOWN_TEXT:
        own = sorted(mentioned_names(row.source) & unmade.keys())
        if own:
            return f"{own[0]} is the engine's own: cell {unmade[own[0]].index} has failed by design"
    missing = _missing_names(row.outputs)
    if not missing or not missing <= unmade.keys():
        return ""
    name = min(missing)
    return f"{name} is not there: cell {unmade[name].index} has failed by design"


def _missing_names(outputs: Sequence[Output]) -> set[str]:
    """Return the names that the errors of a cell miss; nothing where it has other errors."""
    errors = [output.texts for output in outputs if output.kind == "error"]
    matches = [_MISSING_NAME.match(texts["evalue"]) for texts in errors]
    return {match[1] or match[2] for match in matches if match} if all(matches) else set()


def _file_reason(row: Row, before: Sequence[Row]) -> str:
    """Return which cell has written a file that is missing, if one of the other side names it."""
    if not row.differences <= {*SHOWN_TEXT, "status"}:
        return ""
    shown = "\n".join(text for output in row.outputs for text in output.texts.values())
    missing = {"".join(groups) for groups in _MISSING_FILE.findall(shown)}
    writers = {
        file: earlier.index
        for file in missing
        for earlier in before
        if earlier.is_remote != row.is_remote and _names_file(earlier.source, Path(file).name)
    }
    if not missing or missing != writers.keys():
        return ""
    file = min(missing)
    return f"{file} is in the other folder, of cell {writers[file]}: --sync and %sky get bring it"


def is_silent(plain: CellView, other: CellView, differences: frozenset[str]) -> bool:
    """Return whether nothing that is shown tells of the differences."""
    errors = [
        {o.texts["ename"] for o in view.outputs if o.kind == "error"} for view in (plain, other)
    ]
    if plain.status != other.status or errors[1] - errors[0]:
        return False
    return not differences <= {f"error:{name}" for name in VISIBLE}


def _names_file(source: str, file: str) -> bool:
    """Return whether a cell names a file, or one that a pattern such as ``*.py`` matches."""
    names = re.findall(r"[\w.-]+", source) if "*" in file else [source]
    return any(fnmatch(name, file) if "*" in file else file in name for name in names)


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
