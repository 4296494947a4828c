"""Figures about the source itself: layers, names, documentation and size.

    python tests/benchmarks/run.py house

* ``upward_imports`` counts imports from a lower floor to a higher one, exceptions included;
* ``import_cycles`` counts cycles between modules, imports inside functions included, and cycles of
  more than two modules through imports for type checkers alone;
* ``top_modules`` counts modules beside the rooms;
* ``metaphors`` counts retired names outside the changelog (`RETIRED`);
* ``docstring_what_who`` counts module docstrings that begin with a question word;
* ``numpydoc_share`` is the share of public names with all sections of their docstring;
* ``readme_lines``, ``readme_pictures`` are of README.md;
* ``lines_python``, ``files_python``, ``any_count`` are of the package;
* ``functions_over_40`` counts its functions of more than 40 lines without their docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jupyter_sky"
PUBLIC = ("jupyter_sky", *(f"jupyter_sky.{name}" for name in ("catalog", "preemption", "search")))
TEXTS = ("*.py", "*.pyi", "*.md", "*.ipynb", "*.ts", "*.tsx", "*.js", "*.sh", "*.toml", "*.json")
RETIRED = Path(__file__).with_name("retired_names.txt")
LONGEST = 40


def sources(*patterns: str) -> list[Path]:
    """Return files under version control that match the patterns."""
    command = ["git", "ls-files", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def package_sources() -> list[Path]:
    """Return the Python files of the package."""
    return [path for path in sources("jupyter_sky/*.py") if path.is_relative_to(PACKAGE)]


def floors() -> dict[str, int]:
    """Return the floor of each room, 0 the highest, from the contract in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(one["layers"] for one in settings["contracts"] if one["type"] == "layers")
    return {
        room.strip(" ()"): number
        for number, layer in enumerate(layers)
        for room in re.split(r"[:|]", layer)
    }


def upward_imports() -> list[str]:
    """Return imports from a lower floor to a higher one."""
    import grimp

    graph, floor = (
        grimp.build_graph("jupyter_sky", exclude_type_checking_imports=True, cache_dir=None),
        floors(),
    )
    found = []
    for module in sorted(graph.modules - {"jupyter_sky"}):
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            here, there = (name.split(".")[1:2] for name in (module, imported))
            if there and floor[there[0]] < floor[here[0]]:
                found.append(f"{module} -> {imported}")
    return found


def import_cycles() -> list[list[str]]:
    """Return cycles of imports that happen, and those of types between more than two modules."""
    import grimp

    at_run_time = cycles(
        grimp.build_graph("jupyter_sky", exclude_type_checking_imports=True, cache_dir=None)
    )
    of_types = [
        one for one in cycles(grimp.build_graph("jupyter_sky", cache_dir=None)) if len(one) > 2
    ]
    met = {frozenset(one) for one in at_run_time}
    return at_run_time + [one for one in of_types if frozenset(one) not in met]


def cycles(graph: Any) -> list[list[str]]:
    """Return the strongly connected components of several modules."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    modules = sorted(graph.modules)
    number = {name: index for index, name in enumerate(modules)}
    edges = [
        (number[module], number[imported])
        for module in modules
        for imported in graph.find_modules_directly_imported_by(module)
    ]
    rows, columns = zip(*edges, strict=True)
    shape = (len(modules), len(modules))
    matrix = coo_array(([1] * len(edges), (rows, columns)), shape=shape)
    _, component = connected_components(matrix, directed=True, connection="strong")
    members: dict[int, list[str]] = {}
    for name, which in zip(modules, component.tolist(), strict=True):
        members.setdefault(which, []).append(name)
    return [one for one in members.values() if len(one) > 1]


def retired_names() -> list[str]:
    """Return places where a retired name is still used: file, line, name."""
    names = [line.split("#")[0].strip() for line in RETIRED.read_text().splitlines()]
    pattern = re.compile(rf"(?<![A-Za-z])({'|'.join(filter(None, names))})(?![a-z])")
    skipped = {RETIRED, ROOT / "CHANGELOG.md"}
    found = []
    for path in sources(*TEXTS):
        if path in skipped or path.name == "package-lock.json" or "data" in path.parts:
            continue
        name = str(path.relative_to(ROOT))
        found += [f"{name}: {match[0]}" for match in pattern.finditer(path.stem)]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if '"image/png"' not in line and '"text/html"' not in line:
                found += [f"{name}:{number}: {match[0]}" for match in pattern.finditer(line)]
    return found


def question_docstrings(trees: Iterable[tuple[Path, ast.Module]]) -> list[str]:
    """Return modules whose docstring begins with a question word."""
    words = re.compile(r"(what|who|whose|whom|how|where|when|why|whether|which)\b", re.IGNORECASE)
    return [str(path) for path, tree in trees if words.match(ast.get_docstring(tree) or "")]


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield the public classes and functions."""
    seen = set()
    for package in PUBLIC:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and id(value) not in seen and not inspect.ismodule(value):
                seen.add(id(value))
                yield f"{package}.{name}", value


