"""Settings by the names that they had before 0.2, in every layer that sets them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from traitlets.config import Config, Configurable

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.renamed_settings import RENAMED
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.interfaces.api.settings import config

VALUES = {
    "silence": "2m",
    "mirror": False,
    "auto": True,
    "keep": True,
    "browser_mb": 2.0,
    "aws_scheduler_role": "arn:aws:iam::123456789012:role/ends-machines",
    "gcp_service_account": "default",
}
"""A value of each renamed setting that is not its default."""


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A folder of this user, without settings of others."""
    for name in [name for name in os.environ if name.startswith("SKY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Sky.clear_instance()
    yield tmp_path
    Sky.clear_instance()


def warned(name: str) -> pytest.WarningsRecorder:
    """Expect a warning that tells the new name of a setting."""
    return pytest.warns(FutureWarning, match=rf"(?i){name}\b.* is now .*{RENAMED[name]}")  # type: ignore[return-value]


def trait(name: str) -> str:
    """Return the setting that holds a setting, which is one itself unless it is of one cloud."""
    return name.partition(".")[0]


def current(settings: Sky, old: str) -> object:
    """Return the value of the setting that had an old name."""
    name, *path = RENAMED[old].split(".", 2)
    return settings.provider_setting(*path) if path else getattr(settings, name)


def application(**settings: object) -> Configurable:
    return Configurable(config=Config({"Sky": settings}))


def test_new_names_are_settings_and_old_ones_are_not():
    traits = Sky.class_own_traits(config=True)
    assert set(map(trait, RENAMED.values())) <= set(traits) and not set(RENAMED) & set(traits)
    assert set(VALUES) == set(RENAMED)


@pytest.mark.parametrize("old", RENAMED)
def test_environment(old: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"SKY_{old.upper()}", str(VALUES[old]))
    with warned(old):
        settings = Sky.load()
    assert current(settings, old) == VALUES[old]
    assert settings.origin(trait(RENAMED[old])) == f"environment variable SKY_{old.upper()}"


def test_new_variable_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SKY_SILENCE", "2m")
    monkeypatch.setenv("SKY_HEARTBEAT_TIMEOUT", "3m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Sky.load().heartbeat_timeout == "3m"


def test_error_names_the_variable_that_was_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SKY_SILENCE", "soon")
    with warned("silence"), pytest.raises(SkyUsageError, match="SKY_SILENCE=soon"):
        Sky.load()


@pytest.mark.parametrize(("key", "old"), [("auto", "auto"), ("browser-mb", "browser_mb")])
def test_project_file(key: str, old: str, project: Path):
    value = str(VALUES[old]).lower()
    (project / "pyproject.toml").write_text(f"[tool.jupyter_sky]\n{key} = {value}\n")
    with warned(old):
        assert getattr(Sky.load(), RENAMED[old]) == VALUES[old]


@pytest.mark.parametrize("key", ["silence", "mirror", "keep", "aws_scheduler_role"])
def test_project_file_may_not_set_what_it_could_not_before(key: str, project: Path):
    (project / "pyproject.toml").write_text(f"[tool.jupyter_sky]\n{key} = true\n")
    with warned(key), pytest.raises(SkyUsageError, match=f"may not set {key}"):
        Sky.load()


def test_project_file_may_only_lower_a_renamed_setting(project: Path):
    (project / "pyproject.toml").write_text("[tool.jupyter_sky]\nbrowser_mb = 50\n")
    with warned("browser_mb"), pytest.raises(SkyUsageError, match="may only lower"):
        Sky.load()


def test_both_names_in_a_project_file(project: Path):
    (project / "pyproject.toml").write_text(
        "[tool.jupyter_sky]\nauto = true\nauto_inputs = false\n"
    )
    with warned("auto"), pytest.raises(SkyUsageError, match="auto_inputs twice"):
        Sky.load()


@pytest.mark.parametrize("old", RENAMED)
def test_configuration_file(old: str):
    with warned(old):
        settings = Sky.load(application(**{old: VALUES[old]}))
    assert current(settings, old) == VALUES[old]
    assert settings.origin(trait(RENAMED[old])) == "Jupyter or IPython configuration"


def test_new_name_wins_in_a_configuration_file():
    parent = application(silence="2m", heartbeat_timeout="3m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Sky.load(parent).heartbeat_timeout == "3m"
    assert dict.get(parent.config, "Sky")["silence"] == "2m", "it belongs to the application"


@pytest.mark.parametrize("old", RENAMED)
def test_config_magic(old: str):
    settings = Sky.load()
    with warned(old):
        settings.update_config(Config({"Sky": {old: VALUES[old]}}))
    assert current(settings, old) == VALUES[old]
    assert settings.origin(trait(RENAMED[old])) == "%config"


@pytest.mark.parametrize("old", RENAMED)
def test_config_verb(old: str):
    with warned(old):
        assert config(old, str(VALUES[old])) == VALUES[old]
    assert config(RENAMED[old]) == VALUES[old]


def test_unknown_name_is_still_refused_with_a_suggestion():
    with pytest.raises(SkyUsageError) as failure:
        config("keep_cluster")
    assert "keep_clusters" in str(failure.value.hint)
