"""Calls before they are sent: values, operators, refusals."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions.calls.lazy_calls import Group, PendingFunction
from jupyter_sky.execution.functions.calls.retry import Retry

RAN: list[Any] = []


@sky.function
def note(value: int, scale: int = 1) -> int:
    """Notes that it has run."""
    RAN.append(value)
    return value * scale


def test_call_is_immutable_value() -> None:
    RAN.clear()
    call = note(3, scale=2)
    assert isinstance(call, PendingFunction) and not RAN
    assert repr(call) == "note(3, scale=2)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.timeout = 3  # type: ignore[misc]
    assert call.local() == 6 and note.local(2) == 2 and RAN == [3, 2]
    assert (note.__name__, note.__doc__) == ("note", "Notes that it has run.")


def test_nothing_is_pickled_before_it_is_sent() -> None:
    class Sticky:
        def __reduce__(self) -> Any:
            raise AssertionError("it was pickled")

    note(Sticky()).with_timeout(3)  # type: ignore[arg-type]


def test_calls_and_functions_can_be_pickled() -> None:
    call = cloudpickle.loads(cloudpickle.dumps(note(4).with_timeout(2)))
    assert (call.local(), call.timeout) == (4, 2.0)

    @sky.function
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial.local(n - 1)

    assert pickle.loads(cloudpickle.dumps(factorial)).local(5) == 120


def test_copies_with_a_timeout_and_retries() -> None:
    call = note(1)
    limited = call.with_timeout("2m").with_retry(2, on=(OSError,))
    assert call.timeout is None and call.retry.times == 0
    assert (limited.timeout, limited.retry.times, limited.retry.on) == (120.0, 2, (OSError,))

    @sky.function(timeout=1.5, retry=1)
    def other() -> None: ...

    assert (other().timeout, other().retry.times) == (1.5, 1)


@pytest.mark.parametrize("seconds", [0, -1, True, "soon", float("nan")])
def test_invalid_timeout(seconds: Any) -> None:
    with pytest.raises(SkyUsageError):
        note(1).with_timeout(seconds)


@pytest.mark.parametrize("times", [-1, 1.5, True, None])
def test_invalid_retry_count(times: Any) -> None:
    with pytest.raises(SkyUsageError):
        note(1).with_retry(times)


def test_retry_of_zero_is_at_most_once() -> None:
    assert sky.function(len)([]).retry.losses == 3
    assert sky.function(retry=0)(len)([]).retry == Retry(0, losses=1)
    assert sky.function(retry=2)(len)([]).retry == Retry(2, losses=3)
    assert sky.function(len)([]).with_retry(0).retry.losses == 1


def test_keyword_named_self() -> None:
    @sky.function
    def named(self: int, function: int = 0, rank: int = 0) -> tuple[int, int, int]:
        return self, function, rank

    call = named(self=1, function=2, rank=3)
    assert call.kwargs == {"self": 1, "function": 2, "rank": 3} and call.local() == (1, 2, 3)


def test_groups() -> None:
    group = note(1) & note(2) & note(3)
    assert isinstance(group, Group) and len(group) == 3
    assert [call.args for call in note(0) & (note(1) & note(2))] == [(0,), (1,), (2,)]
    assert {call.timeout for call in group.with_timeout(4)} == {4.0}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: note(1) & 2,
        lambda: 2 & note(1),
        lambda: (note(1) & note(2)) & 3,
        lambda: note(1) >> note(2),
        lambda: note(1) >> 5,
        lambda: note(1) @ "pool",
        lambda: note(1) > None,
        lambda: (note(1) & note(2)) @ sky,
        lambda: (note(1) & note(2)) > sky,
        lambda: sky.gather(note(1)) @ sky,
        lambda: sky.gather(note(1), stream=True) & note(2),
        lambda: sky.gather([note(1)]),  # type: ignore[arg-type]
        lambda: sky.gather(note(1), 7),  # type: ignore[arg-type]
        lambda: bool(note(1)),
        lambda: bool(note(1) & note(2)),
        lambda: bool(sky.gather(note(1))),
        lambda: note(1) and note(2),
        lambda: list(note(1)),  # type: ignore[call-overload]
        lambda: 0 < note(1) < 5,  # type: ignore[operator]
    ],
)
def test_invalid_operands_of_calls(wrong: Any) -> None:
    with pytest.raises(TypeError):
        wrong()


def test_missing_parentheses_are_explained() -> None:
    result_of_the_right_hand_side = 2
    with pytest.raises(TypeError, match=r"\(a\(\) & b\(\)\) >> pool"):
        note(1) & result_of_the_right_hand_side  # type: ignore[operator]
    with pytest.raises(TypeError, match="with the star"):
        sky.gather([note(1)])  # type: ignore[arg-type]


def test_no_pool_is_up() -> None:
    with pytest.raises(SkyUsageError, match=r"with sky\.Compute"):
        note(1) >> sky


def test_invalid_functions() -> None:
    with pytest.raises(SkyUsageError, match="not for a int"):
        sky.function(3)  # type: ignore[call-overload]
    with pytest.raises(SkyUsageError, match="async generator"):

        @sky.function
        async def items() -> Any:
            yield 1


def test_decorators_in_either_order() -> None:
    @sky.stdout(only="head")
    @sky.function
    def above() -> None: ...

    @sky.function
    @sky.stdout(only="head")
    def below() -> None: ...

    assert above.shown == below.shown == {"stdout": "head"}
    assert sky.silent(note).shown == {"stdout": (), "stderr": ()}
    with pytest.raises(SkyUsageError, match="only="):
        sky.stdout(only="tail")


TYPED = """
from collections.abc import Iterator
from concurrent.futures import Future
from typing import assert_type
import jupyter_sky as sky

