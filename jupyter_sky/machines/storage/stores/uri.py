"""Addresses of data: ``s3:``, ``gs:``, ``az:``, ``r2:``, ``ssh:``, ``file:`` and plain paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
