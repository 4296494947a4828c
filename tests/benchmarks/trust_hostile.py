"""Prepared folders, settings, stores, files and messages: none of them may have an effect.

Each try prepares what an attacker could place, runs real processes of this package on it, and
checks canaries: a file that only an attack creates, a socket that only an attack connects to, a
process that only an attack ends, a value that only an attack sets. Messages must be sentences: a
traceback of this package counts as an effect, too.

* ``hostile_folders``: how many were tried;
* ``hostile_effects``: how many had an effect, which is to be 0.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jupyter_sky.config.settings import Sky  # noqa: E402
from jupyter_sky.remote.processes import identity  # noqa: E402
from tests.emulators.hostile import EvilController, node, prepare  # noqa: E402

STRANGER = 54321
SECONDS = 60.0
SERVER = """
import os
from types import SimpleNamespace
from traitlets.config import SingletonConfigurable
from jupyter_sky.errors import SkyError

class App(SingletonConfigurable):
    root_dir = os.getcwd()

from jupyter_sky.server import clusters, runs
from jupyter_sky.server.service import SkyService

service = SkyService(App.instance(), SimpleNamespace(emit=lambda **k: None))

def say(work, *args):
    try:
        print(work(*args))
    except SkyError as error:
        print(type(error).__name__, error)

from jupyter_sky.config.settings import Sky
say(lambda: Sky.load().data_dir)
try:
    rows = service.session.store.clusters()
    known = service.session.store.runs()
except SkyError:
    rows = known = []
for row in rows:
    for work in (clusters.get_metrics, clusters.get_ssh_command, clusters.get_launch_log):
        say(work, service, row.name)
for run in known:
    say(runs.get_log, service, run.run_id, 0)
say(service.reconcile)
say(service.overview)
service.close()
"""
KERNEL = """
import sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
try:
    for cell in sys.argv[1:]:
        reply = client.execute_interactive(cell, timeout=50)["content"]
        print(reply["status"], reply.get("ename", ""), reply.get("evalue", ""))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


