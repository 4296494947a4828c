"""The provisioner makes a plan real: it launches machines and starts the head on them.

Everything that can be launched can be given back: an interrupt or an error on the way takes down
what has come up so far.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from .. import clouds
from ..clouds import Cloud, Launch, Machine
from ..errors import SkyClusterLost

START_SECONDS = 120.0

Report = Callable[[str, str], None]
"""Called with a stage and a detail, again and again while waiting."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Machines that are up, and where their controller can be reached."""

    order: Launch
    machines: tuple[Machine, ...]
    connection: Path


def provision(order: Launch, report: Report) -> Lease:
    """Launch the machines of an order, start the head there, wait for its controller.

    Parameters
    ----------
    order
        What to launch; its offer says where.
    report
        Called about ten times a second while waiting.

    Raises
    ------
    SkyNoCapacity
        The place refuses.
    SkyClusterLost
        Machines came up, but no controller on them. They have been terminated.
    """
    cloud = clouds.get(order.offer.cloud)
    report("booting", "")
    machines: list[Machine] = []
    try:
        unbroken(lambda: machines.extend(cloud.launch(order)))
        host = cloud.host(machines)
        config = {
            "cluster": order.cluster,
            "nodes": order.resources.nodes,
            "idle": order.idle,
            **host.limits,
        }
        unbroken(lambda: host.start("jupyter_sky.engines.head", config))

        def alive() -> None:
            report("booting", "")
            check_alive(cloud, machines, order.cluster)

        connection = host.connection(START_SECONDS, alive)
    except BaseException:
        unbroken(lambda: cloud.terminate([machine.id for machine in machines]))
        raise
    return Lease(order, tuple(machines), connection)


def unbroken(work: Callable[[], object]) -> None:
    """Do something to its end, and let an interrupt through only then.

    An interrupt in the middle of a launch would lose track of what has been launched.
    """
    outcome: Future[object] = Future()

    def go() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread, interrupt = threading.Thread(target=go, name="sky-unbroken", daemon=True), None
    try:
        thread.start()
    except KeyboardInterrupt as error:
        interrupt = error
    while not outcome.done():
        try:
            outcome.exception()
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    outcome.result()


def check_alive(cloud: Cloud, machines: list[Machine], cluster: str) -> None:
    """Raise SkyClusterLost, with the reason, when a machine has ended."""
    for machine in cloud.describe([machine.id for machine in machines]):
        if machine.state == "ended":
            why = machine.reason or "its machine has ended"
            raise SkyClusterLost(f"cluster {cluster} is gone: {why}")
