"""Images: values that say what must be on a node, and what is made of them there."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyBootstrapError, SkyUsageError
from jupyter_sky.execution.functions.images.image import Image
from jupyter_sky.execution.functions.node import image_install
from jupyter_sky.execution.functions.node.image_install import included_files
from jupyter_sky.machines.engines.node import file_cache
from jupyter_sky.machines.engines.node.file_cache import FileTree
from jupyter_sky.machines.packages import plan
from jupyter_sky.machines.packages.indexes import IndexSettings
from tests.package_sync.installed_packages import Index, install

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is kept yet."""
    path = tmp_path / "home"
    path.mkdir()
    cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    monkeypatch.setenv("UV_CACHE_DIR", cache)
    monkeypatch.setenv("HOME", str(path))
    return path


# -- the value -----------------------------------------------------------------------------------


def test_image_is_a_value() -> None:
    one = Image(pip=["torch"], env={"A": "1"}, includes=[Path("lib")])
    other = Image(pip=("torch",), env={"A": "1"}, includes=["lib"])
    assert one == other and hash(one) == hash(other) and one.digest == other.digest
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.pip == ("torch",) and one.env["A"] == "1"
    with pytest.raises(AttributeError):
        one.python = "3.13"  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.env["A"] = "2"  # type: ignore[index]
    digests = {
        image.digest
        for image in (
            Image(),
            Image(pip=["a", "b"]),
            Image(pip=["ab"]),
            Image(apt=["a", "b"]),
            Image(env={"A": "1"}),
            Image(env={"A": "2"}),
            Image(includes=["a"]),
            Image(excludes=["a"]),
            Image(python="3.99"),
        )
    }
    assert len(digests) == 9 and Image(python=HERE).digest == Image().digest


@pytest.mark.parametrize(
    ("given", "pieces"),
    [
        ({"pip": "torch"}, ["not a list", "pip=['torch']"]),
        ({"pip": [3]}, ["3 is not a text"]),
        ({"pip": ["--index-url x"]}, ["an option"]),
        ({"pip": ["numpy\n--index-url x"]}, ["an option"]),
        ({"pip": ["-e ."]}, ["an option"]),
        ({"pip": ["acme @ file:///acme"]}, ["a file: address"]),
        ({"apt": ["ffmpeg; rm"]}, ["not the name of a package"]),
        ({"env": ["A"]}, ["not a mapping"]),
        ({"env": {"A B": "1"}}, ["'A B' is not the name of a variable"]),
        ({"env": {"A": 1}}, ["A is 1, not a text"]),
        ({"python": "3"}, ["not a version", "3.12"]),
        ({"python": 3.12}, ["not a version"]),
        ({"includes": "lib"}, ["not a list"]),
    ],
)
def test_invalid_image(given: dict[str, Any], pieces: list[str]) -> None:
    with pytest.raises(SkyUsageError) as caught:
        Image(**given)
    for piece in pieces:
        assert piece in str(caught.value)


@pytest.mark.slow
def test_nonexistent_package_is_detected_locally() -> None:
    pytest.importorskip("uv")
    with pytest.raises(SkyBootstrapError) as caught:
        Image(pip=["surely-no-such-package-9"]).check()
    assert "surely-no-such-package-9" in str(caught.value)
    assert "not found" in str(caught.value) and "no machine" in str(caught.value)
    asked = image_install.resolution_error.cache_info().misses
    with pytest.raises(SkyBootstrapError, match="surely-no-such-package-9"):
        Image(pip=["surely-no-such-package-9"]).check()
    assert image_install.resolution_error.cache_info().misses == asked, "asked once"


def test_missing_folder() -> None:
    with pytest.raises(SkyUsageError, match="no such file or folder"):
        Image(includes=["nowhere"]).check()


# -- files ---------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("mine/__init__.py", "mine/data/big.csv", "mine/__pycache__/x.pyc", "mine/a.tmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"NAME = {name!r}\n")
    (root / "tool.py").write_text("TOOL = 1\n")
    (root / "mine/run.sh").write_text("#!/bin/sh\n")
    (root / "mine/run.sh").chmod(0o755)
    return root


def laid_out(layout: FileTree) -> Path:
    """Bring a layout to this machine as `Image.bootstrap` does."""
    for digest in file_cache.missing_digests(layout.entries):
        file_cache.store_contents({digest: layout.by_digest()[digest].read_bytes()})
    return Path(file_cache.build_folder(layout.entries))


def test_folders_and_files_have_their_own_names(project: Path) -> None:
    layout = included_files(project, ["mine", "tool.py"], ["*.tmp", "data/"])
    assert sorted(layout.files) == ["mine/__init__.py", "mine/run.sh", "tool.py"]
    there = laid_out(layout)
    assert (there / "tool.py").read_text() == "TOOL = 1\n"
    assert (there / "mine/run.sh").stat().st_mode & 0o777 == 0o755


