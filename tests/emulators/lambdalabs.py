"""Lambda: the list of instance types."""

from __future__ import annotations

from typing import Any

from .server import Emulator, Request, Response

KEY = "lambda-4711"


def kind(
    name: str, cents: Any, gpu: str, gpus: int, regions: tuple[str, ...] = ()
) -> dict[str, Any]:
    """An entry of the list."""
    return {
        "instance_type": {
            "name": name,
            "description": f"{gpus}x {gpu}",
            "gpu_description": gpu,
            "price_cents_per_hour": cents,
            "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": gpus},
        },
        "regions_with_capacity_available": [
            {"name": region, "description": "somewhere"} for region in regions
        ],
    }


class LambdaEmulator(Emulator):
    """The list, for those who have a key."""

    def __init__(self) -> None:
        self.kinds: list[dict[str, Any]] = []
        super().__init__()

    def answer(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            error = {"code": "global/invalid-api-key", "message": "API key was invalid."}
            return Response.json({"error": error}, 401)
        listed = {entry["instance_type"]["name"]: entry for entry in self.kinds}
        return Response.json({"data": listed})

    def fail(self, kind: str, request: Request) -> Response:
        status = {"throttle": 429, "refuse": 403, "break": 500}[kind]
        error = {"code": "global/internal-error", "message": kind}
        return Response.json({"error": error}, status, **{"Retry-After": "0"})
