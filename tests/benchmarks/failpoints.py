"""Process of jupyter_sky that is killed at one of its actions: launch, use, end, reap.

    python tests/benchmarks/failpoints.py SCENARIO --data DIR --log FILE [--kill MOMENT:LABEL:N]

Every action that others can see has a failpoint before and after it: writes to the store, requests
to a cloud, commands over SSH, files below the data directory, messages to engines, outputs shown.
Each is written to the log as a line ``MOMENT:LABEL:N`` (the Nth action of that label). At the one
that ``--kill`` names the process sends SIGKILL to itself, as a power cut or the OOM killer would.
The product knows nothing of it: the functions at its edges are wrapped here.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "mine"
CODE = "print('begun', flush=True)\n6 * 7"
_FILE_EVENTS = {"os.rename", "os.mkdir", "os.remove", "os.link", "shutil.rmtree"}
_OTHERS_FILES = re.compile(r"sky\.db|cache\b|.*stages\.jsonl")
"""Files of SQLite, caches, and logs for people."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_RANDOM = re.compile(r"[0-9a-f]{8,}|\d{5,}|\.\d+\b")


class Failpoints:
    """Log of this process's actions, and the one at which it is killed.

    Parameters
    ----------
    log
        Where each action is written, one line each.
    kill
        ``MOMENT:LABEL:N``; empty for none.
    """

    def __init__(self, log: Path, kill: str) -> None:
        self._file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._kill, self._counts = kill, Counter[str]()
        self._lock = threading.RLock()

    def reach(self, moment: str, label: str, number: int) -> None:
        """Log that an action is reached; kill the process at the chosen one."""
        point = f"{moment}:{label}:{number}"
        os.write(self._file, f"{point}\n".encode())
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, label: str) -> int:
        """Reach the moment before an action; return how many of its label there were with it."""
        with self._lock:
            self._counts[label] += 1
            number = self._counts[label]
        self.reach("before", label, number)
        return number

    def wrap(self, owner: Any, name: str, label: Callable[..., str | None]) -> None:
        """Put a failpoint before and after a function; `label` gets what it gets.

        A nested call of the same thread is part of the outer action.
        """
        inner, inside = getattr(owner, name), threading.local()

        @functools.wraps(inner)
        def outer(*args: Any, **words: Any) -> Any:
            found = None if getattr(inside, "it", False) else label(*args, **words)
            if found is None:
                return inner(*args, **words)
            number = self.begin(found)
            inside.it = True
            try:
                result = inner(*args, **words)
            finally:
                inside.it = False
            self.reach("after", found, number)
            return result

        setattr(owner, name, outer)

    def watch_files(self, data: Path) -> None:
        """Put a failpoint before every change of a file below a folder."""
        below = f"{data}/"

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open":
                path, _, flags = args
                if not isinstance(path, str) or not (flags or 0) & _WRITES:
                    return
            elif event in _FILE_EVENTS:
                path = args[1] if event in ("os.rename", "os.link") else args[0]
            else:
                return
            path = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
            if isinstance(path, str) and path.startswith(below):
                name = path.removeprefix(below)
                if not _OTHERS_FILES.match(name):
                    self.begin(f"{event.rpartition('.')[2]} {_RANDOM.sub('', name)}")

        sys.addaudithook(hook)


def caller(skipped: str) -> str:
    """Return the function outside some files that led here, for the name of an action."""
    frame = sys._getframe(2)
    while frame.f_back and Path(frame.f_code.co_filename).name in (*skipped.split(), __file__):
        frame = frame.f_back
    return frame.f_code.co_name.strip("<>")


