"""Prices of requests to object stores, and of reading classes that charge for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RequestKind = str
"""``write`` (with copies and lists), ``read``, ``retrieval``, ``storage`` or ``egress``."""

_UNITS = {"million requests": 1e6, "GB": 1.0, "GB-month": 1.0}


@dataclass(frozen=True, slots=True)
class RequestPrice:
    """Price of one request, or of one GB.

    Attributes
    ----------
    usd : float or None
        USD for a request, or for a GB of ``retrieval``, ``storage`` (for a month) and ``egress``;
        None where it is not known.
    basis : str
        ``listed``, ``assumed`` as `note` explains, or ``not known``.
    source, date : str
        Origin of the price, and the day on which it was read.
    """

    usd: float | None
    basis: str
    source: str = ""
    date: str = ""
    note: str = ""


class RequestPrices:
    """Prices by cloud, region, storage class and kind.

    Parameters
    ----------
    rows
        Rows of the table ``requests``.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._prices = {
            (row["cloud"], row["region"], row["storage_class"].upper(), row["kind"]): RequestPrice(
                row["usd"] / _UNITS[row["unit"]],
                row["basis"],
                row["source"],
                row["price_date"],
                row["note"],
            )
            for row in rows
        }

    def find(
        self, cloud: str, region: str, kind: RequestKind, storage_class: str = ""
    ) -> RequestPrice:
        """Return the price of a kind of request; that of the region wins over that of the cloud.

        A class without prices of its own has those of the standard class; its retrieval is free.
        """
        wanted = storage_class.upper()
        for found_class in dict.fromkeys((wanted, "")):
            for place in dict.fromkeys((region, "")):
                if found := self._prices.get((cloud, place, found_class, kind)):
                    return found
            if kind == "retrieval":
                break
        if kind == "retrieval" and not wanted:
            return RequestPrice(0.0, "listed")
        return RequestPrice(None, "not known")
