"""Packing of the package for machines, which goes on in the background of a launch."""

from __future__ import annotations

import subprocess
import sys

PACKING = """
import threading
from contextlib import suppress
from jupyter_sky.machines.provisioner import package_archive

begun = threading.Event()

def install(node, site, *rest):
    site.mkdir(parents=True)
    while True:
        for number in range(200):
            folder = site / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").touch()
        begun.set()

package_archive.install_locally = install
def pack():  # as `prebuild` does
    with suppress(OSError):
        package_archive._pack(None, (), False)

threading.Thread(target=pack, daemon=True).start()
assert begun.wait(30)
"""


def test_end_of_a_process_that_packs_is_quiet() -> None:
    words = [sys.executable, "-c", PACKING]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
