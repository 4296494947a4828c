"""Podman on this machine with an image and a storage of its own, and faults by command.

Containers are real. Their image holds the accounts and settings that programs need; programs are
this machine's, below a layer in which a container writes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from io import BytesIO
from pathlib import Path

IMAGE = "localhost/sky-test:1"
MARK = "/etc/sky-image"
"""File that only the image has."""
_LINKS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_FOLDERS = "dev etc/ssh home proc root run sys tmp usr var/cache/uv var/lib var/log var/tmp".split()
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:20000:0:99999:7:::\nsshd:!:20000::::::\n",
    "etc/uv/uv.toml": 'cache-dir = "/var/cache/uv"\noffline = true\nlink-mode = "copy"\n',
    MARK.strip("/"): "sky\n",
}
_COPIED = ("ld.so.cache", "ld.so.conf", "login.defs", "nsswitch.conf", "os-release", "alternatives")
_PROGRAM = """#!/bin/sh
# Passes commands on to podman; files in its folder say what goes wrong.
folder={folder}
first() {{
  [ -s "$folder/$1" ] || return 1
  line=$(head -n 1 "$folder/$1")
  sed -i 1d "$folder/$1"
}}
if [ "$1" = run ]; then
  [ -s "$folder/delay" ] && sleep "$(cat "$folder/delay")"
  first refusals && [ -n "$line" ] && {{ echo "Error: $line" >&2; exit 125; }}
fi
if [ -e "$folder/lost-$1" ]; then
  rm "$folder/lost-$1"
  {podman} "$@" >/dev/null 2>&1
  kill -9 $$
fi
exec {podman} "$@"
"""


class Podman:
    """Podman with a storage of its own, where nothing else is.

    Attributes
    ----------
    program : Path
        To be called in its place.
    folder : Path
        ``refusals``, ``delay`` and ``lost-COMMAND`` there are faults.
    """

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="sky-podman-")
        root = Path(self._made.name)
        self.folder, self.program = root / "faults", root / "podman"
        self.folder.mkdir()
        storage = root / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{root}/graph"\nrunroot = "{root}/run"\n'
        )
        self.env = {"CONTAINERS_STORAGE_CONF": str(storage)}
        text = _PROGRAM.format(folder=self.folder, podman=shutil.which("podman"))
        self.program.write_text(text)
        self.program.chmod(0o755)
        self.call("import", "-", IMAGE, data=image_layer())

    def call(self, *words: str, data: bytes = b"") -> str:
        """Run podman itself; return its output."""
        done = subprocess.run(
            ["podman", *words], input=data, capture_output=True, env=os.environ | self.env
        )
        if done.returncode:
            raise RuntimeError(f"podman {shlex.join(words)}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    def running(self) -> set[str]:
        """Return the names of the containers that run."""
        return set(self.call("ps", "--format", "{{.Names}}").split())

    def every(self) -> set[str]:
        """Return the names of all containers, those that have ended, too."""
        return set(self.call("ps", "--all", "--format", "{{.Names}}").split())

    def reset(self) -> None:
        """Remove all containers and forget all faults."""
        self.call("rm", "--force", "--all", "--time=0")
        for path in self.folder.iterdir():
            path.unlink()

    def close(self) -> None:
        """Leave nothing of it."""
        self.reset()
        self.call("rmi", "--force", "--all")
        subprocess.run(["umount", f"{self._made.name}/graph/overlay"], capture_output=True)
        self._made.cleanup()


def options() -> str:
    """Return options of containers by which they have this machine's programs and packages."""
    cache = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache/uv")
    prefix = Path(os.path.realpath(sys.base_prefix))
    volumes = [f"--volume={path}:{path}:O" for path in ("/usr",)]
    if not prefix.is_relative_to("/usr"):
        volumes.append(f"--volume={prefix}:{prefix}:ro")
    if cache.is_dir():
        volumes.append(f"--volume={cache}:/var/cache/uv:O")
    path = f"{prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return shlex.join(["--network=none", f"--env=PATH={path}", *volumes])


def image_layer() -> bytes:
    """Return the image's only layer."""
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(entry)
        for name in _LINKS:
            if os.path.islink(f"/{name}"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
                tar.addfile(entry)
        for name in _COPIED:
            if os.path.exists(f"/etc/{name}"):
                tar.add(f"/etc/{name}", f"etc/{name}")
        for name, text in _ACCOUNTS.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o600 if name == "etc/shadow" else 0o644
            tar.addfile(entry, BytesIO(text.encode()))
    return out.getvalue()


@cache
def problem() -> str:
    """Say why no container can be started here; empty where one can."""
    from jupyter_sky.clouds.container import ContainerProgram

    if not shutil.which("podman"):
        return "podman is not installed"
    if os.geteuid():
        return "programs of this machine are lent to containers by root alone"
    try:
        podman = Podman()
    except RuntimeError as error:
        return str(error)
    try:
        words = ContainerProgram("podman").start_options((), 60)
        podman.call("run", "--rm", *words, *shlex.split(options()), IMAGE, "true")
    except RuntimeError as error:
        return str(error)
    finally:
        podman.close()
    return ""
