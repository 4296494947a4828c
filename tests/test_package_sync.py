"""Packages for remote machines: which are requested from an index, and which are sent."""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.engines.node.platforms import Platform
from jupyter_sky.errors import SkyTransferError
from jupyter_sky.package_sync import plan
from jupyter_sky.package_sync.contents import SentPackage, is_supported
from jupyter_sky.package_sync.indexes import PYPI, IndexSettings, read_settings
from jupyter_sky.package_sync.lookup import IndexLookup
from jupyter_sky.package_sync.origins import InstallRecord, PackageOrigin, decide_origin
from jupyter_sky.package_sync.plan import (
    distributions_of,
    local_only_packages,
    plan_named,
    plan_packages,
    split_requirements,
)

DEFAULT = IndexSettings()
CORPORATE = IndexSettings("https://ada:s3cr3t@pypi.acme.com/simple")


class Index(http.server.ThreadingHTTPServer):
    """A package index on loopback that has some names, and notes what it is asked."""

    def __init__(self, *names: str, status: int = 404) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.names, self.status, self.asked = names, status, list[str]()
        self.logins = list[str | None]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Page(http.server.BaseHTTPRequestHandler):
    server: Index  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        self.server.asked.append(name)
        self.server.logins.append(self.headers.get("Authorization"))
        self.send_response(200 if name in self.server.names else self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of installed packages."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    return path


def install(
    site: Path,
    name: str,
    *,
    version: str = "1.4.2",
    requires: tuple[str, ...] = (),
    direct_url: dict[str, Any] | None = None,
    installer: str = "pip",
    files: dict[str, str] | None = None,
    more: str = "",
    wheel: str = "py3-none-any",
) -> str:
    """Install a package as an installer would; return its module."""
    module = name.replace("-", "_")
    written = {f"{module}/__init__.py": f"NAME = {name!r}\n"} if files is None else dict(files)
    info = f"{module}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    written[f"{info}/METADATA"] = "\n".join(lines) + f"\n{more}\n"
    written[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {wheel}\n"
    if installer:
        written[f"{info}/INSTALLER"] = f"{installer}\n"
    if direct_url is not None:
        written[f"{info}/direct_url.json"] = json.dumps(direct_url)
    written[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*written, f"{info}/RECORD"])
    for path, text in written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    return module


def editable(source: Path) -> dict[str, Any]:
    return {"url": source.as_uri(), "dir_info": {"editable": True}}


def nobody(place: str, name: str, is_index: bool) -> bool | None:
    pytest.fail(f"{place} was asked for {name}")


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "settings", "answer", "expected"),
    [
        (InstallRecord("numpy", "pip"), DEFAULT, None, PackageOrigin.PUBLIC),
        (InstallRecord("numpy", "uv"), DEFAULT, None, PackageOrigin.PUBLIC),
        (InstallRecord("acme", "pip", {"url": "file:///acme"}), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", {"vcs_info": {}}), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", {}), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", ""), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "acme-tool"), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", marked_private=True), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", marked_private=True), CORPORATE, None, PackageOrigin.SENT),
        (InstallRecord("numpy", "conda"), DEFAULT, None, PackageOrigin.SENT),
        (
            InstallRecord("numpy", "conda", channel="conda.anaconda.org/conda-forge"),
            *(DEFAULT, None, PackageOrigin.PUBLIC),
        ),
        (
            InstallRecord("acme", "conda", channel="conda.acme.com/private"),
            *(DEFAULT, None, PackageOrigin.SENT),
        ),
        (InstallRecord("numpy", "pip"), CORPORATE, None, PackageOrigin.INDEX),
        (InstallRecord("numpy", "pip"), IndexSettings(""), None, PackageOrigin.SENT),
        (
            InstallRecord("numpy", "pip"),
            IndexSettings("http://localhost/s"),
            None,
            PackageOrigin.SENT,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(extra=("https://a/s",)),
            True,
            PackageOrigin.SENT,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(extra=("https://a/s",)),
            False,
            PackageOrigin.PUBLIC,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(find_links=("/wheels",)),
            True,
            PackageOrigin.SENT,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(find_links=("/wheels",)),
            False,
            PackageOrigin.PUBLIC,
        ),
    ],
)
def test_origin(
    record: InstallRecord, settings: IndexSettings, answer: bool | None, expected: PackageOrigin
) -> None:
    ask = nobody if answer is None else lambda *_: answer
    assert decide_origin(record, settings, ask) is expected


def test_unanswered_private_index_is_inconclusive() -> None:
    settings = IndexSettings(extra=("https://pypi.acme.com/simple",))
    assert decide_origin(InstallRecord("x", "pip"), settings, lambda *_: None) is PackageOrigin.SENT
    public = IndexSettings(extra=("https://download.pytorch.org/whl/cu124",))
    assert decide_origin(InstallRecord("torch", "pip"), public, nobody) is PackageOrigin.PUBLIC