def missing_sections(value: Any) -> list[str]:
    """Return the sections that the docstring of a public name lacks."""
    from numpydoc.docscrape import NumpyDocString

    text = NumpyDocString(inspect.getdoc(value) or "")
    missing = [] if text["Summary"] else ["Summary"]
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        signature = inspect.Signature()
    parameters = [name for name in signature.parameters if name not in {"self", "cls"}]
    if parameters and not (text["Parameters"] or (inspect.isclass(value) and text["Attributes"])):
        missing.append("Parameters")
    returns = str(signature.return_annotation)
    nothing = {"None", "<class 'inspect._empty'>"}
    if (
        not inspect.isclass(value)
        and returns not in nothing
        and not (text["Returns"] or text["Yields"])
    ):
        missing.append("Returns")
    exception = inspect.isclass(value) and issubclass(value, BaseException)
    return missing if text["Examples"] or exception else [*missing, "Examples"]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the length of a function without its docstring, which has sections of its own."""
    first, lines = function.body[0], (function.end_lineno or 0) - function.lineno + 1
    documented = ast.get_docstring(function, clean=False) is not None
    return lines - ((first.end_lineno or 0) - first.lineno + 1 if documented else 0)


def main(quick: bool) -> dict:
    trees = [(path.relative_to(ROOT), ast.parse(path.read_text())) for path in package_sources()]
    functions = [
        (f"{path}:{node.lineno} {node.name}", code_lines(node))
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [f"{name}: {lines} lines" for name, lines in functions if lines > LONGEST]
    missing = {name: missing_sections(value) for name, value in public_names()}
    incomplete = [f"{name}: no {', '.join(those)}" for name, those in missing.items() if those]
    cyclic = [" <-> ".join(one) for one in import_cycles()]
    upward, retired = upward_imports(), retired_names()
    questions = question_docstrings(trees)
    for title, those in {
        "upward imports": upward,
        "import cycles": cyclic,
        "retired names": retired,
        "docstrings that begin with a question word": questions,
        "public names without all sections": incomplete,
        f"functions over {LONGEST} lines": long,
    }.items():
        print(f"{title}: {len(those)}", *those[: 10 if quick else None], sep="\n  ")
    readme = (ROOT / "README.md").read_text()
    top = [path for path, _ in trees if len(path.parts) == 2]
    return {
        "upward_imports": len(upward),
        "import_cycles": len(cyclic),
        "top_modules": len(top),
        "metaphors": len(retired),
        "docstring_what_who": len(questions),
        "numpydoc_share": 1 - len(incomplete) / len(missing),
        "readme_lines": len(readme.splitlines()),
        "readme_pictures": len(re.findall(r"!\[[^]]*\]\(|<img ", readme)),
        "lines_python": sum(len((ROOT / path).read_text().splitlines()) for path, _ in trees),
        "files_python": len(trees),
        "functions_over_40": len(long),
        "any_count": sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for _, tree in trees
            for node in ast.walk(tree)
        ),
    }
