"""Client of Dask that knows where its dashboard is reached."""

from __future__ import annotations

from typing import Any

from distributed import Client


class LinkedClient(Client):
    """Client of a scheduler on other machines.

    Parameters
    ----------
    dashboard
        Address of the dashboard that is reachable from the notebook.
    """

    def __init__(self, address: str, dashboard: str, **options: Any) -> None:
        self._dashboard = dashboard
        super().__init__(address, **options)

    @property
    def dashboard_link(self) -> str:
        """Address of the dashboard."""
        return self._dashboard
