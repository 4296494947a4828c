"""Hostile data directories: prepared stores, connection files and host lists."""

from __future__ import annotations

import json
import os

from jupyter_sky.base.remote.processes import identity
from tests.benchmarks.hostile_scene import Scene, Try
from tests.benchmarks.hostile_settings import write_hosts
from tests.emulators.hostile import node, prepare

JUPYTER = """
import json, socket, subprocess, sys, time, urllib.request
with socket.create_server(("127.0.0.1", 0)) as taken:
    port = taken.getsockname()[1]
extension = "{'jupyter_sky': True}"
server = subprocess.Popen(
    [sys.executable, "-P", "-m", "jupyter_server", f"--port={port}", "--allow-root", "--no-browser",
     "--IdentityProvider.token=t", f"--ServerApp.jpserver_extensions={extension}"],
    stderr=subprocess.PIPE, text=True)
try:
    for line in server.stderr:
        if "http://127.0.0.1" in line:
            break
    for _ in range(8):
        time.sleep(0.5)
        address = f"http://127.0.0.1:{port}/jupyter-sky/state?token=t"
        told = json.load(urllib.request.urlopen(address, timeout=20))
    print("clusters", [cluster["name"] for cluster in told["clusters"]])
finally:
    server.terminate()
    server.wait()
"""


def _opened(here: Scene) -> None:
    prepare(
        here.folder / "notes", here.evil.port, supervisor=identity(here.sleeper.pid), name="bad"
    )
    here.project(f'data_dir = "{here.folder}/notes"')
    here.run("-c", JUPYTER)


def _relative(here: Scene) -> None:
    prepare(here.folder / ".notes", here.evil.port)
    here.env["SKY_DATA_DIR"] = ".notes"
    here.serve()


def _writable(here: Scene) -> None:
    prepare(here.root / "shared", here.evil.port)
    (here.root / "shared").chmod(0o777)
    here.env["SKY_DATA_DIR"] = str(here.root / "shared")
    here.serve()


def _symlinked(here: Scene) -> None:
    prepare(here.root / "shared", here.evil.port)
    (here.root / "shared").chmod(0o777)
    here.data.parent.mkdir()
    here.data.symlink_to(here.root / "shared")
    here.serve()


def _client(what: str, client: dict[str, object], expected: str = "") -> Try:
    def do(here: Scene) -> None:
        text = json.dumps(client).replace("TOUCH", here.touch).replace("4242", str(here.port))
        prepare(here.data, here.evil.port, client=json.loads(text))
        here.serve()
        here.cells("%%sky -c x\n1") if "ssh" in client else None

    return Try(f"client file {what}", do, expected=expected)


def _link(what: str, **address: str) -> Try:
    def do(here: Scene) -> None:
        told = {name: text.replace("TOUCH", here.touch) for name, text in address.items()}
        prepare(here.data, here.evil.port, link=node(**told))
        here.serve()
        here.call("ssh", "x")

    return Try(f"record with {what}", do)


def _ports(here: Scene) -> None:
    prepare(here.data, here.evil.port, client={"mux": "1\nport 22"}, link=node())
    here.serve()


def _shadowed(here: Scene) -> None:
    prepare(here.data, here.evil.port, link=node())
    for name in ("asyncio", "json", "zmq", "jupyter_sky", "contextlib", "pip", "tomllib"):
        (here.folder / f"{name}.py").write_text(f"{here.code}\n")
    here.serve()
    here.call("status")


def _names(here: Scene) -> None:
    name = f"$({here.touch})<img src=x onerror=alert(1)>"
    prepare(here.data, here.evil.port, name=name, run="../../../../secret")
    (here.root / "secret.jsonl").write_text('{"type": "stream", "text": "evil-7d"}\n')
    here.serve()
    here.call("status")
    here.call("down", f"; {here.touch}")


def _token(here: Scene) -> None:
    (here.root / "stages.jsonl").write_text('{"stage": "evil-7d", "seconds": 1, "at": 1}\n')
    prepare(here.data, here.evil.port, link=node(), token="../../../..")
    here.serve()


def _host(address: str) -> Try:
    def do(here: Scene) -> None:
        write_hosts(here.data / "hosts.toml", address.replace("TOUCH", here.touch))
        here.call("check")
        here.call("offers", "--cloud", "ssh")

    return Try(f"hosts file with {address}", do)


def _not_a_store(here: Scene) -> None:
    here.data.mkdir(parents=True)
    (here.data / "sky.db").write_bytes(b"SQLite format 3\0" + os.urandom(4096))
    here.serve()


DATA = [
    Try("a folder in which a Jupyter server is opened", _opened, "bad", "clusters []"),
    Try("relative data_dir with a prepared store", _relative, expected="relative path"),
    Try("data_dir that everybody may write", _writable, expected="everybody may write"),
    Try("data_dir that is a link to such", _symlinked, expected="everybody may write"),
    Try("a store that is damaged", _not_a_store),
    _client("with pickles", {}),
    _client(
        "of another machine", {"interface": "tcp://127.0.0.2", "registration": 4242}, "refused"
    ),
    _client("of a socket of files", {"interface": "ipc:///tmp/x"}, "refused"),
    _client("without a key", {"key": ""}, "refused"),
    _client("that leads through ssh", {"ssh": "-oProxyCommand=TOUCH", "location": "192.0.2.1"}),
    _client("with ports that are none", {"mux": {"a": 1}}, "refused"),
    _link("an option as its host", host="-oProxyCommand=TOUCH"),
    _link("an option as its user", user="-oProxyCommand=TOUCH"),
    _link("a command as its host", host="`TOUCH`"),
    _link("a command as its user", user="$(TOUCH)"),
    _link("a quote in its known_hosts", known_hosts='x" -oProxyCommand="TOUCH'),
    Try("record with ports that are orders", _ports, expected="refused"),
    Try("record beside a folder of modules", _shadowed),
    Try("names that are commands, markup and paths", _names, "evil-7d"),
    Try("a token that leads elsewhere", _token, "evil-7d"),
    _host("-oProxyCommand=TOUCH"),
    _host("ada@-oProxyCommand=TOUCH"),
    _host("`TOUCH`"),
]
