"""Validation of ``Sky.endpoints``: addresses of compatible stores by bucket, account or scheme."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

SCHEMES = ("s3", "gs", "az", "r2")
OPTIONS = ("region", "profile", "place")
_EXAMPLE = "{'s3://data': 'https://minio.lab:9000?region=lab&profile=lab'}"


def check_endpoints(endpoints: Mapping[str, str], label: str) -> None:
    """Raise SkyUsageError for an entry that no address of a store can use.

    Parameters
    ----------
    endpoints : mapping of str to str
        Value of the setting.
    label : str
        Its name, for messages.
    """
    for name, text in endpoints.items():
        where = f"{label} {name!r}: {text!r}"
        scheme, slashes, rest = name.partition("://")
        if scheme not in SCHEMES or bool(slashes) != bool(rest.strip("/")):
            hint = _("a bucket or a scheme ({schemes}), such as {example}").format(
                schemes=", ".join(SCHEMES), example=_EXAMPLE
            )
            raise SkyUsageError(_("{where}: names no store").format(where=where), hint=hint)
        address, __, options = text.partition("?")
        if address and not (
            re.match(r"https?://", address) and urlsplit(address).hostname and "@" not in address
        ):
            raise SkyUsageError(
                _("{where}: not an address that begins with https:// or http://").format(
                    where=where
                ),
                hint=_EXAMPLE,
            )
        for option, value in parse_qsl(options, keep_blank_values=True):
            if option not in OPTIONS or not value:
                raise SkyUsageError(
                    _("{where}: has no option {option}").format(where=where, option=option),
                    hint=suggest(option, OPTIONS),
                )
