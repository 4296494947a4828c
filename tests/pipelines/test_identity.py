"""Identity of a task's result: what changes it, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from jupyter_sky.workflows.pipelines.model.identity import TaskKey, code_identity

CODE = '''
def loss(x):
    """Say what it is."""
    return x * 0.1

%time data.sort()
model = train(data, loss, name='a')
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n%time", "\n\n# a remark\n\n%time"),
        ("'a'", '"a"'),
        ("0.1", "1e-1"),
        ("x * 0.1", "(x * 0.1)"),
        ('    """Say what it is."""\n', ""),
        ("train(data, loss, name", "train(\n    data,\n    loss, name"),
    ],
)
def test_edits_that_change_no_result(old: str, new: str) -> None:
    assert old in CODE
    assert code_identity(CODE.replace(old, new)) == code_identity(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.1", "0.2"),
        ("'a'", "'b'"),
        ("%time ", "%timeit "),
        ("%time ", ""),
        ("loss(x)", "loss(x, y=1)"),
        ("model =", "models ="),
        ("data, ", ""),
    ],
)
def test_edits_that_change_it(old: str, new: str) -> None:
    assert code_identity(CODE.replace(old, new)) != code_identity(CODE)


def test_code_with_errors_is_identified_by_its_text() -> None:
    assert code_identity("x = (") != code_identity("x = [")


KEY = TaskKey(
    "c0de",
    inputs={"x": "1"},
    parameters={"lr": "0.1"},
    definitions={"loss": "2"},
    packages={"torch": "2.5"},
    modules={"mine": "4"},
    files={"a.csv": "3"},
    python="3.11",
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": "other"}, "code"),
        ({"inputs": {"x": "2"}}, "input x"),
        ({"inputs": {"x": "1", "y": "1"}}, "input y"),
        ({"parameters": {"lr": "0.2"}}, "parameter lr"),
        ({"definitions": {}}, "definition loss"),
        ({"packages": {"torch": "2.6"}}, "package torch 2.5 -> 2.6"),
        ({"packages": {}}, "package torch 2.5 -> none"),
        ({"modules": {"mine": "5"}}, "module mine"),
        ({"files": {"a.csv": "4"}}, "file a.csv"),
        ({"python": "3.12"}, "Python"),
    ],
)
def test_every_part_makes_another_key(change: dict[str, Any], words: str) -> None:
    other = replace(KEY, **change)
    assert other.digest != KEY.digest
    assert KEY.differences(other) == (words,)


def test_a_key_is_the_same_after_a_trip_through_json() -> None:
    again = TaskKey.from_json(json.loads(json.dumps(KEY.to_json())))
    assert again == KEY and again.digest == KEY.digest
    assert replace(KEY, inputs={"b": "2", "a": "1"}).digest == (
        replace(KEY, inputs={"a": "1", "b": "2"}).digest
    )
