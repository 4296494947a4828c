"""Settings of a project: which file counts, and what it may set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from traitlets.config import Config, Configurable

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings import paths, project_file
from jupyter_sky.base.settings.provider_settings import dotted_names
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.interfaces.api.settings import config

STRANGER = 54321
root_only = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away"
)
OF_A_PROJECT = {
    *("idle", "auto_inputs", "cloud", "cluster", "max_hourly_cost", "aliases"),
    *("announce_mb", "ask_usd", "refuse_gb", "max_output_mb"),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No settings from outside, a home of its own, and no singleton before or after."""
    kept = Sky._instance
    Sky.clear_instance()
    for name in [name for name in os.environ if name.startswith("SKY_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.chdir(home)
    yield
    Sky.clear_instance()
    Sky._instance = kept


def write(folder: Path, text: str = 'idle = "7m"') -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pyproject.toml"
    path.write_text(f"[tool.jupyter_sky]\n{text}\n")
    return path


def _value(name: str) -> str:
    default = Sky.class_own_traits(config=True)[name].default_value
    if isinstance(default, bool):
        return str(not default).lower()
    if name == "ssh_port":
        return "23"
    if default is None or isinstance(default, float):
        return "0.5"
    return '{big = "--cpus 2"}' if name == "aliases" else {"cloud": '"aws"'}.get(name, '"7m"')


@pytest.mark.parametrize("name", sorted(set(Sky.class_own_traits(config=True)) - OF_A_PROJECT))
def test_project_may_not_set(name: str) -> None:
    path = write(Path.cwd(), f"{name} = {_value(name)}")
    with pytest.raises(SkyUsageError) as caught:
        Sky.load()
    said = str(caught.value)
    for piece in (
        str(path),
        name,
        "max_hourly_cost",
        "%config",
        f"SKY_{name.upper()}",
        "ipython_conf",
    ):
        assert piece in said
    assert not Sky.initialized()


@pytest.mark.parametrize("name", sorted(OF_A_PROJECT))
def test_project_may_set_what_belongs_to_a_cell(name: str) -> None:
    path = write(Path.cwd(), f"{name} = {_value(name)}")
    sky = Sky.load()
    assert sky.origin(name) == str(path)
    assert getattr(sky, name) != Sky.class_own_traits(config=True)[name].default_value


def test_every_setting_is_either_of_a_project_or_not() -> None:
    traits = Sky.class_own_traits(config=True)
    assert {name for name, trait in traits.items() if trait.metadata.get("project")} == OF_A_PROJECT


@pytest.mark.parametrize(
    "line", ["announce_mb = 51", "ask_usd = 6", "refuse_gb = 1.5", "max-output-mb = 1e9"]
)
def test_project_may_only_lower_sizes(line: str) -> None:
    write(Path.cwd(), line)
    with pytest.raises(SkyUsageError, match="may only lower it"):
        Sky.load()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--env HF_TOKEN", "sends environment variables"),
        ("--yes", "agrees to"),
        ("-i __import__('os').getpid()->x", "evaluates an expression"),
        ("--cpus", "needs a value"),
        ("--cpus 2; rm -rf x", "not an option"),
        ("--index-url http://127.0.0.1", "not an option"),
        ("-c ../../x", "not understood"),
    ],
)
def test_alias_of_a_project_hides_nothing(text: str, why: str) -> None:
    path = write(Path.cwd(), f'aliases = {{big = "{text}"}}')
    with pytest.raises(SkyUsageError, match=why) as caught:
        Sky.load()
    assert str(path) in str(caught.value) and "'big'" in str(caught.value)


def test_alias_of_a_project_that_names_another_is_followed() -> None:
    write(Path.cwd(), 'aliases = {a = "b --spot", b = "--cpus 2 --yes"}')
    with pytest.raises(SkyUsageError, match="--yes agrees"):
        Sky.load()


def test_search_ends_at_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 'idle = "1m"')
    inner = tmp_path / "home" / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert project_file.find_project_file() == project_file.ProjectFile()
    path = write(tmp_path / "home")
    assert project_file.find_project_file().path == path


def test_project_outside_the_home_folder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "data" / "project")
    (path.parent / "notebooks").mkdir()
    monkeypatch.chdir(path.parent / "notebooks")
    assert Sky.load().idle == "7m" and Sky.load().origin("idle") == str(path)


@root_only
def test_file_of_another_user_is_ignored_in_words() -> None:
    path = write(Path.cwd())
    os.chown(path, STRANGER, STRANGER)
    sky = Sky.load()
    assert sky.idle == "10m" and sky.origin("idle") == "default"
    assert str(path) in sky.notice and f"another user (uid {STRANGER})" in sky.notice
    assert sky.notice == config().note


@root_only
def test_file_in_a_folder_of_another_user_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(Path.cwd() / "theirs")
    os.chown(path.parent, STRANGER, STRANGER)
    monkeypatch.chdir(path.parent)
    assert Sky.load().idle == "10m" and "the folder" in Sky.load().notice


