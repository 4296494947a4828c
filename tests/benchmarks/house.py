"""Figures about the source itself: layers, names, documentation and size.

    python tests/benchmarks/run.py house

Imports are those of types and those inside functions too. A name that a package re-exports counts
as an import of its module. Halls and their order are in the contract in pyproject.toml; a room is a
package or module directly below a hall.

* ``upward_imports`` counts imports from a lower hall to a higher one;
* ``import_cycles``, ``room_cycles`` count cycles between modules, by ``import_module`` of a literal
  name too, and cycles between rooms;
* ``top_names`` counts modules and packages beside ``__init__``, folders of data left out;
* ``single_importer_modules`` counts modules with one importer, which lies in the same folder;
* ``single_implementer_protocols`` counts protocols and abstract classes with at most one
  implementer here, those for other packages left out;
* ``getattr_dispatch`` counts methods that are looked up by a computed name;
* ``max_package_imports`` is the most modules of the package that one file imports;
* ``metaphors`` counts retired names outside the changelog (`RETIRED`);
* ``docstring_what_who`` counts module docstrings that begin with a question word;
* ``numpydoc_share`` is the share of public names with all sections of their docstring;
* ``readme_lines``, ``readme_pictures`` are of README.md;
* ``lines_python``, ``files_python``, ``any_count``, ``object_count``, ``cast_count`` and
  ``type_ignore_count`` are of the package;
* ``functions_over_40`` counts its functions of more than 40 lines without their docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jupyter_sky"
NAMESPACES = ("jupyter_sky.knowledge.catalog", "jupyter_sky.knowledge.lifetimes")
PUBLIC = ("jupyter_sky", *NAMESPACES, "jupyter_sky.decisions.search")
FOR_EXTENDERS = ("jupyter_sky.clouds.provider", "jupyter_sky.clouds.testing")
TEXTS = ("*.py", "*.pyi", "*.md", "*.ipynb", "*.ts", "*.tsx", "*.js", "*.sh", "*.toml", "*.json")
RETIRED = Path(__file__).with_name("retired_names.txt")
LONGEST = 40

Imports = Mapping[str, Collection[str]]
"""Imported modules by module."""


def sources(*patterns: str) -> list[Path]:
    """Return files under version control that match the patterns."""
    command = ["git", "ls-files", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@cache
def package_trees() -> dict[str, ast.Module]:
    """Return the syntax trees of the package by the names of its modules."""
    return {
        module_name(path): ast.parse(path.read_text(encoding="utf-8"))
        for path in sources("jupyter_sky/*.py")
    }


def module_name(path: Path) -> str:
    """Return the name of a file's module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_path(module: str) -> Path:
    """Return the file of a module."""
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def exported_names(module: str) -> dict[str, str]:
    """Return the modules of names that a package re-exports, by its code or its stub."""
    path = module_path(module)
    if path.name != "__init__.py":
        return {}
    tree = package_trees()[module]
    if path.with_suffix(".pyi").exists():
        tree = ast.parse(path.with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: resolve(node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jupyter_sky")
        for alias in node.names
    }


def resolve(module: str, name: str) -> str:
    """Return the module that ``from module import name`` imports."""
    if f"{module}.{name}" in package_trees():
        return f"{module}.{name}"
    if module not in package_trees():
        return ""
    return exported_names(module).get(name) or module


def find_imports(module: str, literal: bool = True) -> set[str]:
    """Return the modules of the package that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(package_trees()[module]):
        if isinstance(node, ast.ImportFrom):
            found |= {resolve(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif literal and isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found |= {one.value for one in node.args if isinstance(one, ast.Constant)}
    return {name for name in found if name in package_trees()} - {module, "jupyter_sky"}


@cache
def all_imports() -> Imports:
    """Return the imports of all modules but the package's own, which leads to all of them."""
    return {name: find_imports(name) for name in package_trees() if name != "jupyter_sky"}


@cache
def halls() -> dict[str, int]:
    """Return the place of each hall, 0 the highest, from the contract in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(one["layers"] for one in settings["contracts"] if one["name"] == "halls")
    return {
        hall.strip(" ()"): number
        for number, layer in enumerate(layers)
        for hall in re.split(r"[:|]", layer)
    }


def upward_imports() -> list[str]:
    """Return imports from a lower hall to a higher one."""
    return [
        f"{module} -> {imported}"
        for module, those in all_imports().items()
        for imported in sorted(those)
        if halls()[imported.split(".")[1]] < halls()[module.split(".")[1]]
    ]


def room_of(module: str) -> str:
    """Return the room of a module: the package or module directly below its hall."""
    return ".".join(module.split(".")[1:3])


def room_imports() -> Imports:
    """Return the rooms that each room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, those in all_imports().items():
        found[room_of(module)] |= {room_of(one) for one in those} - {room_of(module)}
    return found


def cycles(imports: Imports) -> list[list[str]]:
    """Return the strongly connected components of several modules or rooms."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names = sorted({*imports, *(one for those in imports.values() for one in those)})
    number = {name: index for index, name in enumerate(names)}
    edges = [(number[name], number[one]) for name, those in imports.items() for one in those]
    rows, columns = zip(*edges, strict=True)
    matrix = coo_array(([1] * len(edges), (rows, columns)), shape=(len(names), len(names)))
    _, component = connected_components(matrix, directed=True, connection="strong")
    members: dict[int, list[str]] = defaultdict(list)
    for name, which in zip(names, component.tolist(), strict=True):
        members[which].append(name)
    return [one for one in members.values() if len(one) > 1]


def top_names() -> list[str]:
    """Return the modules and packages directly below the package."""
    return sorted({name.split(".")[1] for name in package_trees() if "." in name})


def single_importer_modules() -> list[str]:
    """Return modules with one importer, in the same folder, each with it.

    A module of public names has its users for importers, too.
    """
    importers: dict[str, set[str]] = defaultdict(set)
    for module, those in all_imports().items():
        for imported in those:
            importers[imported].add(module)
    for package in (*PUBLIC, *FOR_EXTENDERS):
        for imported in exported_names(package).values():
            importers[imported].add("users")
    return [
        f"{module} <- {only}"
        for module, (only, *others) in sorted(importers.items())
        if not others and only != "users" and module_path(module).parent == module_path(only).parent
    ]


def base_names(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's bases."""
    words = (ast.unparse(base).split("[")[0] for base in node.bases)
    return {word.rpartition(".")[2] for word in words}


def members_of(node: ast.ClassDef) -> set[str]:
    """Return the names of methods and attributes that a class defines, in methods too."""
    found = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    found |= {one.name for one in node.body if isinstance(one, ast.AsyncFunctionDef)}
    for one in ast.walk(node):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            found.add(one.target.id)
        elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            found.add(one.attr)
        elif isinstance(one, ast.Assign):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    return found


def single_implementer_protocols() -> list[str]:
    """Return protocols and abstract classes with at most one implementer in the package."""
    classes = [
        (module, node)
        for module, tree in package_trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    public = {name for module in FOR_EXTENDERS for name in exported_names(module)}
    parents = {node.name: base_names(node) for _, node in classes}

    def lineage(name: str) -> set[str]:
        return {name}.union(*(lineage(base) for base in parents.get(name, ()) if base != name))

    members = {(module, node.name): members_of(node) for module, node in classes}
    of_name: dict[str, set[str]] = defaultdict(set)
    for (_, name), those in members.items():
        of_name[name] |= those
    found = []
    for module, node in classes:
        is_protocol = "Protocol" in base_names(node)
        if not (is_protocol or "ABC" in base_names(node)) or node.name in public:
            continue
        wanted = {name for name in members[module, node.name] if not name.startswith("__")}
        implementers = [
            other.name
            for where, other in classes
            if other.name != node.name
            and "Protocol" not in base_names(other)
            and (
                node.name in lineage(other.name)
                or (
                    is_protocol
                    and wanted
                    <= set().union(*(of_name[each] for each in lineage(other.name)))
                    | members[where, other.name]
                )
            )
        ]
        if len(implementers) < 2:
            found.append(f"{module}.{node.name}: {', '.join(implementers) or 'none'}")
    return found


def getattr_dispatches() -> list[str]:
    """Return places where a method is looked up by a computed name."""
    found = []
    for module, tree in package_trees().items():
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"):
                continue
            owner, name = node.args[:2]
            if isinstance(name, ast.Constant) or "import_module" in ast.unparse(owner):
                continue
            if id(node) in called or isinstance(name, ast.JoinedStr | ast.BinOp):
                found.append(f"{module}:{node.lineno}: {ast.unparse(node)}")
    return found


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


def question_docstrings(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Return modules whose docstring begins with a question word."""
    words = re.compile(r"(what|who|whose|whom|how|where|when|why|whether|which)\b", re.IGNORECASE)
    return [name for name, tree in trees if words.match(ast.get_docstring(tree) or "")]


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
    exception = inspect.isclass(value) and issubclass(value, BaseException)
    if exception and "__init__" not in vars(value):
        parameters = []  # those of `SkyError`, which describes them
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
    return missing if text["Examples"] or exception else [*missing, "Examples"]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the length of a function without its docstring, which has sections of its own."""
    first, lines = function.body[0], (function.end_lineno or 0) - function.lineno + 1
    documented = ast.get_docstring(function, clean=False) is not None
    return lines - ((first.end_lineno or 0) - first.lineno + 1 if documented else 0)


def long_functions() -> list[str]:
    """Return the functions of more than `LONGEST` lines."""
    functions = [
        (f"{module}:{node.lineno} {node.name}", code_lines(node))
        for module, tree in package_trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [f"{name}: {lines} lines" for name, lines in functions if lines > LONGEST]


def count_names() -> dict[str, int]:
    """Return how often the package goes around its own types."""
    nodes = [node for tree in package_trees().values() for node in ast.walk(tree)]
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    texts = [path.read_text(encoding="utf-8") for path in map(module_path, package_trees())]
    return {
        "any_count": names.count("Any"),
        "object_count": names.count("object"),
        "cast_count": calls.count("cast"),
        "type_ignore_count": sum(text.count("# type: ignore") for text in texts),
    }


def count_structure() -> dict[str, float]:
    """Return the counts that `tests/run.sh` holds to their limits, and print what they count."""
    most = sorted(all_imports().items(), key=lambda item: -len(item[1]))
    found = {
        "upward_imports": upward_imports(),
        "import_cycles": [" <-> ".join(one) for one in cycles(all_imports())],
        "room_cycles": [" <-> ".join(one) for one in cycles(room_imports())],
        "top_names": top_names(),
        "single_importer_modules": single_importer_modules(),
        "single_implementer_protocols": single_implementer_protocols(),
        "getattr_dispatch": getattr_dispatches(),
        "functions_over_40": long_functions(),
    }
    for title, those in found.items():
        print(f"{title}: {len(those)}", *those, sep="\n  ")
    print(
        "imports of the package", *(f"{len(those)} {name}" for name, those in most[:20]), sep="\n  "
    )
    lines = [path.read_text(encoding="utf-8") for path in map(module_path, package_trees())]
    return {
        **{name: len(those) for name, those in found.items()},
        "max_package_imports": len(most[0][1]),
        "lines_python": sum(len(text.splitlines()) for text in lines),
        "files_python": len(lines),
        **count_names(),
    }


def main(quick: bool) -> dict:
    figures = count_structure()
    retired, questions = retired_names(), question_docstrings(package_trees().items())
    missing = {name: missing_sections(value) for name, value in public_names()}
    incomplete = [f"{name}: no {', '.join(those)}" for name, those in missing.items() if those]
    for title, those in {
        "retired names": retired,
        "docstrings that begin with a question word": questions,
        "public names without all sections": incomplete,
    }.items():
        print(f"{title}: {len(those)}", *those[: 10 if quick else None], sep="\n  ")
    readme = (ROOT / "README.md").read_text()
    return {
        **figures,
        "metaphors": len(retired),
        "docstring_what_who": len(questions),
        "numpydoc_share": 1 - len(incomplete) / len(missing),
        "readme_lines": len(readme.splitlines()),
        "readme_pictures": len(re.findall(r"!\[[^]]*\]\(|<img ", readme)),
    }
