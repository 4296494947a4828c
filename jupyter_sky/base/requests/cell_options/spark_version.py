"""Version of Spark that fits the client on this machine."""

from __future__ import annotations

from functools import cache

SPARK_VERSION = "4.2.0"
"""Version that clusters run where no client here says which one fits."""


@cache
def spark_version() -> str:
    """Return the version of Spark that a cluster is to run: that of the client that is here.

    Returns
    -------
    str
        ``MAJOR.MINOR.PATCH``.

    Examples
    --------
    >>> spark_version().split(".")[0]
    '4'
    """
    from importlib import metadata  # which imports much

    for package in ("pyspark-client", "pyspark"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return SPARK_VERSION
