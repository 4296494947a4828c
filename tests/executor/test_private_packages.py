"""Packages that are private here, on machines elsewhere: sent, and asked of no index."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook
from tests.emulators.hosts import USABLE, SshHost
from tests.package_sync.installed_packages import Index, install

uv = pytest.importorskip("uv")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def canary() -> Iterator[Index]:
    """A package index that has nothing, and notes all that it is asked."""
    index = Index()
    yield index
    index.close()


@pytest.fixture(scope="module")
def host(canary: Index) -> Iterator[SshHost]:
    """A machine that asks that index."""
    address = canary.address
    made = SshHost(
        65,
        **{name: address for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")},
        UV_EXTRA_INDEX_URL="",
    )
    yield made
    made.close()


@pytest.fixture
def book(fresh: Any, host: SshHost, site: Path) -> Notebook:
    """A notebook with packages of its own."""
    fresh.data.mkdir(exist_ok=True)
    (fresh.data / "hosts.toml").write_text(host.toml("box"))
    made = fresh("analysis.ipynb")
    assert made.run(f"import site; site.addsitedir({str(site)!r})").status == "ok"
    return made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The source of a package that nobody has published."""
    folder = tmp_path / "project"
    package = folder / "src" / "acme_secret"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from importlib.metadata import version\n\nimport acme_inner\n\n"
        "VALUE, VERSION, INNER = 1, version('acme-secret'), acme_inner.NAME\n"
    )
    (package / ".env").write_text("TOKEN=s3cr3t")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "acme-secret"\nversion = "1.4.2"\n'
        'dependencies = ["acme-inner", "acme-absent"]\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/acme_secret"]\n'
    )
    return folder


@pytest.fixture
def site(tmp_path: Path, project: Path) -> Path:
    """A folder in which it is installed, editable, beside what it depends on."""
    folder = tmp_path / "site"
    command = [uv.find_uv_bin(), "pip", "install", "-q", "--python", sys.executable]
    options = ["--target", str(folder), "--no-deps"]
    subprocess.run([*command, *options, "-e", str(project)], check=True)
    install(folder, "acme-inner", direct_url={"url": "https://git.acme.com/i", "vcs_info": {}})
    install(folder, "open-tool", version="0.0.1")
    return folder


def sent(host: SshHost) -> set[str]:
    folder = host.home / ".cache" / "jupyter_sky"
    return {path.name for path in folder.glob("files/*")}


def test_an_editable_package_travels_and_no_index_is_asked(
    book: Notebook, host: SshHost, canary: Index, project: Path
) -> None:
    code = (
        "%%sky --cloud ssh\nimport acme_secret as a\nprint(a.VALUE, a.VERSION, a.INNER, a.__file__)"
    )
    ran = book.run(code, timeout=120)
    assert "1 1.4.2 acme-inner " in ran.stdout, ran.traceback
    assert str(host.home) in ran.stdout
    assert "sent as here, not asked of an index: acme-inner 1.4.2, acme-secret 1.4.2" in (
        ran.status_line
    )
    held = sent(host)
    assert not any(
        b"s3cr3t" in (host.home / ".cache/jupyter_sky/files" / n).read_bytes() for n in held
    )
    again = book.run(code)
    assert again.stdout.startswith("1 ") and "sent as here" not in again.status_line
    # changed sources travel anew, one file of them
    file = project / "src/acme_secret/__init__.py"
    file.write_text(file.read_text().replace("= 1,", "= 2,"))
    ran = book.run(code)
    assert "2 1.4.2 acme-inner " in ran.stdout, ran.traceback
    assert "sent as here" in ran.status_line and len(sent(host) - held) == 1
    # the next cluster finds all of it
    held = sent(host)
    assert book.run("%sky down").status == "ok"
    ran = book.run(code, timeout=120)
    assert ran.stdout.startswith("2 ") and sent(host) == held
    # named by the user, it is not asked for either
    ran = book.run("%%sky --cloud ssh --pip acme-inner\nimport acme_inner; acme_inner.NAME")
    assert ran.result == "'acme-inner'" and "sent as here" not in ran.status_line, ran.traceback
    assert [name for name in canary.asked if "acme" in name] == []
    assert book.run("%sky down").status == "ok"


def test_a_public_package_is_asked_of_the_index_there(book: Notebook, canary: Index) -> None:
    ran = book.run("%%sky --cloud ssh\nimport open_tool", timeout=120)
    assert ran.ename == "SkyError" and "open-tool==0.0.1 cannot be installed" in ran.evalue
    assert "open-tool" in canary.asked
    assert book.run("%sky down").status == "ok"


def test_package_of_a_private_index_is_sent(book: Notebook, host: SshHost, canary: Index) -> None:
    asked = len(canary.asked)
    secret = "https://ada:s3cr3t@pypi.invalid/simple"  # found by nobody, as behind a VPN
    assert book.run(f"import os; os.environ['PIP_INDEX_URL'] = {secret!r}").status == "ok"
    ran = book.run("%%sky --cloud ssh\nimport open_tool; print(open_tool.NAME)", timeout=120)
    assert ran.stdout == "open-tool\n", ran.traceback
    assert "sent as here, not asked of an index: open-tool 0.0.1" in ran.status_line
    assert canary.asked[asked:] == []
    ran = book.run("%%sky --cloud ssh --pip acme-tool\n1", timeout=120)
    assert ran.ename == "SkyError" and "acme-tool cannot be installed" in ran.evalue
    assert canary.asked[asked:] == [] and "s3cr3t" not in str(ran.messages)
    assert book.run("%sky down").status == "ok"
    for folder in (host.home, Path(book.directory).parent):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix in (".json", ".db", ".txt", ".log", ".jsonl"):
                assert b"s3cr3t" not in path.read_bytes(), path