def test_secrets_and_links_that_lead_elsewhere_are_not_included(project: Path) -> None:
    (project / "mine" / ".env").write_text("TOKEN=1")
    (project / "mine" / "host").symlink_to("/etc/hostname")
    with pytest.warns(UserWarning, match=r"leaves out mine/(\.env|host)"):
        layout = included_files(project, ["mine"], [])
    assert {"mine/.env", "mine/host"}.isdisjoint(layout.files) and "mine/run.sh" in layout.files
    assert ".env" in included_files(project, ["mine/.env"], []).files, "whoever names it means it"


def test_only_changed_contents_are_sent(project: Path) -> None:
    first = included_files(project, ["mine", "tool.py"], [])
    old = laid_out(first)
    assert file_cache.missing_digests(first.entries) == []
    (project / "tool.py").write_text("TOOL = 2\n")
    os.utime(project / "mine/__init__.py")  # touched, and the same
    second = included_files(project, ["mine", "tool.py"], [])
    assert [
        second.by_digest()[d].read_bytes() for d in file_cache.missing_digests(second.entries)
    ] == [b"TOOL = 2\n"]
    new = laid_out(second)
    assert (old / "tool.py").read_text() == "TOOL = 1\n", "who runs with the old one keeps it"
    assert (new / "tool.py").read_text() == "TOOL = 2\n"
    (new / "tool.py").write_text("spoilt")
    assert (
        file_cache.cache_folder() / "files" / second.entries["tool.py"][0]
    ).read_text() == "TOOL = 2\n"


def test_damaged_contents_are_not_stored(project: Path) -> None:
    layout = included_files(project, ["tool.py"], [])
    with pytest.raises(SkyBootstrapError, match="changed while it was sent"):
        file_cache.store_contents({layout.entries["tool.py"][0]: b"something else"})
    assert file_cache.missing_digests(layout.entries)


def test_conflicting_included_names(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tool.py"
    other.parent.mkdir()
    other.write_text("")
    with pytest.raises(SkyUsageError, match=r"would both be tool\.py"):
        included_files(project, ["tool.py", str(other)], [])


def test_a_process_that_is_set_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    image = Image(includes=["mine", "./tool.py"], env={"KERAS_BACKEND": "jax"})
    laid_out(image.layout())
    setup = pickle.dumps(image.setup())
    code = (
        f"import pickle, os; pickle.loads({setup!r})(); import mine, tool; "
        "print(mine.NAME, tool.TOOL, os.environ['KERAS_BACKEND'])"
    )
    root = Path(__file__).parents[2]
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert outcome.stdout == "mine/__init__.py 1 jax\n", outcome.stderr


# -- packages ------------------------------------------------------------------------------------


def test_a_private_package_of_an_image_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(
        plan, "local_index_settings", lambda: IndexSettings("https://a:s3cr3t@b.c/simple")
    )
    install(
        site, "acme-secret", requires=("xxhash",), direct_url={"url": "file:///a", "dir_info": {}}
    )
    asked = list[str]()
    monkeypatch.setattr(
        image_install, "resolution_error", lambda packages, _: asked.extend(packages) or ""
    )
    image = Image(pip=["acme-secret", "packaging>=20"])
    image.check()
    assert sorted(asked) == ["packaging>=20", f"xxhash=={metadata.version('xxhash')}"]
    setup = image.setup()
    assert setup.request.packages == tuple(asked) and len(setup.trees) == 1
    assert b"s3cr3t" not in pickle.dumps(setup), "only the installer gets credentials"
    with pytest.raises(SkyUsageError, match=r"acme-secret 1\.4\.2 is installed here"):
        Image(pip=["acme-secret==2.0"]).check()


def test_no_index_is_asked_for_private_needs_of_a_public_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uv")
    canary = Index()
    monkeypatch.setenv("UV_DEFAULT_INDEX", canary.address)
    for name in ("UV_INDEX", "UV_FIND_LINKS", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    needs = tmp_path / "open"
    needs.mkdir()
    (needs / "pyproject.toml").write_text(
        '[project]\nname = "open-tool"\nversion = "1"\ndependencies = ["acme-fork"]\n'
    )
    try:
        assert "acme-fork" in image_install.resolution_error((str(needs),))
        assert canary.asked.count("acme-fork") == 1
        assert image_install.resolution_error((str(needs),), ("acme-fork",)) == ""
        assert canary.asked.count("acme-fork") == 1
    finally:
        canary.close()


# -- packages of the system -----------------------------------------------------------------------

DEBIAN = pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="needs apt-get")


@DEBIAN
def test_installed_system_packages_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apt-get").symlink_to("/bin/false")  # fails the installation if it is asked
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    image_install.install_image(["coreutils", "dpkg"], image_install.PackageRequest())
    with pytest.raises(SkyBootstrapError):
        image_install.install_image(["no-such-package-9"], image_install.PackageRequest())


@DEBIAN
@pytest.mark.slow
def test_missing_system_package() -> None:
    with pytest.raises(SkyBootstrapError) as caught:
        image_install.install_image(["surely-no-such-package-9"], image_install.PackageRequest())
    if os.geteuid() == 0:
        assert "Unable to locate package surely-no-such-package-9" in str(caught.value)
    else:
        assert "surely-no-such-package-9" in str(caught.value)
