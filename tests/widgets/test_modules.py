"""Several ES modules as one text, for anywidget."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from jupyter_sky.interfaces.widgets import view

FILES = {
    "low.js": "const secret = 1;\nexport const one = () => secret;\nexport class Kind {}\n",
    "mid.js": (
        "import { one as first } from './low.js';\nconst secret = 10;\n"
        "export function two() {\n  return first() + secret;\n}\nexport default two;\n"
    ),
    "top.js": (
        "import { two } from './mid.js';\nimport {\n  one,\n  Kind\n} from './low.js';\n"
        "const secret = 100;\nexport default { sum: one() + two() + secret, kind: Kind.name };\n"
    ),
}


@pytest.fixture
def joined(monkeypatch):
    monkeypatch.setattr(view, "_read", FILES.__getitem__)
    view.bundle_module.cache_clear()
    yield view.bundle_module
    view.bundle_module.cache_clear()


def test_modules_are_bundled_once_in_dependency_order(joined):
    text = joined("top")
    assert "import" not in text
    assert text.count("export ") == 1
    assert text.count("_module_low = (()") == 1
    assert text.index("_module_low = ") < text.index("_module_mid = ")


def test_bundle_runs_with_separate_scopes(joined, tmp_path):
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on PATH")
    (tmp_path / "top.mjs").write_text(joined("top"))
    script = "import('./top.mjs').then(m => console.log(JSON.stringify(m.default)))"
    done = subprocess.run([node, "-e", script], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(done.stdout) == {"sum": 112, "kind": "Kind"}, done.stderr


def test_bundle_exports_only_its_default():
    for name in ("base", "form"):
        text = view.bundle_module(name)
        assert "\nfunction combobox" in text
        exports = [line for line in text.splitlines() if line.startswith(("export", "import"))]
        assert exports == ([] if name == "base" else ["export default widget(render);"])
    assert ".jsky-View {" in view.bundle_styles() and ".jsky-Needs-grid {" in view.bundle_styles(
        "form"
    )


@pytest.mark.parametrize("name", ["cost", "form", "logs"])
def test_bundle_is_valid_for_anywidget(name, tmp_path):
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on PATH")
    (tmp_path / "view.mjs").write_text(view.bundle_module(name))
    script = "import('./view.mjs').then(m => console.log(Object.keys(m), typeof m.default.render))"
    done = subprocess.run([node, "-e", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[ 'default' ] function\n", done.stderr
