"""A provider that imports an SDK with its class."""

from __future__ import annotations

import boto3
from sky_toy import Toy  # pyright: ignore[reportMissingImports]

__all__ = ["EagerToy"]


class EagerToy(Toy):
    """The toy cloud, by an SDK that it does not need."""

    sdk = boto3
