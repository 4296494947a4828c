"""Tests of other projects, run on a pool: CPython's `concurrent.futures` and joblib's `Parallel`.

They are taken from what is installed. This module is the plug-in of pytest that selects them, and
`main` runs it in a process of its own. Tests that are left out are in ``peer_tests.toml``, each
with its reason.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
REPORT = "PEER_TESTS_REPORT"
"""Variable that names the file for the numbers of tests."""


def _futures_modules() -> tuple[str, ...]:
    """Return the modules of CPython's tests, which are one file up to Python 3.11."""
    with contextlib.suppress(ImportError):
        if importlib.util.find_spec("test.test_concurrent_futures") is None:
            return ()
        if importlib.util.find_spec("test.test_concurrent_futures.util") is None:
            return ("",)
        return (".util", ".executor", ".test_wait", ".test_as_completed")
    return ()


FUTURES_MODULES = _futures_modules()
_pools = contextlib.ExitStack()
_counts: Counter[str] = Counter()
_failed: list[str] = []


# -- the plug-in, in the process of the tests ------------------------------------------------------


def pytest_configure() -> None:
    """Start the pool, and make it the default of joblib."""
    import jupyter_sky as sky

    data = _pools.enter_context(tempfile.TemporaryDirectory(prefix="sky-peers-"))
    os.environ["SKY_DATA_DIR"] = data
    _pools.enter_context(sky.Compute(nodes=2, worker=sky.Worker(concurrency=2)))
    import joblib.parallel

    from jupyter_sky.execution.functions.plugins import joblib_backend

    joblib.parallel.register_parallel_backend(
        joblib_backend.NAME, joblib_backend.SkyBackend, make_default=True
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that concern the pool; skip those that are named with a reason."""
    skips = tomllib.loads((FOLDER / "peer_tests.toml").read_text())["skip"]
    items[:] = [item for item in items if _concerns_pool(item)]
    for item in items:
        for pattern, reason in skips.items():
            if fnmatch(item.name, pattern):
                item.add_marker(pytest.mark.skip(reason=reason))


def _concerns_pool(item: pytest.Item) -> bool:
    """Return whether a test has no backend as a parameter, or this one."""
    callspec = getattr(item, "callspec", None)
    parameters: dict[str, Any] = callspec.params if callspec is not None else {}
    backends = [value for name, value in parameters.items() if "backend" in name]
    named = {each if isinstance(each, str) else type(each).__module__ for each in backends if each}
    return named <= {"sky", "jupyter_sky.execution.functions.plugins.joblib_backend"}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count an outcome."""
    if report.failed:
        _failed.append(report.nodeid)
        _counts["failed"] += 1
    elif report.skipped:
        _counts["skipped"] += 1
    elif report.when == "call":
        _counts["passed"] += 1


def pytest_unconfigure() -> None:
    """End the pool, and write the numbers."""
    _pools.close()
    if REPORT in os.environ:
        Path(os.environ[REPORT]).write_text(json.dumps({**_counts, "names": _failed}))


# -- the process that starts it --------------------------------------------------------------------


def run(quick: bool = False) -> dict[str, float]:
    """Run the tests; return the number of those that failed, and of those that ran."""
    selected = ["--pyargs", "joblib.test.test_parallel"]
    if FUTURES_MODULES:
        selected.append(str(FOLDER / "peer_futures.py"))
    else:
        print("this interpreter has no test_concurrent_futures: 0 of its tests ran")
    if quick:
        selected += ["-k", "test_simple_parallel or test_parallel_kwargs or PoolExecutorTest"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
        subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "peer_tests",
                    "-p",
                    "no:cacheprovider",
                ),
                *("-c", os.devnull, "--rootdir", folder, "-W", "ignore"),
                *("--confcutdir", str(FOLDER)),  # without the checks of this project's tests
                *selected,
            ],
            # threads of BLAS are those of the machine, which the tests compare with
            env={name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
            | {REPORT: str(report), "PYTHONPATH": path},
            cwd=folder,
            stdout=sys.stderr,
            check=False,
        )
        counts = json.loads(report.read_text())
    for name in counts["names"]:
        print(f"failed: {name}")
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    print(f"tests of others: {passed} passed, {failed} failed, {counts.get('skipped', 0)} skipped")
    return {"peer_tests_failed": failed, "peer_tests_run": passed + failed}
