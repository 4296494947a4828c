"""Findings of the reaper."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReapFinding:
    """A machine, or another thing that costs money, which the reaper found.

    Attributes
    ----------
    cloud, what : str
        Name of the cloud, and the name of the machine or resource there.
    cluster : str
        Name of its cluster; empty if not known.
    why : str
        Reason why it should not be there.
    gone : bool
        Whether the cloud has confirmed its end.
    error : str
        Reason why it could not be ended, or the cloud not be asked.
    """

    cloud: str
    what: str
    cluster: str
    why: str
    gone: bool
    error: str = ""