def test_private_places_are_asked_once(tmp_path: Path) -> None:
    index, broken = Index("acme"), Index(status=500)
    try:
        lookup = IndexLookup()
        for _ in range(2):
            assert lookup.has(index.address, "acme", True) is True
            assert lookup.has(index.address, "numpy", True) is False
            assert lookup.has(broken.address, "numpy", True) is None
        assert index.asked == ["acme", "numpy"] and broken.asked == ["numpy"]
    finally:
        index.close()
        broken.close()
    assert IndexLookup().has(index.address, "acme", True) is None, "nobody listens any more"
    (tmp_path / "Acme_Secret-1.4.2-py3-none-any.whl").touch()
    (tmp_path / "simple" / "acme").mkdir(parents=True)
    for place in (str(tmp_path), tmp_path.as_uri()):
        assert lookup.has(place, "acme-secret", False) is True
        assert lookup.has(place, "acme", False) is False
    assert lookup.has((tmp_path / "simple").as_uri(), "acme", True) is True
    assert lookup.has((tmp_path / "simple").as_uri(), "numpy", True) is False


# -- settings --------------------------------------------------------------------------------------


@pytest.fixture
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home without settings of pip and uv."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    return tmp_path


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


# -- plans -----------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the folder of a project with its package, its tests and secrets."""
    for name, text in {
        "src/acme_secret/__init__.py": "VALUE = 1\n",
        "src/acme_secret/data/table.csv": "1,2\n",
        "src/acme_secret/.env": "TOKEN=1\n",
        "src/acme_secret/__pycache__/x.pyc": "",
        "src/acme_extra.py": "",
        "tests/test_it.py": "",
        "id_rsa": "",
    }.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "project/src/acme_secret/leak").symlink_to("/etc/hostname")
    return tmp_path / "project"


def test_an_editable_package_is_sent(site: Path, source: Path) -> None:
    install(
        site,
        "acme-secret",
        direct_url=editable(source),
        files={"_acme_secret.pth": f"{source}/src\n"},
        requires=("numpy", "acme-inner", "not-installed", "never; python_version < '3'"),
    )
    install(site, "acme-inner", direct_url={"url": "https://git.acme.com/x", "vcs_info": {}})
    import site as sites

    sites.addsitedir(str(site))
    try:
        assert distributions_of(["acme_secret", "numpy", "os", "nowhere"]) == {
            "acme_secret": "acme-secret",
            "numpy": "numpy",
        }
        found = plan_packages(["acme-secret"], ["acme_secret"], settings=DEFAULT)
    finally:
        sys.path.remove(f"{source}/src")
    assert [*found.requirements.values()] == [f"numpy=={metadata.version('numpy')}"]
    inner, secret = found.sent
    assert inner.name == "acme-inner" and "acme_inner/__init__.py" in inner.files
    info = "acme_secret-1.4.2.dist-info"
    assert set(secret.files) == {
        *("acme_secret/__init__.py", "acme_secret/data/table.csv", "acme_extra.py"),
        *(f"{info}/METADATA", f"{info}/WHEEL"),
    }
    before = secret.tree.digest
    assert secret.tree.digest == before
    (source / "src/acme_secret/__init__.py").write_text("VALUE = 2\n")
    assert secret.tree.digest != before, "changed sources are other files"


def test_unreadable_file_is_named(site: Path, source: Path) -> None:
    install(site, "acme-secret", direct_url={"url": "file:///a", "dir_info": {}})
    (found,) = plan_packages(["acme-secret"], settings=DEFAULT).sent
    (site / "acme_secret/__init__.py").unlink()
    with pytest.raises(SkyTransferError, match=r"acme-secret 1\.4\.2 cannot be sent.*__init__"):
        assert found.tree


def test_a_package_of_setuptools_finder_is_found(site: Path, tmp_path: Path) -> None:
    project = tmp_path / "flat"
    (project / "acme_flat").mkdir(parents=True)
    (project / "acme_flat/__init__.py").write_text("")
    (project / "tests").mkdir()
    finder = f"MAPPING: dict[str, str] = {{'acme_flat': {str(project / 'acme_flat')!r}}}\n"
    install(
        site,
        "acme-flat",
        direct_url=editable(project),
        files={"__editable___acme_flat_finder.py": finder},
    )
    sys.path.append(str(project))  # the finder's work
    try:
        assert distributions_of(["acme_flat"]) == {"acme_flat": "acme-flat"}
        (found,) = plan_packages(["acme-flat"], settings=DEFAULT).sent
    finally:
        sys.path.remove(str(project))
    assert [name for name in found.files if ".dist-info" not in name] == ["acme_flat/__init__.py"]


