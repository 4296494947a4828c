"""Results of tasks in a store: machines write there and read from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback
from tests.emulators.object_store import ObjectStore

from .notebook_files import write_notebook

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


def results_of(bucket: ObjectStore) -> str:
    """Address of the results, as the settings name it."""
    return f"s3://bucket/results/?endpoint={bucket.url}"


@pytest.fixture
def book(fresh: Any, cloud: Loopback, bucket: ObjectStore) -> Iterator[Notebook]:
    notebook = fresh("graph.ipynb", **cloud.env)
    code = f"import jupyter_sky as sky\n%config Sky.results = {results_of(bucket)!r}"
    assert notebook.run(code).status == "ok"
    yield notebook
    for machine in cloud.machines():
        cloud.api.power_off(machine["id"])


FUNCTIONS = """
with sky.Dag("two") as dag:
    make = sky.Task("make", run=lambda: (bytes(30_000_000), 7)).set_resources(cloud="local")
    small = sky.Task("small", run=lambda: 5).set_resources(cloud="local")
    use = sky.Task("use", run=lambda made, five: len(made[0]) + made[1] + five)
    use.set_resources(cloud="aws", cpus="2")
    [make, small] >> use
run = sky.run(dag, name=NAME).wait(120)
run.result('use')
"""


def test_large_values_of_functions_do_not_pass_through_here(
    book: Notebook, bucket: ObjectStore, cloud: Loopback
) -> None:
    ran = book.run(FUNCTIONS.replace("NAME", "'one'"), 150)
    assert ran.result == "30000012", ran.traceback
    (key,) = [key for key in bucket.keys("bucket") if key.endswith(".value")]
    assert key.startswith("results/runs/one/") and key.endswith("/value.value")
    data = Path(book.run("print(sky.config.data_dir)").stdout.strip(), "kept-results")
    assert sum(f.stat().st_size for f in data.rglob("*") if f.is_file()) < 5e6, "not here"
    gb = book.run("run.state.tasks['make'].gb").result
    assert float(gb) == pytest.approx(0.03, rel=0.01)
    again = book.run(FUNCTIONS.replace("NAME", "'again'"), 150)
    assert again.result == "30000012", again.traceback
    keys = [key for key in bucket.keys("bucket") if key.endswith(".value")]
    assert len(keys) == 1, "it is kept, and known again"
    assert book.run("len(run.result('make')[0])").result == "30000000"
    wait_until(lambda: not cloud.machines(), "the machine is given back")


def test_values_of_cells_go_from_machine_to_store_to_machine(
    book: Notebook, bucket: ObjectStore, tmp_path: Path
) -> None:
    path = write_notebook(
        tmp_path,
        "%%sky --name make --cloud local -o large,small\n"
        "import numpy as np\nlarge, small = np.arange(1_000_000), 3",
        "%%sky --name use --cloud aws --cpus 2 -i large,small -o total\n"
        "total = int(large.sum()) * small",
    )
    ran = book.run(f"run = sky.pipeline({path}, name='cells').wait(150)\nrun.result('use')", 170)
    assert ran.result == "{'total': 1499998500000}", ran.traceback
    keys = [key for key in bucket.keys("bucket") if "/cells/" in key]
    assert [key.rpartition("/")[2] for key in keys] == ["large.value"], "small ones come here"
    assert book.run("run.result('make', 'large')[-1]").result in ("999999", "np.int64(999999)")


CELLS = (
    "%%sky --name make --cloud local -o large,small\nlarge, small = bytes(10**6), 4",
    "%%sky --name use --cloud local -i large,small -o total\ntotal = len(large) * small",
)


def test_another_machine_finds_what_was_kept(
    fresh: Any, book: Notebook, bucket: ObjectStore, cloud: Loopback, tmp_path: Path
) -> None:
    path = write_notebook(tmp_path, *CELLS)
    assert book.run(f"sky.pipeline({path}, name='here').wait(100)", 120).status == "ok"
    settings = f"import jupyter_sky as sky\n%config Sky.results = {results_of(bucket)!r}"
    other = fresh("other.ipynb", SKY_DATA_DIR=str(tmp_path / "other machine"), **cloud.env)
    assert other.run(settings).status == "ok"
    call = f"run_line_magic('sky', 'pipeline show {tmp_path}/work.ipynb')"
    shown = other.run(f"print(get_ipython().{call})").stdout
    assert shown.count("kept") == 2, shown
    ran = other.run(f"run = sky.pipeline({path}, name='there').wait(100)\nrun.result('use')", 120)
    assert ran.result == "{'total': 4000000}", ran.traceback
    assert other.run("[t.stored for t in run.state.tasks.values()]").result == "[True, True]"
    assert other.run("len(run.result('make', 'large'))").result == "1000000"


def test_a_store_that_refuses_fails_the_task_at_once(
    book: Notebook, bucket: ObjectStore, tmp_path: Path
) -> None:
    path = write_notebook(tmp_path, CELLS[0].replace("10**6", "10**6 + 1"), CELLS[1])
    bucket.fail("PUT /bucket/results/runs/refused/", "AccessDenied", times=100)
    ran = book.run(f"run = sky.pipeline({path}, name='refused')\nrun.wait(100)", 120)
    assert ran.ename == "SkyError" and "make has failed" in ran.evalue, ran.evalue
    assert "SkyTimeout" not in ran.traceback and "denied" in ran.evalue.lower(), ran.evalue
    assert book.run("run.state.tasks['make'].attempts").result == "1"
