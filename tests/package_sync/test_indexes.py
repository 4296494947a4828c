"""Settings of pip and uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.machines.packages.indexes import PYPI, read_settings


def test_settings_of_pip_and_uv_count_together(
    no_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_settings / "pip.conf").write_text(
        "[global]\nextra-index-url =\n  https://ada:s3cr3t@pypi.acme.com/simple\n"
        "  https://download.pytorch.org/whl\ntrusted-host = pypi.acme.com\n"
    )
    (no_settings / "uv.toml").write_text(
        'find-links = ["/srv/wheels"]\n'
        '[[index]]\nname = "inner"\nurl = "https://inner.acme.com/simple"\n'
    )
    monkeypatch.setenv("UV_INDEX_INNER_USERNAME", "bob")
    monkeypatch.setenv("UV_INDEX_INNER_PASSWORD", "p@ss")
    found = read_settings()
    assert found.default == PYPI and found.is_public
    assert set(found.private_sources) >= {
        "https://bob:p%40ss@inner.acme.com/simple",
        "https://ada:s3cr3t@pypi.acme.com/simple",
        "/srv/wheels",
    }
    assert "s3cr3t" not in repr(found) and "p%40ss" not in repr(found)
    passed = found.environment()
    assert "https://ada:s3cr3t@pypi.acme.com/simple" in passed["UV_INDEX"]
    assert "UV_DEFAULT_INDEX" not in passed and "/srv/wheels" not in str(passed)
    assert found.environment(public_only=True) == {
        "UV_INDEX": "https://download.pytorch.org/whl",
        "PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl",
    }
    assert set(found.withheld_settings) >= {"/srv/wheels", "pip trusted-host"}


def test_a_private_default_index_is_alone(
    no_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://ada:s3cr3t@pypi.acme.com/simple")
    monkeypatch.setenv("UV_INDEX", "https://pypi.org/simple https://more.acme.com/simple")
    found = read_settings()
    assert not found.is_public
    assert found.environment() == {
        "UV_DEFAULT_INDEX": "https://ada:s3cr3t@pypi.acme.com/simple",
        "PIP_INDEX_URL": "https://ada:s3cr3t@pypi.acme.com/simple",
        "UV_INDEX": "https://more.acme.com/simple",
        "PIP_EXTRA_INDEX_URL": "https://more.acme.com/simple",
    }


def test_the_notebooks_folder_names_no_index(
    no_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_CONFIG_FILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(no_settings / "config"))
    (no_settings / "pyproject.toml").write_text(
        '[[tool.uv.index]]\nurl = "https://evil.example/simple"\ndefault = true\n'
    )
    (no_settings / "pip").mkdir()
    (no_settings / "pip" / "__main__.py").write_text("print(\"global.index-url='https://evil'\")")
    monkeypatch.chdir(no_settings)
    assert "evil" not in read_settings().default
