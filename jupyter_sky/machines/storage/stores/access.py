"""Rights on a store that machines are given."""

from __future__ import annotations

from enum import Enum


class Access(Enum):
    """Right that a machine gets, with Google's role for it."""

    READ = "inRole:roles/storage.objectViewer"
    WRITE = "inRole:roles/storage.objectUser"
