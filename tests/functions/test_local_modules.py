"""Modules beside the notebook or script that functions use on nodes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.execution.functions.calls.lazy_calls import function
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.plugins import joblib as joblib_plugin
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.serialization import local_modules
from jupyter_sky.execution.serialization.local_modules import LocalModules
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.machines.packages import plan
from tests.emulators.hosts import USABLE, SshHost
from tests.package_sync.installed_packages import install

slow = pytest.mark.slow
NAMES = ("local_helper", "local_package", "local_base", "local_lazy", "local_dynamic")


class Project:
    """Folder of modules that are imported here, and on no node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def load(self, name: str) -> ModuleType:
        importlib.invalidate_caches()
        return importlib.import_module(name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_modules()
    yield Project(tmp_path)
    forget_modules()


def forget_modules() -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in NAMES:
            del sys.modules[name]


HELPER = """
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int = 0

def twice(x):
    return 2 * x
"""


def by_value(code: str, **names: object) -> dict[str, Any]:
    """Define functions as a notebook does: in ``__main__``, found by no import."""
    namespace: dict[str, Any] = {"__name__": "__main__", **names}
    exec(textwrap.dedent(code), namespace)
    return namespace


def needed(value: object) -> list[str]:
    """Return the names of the local modules that a value needs."""
    stream = Parcel.of(value).segments[0]
    return [archive.name for archive in LocalModules().needed_by(stream)]


# -- without nodes ---------------------------------------------------------------------------------


def test_only_mentioned_local_modules_are_needed(project: Project) -> None:
    project.write("local_helper.py", HELPER)
    project.write("local_base.py", "VALUE = 1")
    helper = project.load("local_helper")
    project.load("local_base")
    assert needed(helper.Point(1)) == ["local_helper"]
    assert needed([1, "a text on local_helper", b"", os.path.join]) == []


def test_modules_that_local_modules_import_are_needed_too(project: Project) -> None:
    project.write("local_package/__init__.py", "from .deep import area\n")
    project.write("local_package/deep.py", "import local_base as b\narea = b.area\n")
    project.write("local_base.py", "import json, local_lazy\ndef area(): return 6\n")
    project.write("local_lazy.py", "")
    package = project.load("local_package")
    found = needed({"f": package.area})
    assert found == ["local_base", "local_lazy"]
    found = needed(package)
    assert found == ["local_base", "local_lazy", "local_package"]


def test_secrets_and_large_files_stay_here(project: Project) -> None:
    project.write("local_package/__init__.py", "")
    project.write("local_package/table.csv", "1,2")
    project.write("local_package/.env", "TOKEN=1")
    project.write("local_package/server.pem", "key")
    project.write("local_package/weights.bin", "x" * (local_modules.DATA_FILE_BYTES + 1))
    project.load("local_package")
    tree = local_modules.module_tree("local_package")
    assert tree is not None
    assert sorted(tree.files) == ["local_package/__init__.py", "local_package/table.csv"]


def test_too_large_module_stays_here(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    assert needed(helper.Point(1)) == ["local_helper"]
    monkeypatch.setattr(local_modules, "MODULE_BYTES", 10)
    assert needed(helper.Point(1)) == []
    advice = local_modules.missing_module_advice("local_helper")
    assert "too large" in advice and "Image(includes=" in advice


def test_large_packages_are_not_looked_at_for_every_call(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    looks: list[str] = []
    now = 1000.0

    def look(name: str) -> None:
        nonlocal now
        looks.append(name)
        now += 2 * local_modules.SLOW_SECONDS

    monkeypatch.setattr(local_modules, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(local_modules, "module_tree", look)
    monkeypatch.setattr(local_modules, "_trees", {})
    for _ in range(5):
        needed(helper.Point(1))
    assert looks == ["local_helper"]
    now += 2.5 * local_modules.SLOW_SECONDS * local_modules.REUSE_FACTOR
    needed(helper.Point(1))
    assert len(looks) == 2


def test_edit_of_a_small_module_counts_at_once_on_a_busy_machine(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_modules, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(local_modules, "REUSE_FACTOR", 10**6)
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")

    def tree() -> str:
        found = LocalModules().needed_by(Parcel.pickled(helper.twice).segments[0])
        return found[0].tree

    before = tree()
    project.write("local_helper.py", HELPER.replace("2 * x", "3 * x"))
    assert tree() != before


def test_installed_modules_are_not_local() -> None:
    import numpy

    assert needed(numpy.zeros) == []
    assert local_modules.module_tree("numpy") is None
    assert local_modules.module_tree("jupyter_sky") is None
    assert local_modules.module_tree("json") is None


def test_files_in_the_folder_of_a_project_are_local(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site") / "site-packages"
    direct = {"url": project.folder.as_uri(), "dir_info": {"editable": True}}
    install(site, "acme-project", direct_url=direct, files={"acme.pth": f"{project.folder}\n"})
    monkeypatch.syspath_prepend(str(site))
    project.write("local_helper.py", "")
    project.write("local_package/__init__.py", "")
    project.load("local_helper")
    project.load("local_package")
    assert plan.editable_owner("local_package") == "acme-project"
    assert plan.editable_owner("local_helper") == ""


# -- on nodes --------------------------------------------------------------------------------------


@slow
def test_module_used_by_a_function(executors: Pool, project: Project) -> None:
    project.write("local_helper.py", HELPER)
    names = by_value(
        """
        import local_helper
        from local_helper import Point

        def f(x):
            return local_helper.twice(x), Point(x)
        """
    )
    f = function(names["f"])
    first, point = f(21) >> executors
    assert first == 42 and isinstance(point, sys.modules["local_helper"].Point)
    assert [r[0] for r in f(4) @ executors] == [8, 8]


@slow
def test_argument_of_a_class_of_a_module(executors: Pool, project: Project) -> None:
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    f = function(by_value("def f(p): return type(p)(p.y, p.x)")["f"])
    assert f(helper.Point(1, 2)) >> executors == helper.Point(2, 1)


@slow
def test_next_call_sees_an_edit(executors: Pool, project: Project) -> None:
    project.write("local_helper.py", "def value(): return 1\n")
    f = function(by_value("import local_helper\ndef f(): return local_helper.value()")["f"])
    for number in (1, 2, 3, 1):
        project.write("local_helper.py", f"def value(): return {number}\n")
        assert set(f() @ executors) == {number}


@slow
def test_next_call_of_a_function_of_a_module_sees_an_edit(
    executors: Pool, project: Project
) -> None:
    text = """
    import jupyter_sky as sky

    class Point:
        def __init__(self, x):
            self.x = x

    def plain(point):
        return point.x, isinstance(point, Point), {0}

    @sky.function
    def lazy(point):
        return plain(point)

    class Model:
        @sky.function
        def fit(self, point):
            return plain(point)
    """
    project.write("local_helper.py", text.format(1))
    helper = project.load("local_helper")
    point, model = helper.Point(5), helper.Model()
    for number in (1, 23, 456):
        project.write("local_helper.py", text.format(number))
        expected = (5, True, number)
        assert executors.map(helper.plain, [point]) == [expected]
        assert helper.lazy(point) >> executors == expected
        assert model.fit(point) >> executors == expected


@slow
def test_import_inside_a_function(compute: Pool, project: Project) -> None:
    project.write("local_lazy.py", "VALUE = 7")
    f = function(by_value("def f():\n    import local_lazy\n    return local_lazy.VALUE")["f"])
    assert f() >> compute == 7
    assert "local_lazy" not in sys.modules, "it is not imported here for that"


@slow
def test_package_with_data_and_its_own_imports(compute: Pool, project: Project) -> None:
    project.write("local_package/__init__.py", "from .deep import text\n")
    project.write(
        "local_package/deep.py",
        """
        from pathlib import Path
        import local_base

        def text():
            return local_base.upper(Path(__file__).with_name("words.txt").read_text())
        """,
    )
    project.write("local_package/words.txt", "abc")
    project.write("local_base.py", "def upper(text): return text.upper()\n")
    package = project.load("local_package")
    f = function(by_value("def f(g): return g()")["f"])
    assert f(package.text) >> compute == "ABC"


@slow
def test_exception_of_a_local_module(compute: Pool, project: Project) -> None:
    project.write("local_helper.py", "class Wrong(Exception): pass\ndef fail(): raise Wrong(3)\n")
    helper = project.load("local_helper")
    f = function(by_value("def f(g): g()")["f"])
    with pytest.raises(helper.Wrong, match="3"):
        f(helper.fail) >> compute


@slow
def test_error_names_the_remedy(compute: Pool, project: Project) -> None:
    project.write("local_dynamic.py", "")
    code = "def f():\n    import importlib\n    importlib.import_module('local_' + 'dynamic')"
    with pytest.raises(ModuleNotFoundError, match="local_dynamic") as error:
        function(by_value(code)["f"])() >> compute
    notes = " ".join(error.value.__notes__)
    assert "import local_dynamic" in notes and "Image(includes=" in notes


@slow
def test_streamed_items_of_a_local_class(compute: Pool, project: Project) -> None:
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    code = """
    from collections.abc import Iterator

    def total(points: Iterator[object]):
        return sum(point.x for point in points)
    """
    total = function(by_value(code)["total"])
    assert total(iter([helper.Point(n) for n in range(5)])) >> compute == 10


@slow
def test_image_that_includes_a_module_has_it(data: Path, project: Project) -> None:
    file = project.write("local_helper.py", "VALUE = 1")
    project.load("local_helper")
    f = function(by_value("import local_helper\ndef f(): return local_helper.__file__")["f"])
    with Compute(nodes=1, image=Image(includes=[str(file)])) as pool:
        before = f() >> pool
        file.write_text("VALUE = 2")
        assert f() >> pool == before


@slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_machine_elsewhere(data: Path, project: Project) -> None:
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    f = function(by_value("import local_helper\ndef f(p): return local_helper.twice(p.x)")["f"])
    host = SshHost(67)
    (data / "hosts.toml").write_text(host.toml("elsewhere"))
    try:
        with Compute(provider="ssh", nodes=1) as pool:
            assert f(helper.Point(21)) >> pool == 42
            project.write("local_helper.py", HELPER.replace("2 * x", "3 * x"))
            assert f(helper.Point(21)) >> pool == 63
    finally:
        host.close()


@slow
def test_joblib(data: Path, project: Project) -> None:
    joblib = pytest.importorskip("joblib")
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    with Compute(nodes=2, plugins=[joblib_plugin()]):
        calls = [joblib.delayed(helper.twice)(n) for n in range(6)]
        assert joblib.Parallel()(calls) == [0, 2, 4, 6, 8, 10]
        project.write("local_helper.py", "def twice(x): return 3 * x\n")
        assert joblib.Parallel()(calls) == [0, 3, 6, 9, 12, 15]


@slow
def test_dask(data: Path, project: Project) -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    project.write("local_helper.py", HELPER)
    helper = project.load("local_helper")
    with Compute(nodes=2) as pool:
        assert pool.dask.submit(helper.twice, 21).result() == 42
        assert pool.dask.submit(lambda p: p.x, helper.Point(5)).result() == 5
        project.write("local_helper.py", "def twice(x): return 3 * x\n")
        assert pool.dask.gather(pool.dask.map(helper.twice, range(4))) == [0, 3, 6, 9]


@slow
def test_script(data: Path, project: Project) -> None:
    project.write("local_helper.py", HELPER)
    script = project.write(
        "script.py",
        """
        import jupyter_sky as sky
        import local_helper

        @sky.function
        def f(point):
            return local_helper.twice(point.x)

        if __name__ == "__main__":
            with sky.Compute(nodes=1) as compute:
                print(f(local_helper.Point(21)) >> compute)
        """,
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "42", ran.stderr
