"""Provider of a small cloud with a REST API, as a package of its own adds it."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Sequence
from threading import Event
from typing import Any, ClassVar

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.provider import (
    LaunchRequest,
    Machine,
    MachineConfig,
    Provider,
    ProviderError,
)


class Toy(Provider):
    """A cloud at the address in ``TOY_URL``, with the key in ``TOY_KEY``."""

    name, title = "toy", "Toy Cloud"
    billing = (60.0, 120.0)
    colour = "#d14f8f"
    login = "set TOY_URL and TOY_KEY"
    errors: ClassVar = {
        "no_capacity": ("capacity", "region", ""),
        "over_quota": ("quota", "region", "ask for a higher limit"),
        "bad_request": ("invalid", "region", ""),
    }

    def configured(self) -> str:
        """Return the address, if there is a key."""
        return os.environ.get("TOY_URL", "") if os.environ.get("TOY_KEY") else ""

    def offers(self) -> Iterable[Offer]:
        """Return the price list."""
        for entry in self._request("GET", "/types"):
            yield Offer(cloud=self.name, **entry)

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Create all machines by one request; the cloud knows a token that comes again."""
        body = {
            "token": request.token,
            "count": request.resources.nodes,
            "type": request.offer.instance_type,
            "user_data": config.user_data,
            "tags": dict(config.tags),
        }
        return [_parse_machine(entry) for entry in self._request("POST", "/machines", body)]

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List the machines of the account."""
        found, start = list[Machine](), 0
        while start is not None:
            page = self._request("GET", f"/machines?start={start}")
            found += map(_parse_machine, page["machines"])
            start = page["next"]
        return [
            machine
            for machine in found
            if owner in ("", machine.owner) and token in ("", machine.token)
        ]

    def terminate(self, ids: Sequence[str]) -> None:
        """Delete machines one by one; the cloud answers 404 for those that it does not know."""
        for name in ids:
            try:
                self._request("DELETE", f"/machines/{name}")
            except ProviderError as error:
                if error.status != 404:
                    raise

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete nothing: machines leave nothing behind."""
        return []

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            os.environ["TOY_URL"] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {os.environ['TOY_KEY']}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = json.load(error)
            raise ProviderError(
                said["message"],
                code=said["code"],
                status=error.code,
                retry_after=error.headers.get("Retry-After"),
            ) from None
        except urllib.error.URLError as error:
            raise ConnectionError(str(error.reason)) from None


def _parse_machine(entry: dict[str, Any]) -> Machine:
    tags = entry["tags"]
    return Machine(
        id=entry["id"],
        cloud="toy",
        cluster=tags["jupyter-sky-cluster"],
        rank=entry["rank"],
        state="ended" if entry["state"] == "off" else entry["state"],
        started=entry["started"],
        address=entry["address"],
        private=entry["private"],
        token=tags["jupyter-sky-token"],
        owner=tags["jupyter-sky-owner"],
        lease_end=float(tags["jupyter-sky-lease-end"]),
        user=entry["user"],
        port=entry["port"],
    )
