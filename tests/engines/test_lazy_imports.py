"""A deferred package is found as ever, and runs its own code once, when that is asked for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that says when its own code runs."""
    (tmp_path / "big/inner").mkdir(parents=True)
    (tmp_path / "big/__init__.py").write_text(
        "print('loaded')\nfrom .inner.leaf import leaf\nfrom .other import *\nanswer = 42\n"
    )
    (tmp_path / "big/inner/__init__.py").touch()
    (tmp_path / "big/inner/leaf.py").write_text("from big import other\nleaf = other.number\n")
    (tmp_path / "big/other.py").write_text("number = 7\n")
    return tmp_path


def said(package: Path, code: str) -> list[str]:
    code = (
        "from jupyter_sky.machines.engines.node.lazy_imports import make_lazy; make_lazy('big')\n"
        + textwrap.dedent(code)
    )
    command = [sys.executable, "-c", code]
    return subprocess.check_output(command, cwd=package, text=True).split()


def test_submodules_import_without_package_init(package: Path) -> None:
    code = "import big.inner.leaf; from big import other; print(big.inner.leaf.leaf, other.number)"
    assert said(package, code) == ["7", "7"]


@pytest.mark.parametrize(
    "code",
    [
        "import big; print(big.answer, big.leaf)",
        "from big import answer, leaf; print(answer, leaf)",
        "from big import *; print(answer, leaf)",
        "import big.inner.leaf; from big import answer; print(answer, big.leaf)",
    ],
)
def test_attribute_access_runs_package_init(package: Path, code: str) -> None:
    assert said(package, f"{code}\n{code}") == ["loaded", "42", "7", "42", "7"]


def test_undefined_attributes_are_missing(package: Path) -> None:
    code = """
        import big
        print(hasattr(big, "nothing"), hasattr(big, "__path__"), hasattr(big, "__wrapped__"))
    """
    assert said(package, code) == ["loaded", "False", "True", "False"]


def test_imported_package_stays_loaded(package: Path) -> None:
    code = "import big; make_lazy('big'); print(big.answer)"
    code = f"import sys; del sys.modules['big']; {code}"
    assert said(package, code) == ["loaded", "42"]


def test_an_engine_starts_without_clients_and_launchers() -> None:
    code = """
        import sys
        from jupyter_sky.machines.engines.node.lazy_imports import make_lazy
        make_lazy("ipyparallel")
        from ipyparallel.engine import app
        from jupyter_sky.machines.engines.node import kernel, streams
        print("ipyparallel.client.client" in sys.modules, "ipyparallel.cluster" in sys.modules)
        import ipyparallel as ipp
        print(ipp.Client.__name__, ipp.__version__.split(".")[0].isdigit())
    """
    told = subprocess.check_output([sys.executable, "-c", textwrap.dedent(code)], text=True)
    assert told.split() == ["False", "False", "Client", "True"]


def test_blocked_import(package: Path) -> None:
    code = """
        from jupyter_sky.machines.engines.node.lazy_imports import blocked_import
        del sys.modules["big"]
        with blocked_import("big"):
            try:
                import big
            except ImportError:
                print("missing")
        import big
        with blocked_import("big"):
            import big.other
            print(big.other.number)
    """
    assert said(package, "import sys\n" + textwrap.dedent(code)) == ["missing", "loaded", "7"]
