"""Process that serves a mounted dataset to the kernel of its machine: ``python -m``, by FUSE.

The dataset and signed requests come through standard input into memory, never in arguments, in the
environment or on disk; no credentials come at all. When that input ends, so do process and mount.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.storage.datasets.block_reader import BLOCK_BYTES, BlockReader
from jupyter_sky.machines.storage.datasets.machine_data import request_from_json
from jupyter_sky.machines.storage.datasets.mounted_tree import MountedTree
from jupyter_sky.machines.storage.datasets.signed_windows import SignedWindows, Window
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset

KERNEL_CACHE_SECONDS = 86400
"""A snapshot does not change: the kernel need not ask again."""
END_SECONDS = 3.0
_send_lock = threading.Lock()


def send(message: Mapping[str, Any]) -> None:
    """Write a message as a line of JSON."""
    with _send_lock:
        print(json.dumps(message), flush=True)


class MountedDataset:
    """Operations of a read-only file system, as libfuse calls them from its threads.

    Parameters
    ----------
    tree
        Folders and files.
    reader
        Reads the objects.
    """

    use_ns = True  # times in nanoseconds, as the library wants them

    def __init__(self, tree: MountedTree, reader: BlockReader) -> None:
        self._tree, self._reader = tree, reader
        self._begun = time.time_ns()

    def init(self, _: str) -> None:
        """Report that the file system is there."""
        send({"mounted": True})

    def getattr(self, path: str, _: object = None) -> dict[str, int]:
        """Return mode, size and times of a file or folder."""
        found = self._tree.find(path)
        if found is None and self._tree.names(path) is None:
            raise OSError(errno.ENOENT, path)
        mode = stat.S_IFREG | 0o444 if found else stat.S_IFDIR | 0o555
        status = dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), self._begun)
        size = found.size if found else 0
        owner = {"st_uid": os.getuid(), "st_gid": os.getgid()}
        return status | owner | {"st_mode": mode, "st_size": size, "st_nlink": 1 if found else 2}

    def readdir(self, path: str, _: int) -> list[str]:
        """Return the names in a folder."""
        names = self._tree.names(path)
        if names is None:
            raise OSError(errno.ENOTDIR if self._tree.find(path) else errno.ENOENT, path)
        return [".", "..", *names]

    def open(self, path: str, flags: int) -> int:
        """Open a file for reading."""
        if self._tree.find(path) is None:
            raise OSError(errno.ENOENT, path)
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, path)
        return 0

    def read(self, path: str, size: int, offset: int, _: int) -> bytes:
        """Return bytes of a file; a store's refusal goes to the notebook as a sentence."""
        found = self._tree.find(path)
        if found is None:
            raise OSError(errno.ENOENT, path)
        try:
            return self._reader.read(found, offset, size)
        except SkyError as error:
            send({"error": f"{path[1:]}: {error.message}"})
            raise OSError(errno.EIO, path) from None
        finally:
            tally = self._reader.tally
            if tally.received != getattr(self, "_told", 0):
                self._told = tally.received
                send({"reads": tally.requests, "received": tally.received})

    def statfs(self, _: str) -> dict[str, int]:
        """Return the size of the file system, which is full."""
        blocks = -(-self._tree.nbytes // BLOCK_BYTES)
        return {"f_bsize": BLOCK_BYTES, "f_frsize": BLOCK_BYTES, "f_blocks": blocks} | {
            "f_namemax": 255
        }


def _receive(windows: SignedWindows) -> None:
    """Take messages of the engine until they end; then end this process, and with it the mount."""
    for line in sys.stdin:
        message = json.loads(line)
        if "refused" in message:
            windows.refuse(message["refused"])
        for identity, number, requests in message.get("windows", ()):
            windows.add({(identity, number): [request_from_json(each) for each in requests]})
    windows.refuse("the engine is gone")
    threading.Timer(END_SECONDS, os._exit, [0]).start()  # fusermount3 unmounts after it
    os.kill(os.getpid(), signal.SIGTERM)  # libfuse unmounts


def _ask(windows: list[Window]) -> None:
    send({"wanted": windows})


def main() -> None:
    """Mount the dataset of the first message, and serve it."""
    import mfusepy

    begin = json.loads(sys.stdin.readline())
    objects = tuple(CachedObject(*each) for each in begin["objects"])
    tree = MountedTree(Dataset(objects, tuple(begin["folders"])))
    windows = SignedWindows(tree, _ask)
    reader = BlockReader(windows.request)
    receiver = threading.Thread(target=partial(_receive, windows), name="sky-mount", daemon=True)
    receiver.start()
    code = 0
    try:
        mfusepy.FUSE(
            MountedDataset(tree, reader),
            begin["path"],
            foreground=True,
            ro=True,
            fsname="jupyter_sky",
            auto_unmount=True,
            kernel_cache=True,
            attr_timeout=KERNEL_CACHE_SECONDS,
            entry_timeout=KERNEL_CACHE_SECONDS,
            negative_timeout=KERNEL_CACHE_SECONDS,
        )
    except RuntimeError:  # fusermount3 has written why
        code = 1
    os._exit(code)  # threads that still fetch blocks are not waited for


if __name__ == "__main__":
    main()
