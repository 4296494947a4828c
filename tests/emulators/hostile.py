"""Prepared folders, stores and controllers, as somebody who means harm would make them."""

from __future__ import annotations

import hashlib
import hmac
import json
import pickle
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zmq

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterRow, RunRow, Store

KEY = b"k"
PORTS = "registration control mux task iopub notification broadcast".split()


class Touch:
    """A pickle that makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


class EvilController:
    """A socket that answers every request with pickles, signed with the key of the folder."""

    def __init__(self, canary: Path) -> None:
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.requests, self.canary, self._closed = 0, canary, threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        parts = [pickle.dumps(Touch(self.canary)), *[pickle.dumps({})] * 3]
        signed = hmac.new(KEY, digestmod=hashlib.sha256)
        for part in parts:
            signed.update(part)
        while not self._closed.is_set():
            if self.socket.poll(50):
                frames = self.socket.recv_multipart()
                self.requests += 1
                answer = [frames[0], b"<IDS|MSG>", signed.hexdigest().encode(), *parts]
                self.socket.send_multipart(answer)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.socket.close(linger=0)


def prepare(
    data: Path,
    port: int,
    client: dict[str, Any] | None = None,
    supervisor: dict[str, Any] | None = None,
    name: str = "x",
    run: str = "r1",
    link: dict[str, Any] | None = None,
    token: str = "",
) -> None:
    """Make a data directory with a cluster that is up and a run that goes on, both invented.

    Parameters
    ----------
    port
        Where its controller listens.
    client
        What its connection file says otherwise.
    supervisor
        Identity of the process that keeps it up, this one unless given.
    link
        Record of a head node elsewhere, in place of a connection file.
    """
    home = data / "local" / "x-1"
    (home / "security").mkdir(parents=True)
    now = time.time()
    cloud = "ssh" if link else "local"
    machine = {"id": "x-1/0", "cloud": cloud, "cluster": name, "rank": 0, "state": "running"}
    offer = Offer(cloud, "this-machine", "x", 1, 1, price=0.0)
    file = home / "security" / "client.json"
    store = Store.open(data)
    row = ClusterRow(
        *(name, "up", cloud, "this-machine", "x86_64", False, 0.0, 1, "", asdict(offer)),
        *([{**machine, "started": now}], {"file": str(file), "token": token}, "a.ipynb", now, 600),
        *("", ""),
    )
    store.save_cluster(row)
    told = {"run_id": run, "notebook": "a.ipynb", "session": "s", "cell": 1, "name": None}
    told |= {"cluster": name, "code": "", "price": 0.0, "nodes": 1, "started": now, "ended": None}
    told |= {"last_beat": now, "status": "running", "shown": 0}
    store.begin_run(RunRow(**told))
    store.close()
    (home / "supervisor.json").write_text(json.dumps(supervisor or identity()))
    (home / "machine.json").write_text(json.dumps({"cluster": name, "nodes": 1, "started": now}))
    connection = {"interface": "tcp://127.0.0.1", "key": KEY.decode(), "ssh": "", "location": None}
    chosen = {"pack": "pickle", "unpack": "pickle", "signature_scheme": "hmac-sha256"}
    known = connection | dict.fromkeys(PORTS, port) | chosen | {"task_scheme": "pure"}
    told = known | (client or {})
    file.write_text(json.dumps(link | {"controller": told} if link else told))


def node(**address: Any) -> dict[str, Any]:
    """Describe a head node elsewhere, as a record of a cluster does."""
    where = {"user": "ada", "host": "127.0.0.1", "port": 9} | address
    rest = {"rank": 0, "token": "x-1", "host": "box", "packages": [], "directory": "/nowhere"}
    return {"cluster": "x", "node": {**rest, "address": where, "environment": "/nowhere/env"}}
