"""Names, IDs and tags of machines, in the alphabets of clouds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_sky.clouds.provider.values import TAGS, Machine

OWNER, CLUSTER, TOKEN, NOTEBOOK, LEASE_END = TAGS


def fit_name(text: str, longest: int, others: str = r"[^a-z0-9]+") -> str:
    """Return a text in the alphabet of a cloud, beginning with a letter.

    Where that changes the text, a hash of it keeps the name apart from others.

    Parameters
    ----------
    text
        Any text.
    longest
        Characters at most.
    others
        Regular expression of the runs of characters that a hyphen replaces.

    Examples
    --------
    >>> fit_name("train-3f2a91c0", 50), fit_name("Größe_7-3f2a91c0", 50)
    ('train-3f2a91c0', 'gr-e-7-3f2a91c0-693c00')
    """
    name = re.sub(others, "-", text.lower()).strip("-")
    name = name if re.match(r"[a-z]", name) else f"sky-{name}"
    if name == text and len(name) <= longest:
        return name
    return f"{name[: longest - 7].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def container_name(token: str, rank: str) -> str:
    """Return the name of a node's container or pod, by which the same request finds it again.

    Examples
    --------
    >>> container_name("train-3f2a91c0", "1"), container_name("Größe-3f2a91c0", "1")
    ('sky-train-3f2a91c0-1', 'sky-gr-e-3f2a91c0-044b78-1')
    """
    return f"{fit_name(f'sky-{token}', 56)}-{rank}"


def parse_rank(name: str) -> int:
    """Return the rank at the end of a machine's name; 0 without one.

    Examples
    --------
    >>> parse_rank("train-3f2a91c0-12")
    12
    """
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def split_id(id: str) -> tuple[str, str]:
    """Return place and name of a machine whose ID is ``place/name``."""
    place, _, name = id.partition("/")
    return place, name


def group_ids(ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of machines by their place.

    Examples
    --------
    >>> group_ids(["us-east-1/i-1", "us-west-2/i-2", "us-east-1/i-3"])
    {'us-east-1': ['i-1', 'i-3'], 'us-west-2': ['i-2']}
    """
    groups: dict[str, list[str]] = {}
    for place, name in map(split_id, ids):
        groups.setdefault(place, []).append(name)
    return groups


def tagged_machine(tags: Mapping[str, str], **fields: Any) -> Machine:
    """Return a machine whose cluster, token, owner and end of lease its tags say.

    Parameters
    ----------
    tags
        Of the machine; see `TAGS`.
    **fields
        All other fields of `Machine`.
    """
    lease_end = tags.get(LEASE_END, "")
    return Machine(
        cluster=tags.get(CLUSTER, ""),
        token=tags.get(TOKEN, ""),
        owner=tags.get(OWNER, ""),
        lease_end=float(lease_end) if lease_end.isdigit() else None,
        **fields,
    )
