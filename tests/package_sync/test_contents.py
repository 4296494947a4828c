"""Files of packages that are sent."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.machines.engines.node.platforms import Platform
from jupyter_sky.machines.packages.contents import SentPackage, is_supported
from jupyter_sky.machines.packages.plan import distributions_of, plan_packages
from tests.package_sync.installed_packages import DEFAULT, editable, install


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
