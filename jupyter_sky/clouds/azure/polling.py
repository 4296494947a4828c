"""Polling of Azure's long-running operations, with cancellation."""

from __future__ import annotations

from threading import Event
from typing import Any

from jupyter_sky.clouds.provider.parallel_requests import pause


def polling_method(halt: Event, longest: float) -> Any:
    """Return a polling method of the SDK.

    Parameters
    ----------
    halt
        Set when nobody waits any more.
    longest
        Most seconds between two looks at the operation.
    """
    from azure.mgmt.core.polling.arm_polling import ARMPolling

    class Polling(ARMPolling):
        first: Any = None

        def initialize(
            self, client: Any, initial_response: Any, deserialization_callback: Any
        ) -> None:
            super().initialize(client, initial_response, deserialization_callback)
            self.first = deserialization_callback(initial_response)

        def _delay(self) -> None:
            asked = self._pipeline_response.http_response.headers.get("Retry-After", "")
            wanted = float(asked) if asked.isdigit() else longest
            pause(halt, min(max(wanted, 0.05), longest))

    return Polling(longest, retry_total=3, retry_backoff_factor=0.1)
