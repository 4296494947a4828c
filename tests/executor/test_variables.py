"""``-i`` and ``-o``: values there and back, once, writable, announced, refused, kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow

PAIR = "%%sky -c pair --nodes 2 --cpus 1"


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """The cluster of most tests here, and what they take along."""
    assert notebook.run("import numpy as np, pandas as pd").status == "ok"
    assert notebook.run("%%sky\nimport numpy as np, pandas as pd", timeout=120).status == "ok"
    yield


def ok(notebook: Notebook, code: str) -> str:
    """Run a cell that must succeed; return its result."""
    ran = notebook.run(code, timeout=120)
    assert ran.status == "ok", ran.traceback
    return ran.result


def test_plain_values_go_and_come(notebook: Notebook) -> None:
    ok(notebook, "n, word = 41, 'sky'")
    ok(notebook, "%%sky -i n,word -o m,line\nm = n + 1\nline = word.upper()")
    assert ok(notebook, "m, line") == "(42, 'SKY')"
    assert ok(notebook, "n, word") == "(41, 'sky')"


@pytest.mark.parametrize("items", [10, 100_000])
def test_arrays_are_writable_both_ways_whatever_their_size(notebook: Notebook, items: int) -> None:
    ok(notebook, f"a = np.arange({items}.0)")
    ok(notebook, "%%sky -i a -o b\na[0] = 7.0\nb = a * 2")
    ok(notebook, "b[1] = -1.0")
    assert ok(notebook, "float(b[0]), float(b[1]), float(a[0])") == "(14.0, -1.0, 0.0)"


def test_a_frame_goes_and_comes(notebook: Notebook) -> None:
    ok(notebook, "df = pd.DataFrame({'x': range(5), 's': list('abcde')})")
    ok(notebook, "%%sky -i df -o out\ndf.loc[0, 'x'] = 100\nout = df.sort_values('x')")
    assert ok(notebook, "out.x.tolist(), out.s.tolist()[-1], df.x[0]") == (
        "([1, 2, 3, 4, 100], 'a', np.int64(0))"
    )


def test_functions_and_classes_of_the_notebook_travel_with_their_globals(
    notebook: Notebook,
) -> None:
    ok(
        notebook,
        "from dataclasses import dataclass\nimport math\nSCALE = 3\n"
        "def scaled(x): return helper(x) * SCALE\n"
        "def helper(x): return math.floor(x)\n"
        "@dataclass\nclass Point:\n    x: float\n    def size(self): return scaled(self.x)\n",
    )
    ok(notebook, "p = Point(2.5)")
    code = "%%sky -i scaled,p -o q\nq = type(p)(4.5)\nscaled(1.9), p.size()"
    assert ok(notebook, code) == "(3, 6)"
    assert ok(notebook, "isinstance(q, Point), q.size()") == "(True, 12)"


def test_an_expression_is_named(notebook: Notebook) -> None:
    ok(notebook, "pairs = [(1, 2), (3, 4)]")
    assert ok(notebook, "%%sky -i 'pairs[1]->pair'\npair") == "(3, 4)"
    assert ok(notebook, "%%sky -i 'sum(a for a, _ in pairs)->total'\ntotal") == "4"


def test_the_same_content_is_not_sent_again(notebook: Notebook) -> None:
    ok(notebook, "big = np.arange(200_000.0)")
    assert "not sent" not in notebook.run("%%sky -i big\nbig.sum()").status_line
    assert "big is there already" in notebook.run("%%sky -i big\nbig.sum()").status_line
    ok(notebook, "%%sky\nbig[0] = 5.0")  # the copy is no longer what was sent
    ran = notebook.run("%%sky -i big\nfloat(big[0])")
    assert ran.result == "0.0" and "there already" not in ran.status_line
    ok(notebook, "big[0] = 9.0")
    assert ok(notebook, "%%sky -i big\nfloat(big[0])") == "9.0"
    ok(notebook, "%%sky\nbig = None")
    assert ok(notebook, "%%sky -i big\nfloat(big[0])") == "9.0"


def test_large_values_are_announced_and_larger_ones_refused(notebook: Notebook) -> None:
    ok(notebook, "%config Sky.announce_mb = 0.5")
    ok(notebook, "%config Sky.refuse_gb = 0.001")
    ok(notebook, "some = np.ones(100_000); more = np.ones(200_000)")
    assert "some: 800.1 kB to the cluster" in notebook.run("%%sky -i some\n1").status_line
    ran = notebook.run("%%sky -i more\nprint('ran')")
    assert ran.ename == "SkyTransferError" and "--yes" in ran.evalue and not ran.stdout
    assert ok(notebook, "%%sky -i more --yes\nfloat(more.sum())") == "200000.0"
    ran = notebook.run("%%sky -o back,small\nback = np.ones(200_000); small = 1")
    assert ran.ename == "SkyTransferError" and "-o back!" in ran.evalue
    assert ok(notebook, "small") == "1"
    ok(notebook, "%%sky -o back --yes\nback = np.ones(200_000)")
    assert ok(notebook, "back.shape") == "(200000,)"
    ok(notebook, "%config Sky.announce_mb = 50.0")
    ok(notebook, "%config Sky.refuse_gb = 1.0")


def test_a_kept_value_is_used_where_it_is(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o model!\nmodel = {'weights': np.ones(3)}\nwhere = id(model)")
    assert ok(notebook, "model") == "{'weights': array([1., 1., 1.])}"
    ok(notebook, "%%sky\ndel model")
    assert ok(notebook, "%%sky -i model\nid(model) == where") == "True"
    assert ok(notebook, "model.fetch()['weights'].sum()") == "np.float64(3.0)"
    assert ok(notebook, "%%sky -i model->m2\nm2 is model") == "True"
    ok(notebook, "%%sky -c other --cpus 1 -i model\nmodel['weights'] += 1\nimport numpy as np")
    assert ok(notebook, "%%sky -c other -i model\nfloat(model['weights'].sum())") == "3.0"
    ran = notebook.run("import pickle; pickle.dumps(model)")
    assert ran.ename == "SkyTransferError" and "model.fetch()" in ran.evalue


def test_a_kept_large_value_is_fetched(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o wide!\nwide = np.arange(3_000_000.0)")
    assert ok(notebook, "w = wide.fetch(); w[0] = 1; float(w.sum())") == "4499998500001.0"


def test_names_that_the_cell_did_not_make(notebook: Notebook) -> None:
    ran = notebook.run("%%sky -o made,unmade,also\nmade = 1; also = 2")
    assert ran.ename == "SkyUsageError" and "'unmade'" in ran.evalue
    assert ok(notebook, "made, also") == "(1, 2)"
    assert ok(notebook, "'unmade' in globals()") == "False"


def test_auto_sends_what_is_read_and_says_so(notebook: Notebook) -> None:
    ok(notebook, "rate = 0.5\ndef half(x): return x * rate\nunread = 1")
    ran = notebook.run("%%sky --auto\nresult = half(8)\nresult")
    assert ran.result == "4.0"
    assert "found by --auto: half" in ran.status_line and "unread" not in ran.status_line
    ok(notebook, "%config Sky.auto_inputs = True")
    ok(notebook, "rate = 0.25")
    assert ok(notebook, "%%sky\nhalf(8)") == "2.0"
    assert notebook.run("%%sky --no-auto -c other\nhalf(8)").ename == "NameError"
    ok(notebook, "%config Sky.auto_inputs = False")


def test_put_get_and_vars(notebook: Notebook) -> None:
    ok(notebook, "shipped = [1, 2, 3]; heavy = np.arange(50_000.0)")
    ok(notebook, "%sky put shipped heavy -c other")
    assert ok(notebook, "%%sky -c other\nsum(shipped), heavy.flags.writeable") == "(6, True)"
    ok(notebook, "%%sky -c other\nfound = {'deep': (1, 2)}")
    ok(notebook, "%sky get found -c other")
    assert ok(notebook, "found['deep']") == "(1, 2)"
    listed = ok(notebook, "%sky vars other")
    assert "shipped" in listed and "found" in listed and "np" not in listed.split()
    ran = notebook.run("%sky get fuond -c other")
    assert ran.ename == "SkyUsageError" and "did you mean found?" in ran.evalue
    assert notebook.run("%sky put nowhere -c other").ename == "SkyUsageError"


def test_several_engines_give_a_list_by_rank(notebook: Notebook) -> None:
    ok(notebook, "base = 10")
    ok(notebook, f"{PAIR} -i base -o pid,x\nimport os\npid = os.getpid(); x = base")
    assert ok(notebook, "x, len(set(pid))") == "([10, 10], 2)"
    ok(notebook, f"{PAIR} --on 1 -o one\none = os.getpid()")
    assert ok(notebook, "one == pid[1]") == "True"
    ok(notebook, f"{PAIR} -o kept!\nkept = os.getpid()")
    assert ok(notebook, "[k.fetch() for k in kept] == pid") == "True"
    assert ok(notebook, f"{PAIR} -i kept --on 0\nkept == os.getpid()") == "True"
    assert ok(notebook, f"{PAIR} -i kept\nkept == os.getpid()") == "[0] True[1] True"


def test_a_handle_of_an_engine_that_died(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o doomed!\ndoomed = [1]")
    assert notebook.run("%%sky\nimport os; os.kill(os.getpid(), 9)").ename == "SkyEngineLost"
    ok(notebook, "%%sky -o fresh!\nfresh = 'another value'")  # must not pass for the old one
    for code in ("doomed.fetch()", "%%sky -i doomed\ndoomed"):
        ran = notebook.run(code)
        assert ran.ename in ("SkyTransferError", "SkyEngineLost"), ran.traceback
        assert "doomed" in ran.evalue and "gone" in ran.evalue
