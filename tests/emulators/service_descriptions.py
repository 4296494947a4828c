"""AWS's descriptions of its services, megabytes of JSON, which each session of boto3 reads."""

from __future__ import annotations

import functools

import botocore.session


def read_once() -> None:
    """Let all sessions of this process share what they have read."""
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)