def arm(points: Failpoints, data: Path) -> None:
    """Wrap the edges of the product."""
    from botocore.httpsession import URLLib3Session

    from jupyter_sky.base.remote import ssh
    from jupyter_sky.base.store.database import Database
    from jupyter_sky.machines.engines.client.connection import ClusterConnection
    from jupyter_sky.machines.engines.client.tunnel import Tunnel

    own_file = Path(__file__).name
    store_files = f"store.py run_records.py database.py {own_file}"

    def written(db: Any, *statements: Any, durable: bool = False, latest: str = "") -> str | None:
        if latest:  # a heartbeat: when it comes is chance
            return None
        words = statements[0][0].split()
        table = next((w for w in words[1:] if w.isalpha() and w.islower()), "")
        return f"store {words[0].lower()} {table} by {caller(store_files)}"

    def transaction(*_: Any) -> str:
        return f"store transaction by {caller(store_files)}"

    def requested(_: Any, request: Any) -> str:
        body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
        action = re.search(r"Action=(\w+)", body)
        target = request.headers.get("X-Amz-Target", b"")
        named = target.decode() if isinstance(target, bytes) else str(target)
        return f"request {action[1] if action else named.rpartition('.')[2] or request.method}"

    points.wrap(Database, "write", written)
    points.wrap(Database, "transact", transaction)
    points.wrap(URLLib3Session, "send", requested)
    points.wrap(ssh, "_run_once", lambda *_, **__: f"ssh by {caller(f'ssh.py {own_file}')}")
    points.wrap(Tunnel, "__init__", lambda *_, **__: "tunnel opened")
    points.wrap(ClusterConnection, "__init__", lambda *_, **__: "link opened")
    points.wrap(ClusterConnection, "execute", lambda *_, **__: "cell sent")
    points.watch_files(data)


class Shown:
    """Outputs of a cell; each is an action."""

    def __init__(self, points: Failpoints) -> None:
        self._points, self._stage = points, ""

    def status(self, status: Any) -> None:
        if status.stage != self._stage:
            self._stage = status.stage
            self._points.begin(f"shown {status.stage}")

    def send(self, kind: str, content: Any, metadata: Any = None, buffers: Any = None) -> None:
        self._points.begin(f"shown {kind}")

    def comm(self, message: Any, engine: str, client: Any) -> None:
        pass

    def share_widgets(self, models: Any, engine: str, client: Any) -> None:
        pass

    def settle_widgets(self) -> None:
        pass

    def payload(self, parts: Any) -> None:
        pass


# -- scenarios ------------------------------------------------------------------------------


def use(session: Any, points: Failpoints, cloud: str, nodes: int) -> dict[str, Any]:
    """Launch a cluster, run a cell on it, end it."""
    from jupyter_sky.base.requests.cell_options.values import CellOptions
    from jupyter_sky.base.requests.resources import Resources

    resources = Resources.parse(cloud=cloud, cpus=1 if cloud == "local" else 2, nodes=nodes)
    options = CellOptions(resources=resources, cluster=NAME, yes=True)
    value = session.run(CODE, options, Shown(points))
    session.clusters.terminate(NAME)
    return {"value": repr(value)}


def reap(session: Any) -> dict[str, Any]:
    """Look for what was left behind."""
    from jupyter_sky.execution.sessions.reaper import reap_machines

    found = reap_machines(session.clusters.records, everywhere=False)
    trouble = [f"{one.what}: {one.error}" for one in found if one.error]
    return {"reaped": [one.what for one in found], "trouble": trouble}


def come_back(session: Any, points: Failpoints, cloud: str, nodes: int) -> dict[str, Any]:
    """Open everything anew: reap, look what is up, run a cell on the same name, end it."""
    told = reap(session)
    told["up"] = [row.name for row in session.clusters.records.reconcile()]
    told |= use(session, points, cloud, nodes)
    rows = session.store.clusters(live_only=False)
    told["live"] = [row.name for row in rows if row.is_live]
    return told


def main() -> int:
    """Carry out a scenario; print what came of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=["use", "reap", "come back"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--kill", default="")
    parser.add_argument("--cloud", default="aws")
    parser.add_argument("--nodes", type=int, default=1)
    asked = parser.parse_args()
    points = Failpoints(asked.log, asked.kill)
    arm(points, asked.data)
    from jupyter_sky.base.errors import SkyError
    from jupyter_sky.execution.sessions import session as sessions

    told: dict[str, Any] = {}
    try:
        session = sessions.open_session({}, str(asked.data / "work.ipynb"), lasting=True)
        if asked.scenario == "use":
            told = use(session, points, asked.cloud, asked.nodes)
        elif asked.scenario == "reap":
            told = reap(session)
        else:
            told = come_back(session, points, asked.cloud, asked.nodes)
    except SkyError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    finally:
        with suppress(SkyError):
            sessions.close()
    print(json.dumps(told), flush=True)
    return 1 if "error" in told else 0


if __name__ == "__main__":
    sys.exit(main())
