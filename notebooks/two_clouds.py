"""Two object stores on this machine, in place of the stores of two clouds."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}


def start_store(place: str) -> Callable[[str], str]:
    """Start a store that ends with this process; return a function that makes addresses.

    Parameters
    ----------
    place
        Cloud and region whose prices its transfers get, such as ``aws/us-east-1``.

    Examples
    --------
    >>> amazon = start_store("aws/us-east-1")  # doctest: +SKIP
    >>> amazon("images/")  # doctest: +SKIP
    's3://bucket/images/?endpoint=http://127.0.0.1:40123&place=aws/us-east-1'
    """
    os.environ.update(KEYS)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.object_store", "--dialect", "r2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        start_new_session=True,  # an interrupt of a cell is not meant for it
    )
    assert process.stdin is not None and process.stdout is not None
    atexit.register(_stop, process)
    endpoint = process.stdout.readline().strip()
    return lambda key: f"s3://bucket/{key}?endpoint={endpoint}&place={place}"


def _stop(process: subprocess.Popen[str]) -> None:
    process.communicate()  # its input ends, and then the store
