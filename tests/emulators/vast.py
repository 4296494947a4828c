"""Vast.ai: asks of a market, and the contracts of an account."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from jupyter_sky.clouds.launches.rest_provider import write_mark

from .fleet import Fleet
from .rest_account import RestAccount, container_start
from .server import Request, Response

KEY = "vast-4711"
PAGE, FEW = 25, 5
_FIELDS = (
    "args bid cancel_unavail client_id disk env force image label onstart price runtype "
    "target_state template_hash_id"
).split()
_OPERATORS = {"eq": lambda a, b: a == b, "gte": lambda a, b: a >= b, "lte": lambda a, b: a <= b}


def ask(id: int, gpu: str, count: int, usd: float, place: str) -> dict[str, Any]:
    """Return an offer of the market."""
    return {
        "id": id,
        "gpu_name": gpu,
        "num_gpus": count,
        "gpu_ram": 24564,
        "cpu_cores_effective": 8.0,
        "cpu_ram": 64310,
        "cpu_arch": "amd64",
        "disk_space": 500.0,
        "dph_total": usd,
        "min_bid": usd / 2,
        "geolocation": place,
        "rentable": True,
        "verified": True,
    }


class VastAccount(RestAccount):
    """The API.

    Attributes
    ----------
    asks : list of dict
        The market; an ask that was taken is gone.
    taken_meanwhile : set of int
        Asks that somebody else takes between the search and the launch.
    is_direct : bool
        Whether new machines have a public port of their own; else the proxy leads to them.
    searches : list of dict
        Queries of the market.
    """

    refusal_texts: ClassVar = {
        "no_such_ask": (410, "Ask contract is not available."),
        "insufficient_credit": (400, "Your account lacks credit; see the billing page."),
        "not_authorized": (403, "Invalid user key"),
        "invalid_args": (400, "Invalid args"),
        "rate_limited": (429, "API requests too frequent"),
        "no_such_instance": (404, "Instance not found"),
        "search_quota_exceeded": (429, "Search quota exceeded"),
    }
    status_field = "actual_status"
    off, ended, taken_back = "exited", "destroyed", "exited"
    free = ("destroyed",)
    ends_itself = True

    def __init__(self, fleet: Fleet) -> None:
        self.is_direct, self.searches = True, list[dict[str, Any]]()
        self.taken_meanwhile = set[int]()
        super().__init__(fleet)
        self.reset()

    def reset(self) -> None:
        """Begin with an empty account and a full market."""
        super().reset()
        self.taken_meanwhile.clear()
        self._fill_market()

    def _fill_market(self) -> None:
        self.asks = [ask(100 + n, "RTX 4090", 1, 0.40 + n / 1000, "Sweden, SE") for n in range(30)]
        self.asks += [ask(200, "RTX 4090", 2, 0.9, "Bulgaria, BG"), ask(201, "A40", 1, 0.3, "")]

    def show_address(self, entry: dict[str, Any], address: str, private: str, port: int) -> None:
        """Write the public port, or the proxy."""
        direct = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(port)}]}
        entry |= {"public_ipaddr": address, "ports": direct if self.is_direct else {}}
        entry |= {"ssh_host": "ssh4.vast.ai", "ssh_port": 10600, "actual_status": "running"}

    def refuse(self, code: str) -> Response:
        """Return a refusal in the cloud's words."""
        status, message = self.refusal_texts[code]
        body = {"success": False, "error": code, "msg": message}
        retry = {"Retry-After": "1"} if status == 429 else {}
        return Response.json(body, status, **retry)

    def answer(self, request: Request) -> Response:
        """Answer a request of the API."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return self.refuse("not_authorized")
        path, body = request.path, self.body(request)
        if path == "/api/v0/users/current/":
            return Response.json({"id": 1, "email": "ada@example.org"})
        if path == "/api/v0/bundles/":
            return self._search(body)
        if path.startswith("/api/v0/asks/"):
            time.sleep(self.delay)
            with self._lock:
                return self._take(int(path.split("/")[-2]), body)
        if (request.method, path) == ("GET", "/api/v1/instances/"):
            listed = [e for e in self.listed() if e["actual_status"] != "destroyed"]
            first = int(request.query.get("after_token") or 0)
            more = str(first + PAGE) if first + PAGE < len(listed) else None
            page = {"instances": listed[first : first + PAGE], "next_token": more}
            return Response.json({"success": True, "total_instances": len(listed)} | page)
        id = path.split("/")[-2]
        if request.method != "DELETE" or id not in self.billed():
            return self.refuse("no_such_instance")
        self.end(id)
        return Response.json({"success": True})

    def _search(self, query: dict[str, Any]) -> Response:
        self.searches.append(query)
        if self.refills and len(self.asks) < FEW:
            self._fill_market()
        limits = {name: limit for name, limit in query.items() if isinstance(limit, dict)}

        def fits(each: dict[str, Any]) -> bool:
            return all(
                _OPERATORS[operator](each[name], value)
                for name, limit in limits.items()
                for operator, value in limit.items()
            )

        ((field, _),) = query["order"]
        found = sorted(filter(fits, self.asks), key=lambda each: each[field])
        return Response.json({"success": True, "offers": found[: min(query["limit"], 64)]})

    def _take(self, id: int, body: dict[str, Any]) -> Response:
        if code := self.next_refusal():
            if code == "no_such_ask":  # the whole market is gone
                self.asks.clear()
            return self.refuse(code)
        found = next((each for each in self.asks if each["id"] == id), None)
        if found is None or id in self.taken_meanwhile:
            return self.refuse("no_such_ask")
        well_formed = (
            set(body) <= set(_FIELDS)
            and body["runtype"] == "ssh_direc ssh_proxy"
            and len(body["onstart"]) <= 4048
            and body.get("price", 1.0) >= found["min_bid"]
        )
        if not well_formed:
            return self.refuse("invalid_args")
        self.asks.remove(found)
        contract = self._enter(body["label"], "price" in body, found["geolocation"])
        entry = self.rented[contract].entry
        entry["asked"] = body
        env = body["env"] | {"CONTAINER_ID": contract, "CONTAINER_API_KEY": f"only-{contract}"}
        gone = f'case "$*" in *only-{contract}*/instances/{contract}/) shutdown -P now ;; esac'
        user_data = container_start(body["onstart"], env, {"curl": gone})
        self.rented[contract].start = self.machine(contract, user_data, entry)
        if self.boots:
            self.boot()
        return Response.json({"success": True, "new_contract": int(contract)})

    def _enter(self, label: str, is_bid: bool, place: str) -> str:
        self.number += 1
        id = str(7_000_000 + self.number)
        entry = {"id": int(id), "label": label, "is_bid": is_bid, "geolocation": place}
        self.add(id, entry)
        return id

    def fill(self, count: int, tags: dict[str, str]) -> set[str]:
        """Add contracts that are nothing but entries."""
        return {self._enter(write_mark(tags), False, "Sweden, SE") for _ in range(count)}
