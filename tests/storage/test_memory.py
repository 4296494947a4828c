"""Transfers in little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

MIB = 2**20
LIMITED = """
    import resource, sys
    from pathlib import Path
    from jupyter_sky.machines.storage.stores.files import FilesStore
    from jupyter_sky.machines.storage.transfers import transfer as transfers

    source, target = (FilesStore(Path(each)) for each in sys.argv[1:3])
    items = [transfers.TransferItem(each, each.key) for each in source.list()]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + {more}
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    options = transfers.TransferOptions(part_size={part_size})
    transfers.Transfer(source, target, items, options=options).run()
"""


def copy_limited(folder: Path, more: int, part_size: int = 0) -> subprocess.CompletedProcess[str]:
    """Copy a file of 1 GiB in a process that may have `more` bytes than at its start."""
    (folder / "from").mkdir()
    with (folder / "from" / "large").open("wb") as file:
        os.truncate(file.fileno(), 1024 * MIB)
    code = textwrap.dedent(LIMITED).format(more=more, part_size=part_size)
    words = [sys.executable, "-c", code, str(folder / "from"), str(folder / "to")]
    (folder / "to").mkdir()
    # glibc reserves 64 MiB of addresses for each thread, which is no memory
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)


def test_large_file_is_copied_in_little_memory(tmp_path: Path) -> None:
    done = copy_limited(tmp_path, 384 * MIB)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "to" / "large").stat().st_size == 1024 * MIB


@pytest.mark.parametrize(
    ("more", "part_size", "words"),
    [
        (4 * MIB, 0, "no thread can be started"),
        (384 * MIB, 1024 * MIB, "no memory for a part of 1.1 GB"),
    ],
)
def test_too_little_memory_is_said(tmp_path: Path, more: int, part_size: int, words: str) -> None:
    done = copy_limited(tmp_path, more, part_size)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (tmp_path / "to" / "large").exists()
