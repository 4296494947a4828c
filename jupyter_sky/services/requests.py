"""Requests for a data engine: what a notebook asks of a cluster's controller, and waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

from ..config.spark_version import spark_version
from ..engines.wire.messages import Content
from ..errors import SkyError
from ..translation import _

POLL_SECONDS = 0.2
Ask = Callable[..., Content]
"""Sends a request to the controller of a cluster, with its fields."""


def client_packages(engine: str | None) -> tuple[str, ...]:
    """Return the packages that cells with an engine need on machines elsewhere."""
    return (f"pyspark-client=={spark_version()}",) if engine == "spark" else ()


def check_client() -> None:
    """Raise SkyError where cells on this machine could not reach Spark."""
    if find_spec("pyspark") is None or find_spec("grpc") is None:
        raise SkyError(
            _("--engine spark needs pyspark-client here"),
            hint=_('pip install "jupyter_sky[spark]"'),
        )


def start_engine(ask: Ask) -> None:
    """Tell the controller of a cluster to start Spark, unless it runs; do not wait for it."""
    ask("spark", version=spark_version(), start=True)


def await_engine(ask: Ask, report: Callable[[str], None]) -> None:
    """Start Spark on a cluster, and wait until it is ready.

    Parameters
    ----------
    report
        Called with what is waited for, many times a second; raises to end the wait.

    Raises
    ------
    SkyError
        It cannot start; has the reason of the node.
    """
    version = spark_version()
    told = ask("spark", version=version, start=True)
    while told["state"] != "ready":
        if told["state"] == "failed":
            raise SkyError(told["detail"], hint=told["hint"])
        report(_describe_wait(told))
        time.sleep(POLL_SECONDS)
        told = ask("spark", version=version, start=False)
    if told["version"].split(".")[:2] != version.split(".")[:2]:
        raise SkyError(
            _("this cluster runs Spark {theirs}, and the client here is of {ours}").format(
                theirs=told["version"], ours=version
            ),
            hint=_("install pyspark-client=={theirs} here, or start another cluster").format(
                theirs=told["version"]
            ),
        )


def _describe_wait(told: Content) -> str:
    if told["state"] == "installing":
        return _("installing {what}").format(what=told["detail"])
    return _("Spark starts")
