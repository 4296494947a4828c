"""Names of clouds in code: nothing but a cloud's own modules and its facts writes them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import jupyter_sky
from jupyter_sky.base.clouds.index import BUILT_IN

PACKAGE = Path(jupyter_sky.__file__).parent
CLOUD_NAMES = {name for name, facts in BUILT_IN.items() if not facts.on_premises}
OWN_MODULES = (
    *(f"clouds/{name}" for name in (*CLOUD_NAMES, "lambdalabs")),
    *(f"clouds/prices/{name}" for name in (*CLOUD_NAMES, "lambdalabs")),
    "base/clouds/index.py",
)


def _written_names(tree: ast.Module) -> list[str]:
    """Return the string constants that are a cloud's name, docstrings left out."""
    return [
        f"line {node.lineno}: {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in CLOUD_NAMES
    ]


def test_no_module_but_its_own_writes_the_name_of_a_cloud() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(OWN_MODULES):
            names = _written_names(ast.parse(path.read_text(encoding="utf-8")))
            found |= {name: names} if names else {}
    assert found == {}


@pytest.mark.parametrize("source", ['cloud == "aws"', 'x in ("gcp", y)', '{"azure": 1}'])
def test_written_name_is_found(source: str) -> None:
    assert _written_names(ast.parse(source))
