"""uv, as it is run on this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.node import environment
from jupyter_sky.machines.provisioner.uv import run_uv


def test_settings_of_the_open_folder_choose_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.2)
        address = f"http://127.0.0.1:{canary.getsockname()[1]}/simple"
        for name, header in (("uv.toml", ""), ("pyproject.toml", "[tool.uv]\n")):
            folder = tmp_path / name.partition(".")[0]
            folder.mkdir()
            (folder / name).write_text(f'{header}extra-index-url = ["{address}"]\n')
            monkeypatch.chdir(folder)
            (tmp_path / "home").mkdir(exist_ok=True)
            monkeypatch.setenv("HOME", str(tmp_path / "home"))
            monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
            monkeypatch.setenv("UV_HTTP_RETRIES", "0")
            done = run_uv("compile", "-q", "-", input="sky-no-such-package\n", timeout=60)
            assert "127.0.0.1:9" in done.stderr
            with pytest.raises(TimeoutError):
                canary.accept()


def test_option_of_the_installer_is_no_package() -> None:
    with pytest.raises(SkyError, match="an option of the installer"):
        environment.install_packages(["--index-url=elsewhere", "numpy"])
