"""Calls on a real pool: where they run, what comes back, what is refused."""

from __future__ import annotations

import asyncio
import concurrent.futures
import linecache
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyError, SkyTransferError, SkyUsageError
from jupyter_sky.base.messages import Message
from jupyter_sky.execution.functions.calls.tasks import RemoteError
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.serialization import memory_files

pytestmark = pytest.mark.slow


class Refused(ValueError):
    """An exception of this module, which nodes cannot import."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


def helper(x: int) -> int:
    return x + 1


@sky.function
def add(a: int, b: int = 1) -> int:
    return helper(a) - 1 + b


@sky.function
def node() -> int:
    return sky.instance_info().node


@sky.function
def process() -> int:
    return os.getpid()


@sky.function
def fail(code: int) -> None:
    raise Refused(code=code)


@sky.function
def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@sky.function
def measure(values: Any) -> tuple[str, int]:
    values[0] = -1  # a call may write into what it was given
    return type(values).__name__, len(values)


def test_one_call(compute: Pool) -> None:
    assert add(1, b=2) >> compute == 3


def test_calls_are_distributed_round_robin(compute: Pool) -> None:
    ranks = [node() >> compute for _ in range(8)]
    assert ranks in ([0, 1] * 4, [1, 0] * 4)


def test_broadcast_is_by_rank_and_once_a_node(compute: Pool) -> None:
    assert node() @ compute == [0, 1]
    assert len(set(process() @ compute)) == 2


def test_groups_and_gathers_keep_their_order(compute: Pool) -> None:
    first, rank, last = (add(1) & node() & add(2)) >> compute
    assert (first, last) == (2, 3) and rank in (0, 1)
    assert sky.gather(*(add(i) for i in range(300))) >> compute == tuple(range(1, 301))
    assert sky.gather() >> compute == ()


def test_streamed_gathers(compute: Pool) -> None:
    calls = [sleep(0.6), sleep(0.0), sleep(0.1)]
    assert list(sky.gather(*calls, stream=True) >> compute) == [0.6, 0.0, 0.1]
    found = list(sky.gather(*calls, stream=True, ordered=False) >> compute)
    assert found == [0.0, 0.1, 0.6]


def test_map(compute: Pool) -> None:
    assert compute.map(helper, range(5)) == [1, 2, 3, 4, 5]
    assert compute.map(add, range(3)) == [1, 2, 3]


def test_the_package_stands_for_the_pool_that_is_up(compute: Pool) -> None:
    assert add(1) >> sky == 2


def test_calls_of_one_node_run_on_it(compute: Pool) -> None:
    assert [compute.call_on(rank, node.local).result() for rank in (1, 1, 0)] == [1, 1, 0]


def test_a_future_is_one_of_the_standard_library(compute: Pool) -> None:
    futures = [add(i) > compute for i in range(4)]
    assert all(isinstance(future, concurrent.futures.Future) for future in futures)
    done, left = concurrent.futures.wait(futures, timeout=20)
    assert (len(done), len(left)) == (4, 0)
    assert sorted(f.result() for f in concurrent.futures.as_completed(futures)) == [1, 2, 3, 4]


def test_a_future_awaits(compute: Pool) -> None:
    async def both() -> list[int]:
        return await asyncio.gather(*(add(i) > compute for i in (1, 2)))  # type: ignore[arg-type]

    assert asyncio.run(both()) == [2, 3]


def test_asyncio_on_the_node(compute: Pool) -> None:
    @sky.function
    async def later(x: int) -> int:
        await asyncio.sleep(0.01)
        return x

    @sky.function
    def inside(x: int) -> int:
        async def get() -> int:
            return x

        return asyncio.run(get())

    assert later(3) >> compute == 3  # type: ignore[comparison-overlap]
    assert inside(4) >> compute == 4


# -- errors ----------------------------------------------------------------------------------------


def test_exception_keeps_its_type(compute: Pool) -> None:
    with pytest.raises(Refused) as caught:
        fail(7) >> compute
    error: Any = caught.value
    assert type(error) is Refused and (error.code, str(error)) == (7, "code 7")
    assert isinstance(error.__cause__, RemoteError)
    assert "raise Refused(code=code)" in str(error.__cause__)
    assert error.rank in (0, 1) and error.rank == error.__cause__.rank
    assert f"in fail(7) on node {error.rank}" in error.__notes__
    ours = str(Path(sky.__file__).parent)
    assert ours not in str(error.__cause__), "a traceback of the user's has no lines of ours"
    assert any("raise Refused" in line for line in error._render_traceback_())


def test_a_broadcast_names_the_node_that_failed(compute: Pool) -> None:
    @sky.function
    def half() -> int:
        if sky.instance_info().node == 1:
            raise KeyError("no")
        return 0

    with pytest.raises(KeyError) as caught:
        half() @ compute
    assert caught.value.rank == 1  # type: ignore[attr-defined]


def test_the_first_failure_ends_a_gather(compute: Pool, tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    @sky.function
    def mark(i: int) -> None:
        if i == 3:
            raise Refused(code=i)
        time.sleep(0.3)
        with open(marks, "a") as file:
            file.write(f"{i}\n")

    with pytest.raises(Refused):
        sky.gather(*(mark(i) for i in range(40))) >> compute
    time.sleep(0.8)
    assert not marks.exists() or len(marks.read_text().splitlines()) < 10


def test_results_of_a_stream_before_its_failure(compute: Pool) -> None:
    got = []
    with pytest.raises(Refused):
        for value in sky.gather(add(1), add(2), fail(1), add(3), stream=True) >> compute:
            got.append(value)
    assert got == [2, 3]


def test_error_in_batch_belongs_to_its_call(compute: Pool) -> None:
    @sky.function
    def odd(i: int) -> int:
        if i == 700:
            raise Refused(code=i)
        return i

    sky.gather(*(odd(i) for i in range(500))) >> compute
    futures = [odd(i) > compute for i in range(690, 710)]
    assert [f.exception() is not None for f in futures] == [i == 700 for i in range(690, 710)]


def test_retries(compute: Pool, tmp_path: Path) -> None:
    @sky.function
    def third_time(folder: Path) -> int:
        number = len(list(folder.iterdir())) + 1
        (folder / str(number)).touch()
        if number < 3:
            raise OSError(number)
        return number

    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    assert third_time(tmp_path / "a").with_retry(2) >> compute == 3
    with pytest.raises(OSError):
        third_time(tmp_path / "b").with_retry(1) >> compute
    with pytest.raises(OSError):
        third_time(tmp_path / "c").with_retry(5, on=KeyError) >> compute
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_lines_of_a_function_of_a_cell_are_known_on_the_node(compute: Pool) -> None:
    cell = "import inspect\ndef shown():\n    return inspect.getsource(shown)  # its line\n"
    linecache.cache["<cell of calls>"] = (len(cell), None, cell.splitlines(True), "")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, "<cell of calls>", "exec"), namespace)
    assert "# its line" in sky.function(namespace["shown"])() >> compute


def test_unpicklable_result(compute: Pool) -> None:
    @sky.function
    def lock() -> Any:
        return {"inside": threading.Lock()}

    with pytest.raises(SkyTransferError, match=r"result\['inside'\] is a lock"):
        lock() >> compute


def test_unpicklable_argument(compute: Pool) -> None:
    @sky.function
    def take(config: Any, other: int = 0) -> None: ...

    with pytest.raises(SkyTransferError, match=r"argument config of .*\[1\]\['k'\] is a lock"):
        take([1, {"k": threading.Lock()}]) >> compute
    with (
        open(__file__) as file,
        pytest.raises(SkyTransferError, match=r"argument other of .*an open file stays"),
    ):
        take(1, other=file) >> compute  # type: ignore[arg-type]
    with pytest.raises(SkyUsageError, match=r"annotate the parameter as Iterator"):
        take(i for i in range(3)) >> compute


def test_wrong_arguments_are_an_error_of_the_call(compute: Pool) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        add(1, c=2) >> compute  # type: ignore[call-arg]


def test_a_call_that_exits(compute: Pool) -> None:
    @sky.function
    def leave() -> None:
        sys.exit(3)

    before = process() @ compute
    with pytest.raises(SystemExit):
        leave() >> compute
    assert process() @ compute == before


# -- values ----------------------------------------------------------------------------------------


def test_large_arguments_travel_once_and_are_not_shared(
    compute: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(400_000.0)
    monkeypatch.setattr(memory_files, "MAX_SHARE", 0.0)  # else they are mapped
    sent: list[int] = []
    client = compute.connection.client
    broadcast = client.broadcast

    def counted(engines: Any, kind: str, request: Message) -> Any:
        sent.append(sum(memoryview(b).nbytes for b in request.attached))
        return broadcast(engines, kind, request)

    monkeypatch.setattr(client, "broadcast", counted)
    assert measure(array) @ compute == [("ndarray", 400_000)] * 2
    assert sum(sent) == array.nbytes, "once for both nodes"
    assert measure(array) @ compute == [("ndarray", 400_000)] * 2
    assert sum(sent) == array.nbytes, "and not again"
    array[1] = 5
    assert measure(array) >> compute == ("ndarray", 400_000)
    assert sum(sent) == 2 * array.nbytes, "a changed one is another one"
    assert array[0] == 0

    @sky.function
    def first(values: np.ndarray) -> float:
        return float(values[0])

    assert first(array) @ compute == [0.0, 0.0], "what a call writes is its own"


def test_large_results_are_writable(compute: Pool) -> None:
    @sky.function
    def make() -> np.ndarray:
        return np.ones(300_000)

    found = make() >> compute
    found[0] = 2
    assert found.sum() == 300_001


def test_evicted_blob_is_uploaded_again(
    compute: Pool, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_files, "MAX_SHARE", 0.0)  # else nothing is uploaded
    array = np.random.default_rng(0).random(200_000)
    assert measure(array) >> compute == ("ndarray", 200_000)
    blobs = list(data.glob("local/*/blobs/*"))
    assert blobs
    for blob in blobs:
        blob.unlink()
    assert measure(array) >> compute == ("ndarray", 200_000)


def test_arguments_are_copied_at_dispatch(compute: Pool) -> None:
    @sky.function
    def total(values: np.ndarray) -> float:
        return float(values.sum())

    blockers = [sleep(0.4) > compute for _ in range(2)]
    small = np.ones(20_000)
    future = total(small) > compute
    small[:] = 0
    assert future.result() == 20_000
    assert [b.result() for b in blockers] == [0.4, 0.4]


def test_a_global_of_a_function_stays_on_its_node(compute: Pool) -> None:
    @sky.function
    def count() -> int:
        os.environ["SKY_TEST_COUNT"] = str(int(os.environ.get("SKY_TEST_COUNT", 0)) + 1)
        return int(os.environ["SKY_TEST_COUNT"])

    assert [count() @ compute for _ in range(2)] == [[1, 1], [2, 2]]


# -- pools -----------------------------------------------------------------------------------------


def test_cells_run_on_a_pool_while_calls_do(compute: Pool) -> None:
    futures = [sleep(0.2) > compute for _ in range(6)]
    assert sky.run("import os; pid = os.getpid(); pid", cluster=compute.name)
    assert [future.result() for future in futures] == [0.2] * 6
    assert sky.run("pid", cluster=compute.name) == process() @ compute


def test_quick_calls_do_not_hold_up_slow_ones(compute: Pool) -> None:
    sky.gather(*(sleep(0.0) for _ in range(200))) >> compute  # they are known as quick now
    begun = time.monotonic()
    sky.gather(*(sleep(0.5 if i >= 92 else 0.0) for i in range(100))) >> compute
    # eight of half a second on two nodes are two seconds; one batch of them would be four
    assert time.monotonic() - begun < 4.0


def test_a_pool_that_was_ended(data: Path) -> None:
    last: list[int] = []
    with sky.Compute(nodes=1) as pool:
        assert add(1) >> pool == 2
        pool.defer(lambda: last.append(add(2) >> pool))
        kept = pool
    assert last == [3], "what is to be done before its machines end may need them"
    for send in (lambda: add(1) >> kept, lambda: add(1) @ kept, lambda: add(1) > kept):
        with pytest.raises(SkyUsageError, match="was ended"):
            send()
    kept.down()  # once more is no error


def test_calls_that_wait_when_a_pool_ends_are_told(data: Path) -> None:
    pool = sky.Compute(nodes=1).up()
    futures = [sleep(30.0) > pool for _ in range(3)]
    time.sleep(0.3)
    pool.down()
    for future in futures:
        with pytest.raises(SkyError, match="was ended"):
            future.result(10)