@root_only
def test_search_goes_no_higher_than_a_folder_of_another_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(Path.cwd())
    mine = Path.cwd() / "theirs" / "mine"
    mine.mkdir(parents=True)
    os.chown(mine.parent, STRANGER, STRANGER)
    monkeypatch.chdir(mine)
    assert project_file.find_project_file() == project_file.ProjectFile()


@root_only
def test_link_of_another_user_is_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "elsewhere")
    link = Path.cwd() / "pyproject.toml"
    link.symlink_to(path)
    assert project_file.find_project_file().path == link
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert "link" in project_file.find_project_file().notice


@pytest.mark.parametrize("writable", ["file", "folder"])
def test_world_writable_file_is_ignored(writable: str) -> None:
    path = write(Path.cwd())
    (path if writable == "file" else path.parent).chmod(0o777)
    assert Sky.load().idle == "10m" and "everybody may write" in Sky.load().notice


def test_search_ends_below_a_folder_that_everybody_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "shared" / "mine")
    assert Sky.load().idle == "10m"


def test_file_without_settings_of_ours_is_ignored_silently() -> None:
    path = Path.cwd() / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    path.chmod(0o666)
    assert Sky.load().notice == ""


@pytest.mark.parametrize("text", ["[tool.other\n", "x = " + "[" * 100_000, "\xff\xfe"])
def test_broken_file_without_our_table_is_ignored(text: str) -> None:
    (Path.cwd() / "pyproject.toml").write_bytes(text.encode("latin-1"))
    assert Sky.load().idle == "10m"


def test_broken_file_with_settings_of_ours_is_refused() -> None:
    path = write(Path.cwd(), "idle = " + "[" * 100_000)
    with pytest.raises(SkyUsageError, match="cannot be read") as caught:
        Sky.load()
    assert str(path) in str(caught.value)


def test_pipe_and_huge_file_are_not_waited_for() -> None:
    path = Path.cwd() / "pyproject.toml"
    os.mkfifo(path)
    assert Sky.load().idle == "10m"
    Sky.clear_instance()
    path.unlink()
    path.write_text("[tool.jupyter_sky]\nidle = '1m'\n" + "#" * project_file.MAX_BYTES)
    assert Sky.load().idle == "10m" and "larger than" in Sky.load().notice


def test_forbidden_while_a_server_runs() -> None:
    write(Path.cwd())
    with project_file.ignore_project_files():
        assert Sky.load().idle == "10m"
        Sky.clear_instance()
    assert Sky.load().idle == "7m"


def test_settings_show_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(Path.cwd(), 'idle = "7m"\ncloud = "aws"')
    monkeypatch.setenv("SKY_CLOUD", "gcp")
    monkeypatch.setenv("SKY_LEASE", "1d")
    sky = Sky.load(Configurable(config=Config({"Sky": {"login": "ada"}})))
    config("max_output_mb", 2)
    sky.update_config(
        Config({"Sky": {"heartbeat_timeout": "5m"}})
    )  # as %config does; it is what it was
    rows = {row[0]: row[1:4] for row in config().rows}
    assert rows["idle"] == ("'7m'", str(path), "yes")
    assert rows["cloud"] == ("'gcp'", "environment variable SKY_CLOUD", "yes")
    assert rows["lease"] == ("'1d'", "environment variable SKY_LEASE", "no")
    assert rows["login"] == ("'ada'", "Jupyter or IPython configuration", "no")
    assert rows["max_output_mb"] == ("2.0", "%config", "lower it")
    assert rows["heartbeat_timeout"] == ("'5m'", "%config", "no")
    assert rows["hosts"] == ("''", "default", "no")
    dotted = {name for name, _ in dotted_names()}
    assert set(rows) == {*Sky.class_own_traits(config=True), *dotted}


@pytest.mark.parametrize("name", ["data_dir", "offers", "hosts"])
def test_relative_paths_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SKY_{name.upper()}", ".notes/x")
    with pytest.raises(SkyUsageError, match="relative path"):
        Sky.load()
    monkeypatch.setenv(f"SKY_{name.upper()}", "~/x")
    assert getattr(Sky.load(), name) == str(Path.home() / "x")


def test_relative_path_is_refused_before_settings_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", ".notes")
    monkeypatch.delitem(__import__("sys").modules, "jupyter_sky.base.settings.settings")
    with pytest.raises(SkyUsageError, match="relative path"):
        paths.data_dir()


def test_data_dir_that_everybody_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("SKY_DATA_DIR", str(shared))
    with pytest.raises(SkyUsageError, match="everybody may write it") as caught:
        Sky.load()
    assert str(shared) in str(caught.value) and not Sky.initialized()
    monkeypatch.setenv("SKY_DATA_DIR", str(shared / "mine"))
    assert Sky.load().data_dir == str(shared / "mine")
