"""Options of Skyward on real pools: sizes, time limits, images, plug-ins."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyError, SkyTimeout, SkyUsageError
from jupyter_sky.execution.functions import plugins
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import wait_until
from tests.executor.test_environment import wheel

pytestmark = pytest.mark.slow


@sky.function
def variables(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


@sky.function
def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return sky.instance_info().node


# -- sizes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resizable(data: Path) -> Iterator[Pool]:
    with sky.Compute(nodes=1) as pool:
        yield pool


def test_pool_is_resized(resizable: Pool) -> None:
    resizable.resize(3)
    assert resizable.current_nodes() == 3
    assert sleep(0) @ resizable == [0, 1, 2]
    futures = [sleep(1.0) > resizable for _ in range(3)]
    time.sleep(0.3)
    resizable.resize(1)
    wait_until(lambda: resizable.current_nodes() == 1)
    assert sorted(future.result(20) for future in futures) == [0, 1, 2], "running calls go on"
    wait_until(lambda: len(resizable.clusters) == 1)
    assert sleep(0) @ resizable == [0]


def test_resized_pool_grows_with_its_load(resizable: Pool) -> None:
    resizable.resize((1, 2))
    assert resizable.current_nodes() == 1
    futures = [sleep(1.5) > resizable for _ in range(6)]
    wait_until(lambda: resizable.current_nodes() == 2)
    assert all(future.result(30) is not None for future in futures)
    resizable.resize(1)
    wait_until(lambda: len(resizable.clusters) == 1)


def test_first_cluster_stays(compute: Pool) -> None:
    with pytest.raises(SkyUsageError, match="cannot have 1"):
        compute.resize(1)
    with pytest.raises(SkyUsageError, match="number of nodes"):
        compute.resize(0)
    assert sleep(0) @ compute == [0, 1]


def test_ended_pool_is_not_resized(data: Path) -> None:
    with sky.Compute(nodes=1) as pool:
        pass
    with pytest.raises(SkyUsageError, match="ended"):
        pool.resize(2)


# -- options ---------------------------------------------------------------------------------------


def test_machines_that_come_up_too_late(data: Path) -> None:
    compute = sky.Compute(nodes=1, name="late", options=sky.Options(provision_timeout=0.01))
    with pytest.raises(SkyTimeout, match=r"within 0\.01 s"):
        compute.up()
    assert "late" not in str(sky.status())


# -- images ----------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with one package that no other has."""
    folder = tmp_path / "simple" / "tinyindexed"
    folder.mkdir(parents=True)
    wheel(folder, "tinyindexed", 6)
    handler = partial(_QuietHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_image_with_an_index_and_shell_variables(data: Path, index: str, executor: str) -> None:
    @sky.function
    def value() -> int:
        import tinyindexed  # pyright: ignore[reportMissingImports]

        return tinyindexed.VALUE

    image = sky.Image(
        pip=["tinyindexed"],
        pip_indexes=[sky.PipIndex(index, ["tinyindexed"])],
        env={"HALF": "a"},
        shell_vars={"WHOLE": 'echo "$HALF b"', "CORES": "nproc"},
    )
    worker = sky.Worker(executor=executor)  # type: ignore[arg-type]
    with sky.Compute(nodes=1, image=image, worker=worker) as pool:
        assert value() >> pool == 6
        whole, cores = variables("WHOLE", "CORES") >> pool
        assert whole == "a b" and cores is not None and int(cores) > 0


def test_failing_shell_variable(data: Path) -> None:
    image = sky.Image(shell_vars={"WRONG": "echo no such disk >&2; exit 3"})
    with (
        sky.Compute(nodes=1, image=image) as pool,
        pytest.raises(SkyError, match=r"(?s)WRONG.*no such disk"),
    ):
        variables("WRONG") >> pool


# -- plug-ins --------------------------------------------------------------------------------------


def test_environment_of_plugins(data: Path) -> None:
    equipment = [
        plugins.keras("torch"),
        plugins.huggingface(token="hf_secret"),
        plugins.accelerate({"mixed_precision": "bf16"}),
    ]
    names = ("KERAS_BACKEND", "HF_TOKEN", "ACCELERATE_MIXED_PRECISION")
    with sky.Compute(nodes=2, plugins=equipment) as pool:
        assert variables(*names) >> pool == ["torch", "hf_secret", "bf16"]


def test_packages_that_plugins_lack(data: Path) -> None:
    if find_spec("huggingface_hub") is not None:
        pytest.skip("it is installed here")
    with sky.Compute(nodes=1, plugins=[plugins.huggingface(["gpt2"])]) as pool:
        with pytest.raises(SkyError, match="huggingface_hub") as error:
            variables("HOME") >> pool
        assert "Image(pip=" in (error.value.hint or "")
