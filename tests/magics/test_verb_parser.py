"""Declarations of verbs, the parser of their words, their help."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.interfaces.magics.arguments import RESOURCES
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, SHELL, Verb
from jupyter_sky.interfaces.magics.verbs import (
    VERBS,
    call_verb,
    describe_verb,
    describe_verbs,
    read_call,
)
from jupyter_sky.interfaces.widgets.tracker import PARTS

each_verb = pytest.mark.parametrize("verb", [*VERBS.values()], ids=lambda verb: verb.name)


def arguments(line: str, command: str = NOTEBOOK) -> dict[str, Any]:
    return dict(read_call(line.split(), command).arguments)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {"cluster": None}),
        ("status train", {"cluster": "train"}),
        ("down --yes train --all", {"cluster": "train", "all": True, "yes": True}),
        ("extend 1h", {"cluster": None, "time": "1h"}),
        ("extend train 1h", {"cluster": "train", "time": "1h"}),
        ("logs -f 7", {"cell": "7", "follow": True, "provision": False, "spark": False}),
        ("logs 7 --follow", {"cell": "7", "follow": True, "provision": False, "spark": False}),
        ("logs -- -f", {"cell": "-f", "follow": False, "provision": False, "spark": False}),
        ("logs -5", {"cell": "-5", "follow": False, "provision": False, "spark": False}),
        ("put x -c train y", {"names": ["x", "y"], "cluster": "train"}),
        ("put x --cluster=train", {"names": ["x"], "cluster": "train"}),
        ("put -- -x -- y", {"names": ["-x", "--", "y"], "cluster": None}),
        ("cost day", {"grouping": "day", "by": None, "since": None, "csv": None}),
        (
            "cost --csv a.csv --by=day",
            {"grouping": None, "by": "day", "since": None, "csv": Path("a.csv")},
        ),
        ("up -c train -i a, b", {"options": ["-c", "train", "-i", "a,", "b"]}),
        ("up", {"options": []}),
        ("alias", {"name": None, "options": []}),
        ("alias big --cpus 8+", {"name": "big", "options": ["--cpus", "8+"]}),
        ("offers T4 --limit 3", {"name": "T4", "limit": 3, "flagged": False}),
        (
            "offers --spot --cloud aws,gcp T4",
            {"name": "T4", "limit": None, "flagged": False, "spot": True, "cloud": "aws,gcp"},
        ),
        ("offers --cpus -4", {"name": None, "limit": None, "flagged": False, "cpus": "-4"}),
        ("tracker clear", {"places": []}),
        ("tracker clear aws us-east-1", {"places": ["aws", "us-east-1"]}),
        ("catalog", {}),
        ("catalog refresh", {"clouds": [], "dry_run": False, "force": False}),
        ("catalog refresh aws --force", {"clouds": ["aws"], "dry_run": False, "force": True}),
        ("catalog build -o out facts", {"source_dir": Path("facts"), "output": Path("out")}),
        ("help", {"names": [], "command": NOTEBOOK}),
        ("help catalog refresh", {"names": ["catalog", "refresh"], "command": NOTEBOOK}),
        ("catalog refresh --help", {"names": ["catalog", "refresh"], "command": NOTEBOOK}),
        ("extend -h", {"names": ["extend"], "command": NOTEBOOK}),
    ],
)
def test_lines(line: str, expected: dict[str, Any]) -> None:
    assert arguments(line) == expected


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("statsu", "%sky statsu: there is no such verb", "did you mean status or start?"),
        ("run a.ipynb", "run works in a shell only", "jupyter sky run NOTEBOOK"),
        ("catalog refersh", "%sky catalog refersh: there is no such command", "refresh?"),
        ("tracker clar", "%sky tracker clar: there is no such command", "did you mean clear?"),
        ("cost --form 1h", "%sky cost: unknown option --form", "known: --by, --since, --csv"),
        ("cost --snice=1h", "%sky cost: unknown option --snice", "did you mean --since?"),
        ("cost --sin 1h", "%sky cost: unknown option --sin", "--since"),
        ("catalog refresh --dryrun", "%sky catalog refresh: unknown option --dryrun", "--dry-run?"),
        ("check --all", "%sky check: unknown option --all", "%sky check has no options"),
        ("logs -x 7", "%sky logs: unknown option -x", "-f"),
        ("cost --by", "%sky cost: --by needs a value", "such as --by day"),
        ("cost --by --since 1h", "%sky cost: --by needs a value", "such as --by day"),
        ("cost --by=", "%sky cost: --by needs a value", "such as --by day"),
        ("put x -c", "%sky put: --cluster needs a value", "such as -c train"),
        ("down --all=yes", "%sky down: --all takes no value", "write --all"),
        ("cost --by day --by cell", "%sky cost: --by is given twice", "give it once"),
        ("offers --limit many", "--limit many: not a count", "whole number"),
        ("plan --carbon-cap much", "--carbon-cap much: not a number", "such as --carbon-cap 5000"),
        ("tracker --cloud moon", "--cloud moon: not a known cloud", "known:"),
        ("status a b c", "%sky status: 'b c' is not understood", "usage: %sky status [CLUSTER]"),
        ("check -- --all", "%sky check: '--all' is not understood", "usage: %sky check"),
        ("extend", "%sky extend: TIME is missing", "such as %sky extend train 1h"),
        ("put", "%sky put: NAME ... is missing", "such as %sky put x y"),
        ("put --", "%sky put: NAME ... is missing", "such as %sky put x y"),
        ("cancel", "%sky cancel: CELL is missing", "such as %sky cancel train"),
    ],
)
def test_invalid_lines(line: str, message: str, hint: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        read_call(line.split())
    assert caught.value.message == message
    assert caught.value.hint is not None and hint in caught.value.hint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("statsu", "jupyter sky statsu: there is no such verb"),
        ("put x", "put works in a notebook only"),
        ("down a b", "jupyter sky down: 'b' is not understood"),
    ],
)
def test_errors_name_the_command_that_was_used(line: str, message: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        read_call(line.split(), SHELL)
    assert caught.value.message == message and "%%sky" not in (caught.value.hint or "")


def test_invalid_words_print_nothing_and_do_not_exit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SkyUsageError):
        read_call(["down", "--al"])
    assert capsys.readouterr() == ("", "")


FLAGS = sorted({flag for verb in VERBS.values() for each in verb.options for flag in each.flags})
WORDS = st.one_of(
    st.sampled_from([*FLAGS, *VERBS, "--", "-", "-h", "--help", "-5", "1h", "all", "a b", "=", ""]),
    st.sampled_from(FLAGS).map(lambda flag: f"{flag}=x"),
    st.text("-=fcohal 1,'\u00fc", max_size=6),
)


@given(st.sampled_from(sorted(VERBS)), st.lists(WORDS, max_size=5))
@settings(max_examples=400)
def test_any_words_are_read_or_refused(name: str, words: list[str]) -> None:
    verb = VERBS[name]
    try:
        call = read_call([*name.split(), *words], verb.only or NOTEBOOK)
    except SkyUsageError as error:
        assert error.message and error.hint
    else:
        inspect.signature(call.verb.run).bind(**call.arguments)


def test_values_are_kept_as_they_are() -> None:
    words = ["offers", "--service", "spark == 3.5.*", "--instance-type=a=b"]
    given = read_call(words).arguments
    assert given["service"] == "spark == 3.5.*" and given["instance_type"] == "a=b"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("down train --all", "one or all?"),
        ("logs --follow --provision", "exclude each other"),
        ("logs --spark -f", "--follow and --spark exclude each other"),
        ("plan pipeline --cpus 4", "pipeline and cpus at once"),
    ],
)
def test_contradictory_arguments(line: str, message: str) -> None:
    with pytest.raises(SkyUsageError, match=message.replace("?", r"\?")):
        call_verb(line.split())


@each_verb
def test_every_example_is_understood(verb: Verb) -> None:
    assert read_call(verb.example.split(), verb.only or NOTEBOOK).verb.name == verb.name


@each_verb
def test_arguments_are_those_of_the_function(verb: Verb) -> None:
    parameters = inspect.signature(verb.run).parameters
    declared = {each.dest for each in verb.arguments if each not in RESOURCES}
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        named = {name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD}
        assert named <= declared
    else:
        assert set(parameters) == declared | ({"command"} if verb.name == "help" else set())


@each_verb
def test_help_shows_every_argument_and_the_example(verb: Verb) -> None:
    command = verb.only or SHELL
    text = describe_verb(verb, command)
    assert text.startswith(f"{command} {verb.usage}\n    {verb.help}\n")
    assert f"example: {command} {verb.example}" in text
    for each in verb.arguments:
        assert each.help in text and all(flag in text for flag in each.flags)
        assert each.help.endswith(".")


@pytest.mark.parametrize("command", [NOTEBOOK, SHELL])
def test_list_of_verbs(command: str) -> None:
    lines = describe_verbs(command).splitlines()
    for verb in VERBS.values():
        row = f"  {verb.short_usage}"
        listed = row in lines or any(line.startswith(f"{row} ") for line in lines)
        assert listed == verb.is_available(command), verb.name


def test_tracker_has_an_option_for_each_part() -> None:
    flags = {flag for each in VERBS["tracker"].options for flag in each.flags}
    assert flags == {*(f"--{part}" for part in PARTS), "--cloud"}


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_help_without_a_verb(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    read_call(words).run()
    assert "%sky help VERB" in capsys.readouterr().out


def test_durations_in_words() -> None:
    assert read_call(["extend", "train", "2", "hours"]).arguments["time"] == "2hours"
    assert read_call(["wait", "7"]).arguments == {"cell": "7"}


def test_help_of_something_unknown() -> None:
    with pytest.raises(SkyUsageError, match="'x' is not understood"):
        call_verb(["help", "catalog", "x"])
