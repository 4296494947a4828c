"""Options that bring data to a cell and take files from it: ``--data``, ``--mount``, ``--out``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellData, CellUpload
from jupyter_sky.base.translation import _

DATA_HINT = "such as --data s3://imagenet/train:./data/train; without a path it is ./data/NAME"
OUT_HINT = "the path comes first, such as --out ./model:s3://mine/runs/7/"
_SCHEMES = {"s3", "gs", "az", "r2", "ssh", "file"}
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"


def parse_data(items: Sequence[str], flag: str) -> tuple[CellData, ...]:
    """Parse the values of ``--data`` or ``--mount``: ``URI[:PATH]``.

    The path begins after the last ``:`` that one ``/`` or a ``.`` follows, but for that of a
    scheme.

    Raises
    ------
    SkyUsageError
        A value is not understood, or two have one path.

    Examples
    --------
    >>> parse_data(["s3://imagenet/train", "gs://b/x:/data"], "--data")[1]
    CellData(uri='gs://b/x', path='/data')
    >>> parse_data(["s3://imagenet/train"], "--data")[0].path
    'data/train'
    """
    parsed: dict[str, CellData] = {}
    for item in items:
        uri, path = _split_data(item)
        if not uri:
            raise SkyUsageError(
                _("{flag} {item}: it names no data").format(flag=flag, item=item), hint=DATA_HINT
            )
        path = _checked_path(path or f"data/{_last_name(uri)}", f"{flag} {item}")
        if path in parsed and parsed[path].uri != uri:
            raise SkyUsageError(
                _("{flag}: {uri} and {uri2} would both be at {path}").format(
                    flag=flag, uri=parsed[path].uri, uri2=uri, path=path
                ),
                hint=_("give one a path of its own: {flag} {uri}:./data/other").format(
                    flag=flag, uri=uri
                ),
            )
        parsed[path] = CellData(uri, path)
    return tuple(parsed.values())


def parse_uploads(items: Sequence[str]) -> tuple[CellUpload, ...]:
    """Parse the values of ``--out``: ``PATH:URI``, with ``!`` at the end also after an error.

    Raises
    ------
    SkyUsageError
        A value is not understood.

    Examples
    --------
    >>> parse_uploads(["./model:gs://mine/runs/7!"])
    (CellUpload(path='model', uri='gs://mine/runs/7', also_after_error=True),)
    """
    uploads = []
    for item in items:
        text = item.removesuffix("!")
        match = re.match(rf"(?P<path>[^:]+):(?P<uri>{_SCHEME}:.+|[/.~].*|[^:]*/.*)\Z", text)
        if not match or re.match(rf"{_SCHEME}://", text):
            raise SkyUsageError(
                _("--out {item}: not a path and an address").format(item=item), hint=OUT_HINT
            )
        path = _checked_path(match["path"], f"--out {item}")
        uploads.append(CellUpload(path, match["uri"], item.endswith("!")))
    return tuple(uploads)


def _split_data(item: str) -> tuple[str, str]:
    for match in reversed(list(re.finditer(r":(?=[/.])(?!//)", item))):
        if item[: match.start()] not in _SCHEMES:
            return item[: match.start()], item[match.end() :]
    return item, ""


def with_plain_path(item: str) -> str:
    """Return a value of ``--data`` whose path lacks its ``./``, with it; empty for others.

    Examples
    --------
    >>> with_plain_path("data/:in"), with_plain_path("s3://b/x")
    ('data/:./in', '')
    """
    match = re.fullmatch(r"(?P<uri>.+):(?P<path>[^:/.?=&][^:?=&]*)", item)
    return f"{match['uri']}:./{match['path']}" if match else ""


def _last_name(uri: str) -> str:
    """Return the last part of an address, without options and slashes."""
    address = re.sub(r"\?(endpoint|region)=.*", "", uri).rstrip("/")
    return re.split(r"[/:]", address)[-1] or "files"


def _checked_path(path: str, what: str) -> str:
    """Return a path in its plain form.

    Raises
    ------
    SkyUsageError
        It leads out of the folder, or is the folder itself.
    """
    pure = PurePosixPath(path)
    if ".." in pure.parts:
        raise SkyUsageError(
            _("{what}: {path} leads out of the working folder").format(what=what, path=path),
            hint=_("a path without .."),
        )
    if str(pure) in (".", "/"):
        raise SkyUsageError(
            _("{what}: {path} is the whole folder").format(what=what, path=path),
            hint=_("name a folder in it, such as ./data/train"),
        )
    return str(pure)
