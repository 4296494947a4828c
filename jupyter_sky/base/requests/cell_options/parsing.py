"""Parser of the line of options of a cell.

Verbs are read by argparse (`interfaces.magics.verb_parser`), this line is not: argparse does not
report the positions of words, which the form needs to edit a line in place, and ``-i a, b`` is one
list here.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.remote.package_names import check_package
from jupyter_sky.base.requests.cell_options.burst import parse_burst
from jupyter_sky.base.requests.cell_options.conditions import parse_condition, parse_defaults
from jupyter_sky.base.requests.cell_options.data import parse_data, parse_uploads
from jupyter_sky.base.requests.cell_options.data_engines import parse_engine
from jupyter_sky.base.requests.cell_options.identifiers import check_identifier, nearest_identifier
from jupyter_sky.base.requests.cell_options.ranges import read_ranges
from jupyter_sky.base.requests.cell_options.schema import BY_DEST, BY_FLAG, OPTIONS, Option
from jupyter_sky.base.requests.cell_options.sweep import parse_maps
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions, CellOutput
from jupyter_sky.base.requests.quantities import is_time_unit
from jupyter_sky.base.requests.resources import Resources, parse_duration, parse_usd
from jupyter_sky.base.translation import _

_RESOURCES = tuple(option.dest for option in OPTIONS if option.group == "Resources")
_EXCLUSIVE = {"spot": "on_demand", "on_demand": "spot", "auto": "no_auto", "no_auto": "auto"}

FILE_PREFIX = "file:"
"""Beginning of a value of ``-o`` that is a path."""

_GivenOptions = dict[str, list[str]]


def parse_cell_line(line: str, aliases: Mapping[str, str] = MappingProxyType({})) -> CellOptions:
    """Parse the options after ``%%sky``.

    Parameters
    ----------
    line : str
        Options; the first word may be an alias.
    aliases : mapping of str to str
        Options that a word stands for. Those that the line itself gives win over them.

    Raises
    ------
    SkyUsageError
        An option is unknown, or its value is invalid; the hint gives an example.

    Examples
    --------
    >>> parse_cell_line("big --spot", {"big": "--cpus 16+"}).resources.command_line()
    '--cpus 16+ --spot'
    """
    return _parse(line, tuple(sorted(aliases.items())))


@lru_cache(maxsize=1024)
def _parse(line: str, aliases: tuple[tuple[str, str], ...]) -> CellOptions:
    given = _read_values(_split_words(line), dict(aliases))
    inputs = _inputs(_names(given, "input"))
    return CellOptions(
        resources=Resources.parse(**{key: given[key][0] for key in _RESOURCES if key in given}),
        cluster=_check_pattern(given, "cluster", r"[A-Za-z0-9][\w.-]*"),
        on=_check_pattern(given, "on", r"all|\d*:\d*|\d+(,\d+)*"),
        engine=_engine(given),
        sql="sql" in given,
        max_cost=parse_usd(given["max_cost"][0], "--max-cost") if "max_cost" in given else None,
        timeout=_seconds(given, "timeout"),
        idle=_seconds(given, "idle"),
        pip=_packages(_names(given, "pip")),
        env=_variables(_names(given, "env")),
        sync=_names(given, "sync"),
        data=parse_data(_names(given, "data"), "--data"),
        mounts=parse_data(_names(given, "mount"), "--mount"),
        uploads=parse_uploads(_names(given, "out")),
        inputs=inputs,
        outputs=_outputs(_names(given, "output")),
        files=_output_files(_names(given, "output")),
        auto=_exclusive_flag(given, "auto", "no_auto"),
        background="bg" in given,
        name=_run_name(given),
        after=_task_names(_names(given, "after")),
        maps=parse_maps(_names(given, "map"), {read.name for read in inputs}),
        ranges=read_ranges(*(given.get(dest, [None])[0] for dest in ("sweep", "seed"))),
        at_once=_count(given, "at_once"),
        allow_failures=_allowed_failures(given),
        condition=parse_condition(given["if"][0]) if "if" in given else "",
        defaults=parse_defaults(_names(given, "default")),
        retries=int(_check_pattern(given, "retry", r"\d{1,4}") or 0),
        dry_run="dry_run" in given,
        retry_until_up="retry_until_up" in given,
        burst=parse_burst(given["burst"][0], is_of_cell=True) if "burst" in given else None,
        recover=_check_pattern(given, "recover", r"|[A-Za-z_][\w-]*"),
        checkpoint=_checkpoint_seconds(given),
        search=_check_pattern(given, "search", "cost|time") or "",
        trials=_count(given, "trials"),
        budget=parse_usd(given["budget"][0], "--budget") if "budget" in given else None,
        deadline=_seconds(given, "deadline"),
        yes="yes" in given,
        untrusted="untrusted" in given,
    )


def _split_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise SkyUsageError(
            _("%%sky {line}: {error}").format(line=line, error=str(error).lower()),
            hint=_("every quote needs its closing quote"),
        ) from None


def _read_values(words: list[str], aliases: dict[str, str]) -> _GivenOptions:
    """Values of each option in the order given, the alias's under the line's own."""
    rest, base, own = deque(words), _GivenOptions(), _GivenOptions()
    if rest and not rest[0].startswith("-"):
        alias = rest.popleft()
        if alias not in aliases:
            hint = _match_flag(alias, aliases)
            raise SkyUsageError(
                _("{alias!r} is not an option or an alias").format(alias=alias), hint=hint
            )
        others = {name: text for name, text in aliases.items() if name != alias}
        base = _read_values(_split_words(aliases[alias]), others)
    for use in written_options(list(rest)):
        own.setdefault(use.option.dest, []).append(use.value)
    replaced = {_EXCLUSIVE.get(dest) for dest in own}
    kept = {dest: values for dest, values in base.items() if dest not in replaced}
    lists = {dest: kept.get(dest, []) + own[dest] for dest in own if BY_DEST[dest].kind == "names"}
    return kept | own | lists


class WrittenOption(NamedTuple):
    """An option as it stands in a line: `words[first:last]` say it."""

    option: Option
    flag: str
    value: str
    first: int
    last: int


def written_options(words: Sequence[str]) -> Iterator[WrittenOption]:
    """Yield the options of a line without its alias, in the order of its words.

    Raises
    ------
    SkyUsageError
        For an option that is not known, is given twice or lacks its value.

    Examples
    --------
    >>> [(use.option.dest, use.value) for use in written_options(["--cpus=4+", "-i", "a,", "b"])]
    [('cpus', '4+'), ('input', 'a,b')]
    """
    rest, seen = deque(words), set[str]()
    while rest:
        first = len(words) - len(rest)
        flag, equals, attached = rest.popleft().partition("=")
        option = BY_FLAG.get(flag)
        if option is None:
            raise SkyUsageError(
                _("{flag!r} is not an option of %%sky").format(flag=flag),
                hint=_match_flag(flag, {}),
            )
        if option.dest in seen and option.kind in ("value", "optional"):
            raise SkyUsageError(
                _("{flag} is given twice").format(flag=flag),
                hint=_("give it once: {example}").format(example=option.example),
            )
        seen.add(option.dest)
        value = _value(option, flag, attached if equals else None, rest)
        yield WrittenOption(option, flag, value, first, len(words) - len(rest))


def _match_flag(word: str, aliases: Mapping[str, str]) -> str:
    hint = suggest(word, [*BY_FLAG, *aliases])
    return hint if hint.startswith("did") else "%%sky? shows every option"


def _value(option: Option, flag: str, attached: str | None, rest: deque[str]) -> str:
    """Return the value of an option, taken from `rest` when it is not attached with ``=``."""
    if option.kind == "flag":
        if attached is not None:
            raise SkyUsageError(
                _("{flag} takes no value").format(flag=flag),
                hint=_("write {example}").format(example=option.example),
            )
        return ""
    value = attached
    if value is None and rest and not is_option(rest[0]):
        value = rest.popleft()
    if option.metavar == "TIME" and attached is None and rest and is_time_unit(rest[0]):
        value = f"{value}{rest.popleft()}"  # --timeout 2 hours
    if option.kind == "names":
        # `-i a, b` and `-i a , b` are one list
        while value and rest and "," in (value[-1], rest[0][:1]) and not is_option(rest[0]):
            value += rest.popleft()
    if value is None and option.kind == "optional":
        return ""
    if not value or not value.strip(" ,"):
        raise SkyUsageError(
            _("{flag} needs a value").format(flag=flag),
            hint=_("such as {example}").format(example=option.example),
        )
    return value


def is_option(word: str) -> bool:
    """Whether a word reads as an option, and so never as the value of one before it."""
    return re.match(r"-[^\d.]", word) is not None


def _check_pattern(given: _GivenOptions, dest: str, pattern: str) -> str | None:
    if dest not in given:
        return None
    text, option = given[dest][0], BY_DEST[dest]
    if not re.fullmatch(pattern, text) or text == ":":
        raise SkyUsageError(
            _("{flags} {text}: not understood").format(flags=option.flags[-1], text=text),
            hint=_("such as {example}").format(example=option.example),
        )
    return text


def _engine(given: _GivenOptions) -> str | None:
    """Return the data engine; that of a cell of SQL, and of managed services, is Spark."""
    needs_spark = [BY_DEST[dest].flags[-1] for dest in ("sql", "service") if dest in given]
    if "engine" not in given:
        return "spark" if needs_spark else None
    engine = parse_engine(given["engine"][0], "--engine")
    if needs_spark and engine != "spark":
        raise SkyUsageError(
            _("{flag} is for Spark, and --engine names {engine}").format(
                flag=needs_spark[0], engine=engine
            ),
            hint=_("leave one of both out"),
        )
    return engine


def _count(given: _GivenOptions, dest: str) -> int | None:
    text = _check_pattern(given, dest, r"0*[1-9]\d*")
    return None if text is None else int(text)


def _seconds(given: _GivenOptions, dest: str) -> float | None:
    return parse_duration(given[dest][0], f"--{dest}") if dest in given else None


def _allowed_failures(given: _GivenOptions) -> str:
    text = _check_pattern(given, "allow_failures", r"(100|\d{1,2})%|\d{1,5}") or ""
    if text and "map" not in given:
        raise SkyUsageError(
            _("--allow-failures {text}: there are no tasks of --map").format(text=text),
            hint=_("such as {example}").format(example=BY_DEST["allow_failures"].example),
        )
    return text


def _checkpoint_seconds(given: _GivenOptions) -> float | None:
    """Return the seconds between two saves; None for those of least expected loss."""
    if given.get("checkpoint", ["auto"])[0] == "auto":
        return None
    seconds = _seconds(given, "checkpoint")
    if not seconds:
        raise SkyUsageError(
            _("--checkpoint 0: saves need some time between them"),
            hint=_("such as --checkpoint 10m, or auto"),
        )
    return seconds


def _names(given: _GivenOptions, dest: str) -> tuple[str, ...]:
    items = [item for text in given.get(dest, ()) for item in split_names(text)]
    return tuple(dict.fromkeys(items))


def _packages(packages: tuple[str, ...]) -> tuple[str, ...]:
    for package in packages:
        check_package(package, "--pip")
    return packages


def _exclusive_flag(given: _GivenOptions, yes: str, no: str) -> bool | None:
    if yes in given and no in given:
        raise SkyUsageError(
            _("--auto and --no-auto exclude each other"), hint=_("give one of them")
        )
    return True if yes in given else False if no in given else None


def _run_name(given: _GivenOptions) -> str | None:
    names = {given[dest][0]: f"--{dest}" for dest in ("bg", "name") if given.get(dest, [""])[0]}
    if len(names) > 1:
        raise SkyUsageError(
            _("a cell has one name, not {names}").format(names=" and ".join(names)),
            hint=_("--bg train"),
        )
    for name, flag in names.items():
        near = nearest_identifier(name) or "train"
        return check_identifier(name, flag, _("such as {example}").format(example=f"{flag} {near}"))
    return None


def _task_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        near = nearest_identifier(name) or "prepare"
        check_identifier(name, "--after", _("such as {example}").format(example=f"--after {near}"))
    return names


def _variables(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            # The text after = may be a secret: it must not come back in a traceback that is saved.
            raise SkyUsageError(
                _("--env {partition}: give the name alone").format(
                    partition=name.partition("=")[0]
                ),
                hint=_("its value is taken from the local environment, such as --env HF_TOKEN"),
            )
    return names


def _inputs(items: tuple[str, ...]) -> tuple[CellInput, ...]:
    inputs: dict[str, CellInput] = {}
    for item in items:
        expression, arrow, name = (part.strip() for part in item.rpartition("->"))
        read = CellInput(expression if arrow else name, name)
        hint = f"such as -i x, or -i '{read.expression}->value' to name what is sent"
        check_identifier(name, "-i", hint)
        try:
            compile(read.expression, "-i", "eval")
        except (SyntaxError, ValueError):
            raise SkyUsageError(
                _("-i {item}: not an expression").format(item=item), hint=hint
            ) from None
        if inputs.setdefault(name, read) != read:
            raise SkyUsageError(
                _("-i: two values are named {name}").format(name=name),
                hint=_("rename one: -i a,b->c"),
            )
    return tuple(inputs.values())


def _outputs(items: tuple[str, ...]) -> tuple[CellOutput, ...]:
    outputs: dict[str, CellOutput] = {}
    for item in items:
        if item.startswith(FILE_PREFIX):
            continue
        output = parse_output(item)
        hint = "such as -o score, or -o model! to keep it remote"
        if near := nearest_identifier(output.name):
            hint = _("such as {example}").format(example=f"-o {near}")
        if re.search(r"[./*]", output.name):
            hint = f"a file or folder is written -o {FILE_PREFIX}{item}"
        check_identifier(output.name, "-o", hint)
        if outputs.setdefault(output.name, output) != output:
            raise SkyUsageError(
                _("-o: {name} both brought back and kept").format(name=output.name),
                hint=_("give one"),
            )
    return tuple(outputs.values())


def parse_output(item: str) -> CellOutput:
    """Parse one value of ``-o`` that is no file: ``NAME``, ``NAME!``, ``NAME@URI``, ``NAME@store``.

    Examples
    --------
    >>> parse_output("model@s3://mine/runs/7/")
    CellOutput(name='model', keep=True, uri='s3://mine/runs/7/')
    >>> parse_output("model@store")
    CellOutput(name='model', keep=True, uri='store')
    """
    name, at, uri = item.partition("@")
    if at and not uri:
        raise SkyUsageError(
            _("-o {item}: it names no store").format(item=item),
            hint=_("such as -o model@s3://mine/runs/7/, or -o model@store for one of your own"),
        )
    return (
        CellOutput(name, True, uri) if at else CellOutput(item.removesuffix("!"), item[-1:] == "!")
    )


def _output_files(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths among the values of ``-o``; they keep their place in the notebook's folder.

    Raises
    ------
    SkyUsageError
        A path leads out of the folder that the cell works in.
    """
    paths = [item.removeprefix(FILE_PREFIX) for item in items if item.startswith(FILE_PREFIX)]
    for path in paths:
        pure = PurePosixPath(path)
        if not path or pure.is_absolute() or path.startswith("~") or ".." in pure.parts:
            raise SkyUsageError(
                _("-o {file_prefix}{path}: not a path below the folder of the cell").format(
                    file_prefix=FILE_PREFIX, path=path
                ),
                hint=_("such as -o file:out/model.pt; from elsewhere: %sky get /data/model.pt"),
            )
    return tuple(paths)


_REQUIREMENT_CLAUSE = re.compile(r"\s*(?:[<>!=]|~=)")  # what follows the comma of `torch>=2,<3`


def split_names(text: str) -> list[str]:
    """Items of a comma list; a comma inside brackets, quotes or a requirement belongs to its item.

    Examples
    --------
    >>> split_names("a, b,c"), split_names("f(x, y)->z,torch>=2,<3")
    (['a', 'b', 'c'], ['f(x, y)->z', 'torch>=2,<3'])
    """
    items, depth, quote = [""], 0, ""
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        if char != "," or quote or depth > 0 or _REQUIREMENT_CLAUSE.match(text, position + 1):
            items[-1] += char
        else:
            items.append("")
    return [item.strip() for item in items if item.strip()]


# -- Options of one cell, with the values that go to and come from its engines --------------------