@sky.function
def train(epochs: int, rate: float = 0.1) -> float:
    return epochs * rate

@sky.function(timeout=3)
def name() -> str:
    return ""

@sky.function
def items(n: int) -> Iterator[bytes]:
    yield b""

def use(pool: sky.Pool) -> None:
    assert_type(train(10), sky.PendingFunction[float])
    assert_type(train.local(10), float)
    assert_type(train(10) >> pool, float)
    assert_type(train(10).with_timeout(3).with_retry(2) >> pool, float)
    assert_type(train(10) @ pool, list[float])
    assert_type(train(10) > pool, Future[float])
    assert_type((train(1) & name()) >> pool, tuple[float, str])
    assert_type((train(1) & name() & items(3)) >> pool, tuple[float, str, Iterator[bytes]])
    assert_type(sky.gather(train(1), train(2)) >> pool, tuple[float, ...])
    assert_type(sky.gather(name(), stream=True) >> pool, Iterator[str])
    assert_type(items(3) >> pool, Iterator[bytes])
"""


def pyright(folder: Path, text: str) -> str:
    """Return pyright's messages for a program."""
    (folder / "program.py").write_text(text)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_types_survive(tmp_path: Path) -> None:
    root = Path(sky.__file__).parents[1]
    (tmp_path / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{root}"]}}')
    assert "0 errors" in pyright(tmp_path, TYPED)
    wrong = ("train('ten')", "x: str = train(1) >> pool", "(train(1) & 3) >> pool")
    found = pyright(tmp_path, TYPED + "".join(f"    {line}\n" for line in wrong))
    lines = {int(line.split(":")[1]) for line in found.splitlines() if " - error: " in line}
    first = len(TYPED.splitlines()) + 1
    assert lines == {first, first + 1, first + 2}, found


def test_gathered_calls_are_joined_like_others() -> None:
    double = sky.function(lambda x: 2 * x)
    many = sky.gather(double(1), double(2))
    for joined in (many & double(3), double(3) & many, (double(3) & double(4)) & many, many & many):
        assert isinstance(joined, sky.PendingFunctionGroup)
    assert [call.args[0] for call in many & double(3)] == [1, 2, 3]
    assert [call.args[0] for call in double(3) & many] == [3, 1, 2]
    for wrong in (lambda: sky.gather(double(1), stream=True) & double(2), lambda: many & 3):
        with pytest.raises(TypeError, match="&"):
            wrong()
    with pytest.raises(TypeError, match="&"):
        _ = double(2) & sky.gather(double(1), stream=True)