@dataclass
class Scene:
    """One try: a folder that is open, a home, canaries, and what was said."""

    root: Path
    evil: EvilController
    listener: socket.socket
    sleeper: subprocess.Popen[bytes]
    said: str = ""
    env: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder that is open."""
        return self.root / "repository"

    @property
    def data(self) -> Path:
        """The user's own data directory."""
        return self.root / "home" / "jupyter" / "sky"

    @property
    def canary(self) -> Path:
        """The file that only harm would make."""
        return self.root / "canary"

    @property
    def port(self) -> int:
        """The port that only harm would connect to."""
        return self.listener.getsockname()[1]

    @property
    def touch(self) -> str:
        """A shell command that makes the canary."""
        return f"touch {self.canary}"

    @property
    def code(self) -> str:
        """A Python expression that makes the canary."""
        return f"__import__('pathlib').Path('{self.canary}').touch()"

    def project(self, text: str, name: str = "pyproject.toml") -> Path:
        """Write a project's file into the open folder."""
        path = self.folder / name
        path.write_text(f"[tool.jupyter_sky]\n{text}\n")
        return path

    def run(self, *words: str) -> None:
        """Run Python with some words in the open folder, and keep what it says."""
        home = self.root / "home"
        kept = {name: text for name, text in os.environ.items() if not name.startswith("SKY_")}
        paths = {"HOME": str(home), "JUPYTER_DATA_DIR": str(home / "jupyter")}
        done = subprocess.run(
            [sys.executable, "-P", *words],
            cwd=self.folder,
            env={**kept, **paths, "PYTHONPATH": str(ROOT), **self.env},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        self.said += done.stdout + done.stderr

    def serve(self) -> None:
        """Let the service of a Jupyter server look after all that is known."""
        self.run("-c", SERVER)

    def call(self, *words: str) -> None:
        """Run a command of ``jupyter sky``."""
        self.run("-m", "jupyter_sky.cli", *words)

    def cells(self, *cells: str) -> None:
        """Run cells in a kernel that is started in the open folder."""
        self.run("-c", KERNEL, "%load_ext jupyter_sky", *cells)

    def effects(self, forbidden: str) -> list[str]:
        """Say what happened that was not to happen."""
        found = ["a file was made"] if self.canary.exists() else []
        with_timeout = self.listener
        with_timeout.settimeout(0.05)
        try:
            with_timeout.accept()[0].close()
            found.append("a connection was made")
        except TimeoutError:
            pass
        if self.sleeper.poll() is not None:
            found.append("a process was ended")
        if forbidden and forbidden in self.said:
            found.append(f"{forbidden} took effect")
        if "Traceback (most recent call last)" in self.said:
            found.append("a traceback was shown")
        return found


@dataclass(frozen=True)
class Try:
    """Something hostile: how it is made and met, what may not be said, what must be."""

    name: str
    do: Callable[[Scene], None]
    forbidden: str = ""
    expected: str = ""


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """Make a scene with live canaries."""
    (root / "repository").mkdir(parents=True)
    (root / "home").mkdir()
    evil = EvilController(root / "canary")
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with socket.create_server(("127.0.0.2", 0)) as listener:
        try:
            yield Scene(root, evil, listener, sleeper)
        finally:
            evil.close()
            sleeper.kill()
            sleeper.wait()


# -- settings ------------------------------------------------------------------------------------


def _forbidden_setting(name: str) -> Try:
    trait = Sky.class_own_traits(config=True)[name]
    value = {"Bool": str(not trait.default_value).lower(), "Integer": "2222"}
    text = value.get(type(trait).__name__, "1e6" if "Float" in str(trait) else '"evil-7d"')

    def do(here: Scene) -> None:
        told = text
        if name == "budget_usd_day":
            told = "1e6"
        elif name == "data_dir":
            prepare(here.folder / "notes", here.evil.port, supervisor=identity(here.sleeper.pid))
            told = f'"{here.folder}/notes"'
        elif name == "hosts":
            _hosts(here.folder / "hosts.toml", f"-oProxyCommand={here.touch}")
            told = f'"{here.folder}/hosts.toml"'
        here.project(f"{name} = {told}")
        here.call("config")
        if name in ("data_dir", "hosts"):
            here.serve()

    return Try(f"pyproject sets {name}", do, "evil-7d", f"may not set {name}")


def _hosts(path: Path, address: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[box]\naddress = {json.dumps(address)}\nvcpus = 1\nmemory = 1\n")


def _alias(text: str, expected: str) -> Try:
    def do(here: Scene) -> None:
        line = text.replace("CODE", here.code).replace("PORT", f"127.0.0.2:{here.port}")
        here.project(f"aliases = {{big = {json.dumps(line)}}}")
        here.cells("%%sky big --dry-run\n1")

    return Try(f"alias {text}", do, expected=expected)


def _ignored(what: str, spoil: Callable[[Scene, Path], None]) -> Try:
    def do(here: Scene) -> None:
        spoil(here, here.project('cluster = "evil-7d"'))
        here.call("config")

    return Try(f"pyproject {what}", do, "'evil-7d'")


def _chown(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def _linked(here: Scene, path: Path) -> None:
    path.rename(here.root / "theirs.toml")
    path.symlink_to(here.root / "theirs.toml")
    _chown(path)


def _fifo(here: Scene, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _above(here: Scene, path: Path) -> None:
    path.rename(here.root / "pyproject.toml")
    here.root.chmod(0o777)


SETTINGS = [
    *(
        _forbidden_setting(name)
        for name, trait in Sky.class_own_traits(config=True).items()
        if not trait.metadata.get("project")
    ),
    _alias('-i "CODE->x"', "evaluates an expression"),
    _alias("--env AWS_SECRET_ACCESS_KEY", "sends environment variables"),
    _alias("--cpus 1 ; touch x", "not an option"),
    _alias("--pip=--index-url=http://PORT", "option of the installer"),
    _alias("-c $(touch.x)", "not understood"),
    _ignored("that everybody may write", lambda here, path: path.chmod(0o666)),
    _ignored("in a folder that everybody may write", lambda here, path: path.parent.chmod(0o777)),
    _ignored("above, where everybody may write", _above),
    _ignored("that is a pipe", _fifo),
    _ignored("that nests without end", lambda here, path: path.write_text("x=" + "[" * 100_000)),
    _ignored("of a gigabyte", lambda here, path: os.truncate(path, 2**30)),
]
BY_ROOT = [
    _ignored("of another user", lambda here, path: _chown(path)),
    _ignored("in a folder of another user", lambda here, path: _chown(path.parent)),
    _ignored("that is a link of another user", _linked),
]
"""Only root can give files away."""

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
FAR = {"interface": "tcp://127.0.0.2"}

# -- data directories ----------------------------------------------------------------------------


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
        _hosts(here.data / "hosts.toml", address.replace("TOUCH", here.touch))
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

# -- what machines say ---------------------------------------------------------------------------

_UNPACK = """
import sys
from pathlib import Path
from jupyter_sky.clouds.journals import unpack
with open(sys.argv[1], "rb") as packed:
    print(unpack(packed, Path(sys.argv[2])))
"""
_ERROR = """
import sys
from pathlib import Path
sys.path.insert(0, "")
from jupyter_sky.engines.wire.values import Parcel
from jupyter_sky.executor.failures import mending_line, rebuild_exception
from tests.emulators.hostile import Touch
evil = Parcel.of(Touch(Path(sys.argv[1]))).inline()
told = {"classes": [["harmful", "Boom"], ["builtins", "ValueError"]], "args": [evil], "dict": evil,
        "name": ["x"], "module": "../x; touch y", "filename": "/etc/passwd", **evil}
reply = {"ename": "<img src=x onerror=alert(1)>", "evalue": "text", "sky": {"error": told}}
error = rebuild_exception(reply, 0, {"x": 1})
print(type(error).__mro__[2], error, "advice:", mending_line(told, {"x": 1}, ""))
"""
_DATA = """
import sys
from pathlib import Path
from jupyter_sky.engines.wire.data_values import decode
from jupyter_sky.engines.wire.values import Parcel
from jupyter_sky.errors import SkyError
from tests.emulators.hostile import Touch
try:
    print(decode(Parcel.of(Touch(Path(sys.argv[1])))))
except SkyError as error:
    print(error)
"""
_SHOWN = """
from html.parser import HTMLParser
from jupyter_sky.executor.display import RunStatus
from jupyter_sky.widgets.status_line import mimebundle
from jupyter_sky.tables import Table

class Parser(HTMLParser):
    def handle_starttag(self, tag, attrs):
        if tag in ("img", "script", "iframe", "svg") or any(a.startswith("on") for a, _ in attrs):
            print("evil-7d", tag, attrs)

bad = "\\"'><img src=x onerror=alert(1)><script>alert(1)</script>"
status = RunStatus("failed", 1.0, bad, bad, 1.0, 1.0, 1.0, bad, (bad,), bad, bad)
Parser().feed(str(mimebundle(status).get("text/html", "")))
Parser().feed(Table(bad, (bad,), ((bad,),), note=bad)._repr_html_())
"""
_INSTALL = """
import sys
from jupyter_sky.engines.node.environment import install_packages
from jupyter_sky.errors import SkyError
try:
    install_packages([f"--index-url=http://127.0.0.2:{sys.argv[1]}/", "evil"])
except SkyError as error:
    print(error)
"""
_RESOLVE = """
from jupyter_sky.functions.node.image_install import resolution_error
resolution_error(('sky-evil-7',))
"""
_LIES = """
from jupyter_sky.engines.wire.values import Parcel
class Evil:
    def __reduce__(self):
        import pathlib
        return (pathlib.Path.touch, (pathlib.Path('CANARY'),))
kernel = get_ipython().kernel
kernel.engine_namespace.describe_output = lambda *a: Parcel.of(Evil()).inline()
kernel.engine_namespace.describe_result = lambda *a: Parcel.of(Evil()).inline()
x = 1
"""


def _tar(here: Scene) -> None:
    path = here.root / "journal.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../canary", str(here.canary), "a/../../../canary"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("down")
        link.type, link.linkname = tarfile.SYMTYPE, str(here.root)
        archive.addfile(link)
        member = tarfile.TarInfo("down/canary")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    here.run("-c", _UNPACK, str(path), str(here.root / "into" / "journal"))


def _error(here: Scene) -> None:
    (here.folder / "harmful.py").write_text(f"{here.code}\nclass Boom(ValueError): pass\n")
    here.run("-c", _ERROR, str(here.canary))


def _lying_engine(here: Scene) -> None:
    lies = _LIES.replace("CANARY", str(here.canary))
    show = "from IPython.display import HTML; display(HTML('<script>evil-7d</script>'))"
    here.cells(
        f"%%sky --untrusted\n{lies}",
        "%%sky --untrusted -o x\nx = 1",
        f"%%sky --untrusted\n{show}",
        "%sky down all --yes",
    )


def _index(here: Scene) -> None:
    address = f"http://127.0.0.2:{here.port}/simple"
    (here.folder / "uv.toml").write_text(f'extra-index-url = ["{address}"]\n')
    here.env |= {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    here.run("-c", _RESOLVE)


def _install(here: Scene) -> None:
    here.run("-c", _INSTALL, str(here.port))


SAID = [
    Try("a journal with paths that lead elsewhere", _tar),
    Try("an error with a pickle, markup and paths", _error),
    Try("a pickle as data", lambda here: here.run("-c", _DATA, str(here.canary)), "", "not data"),
    Try("markup in all that is shown", lambda here: here.run("-c", _SHOWN), "evil-7d"),
    Try("an engine that lies", _lying_engine, "<script>evil-7d</script>", "not data"),
    Try(
        "a package that is an option", lambda h: h.run("-c", _INSTALL, str(h.port)), "", "option of"
    ),
    Try("a folder that names an index", _index),
]

# -- all -----------------------------------------------------------------------------------------


def judge(each: Try, root: Path) -> list[str]:
    """Carry out one try; say what happened that was not to happen."""
    with scene(root) as here:
        try:
            each.do(here)
        except subprocess.TimeoutExpired:
            return [f"nothing was said for {SECONDS:g} s"]
        found = here.effects(each.forbidden)
        if each.expected and each.expected not in here.said:
            found.append(f"{each.expected!r} was not said")
        if found:
            print(here.said, file=sys.stderr)
        return found


def hostile() -> dict[str, float]:
    """Return how many hostile settings, files and messages were tried, and had an effect."""
    tries = [*SETTINGS, *DATA, *SAID]
    if os.name == "posix" and os.getuid() == 0:
        tries += BY_ROOT
    lock, left, effects = threading.Lock(), list(enumerate(tries)), dict[str, list[str]]()
    judged = list[str]()

    def work(folder: Path) -> None:
        while True:
            with lock:
                if not left:
                    return
                number, each = left.pop(0)
            try:
                found = judge(each, folder / f"try-{number}")
            except Exception as error:
                found = [f"it could not be tried: {type(error).__name__}: {error}"]
            judged.append(each.name)
            print(f"{each.name}: {'; '.join(found) or 'no effect'}", file=sys.stderr, flush=True)
            if found:
                effects[each.name] = found

    with tempfile.TemporaryDirectory(prefix="sky-hostile-") as folder:
        threads = [threading.Thread(target=work, args=(Path(folder),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(judged) == len(tries) == len(set(judged))
    return {"hostile_folders": len(judged), "hostile_effects": len(effects)}


def main(**_: object) -> dict[str, float]:
    """Return the figures of this half of `trust` alone."""
    return hostile()
