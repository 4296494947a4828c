"""Addresses of data: ``s3:``, ``gs:``, ``az:``, ``r2:``, ``ssh:``, ``file:`` and plain paths."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

ALIASES = {"gcs": "gs", "abfs": "az", "s3a": "s3"}
WITH_ACCOUNT = {"az", "r2"}
"""Schemes whose first part is an account, before the bucket."""

SCHEMES = ("s3", "gs", "az", "r2", "ssh", "file")
OPTIONS = ("endpoint", "region", "place", "profile")
"""Names that may follow a ``?`` at the end; any other ``?`` is part of the key."""

_OPTIONS_PATTERN = re.compile(rf"\?((?:{'|'.join(OPTIONS)})=[^?]*)\Z")
_SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/|[^\\])")
_HINT = "such as s3://bucket/key, gs://bucket/key, az://account/container/key, file:/data or ./data"


@dataclass(frozen=True, slots=True)
class StorageUri:
    """Address of an object, of all objects below a prefix, or of a file or folder.

    Attributes
    ----------
    scheme : str
        One of `SCHEMES`.
    bucket : str
        Bucket or container; host, and user if any, of ``ssh``; empty for ``file``.
    key : str
        Key of an object or prefix of keys without the first ``/``; empty for a whole bucket.
        For ``file`` and ``ssh`` the absolute path without its first ``/``.
    account : str
        Account of ``az`` and ``r2``.
    options : mapping of str to str
        ``endpoint`` and ``region``, where they are given; ``profile``, the credentials of
        ``~/.aws`` to use; and ``place``, cloud and region of a compatible store
        (``nebius/eu-north1``), by which it is priced.

    Examples
    --------
    >>> uri = StorageUri.parse("s3://imagenet/train/")
    >>> uri.bucket, uri.key, uri.is_folder
    ('imagenet', 'train/', True)
    >>> print(uri.child("n01440764/1.jpg"))
    s3://imagenet/train/n01440764/1.jpg
    >>> StorageUri.parse("az://account/container/a").account
    'account'
    >>> StorageUri.parse("s3://data/k?endpoint=http://127.0.0.1:9000").options["endpoint"]
    'http://127.0.0.1:9000'
    """

    scheme: str
    bucket: str
    key: str = ""
    account: str = ""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, text: str | Path, base: Path | None = None) -> StorageUri:
        """Parse an address; a path without a scheme is one of this machine.

        Parameters
        ----------
        text : str or Path
            As the user writes it.
        base : Path, optional
            Folder that a relative path is below; default the current one.

        Raises
        ------
        SkyUsageError
            The scheme is not known, or the bucket is missing or misspelled.
        """
        if isinstance(text, Path):
            return _local(str(text), base)
        text = text.strip()
        if not text:
            raise SkyUsageError(_("an address of data is empty"), hint=_HINT)
        scheme_match = _SCHEME_PATTERN.match(text)
        if not scheme_match:
            return _local(text, base)
        scheme = scheme_match[1].lower()
        scheme = ALIASES.get(scheme, scheme)
        if scheme == "file":
            path = re.sub(r"\A//(?:localhost)?(?=/)", "", text[scheme_match.end() :])
            return _local(unquote(path), base)
        if scheme not in SCHEMES:
            known = suggest(scheme, SCHEMES)
            raise SkyUsageError(
                _("{text} has no scheme that is known").format(text=text), hint=f"{known}; {_HINT}"
            )
        return _remote(scheme, text, text[scheme_match.end() :])

    @property
    def is_folder(self) -> bool:
        """Whether the contents below it are meant, and not one object."""
        return not self.key or self.key.endswith("/")

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
        return self.scheme == "file"

    @property
    def name(self) -> str:
        """Last part of the key, else of the bucket: a name for a folder that holds the data."""
        return self.key.rstrip("/").rpartition("/")[2] or self.bucket

    @property
    def path(self) -> Path:
        """Path of a ``file`` address."""
        return Path("/" + self.key)

    @property
    def root(self) -> StorageUri:
        """The whole bucket, host or file system."""
        return replace(self, key="")

    def child(self, key: str) -> StorageUri:
        """Address of `key` below this one."""
        prefix = self.key if self.is_folder else self.key + "/"
        return replace(self, key=prefix + key)

    def __str__(self) -> str:
        if self.is_local:
            return "file:" + quote("/" + self.key, safe="/~!$&'()*+,;=:@ ")
        account = f"{self.account}/" if self.account else ""
        options = "?" + urlencode(self.options, safe=":/") if self.options else ""
        tail = f"/{self.key}" if self.key else ""
        return f"{self.scheme}://{account}{self.bucket}{tail}{options}"


def _local(text: str, base: Path | None) -> StorageUri:
    """Address of a path; a final ``/`` stays, ``.`` and ``..`` are resolved without links."""
    import os.path

    path = os.path.expanduser(text)
    absolute = os.path.normpath(os.path.join(base or Path.cwd(), path))
    ends = text.endswith("/") or text in {".", ".."} or absolute == "/"
    key = absolute.lstrip("/")
    return StorageUri("file", "", key + "/" if ends and key else key)


def _remote(scheme: str, text: str, rest: str) -> StorageUri:
    if not rest.startswith("//"):
        raise SkyUsageError(
            _("{text}: two slashes follow {scheme}:").format(text=text, scheme=scheme), hint=_HINT
        )
    rest, options = rest[2:], {}
    if match := _OPTIONS_PATTERN.search(rest):
        rest, options = rest[: match.start()], dict(parse_qsl(match[1]))
    account = ""
    if scheme in WITH_ACCOUNT:
        account, __, rest = rest.partition("/")
    bucket, __, key = rest.partition("/")
    if not bucket or (scheme in WITH_ACCOUNT and not account):
        shape = f"{scheme}://account/bucket/key" if scheme in WITH_ACCOUNT else f"{scheme}://bucket"
        raise SkyUsageError(
            _("{text} names no bucket").format(text=text),
            hint=_("write {shape}").format(shape=shape),
        )
    if scheme != "ssh" and not re.fullmatch(r"[a-z0-9A-Z][a-z0-9A-Z._-]{1,221}", bucket):
        raise SkyUsageError(
            _("{bucket!r} in {text} cannot be the name of a bucket").format(
                bucket=bucket, text=text
            ),
            hint=_("letters, digits, dots and dashes, three or more"),
        )
    return StorageUri(scheme, bucket, key, account, options)


# -- Keys of objects as paths of files: which keys a folder can hold, and where they go -----------
#
# A key is any text; a path is not. Nothing is renamed silently, and no key leads out of its folder.

MAX_NAME_BYTES = 255
"""Longest name of a file on the file systems of Linux, macOS and Windows."""
MAX_PATH_BYTES = 3500
"""Longest relative path: systems allow 4,096 bytes with the folder before it."""

FoldName = Callable[[str], str]
"""Function that gives equal texts for names that a file system takes for one."""


@dataclass(frozen=True, slots=True)
class TreeNames:
    """Paths of the objects of a dataset.

    Attributes
    ----------
    files
        Relative path of each key.
    folders
        Paths of markers: empty objects whose key ends with ``/``.
    """

    files: dict[str, str]
    folders: tuple[str, ...]


def exact_name(name: str) -> str:
    """Return a name as it is: for file systems that keep all names apart, as those of Linux."""
    return name


def folded_name(name: str) -> str:
    """Return a name without case, composed: for the file systems of macOS and Windows.

    Examples
    --------
    >>> folded_name("Cafe\N{COMBINING ACUTE ACCENT}") == folded_name("CAFÉ")
    True
    """
    return unicodedata.normalize("NFC", name).casefold()


def fold_of_platform(platform: str = sys.platform) -> FoldName:
    """Return how the file systems of a platform compare names."""
    return folded_name if platform in ("darwin", "win32") else exact_name


def map_keys(
    source: str,
    prefix: str,
    sizes: Iterable[tuple[str, int]],
    fold: FoldName = exact_name,
) -> TreeNames:
    """Return the paths at which the objects below a prefix go into a folder.

    Parameters
    ----------
    source
        URI of the dataset, for messages.
    prefix
        Beginning of the keys that their paths do not have.
    sizes
        Keys and sizes.
    fold
        Comparison of names on the file system.

    Raises
    ------
    SkyUsageError
        A folder cannot hold these keys; names them.

    Examples
    --------
    >>> map_keys("s3://b/x/", "x/", [("x/a/1.txt", 9), ("x/logs/", 0)])
    TreeNames(files={'x/a/1.txt': 'a/1.txt'}, folders=('logs',))
    """
    files, folders = dict[str, str](), list[str]()
    for key, size in sizes:
        path = key.removeprefix(prefix)
        if path.endswith("/") and size == 0:
            folders.append(path.rstrip("/"))
        elif path:
            files[key] = path
    for path in [*files.values(), *filter(None, folders)]:
        if reason := path_error(path):
            raise _names_error(source, [path], reason)
    _check_twins(source, files.values(), fold)
    _check_folders(source, files.values(), fold)
    return TreeNames(files, tuple(filter(None, folders)))


def path_error(path: str) -> str:
    """Return why a folder of files cannot hold a key; nothing if it can.

    Examples
    --------
    >>> path_error("../../etc/passwd")
    'it climbs out of its folder'
    """
    parts = path.split("/")
    if ".." in parts:
        return "it climbs out of its folder"
    if path.startswith("/"):
        return "it begins with /"
    if "" in parts[:-1]:
        return "it has // inside, an empty name"
    if path.endswith("/"):
        return "it ends with /, and is not empty"
    if "." in parts:
        return "it has a part ."
    if "\0" in path:
        return "it has a zero byte"
    encoded = path.encode("utf-8", "surrogatepass")
    if any(len(part.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES for part in parts):
        return f"a name of a file has at most {MAX_NAME_BYTES} bytes"
    if len(encoded) > MAX_PATH_BYTES:
        return f"a path has at most {MAX_PATH_BYTES:,} bytes"
    if os.sep != "/" and os.sep in path:
        return f"it has {os.sep} inside"
    return ""


def _check_twins(source: str, paths: Iterable[str], fold: FoldName) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(fold(path), path)
        if other != path:
            raise _names_error(source, [other, path], "one file here: case and accents are equal")


def _check_folders(source: str, paths: Iterable[str], fold: FoldName) -> None:
    """Refuse an object and a folder of one name."""
    by_name = {fold(path): path for path in paths}
    for path in by_name.values():
        parts = path.split("/")
        for count in range(1, len(parts)):
            if other := by_name.get(fold("/".join(parts[:count]))):
                raise _names_error(
                    source, [other, path], "the one is a file where the other needs a folder"
                )


def _names_error(source: str, paths: list[str], reason: str) -> SkyUsageError:
    shown = " and ".join(repr(_shorten(path)) for path in paths)
    return SkyUsageError(
        _("{source}: {shown} cannot be in a folder: {reason}").format(
            source=source, shown=shown, reason=reason
        ),
        hint=_(
            "bring another prefix without it, copy it to another key first, or "
            "read it by its key: sky.Storage(uri).open(key)"
        ),
    )


def _shorten(path: str, limit: int = 80) -> str:
    return path if len(path) <= limit else f"{path[: limit - 1]}…"