def test_private_dependencies_are_not_requested_from_an_index(site: Path) -> None:
    install(site, "open-tool", requires=("acme-fork",))
    install(site, "acme-fork", direct_url={"url": "file:///fork", "dir_info": {}})
    found = plan_packages(["open-tool"], settings=DEFAULT)
    assert [*found.requirements.values()] == ["open-tool==1.4.2"]
    assert [str(each) for each in found.sent] == ["acme-fork 1.4.2"]
    assert found.dropped == ("acme-fork",)


def test_index_of_this_machine_is_local(tmp_path: Path) -> None:
    index = Index("acme-tool")
    (tmp_path / "acme_wheel-1.0-py3-none-any.whl").touch()
    try:
        settings = IndexSettings(extra=(index.address.replace("//", "//ada:s3cr3t@"),))
        assert local_only_packages(["acme_tool>=1", "./x.whl", "numpy"], settings) == {
            "acme-tool": index.address
        }
        assert local_only_packages(["acme-tool"], IndexSettings(index.address)) == {
            "acme-tool": index.address
        }
    finally:
        index.close()
    settings = IndexSettings(find_links=(str(tmp_path),))
    assert local_only_packages(["acme-wheel", "numpy"], settings) == {"acme-wheel": str(tmp_path)}
    assert local_only_packages(["numpy"], CORPORATE) == {}


def test_extras_that_a_user_names_count(site: Path) -> None:
    install(site, "open-tool", requires=("acme-fork; extra == 'fast'",))
    install(site, "acme-fork", direct_url={"url": "file:///fork", "dir_info": {}})
    assert not plan_named(["open-tool"], DEFAULT).sent
    found = plan_named(["open-tool[fast]>=1"], DEFAULT)
    assert [*found.requirements.values()] == ["open-tool[fast]>=1"]
    assert [each.name for each in found.sent] == ["acme-fork"] and found.dropped == ("acme-fork",)


def test_packages_of_a_private_index_are_asked_of_it_or_sent(site: Path) -> None:
    install(site, "acme-tool")
    found = plan_packages(["acme-tool"], settings=CORPORATE)
    assert [*found.requirements] == ["acme-tool"] and not found.sent
    assert found.environment["UV_DEFAULT_INDEX"] == CORPORATE.default
    assert "s3cr3t" not in repr(found)
    again = plan_packages(["acme-tool"], settings=CORPORATE, send_all=True)
    assert not again.requirements and [each.name for each in again.sent] == ["acme-tool"]


def test_packages_given_by_the_user_are_not_requested(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "local_index_settings", lambda: DEFAULT)
    install(site, "acme-secret", direct_url={"url": "file:///acme", "dir_info": {}})
    given = ["Acme_Secret>=1", "numpy", "not-installed-here", "./acme.whl", "git+https://a/b"]
    assert split_requirements(given) == (given[1:], ["acme-secret"])


# -- compiled packages -----------------------------------------------------------------------------

HERE = Platform("linux-x86_64", ".cpython-311-x86_64.so", "glibc", "2.36", ["cp311-manylinux"])


@pytest.mark.parametrize(
    ("tags", "built_here", "there", "expected"),
    [
        ((), False, HERE, True),
        (("cp311-manylinux",), False, HERE, True),
        (("cp311-macosx",), False, HERE, False),
        ((), True, HERE, True),
        ((), True, HERE._replace(libc_version="2.39"), True),
        ((), True, HERE._replace(libc_version="2.4"), False),
        ((), True, HERE._replace(suffix=".cpython-311-aarch64.so"), False),
        ((), True, HERE._replace(libc="", libc_version=""), False),
    ],
)
def test_compiled_parts(
    tags: tuple[str, ...], built_here: bool, there: Platform, expected: bool
) -> None:
    package = SentPackage("acme", "1", {}, frozenset(tags), built_here)
    assert is_supported(package, there, HERE) is expected


def test_an_installed_package_is_sent_by_its_record(site: Path) -> None:
    suffix = EXTENSION_SUFFIXES[0]
    files = {f"acme_fast/_core{suffix}": "", "acme_fast/cacert.pem": "", "../bin/acme": ""}
    install(
        site,
        "acme-fast",
        direct_url={"url": "file:///x.whl", "archive_info": {}},
        files=files,
        wheel="cp311-cp311-macosx_11_0_arm64",
    )
    (found,) = plan_packages(["acme-fast"], settings=DEFAULT).sent
    assert found.tags == {"cp311-cp311-macosx_11_0_arm64"} and not found.built_here
    names = set(found.files)
    assert "acme_fast/cacert.pem" in names and not any("bin/" in name for name in names)
    assert not any(name.endswith(("RECORD", "direct_url.json")) for name in names)
