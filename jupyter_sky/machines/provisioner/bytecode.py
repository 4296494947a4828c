"""Bytecode for a folder of packages: of those modules that engines begin with.

    python -m jupyter_sky.machines.provisioner.bytecode FOLDER

To compile takes a new machine longer than to unpack. Bytecode is the same wherever the minor
version of Python is. Each file names the time and size of its source, which tar keeps: one that
was changed later is compiled as ever. (A hash would have each start read and digest all sources,
which takes a sixth longer.)
"""

from __future__ import annotations

import importlib
import py_compile
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOTS = (
    "IPython.core.magics",
    "IPython.core.payloadpage",
    "IPython.core.pylabtools",
    "ipyparallel.engine.app",
    "ipyparallel.controller.app",
    "jupyter_sky.machines.engines.controller.hub",
    "jupyter_sky.machines.engines.controller.tunnel_server",
    "jupyter_sky.machines.engines.controller.controller",
    "jupyter_sky.machines.engines.node.engine",
    "jupyter_sky.machines.engines.node.kernel",
    "jupyter_sky.machines.engines.node.node_agent",
    "jupyter_sky.machines.engines.node.streams",
    "jupyter_sky.execution.functions.node.node_worker",
)
"""Modules that processes on machines import first; their own imports are determined here."""


def compile_modules(folder: Path, names: Iterator[str]) -> None:
    """Compile modules in a folder, those of them that it has."""
    for name in names:
        path = folder.joinpath(*name.split("."))
        for source in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if source.exists():
                with suppress(py_compile.PyCompileError):
                    py_compile.compile(
                        str(source),
                        str(source.parent / f"__pycache__/{source.stem}.{TAG}.pyc"),
                        str(source.relative_to(folder)),
                        doraise=True,
                        invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
                    )


TAG = sys.implementation.cache_tag


def import_roots() -> Iterator[str]:
    """Import what engines import, and name it all."""
    for name in ROOTS:
        with suppress(ImportError):
            importlib.import_module(name)
    yield from sorted(sys.modules)


if __name__ == "__main__":
    compile_modules(Path(sys.argv[1]), import_roots())
