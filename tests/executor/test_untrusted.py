"""Machines that are not trusted: data comes home, and nothing that could run here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.cells.relay import is_untrusted
from tests.conftest import Notebook, wait_until

pytestmark = pytest.mark.slow

EVIL = """
class Evil:
    def __reduce__(self):
        import pathlib
        return (pathlib.Path.touch, (pathlib.Path('{canary}'),))
"""


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """The cluster of the tests here."""
    assert notebook.run("import numpy as np, pandas as pd").status == "ok"
    assert notebook.run("%%sky\nimport numpy as np, pandas as pd", timeout=120).status == "ok"
    yield


def test_data_comes_back(notebook: Notebook) -> None:
    code = "a = np.arange(100_000.0)\nt = pd.DataFrame({'x': [1, 2]})\nd = {'k': (1, a[:2])}\n3 + 4"
    ran = notebook.run(f"%%sky --untrusted -o a,t,d\n{code}", timeout=120)
    assert (ran.status, ran.result) == ("ok", "7"), ran.traceback
    shown = notebook.run("float(a.sum()), a.flags.writeable, t.x.tolist(), d['k'][0]").result
    assert shown == "(4999950000.0, True, [1, 2], 1)"


def test_untrusted_objects_are_refused_with_a_message(notebook: Notebook, tmp_path: object) -> None:
    canary = f"{tmp_path}/canary"
    code = EVIL.format(canary=canary)
    ran = notebook.run(f"%%sky --untrusted -o evil\n{code}\nevil = [Evil()]", timeout=120)
    assert ran.ename == "SkyTransferError"
    for piece in ("evil[0] is a __main__.Evil", "NumPy arrays", "-o evil!"):
        assert piece in ran.traceback
    ran = notebook.run(f"%%sky --untrusted -o evil!\n{code}\nevil = Evil()\nevil", timeout=120)
    assert ran.status == "ok" and "__main__.Evil at" in ran.result
    ran = notebook.run("evil.fetch()")
    assert ran.ename == "SkyTransferError" and "__main__.Evil" in ran.traceback
    assert notebook.run(f"import os; os.path.exists('{canary}')").result == "False"


def test_pickle_of_a_lying_engine_is_not_opened(notebook: Notebook, tmp_path: object) -> None:
    canary = f"{tmp_path}/canary"
    lie = (
        f"{EVIL.format(canary=canary)}\n"
        "from jupyter_sky.machines.engines.wire.values import Parcel\n"
        "namespace = get_ipython().kernel.engine_namespace\n"
        "namespace.describe_output = lambda *a: Parcel.of(Evil()).inline()\n"
        "namespace.describe_result = lambda *a: Parcel.of(Evil()).inline()\n"
        "x = 1\nx"
    )
    ran = notebook.run(f"%%sky -c liar --untrusted -o x\n{lie}", timeout=120)
    assert ran.ename == "SkyTransferError" and "not data" in ran.traceback
    assert notebook.run("%config Sky.trust = False").status == "ok"
    try:
        ran = notebook.run("%%sky -c liar -o x\nx = 1", timeout=120)
        assert ran.ename == "SkyTransferError"
        assert notebook.run(f"import os; os.path.exists('{canary}')").result == "False"
    finally:
        notebook.run("%config Sky.trust = True")
    ran = notebook.run("%%sky -c liar -o x\nx = 1", timeout=120)
    assert notebook.run(f"import os; os.path.exists('{canary}')").result == "True", "it did lie"


def test_outputs_are_text_and_pictures(notebook: Notebook, data_dir: object) -> None:
    code = (
        "from IPython.display import HTML, Javascript, display\n"
        "print('said')\n"
        "display(HTML('<script>evil()</script>'), Javascript('evil()'))\n"
        "display({'application/vnd.jupyter.widget-view+json': {}, 'image/png': 'aGk=',"
        "'text/plain': 'pic'}, raw=True)\n"
        "from ipykernel.comm import Comm\nComm(target_name='jupyter.widget')\n"
        "HTML('<script>evil()</script>')"
    )
    ran = notebook.run(f"%%sky --untrusted\n{code}", timeout=120)
    assert ran.status == "ok" and "said" in ran.stdout, ran.traceback
    contents = [*ran.of("display_data"), *ran.of("execute_result"), *ran.of("update_display_data")]
    kinds = [set(content["data"]) for content in contents]
    assert {"image/png", "text/plain"} in kinds
    texts = str(contents)
    assert "evil" not in texts and "widget-view" not in texts and "IPython.core.display" in texts
    assert not ran.of("comm_open")
    store = Store.open(data_dir)  # type: ignore[arg-type]
    try:
        # a quick run is recorded with the next heartbeat
        wait_until(lambda: any(is_untrusted(store, run.run_id) for run in store.runs()))
    finally:
        store.close()


def test_calls_are_refused_in_words(notebook: Notebook) -> None:
    notebook.run("import jupyter_sky as sky\n%config Sky.trust = False")
    try:
        ran = notebook.run("with sky.Compute(nodes=1) as c: pass")
        assert ran.ename == "SkyUsageError" and "pickles" in ran.traceback, ran.traceback
    finally:
        notebook.run("%config Sky.trust = True")
