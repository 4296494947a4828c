"""A strict object store for tests: Amazon's dialect, R2's, and Google's XML interface.

Unlike the public emulators it verifies signatures, expiry, clocks, checksums, conditions and equal
parts, and fails on demand. `server.ObjectStore` starts one in this process,
``python -m tests.emulators.object_store`` in a process of its own.
"""

from .faults import Fault
from .server import ObjectStore

__all__ = ["Fault", "ObjectStore"]
