"""Hostile messages: archives, errors, values, markup and packages that machines send."""

from __future__ import annotations

import io
import tarfile

from tests.benchmarks.hostile_scene import Scene, Try

_UNPACK = """
import sys
from pathlib import Path
from jupyter_sky.clouds.launches.journals import unpack
with open(sys.argv[1], "rb") as packed:
    print(unpack(packed, Path(sys.argv[2])))
"""
_ERROR = """
import sys
from pathlib import Path
sys.path.insert(0, "")
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.execution.cells.failures import mending_line
from jupyter_sky.execution.cells.failures import rebuild_exception
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
from jupyter_sky.machines.engines.wire.data_values import decode
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.base.errors import SkyError
from tests.emulators.hostile import Touch
try:
    print(decode(Parcel.of(Touch(Path(sys.argv[1])))))
except SkyError as error:
    print(error)
"""
_SHOWN = """
from html.parser import HTMLParser
from jupyter_sky.execution.display import RunStatus
from jupyter_sky.interfaces.widgets.status_line import mimebundle
from jupyter_sky.base.tables import Table

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
from jupyter_sky.machines.engines.node.environment import install_packages
from jupyter_sky.base.errors import SkyError
try:
    install_packages([f"--index-url={sys.argv[1]}", "evil"])
except SkyError as error:
    print(error)
"""
_RESOLVE = """
from jupyter_sky.execution.functions.node.image_install import resolution_error
resolution_error(('sky-evil-7',))
"""
_LIES = """
from jupyter_sky.machines.engines.wire.values import Parcel
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
    (here.folder / "uv.toml").write_text(f'extra-index-url = ["{here.address}"]\n')
    here.env |= {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    here.run("-c", _RESOLVE)


MESSAGES = [
    Try("a journal with paths that lead elsewhere", _tar),
    Try("an error with a pickle, markup and paths", _error),
    Try("a pickle as data", lambda here: here.run("-c", _DATA, str(here.canary)), "", "not data"),
    Try("markup in all that is shown", lambda here: here.run("-c", _SHOWN), "evil-7d"),
    Try("an engine that lies", _lying_engine, "<script>evil-7d</script>", "not data"),
    Try("a package that is an option", lambda h: h.run("-c", _INSTALL, h.address), "", "option of"),
    Try("a folder that names an index", _index),
]
