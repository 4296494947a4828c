"""Memory files: large pieces of calls for processes of the same machine, written once.

A memory file (``memfd_create``) lies in no folder: processes of the same user open it by the entry
of its owner in ``/proc``, and the kernel frees it after the last process that has it open or
mapped, also where that process was killed. Elsewhere than on Linux, or between containers, there
are none, and pieces travel in messages.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import finalize

MAX_SHARE = 0.5
"""Share of the free memory that one more file may take."""
MAX_DESCRIPTORS_SHARE = 0.25
"""Share of the file descriptors of a process that memory files may take."""


@dataclass(frozen=True, slots=True)
class FileName:
    """Name by which other processes find a memory file.

    Attributes
    ----------
    machine : str
        Identity of the machine and of the process numbers that `pid` belongs to.
    pid, descriptor : int
        Process that has the file open, and its descriptor there.
    inode, size : int
        Number and bytes of the file, which tell it from a later one with the same descriptor.
    """

    machine: str
    pid: int
    descriptor: int
    inode: int
    size: int


class MemoryFile:
    """Memory file of this process; it is closed with its last reference.

    Examples
    --------
    >>> file = MemoryFile.write(memoryview(b"some"))
    >>> file is None or bytes(read_file(file.name))
    b'some'
    """

    _count = 0
    _lock = threading.RLock()  # a collection of garbage may close files while it is held

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.name = FileName(
            machine_identity(), os.getpid(), descriptor, status.st_ino, status.st_size
        )
        with MemoryFile._lock:
            MemoryFile._count += 1
        # not by __del__, during which weak references still give the object to other threads
        finalize(self, _close_file, self.name).atexit = False

    @classmethod
    def write(cls, data: memoryview) -> MemoryFile | None:
        """Return a file with a copy of `data`; None where it does not fit or there are none."""
        if not machine_identity() or not _has_room(data.nbytes):
            return None
        descriptor = os.memfd_create("jupyter_sky", os.MFD_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o600)
            written = 0
            while written < data.nbytes:
                written += os.write(descriptor, data[written:])
            return cls(descriptor)
        except OSError:
            os.close(descriptor)
            return None

    @classmethod
    def adopt(cls, name: FileName) -> MemoryFile:
        """Open the file of another process, so that it stays when that one closes it.

        Raises
        ------
        OSError
            It is gone, or belongs to another machine.
        """
        return cls(_open_file(name))

    @property
    def memory(self) -> memoryview:
        """Memory of the file, read only."""
        return memoryview(mmap.mmap(self.name.descriptor, self.name.size, prot=mmap.PROT_READ))


def _close_file(name: FileName) -> None:
    if name.pid == os.getpid():  # else it belongs to the parent of a forked process
        with MemoryFile._lock:
            MemoryFile._count -= 1
        with suppress(OSError):
            os.close(name.descriptor)


def map_file(name: FileName) -> memoryview:
    """Map the file of another process copy-on-write: what is written stays in this process.

    Raises
    ------
    OSError
        It is gone, or belongs to another machine.
    """
    descriptor = _open_file(name)
    try:
        flags = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
        if sys.version_info >= (3, 13):
            flags["trackfd"] = False
        return memoryview(mmap.mmap(descriptor, name.size, **flags))
    finally:
        os.close(descriptor)


def read_file(name: FileName) -> memoryview:
    """Copy the file of another process into memory of this one.

    A mapping would keep a descriptor for as long as a value lives, and results may be many.

    Raises
    ------
    OSError
        It is gone, or belongs to another machine.
    """
    descriptor = _open_file(name)
    try:
        memory = memoryview(mmap.mmap(-1, name.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        done = 0
        while done < name.size:
            count = os.preadv(descriptor, [memory[done:]], done)
            if not count:
                raise OSError("a memory file is shorter than its name says")
            done += count
        return memory
    finally:
        os.close(descriptor)


@cache
def machine_identity() -> str:
    """Return the identity of this machine and its process numbers; empty without memory files."""
    if not hasattr(os, "memfd_create"):
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino} {os.getuid()}"
    except OSError:
        return ""


def _open_file(name: FileName) -> int:
    if name.machine != machine_identity():
        raise OSError("a memory file of another machine")
    descriptor = os.open(f"/proc/{name.pid}/fd/{name.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if (status.st_ino, status.st_size) != (name.inode, name.size):
        os.close(descriptor)
        raise OSError("a memory file has been closed")
    return descriptor


def _has_room(size: int) -> bool:
    """Return whether memory and descriptors suffice for one more file."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft > 0 and MemoryFile._count >= soft * MAX_DESCRIPTORS_SHARE:
        return False
    return size <= _available_bytes() * MAX_SHARE


def _available_bytes() -> int:
    import psutil

    available = int(psutil.virtual_memory().available)
    folder = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # "max" where the container has no limit
        most = int((folder / "memory.max").read_text())
        available = min(available, most - int((folder / "memory.current").read_text()))
    return available
