"""Hosts of ``ssh:`` addresses: how they are reached, and the package that works there."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shlex
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jupyter_sky.base.errors import SkyBootstrapError, SkyUsageError
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.environment_spec import package_archive, python_minor_version
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.translation import _

_AUTHORITY = re.compile(r"(?:([^@\s]+)@)?(\[[0-9A-Fa-f:.]+\]|[^@:\s\[\]]+)(?::(\d{1,5}))?")
_NO_PACKAGE, _NO_PYTHON = 3, 69
_LOOK_SCRIPT = f'run=$HOME/.cache/jupyter_sky/worker/$1/run; [ -x "$run" ] || exit {_NO_PACKAGE}'
_INSTALL_SCRIPT = f"""
set -e
base=$HOME/.cache/jupyter_sky/worker target=$base/$1 work=$base/$1.$$ found=
for python in "$3" "python$2" python3 python3.1[1-9] "$HOME"/.cache/jupyter_sky/env/*/bin/python; do
  "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  found=$(command -v "$python") && break
done
[ -n "$found" ] || exit {_NO_PYTHON}
umask 077
mkdir -p "$work"
tar -xzf - -C "$work"
cat >"$work/run" <<END
#!/bin/sh
exec $found -I -S -c 'import runpy, sys; sys.path.insert(0, sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__")' "$target" "\\$1"
END
chmod 700 "$work/run"
mv -T "$work" "$target" 2>/dev/null || rm -rf "$work"
[ -x "$target/run" ]
"""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """SSH address of a host, and the Python that its owner names for it; empty for any."""

    address: Address
    python: str = ""


def find_host(authority: str) -> HostAddress:
    """Return the address of ``user@host:port``, or of a machine of the ``ssh`` cloud by its name.

    Raises
    ------
    SkyUsageError
        It is no address.
    """
    from jupyter_sky.clouds.ssh import pool_address

    if found := pool_address(authority):
        return HostAddress(*found)
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise SkyUsageError(
            _("ssh://{authority} is not the address of a host").format(authority=authority),
            hint=_("such as ssh://ada@10.0.0.5:2222/data/, or a name of hosts.toml"),
        )
    user, host, port = match.groups()
    return HostAddress(Address(user or "", host.strip("[]"), int(port or 22), pinned=False))


def install_worker(host: HostAddress) -> list[str]:
    """Have the package on a host; return the command that runs one of its modules there.

    The module's name is the last argument of the command.

    Raises
    ------
    SkyUnreachable
        The host does not answer.
    SkyBootstrapError
        It has no Python that would do.
    """
    archive, address = worker_archive(), host.address
    key = hashlib.blake2b(archive, digest_size=8).hexdigest()
    if ssh.run(address, _LOOK_SCRIPT, key).code == _NO_PACKAGE:
        words = (key, python_minor_version(), host.python)
        answer = ssh.run(address, _INSTALL_SCRIPT, *words, data=archive)
        if answer.code == _NO_PYTHON:
            raise SkyBootstrapError(
                _("{name} has no Python 3.11 or later").format(name=address.name),
                hint=_("install one there, or run a cell there once: %%sky --cloud ssh brings it"),
            )
        if answer.code:
            raise SkyBootstrapError(
                _("{name}: data cannot be read there: {why}").format(
                    name=address.name, why=answer.err.strip() or answer.code
                )
            )
    return [*address.command(), f'exec "$HOME"/.cache/jupyter_sky/worker/{key}/run']


def module_command(command: list[str], module: str) -> list[str]:
    """Return the command for one module of the package."""
    return [*command[:-1], f"{command[-1]} {shlex.quote(module)}"]


@cache
def worker_archive() -> bytes:
    """Return this package and google-crc32c as a reproducible tar.gz file.

    The compiled part of google-crc32c works on hosts of this kind with this Python; on others it
    computes the same sums, slowly.
    """
    import google_crc32c

    folder = Path(google_crc32c.__file__).parent
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(package_archive())) as own,
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for entry in own:
            tar.addfile(entry, own.extractfile(entry))
        libraries = folder.with_name("google_crc32c.libs")
        for path in sorted([*folder.glob("*.py"), *folder.glob("*.so"), *libraries.glob("*")]):
            entry = tarfile.TarInfo(path.relative_to(folder.parent).as_posix())
            data = path.read_bytes()
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
