from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError
from traitlets.config import Config, Configurable

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """No settings from outside, and no singleton before or after."""
    kept = Sky._instance
    Sky.clear_instance()
    for name in [name for name in os.environ if name.startswith("SKY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield
    Sky.clear_instance()
    Sky._instance = kept


def _application(**settings) -> Configurable:
    return Configurable(config=Config({"Sky": settings}))


def test_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    sky = Sky.load()
    assert (sky.idle, sky.auto_inputs, sky.cloud, sky.cluster, sky.keep_clusters) == (
        "10m",
        False,
        "",
        "",
        False,
    )
    assert (sky.max_hourly_cost, sky.announce_mb, sky.refuse_gb, sky.max_output_mb) == (
        None,
        50,
        1,
        5,
    )
    assert sky.aliases == {}
    assert sky.data_dir == str(tmp_path / "data" / "sky")
    assert Sky.load() is sky


def test_layers_from_the_weakest_on(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[tool.jupyter_sky]\nidle = '1m'\ncloud = 'aws'\nmax-hourly-cost = 2\nrefuse_gb = 0.5\n"
        "aliases = {big = '--cpus 16+'}\n"
    )
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    monkeypatch.setenv("SKY_IDLE", "2m")
    monkeypatch.setenv("SKY_CLOUD", "gcp")
    monkeypatch.setenv("SKY_KEEP_CLUSTERS", "1")
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path / "elsewhere"))
    sky = Sky.load(_application(idle="3m"))
    assert (sky.idle, sky.cloud, sky.max_hourly_cost, sky.refuse_gb) == ("3m", "gcp", 2, 0.5)
    assert (sky.keep_clusters, sky.aliases) == (True, {"big": "--cpus 16+"})
    assert sky.data_dir == str(tmp_path / "elsewhere")


def test_percent_config_wins_and_refuses_nonsense(monkeypatch, caplog):
    monkeypatch.setenv("SKY_IDLE", "2m")
    shell = InteractiveShell.instance()
    sky = Sky.load(shell)
    shell.configurables.append(sky)
    try:
        shell.run_line_magic("config", "Sky.idle = '20m'")
        assert sky.idle == "20m"
        shell.run_line_magic("config", "Sky.idle = 'soon'")
        assert sky.idle == "20m" and "not a duration" in caplog.text
    finally:
        shell.configurables.remove(sky)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("idle", "45"),
        ("cloud", "moon"),
        ("max_hourly_cost", -1.0),
        ("announce_mb", "big"),
        ("aliases", {"big": 4}),
    ],
)
def test_values_are_validated(name, value):
    with pytest.raises(TraitError):
        setattr(Sky.load(), name, value)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("idel = '5m'", ["no setting 'idel'", "did you mean idle"]),
        ("idle = 5", ["idle = 5", "'idle' trait"]),
        ("idle = '5'", ["idle = '5'", "20m", "duration"]),
        ("cloud = 'awz'", ["cloud = 'awz'", "did you mean aws"]),
        ("max-hourly-cost = -1", ["max-hourly-cost = -1"]),
        ("idle = ", ["cannot be read"]),
    ],
)
def test_bad_pyproject_names_file_and_key(tmp_path, text, pieces):
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.jupyter_sky]\n{text}\n")
    with pytest.raises(SkyUsageError) as caught:
        Sky.load()
    for piece in (str(path), *pieces):
        assert piece in str(caught.value)
    assert not Sky.initialized()


def test_pyproject_of_another_shape(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool]\njupyter_sky = 1")
    with pytest.raises(SkyUsageError, match="not a table"):
        Sky.load()


@pytest.mark.parametrize("text", ["", "tool = 1", "[project]\nname = 'x'\n[tool.other]\nidle = 4"])
def test_pyproject_without_a_table_of_ours_is_left_alone(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert Sky.load().idle == "10m"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SKY_IDLE", "soon"), ("SKY_KEEP_CLUSTERS", "maybe"), ("SKY_MAX_HOURLY_COST", "x")],
)
def test_bad_environment_variable_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SkyUsageError, match=f"{variable}={value}"):
        Sky.load()


def test_bad_application_configuration():
    with pytest.raises(SkyUsageError, match="not a duration"):
        Sky.load(_application(idle="soon"))
    assert not Sky.initialized()


def test_every_setting_explains_itself():
    traits = Sky.class_own_traits(config=True)
    assert len(traits) == 29
    assert SimpleNamespace(**traits).idle.help
    assert all(trait.help.endswith(".") for trait in traits.values())


def test_setting_the_same_budget_by_hand_is_reported(monkeypatch, caplog):
    monkeypatch.setenv("SKY_BUDGET_USD_DAY", "20")
    sky = Sky.load()
    assert (sky.budget_usd_day, sky.requested_budget) == (20, ()), (
        "configuration is not set by hand"
    )
    sky.budget_usd_day = 20  # while no store is open
    assert sky.requested_budget == (20,)
    told = []
    sky.on_budget = told.append
    sky.adopt_budget(50)  # another process has set it
    assert sky.budget_usd_day == 50 and told == []
    sky.update_config(Config({"Sky": {"budget_usd_day": 50}}))
    sky.budget_usd_day = None
    assert told == [50, None]
    for nonsense in (-1, float("nan"), float("inf"), "much"):
        with pytest.raises(TraitError):
            sky.budget_usd_day = nonsense
    assert told == [50, None] and sky.budget_usd_day is None
