"""Requests for a data engine: what a notebook asks of a cluster's controller, and waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests.cell_options.data_engines import split_engine
from jupyter_sky.base.requests.cell_options.spark_version import spark_version
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.controller_requests import DataEngineReply, StartDataEngine

POLL_SECONDS = 0.2
Ask = Callable[[StartDataEngine], DataEngineReply]
"""Sends a request to the controller of a cluster."""


def client_packages(engine: str | None) -> tuple[str, ...]:
    """Return the packages that cells with an engine need on machines elsewhere."""
    return (f"pyspark-client=={spark_version()}",) if engine == "spark" else ()


def check_client(engine: str) -> None:
    """Raise SkyError where cells on this machine could not reach a data engine."""
    if engine == "spark" and (find_spec("pyspark") is None or find_spec("grpc") is None):
        raise SkyError(
            _("--engine spark needs pyspark-client here"),
            hint=_('pip install "jupyter_sky[spark]"'),
        )


def start_engine(ask: Ask, engine: str) -> None:
    """Tell the controller of a cluster to start a data engine, unless it runs; do not wait."""
    name, version = _version_to_start(engine)
    ask(StartDataEngine(name, version, start=True))


def await_engine(ask: Ask, engine: str, report: Callable[[str], None]) -> JsonObject:
    """Start a data engine on a cluster, and wait until it is ready.

    Parameters
    ----------
    engine
        Such as ``ray==2.60.*``.
    report
        Called with what is waited for, many times a second; raises to end the wait.

    Returns
    -------
    dict
        Its version, and what else its node tells of it.

    Raises
    ------
    SkyError
        It cannot start; has the reason of the node.
    """
    name, version = _version_to_start(engine)
    told = ask(StartDataEngine(name, version, start=True))
    while told.state != "ready":
        if told.state == "failed":
            raise SkyError(told.detail, hint=told.hint)
        report(_describe_wait(name, told))
        time.sleep(POLL_SECONDS)
        told = ask(StartDataEngine(name, version, start=False))
    _check_version(engine, told.facts["version"])
    return told.facts


def _version_to_start(engine: str) -> tuple[str, str]:
    name, clause = split_engine(engine)
    return name, spark_version() if name == "spark" else clause


def _describe_wait(name: str, told: DataEngineReply) -> str:
    if told.state == "installing":
        return _("installing {what}").format(what=told.detail)
    return _("{engine} starts").format(engine=name.capitalize())


def _check_version(engine: str, running: str) -> None:
    """Raise SkyError where a cluster runs another version than is wanted."""
    name, clause = split_engine(engine)
    if name == "spark":
        ours = spark_version()
        if running.split(".")[:2] != ours.split(".")[:2]:
            raise SkyError(
                _("this cluster runs Spark {theirs}, and the client here is of {ours}").format(
                    theirs=running, ours=ours
                ),
                hint=_("install pyspark-client=={theirs} here, or start another cluster").format(
                    theirs=running
                ),
            )
        return
    from packaging.specifiers import SpecifierSet

    if not SpecifierSet(clause, prereleases=True).contains(running):
        raise SkyError(
            _("this cluster runs {name} {theirs}, and --engine names {engine}").format(
                name=name.capitalize(), theirs=running, engine=engine
            ),
            hint=_("leave the version out, or start another cluster: -c NAME"),
        )
