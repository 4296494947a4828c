"""Machines of Azure that are deallocated by a request and started again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

from jupyter_sky.clouds.azure.clients import AzureClients
from jupyter_sky.clouds.azure.polling import polling_method
from jupyter_sky.clouds.provider.naming import split_id
from jupyter_sky.clouds.provider.parallel_requests import send_parallel


def deallocate(
    account: AzureClients, ids: Sequence[str], is_transient: Callable[[Exception], bool]
) -> None:
    """Ask machines to leave their hosts; a machine that is only off is billed as one that runs."""

    def ask(group: str, name: str, _: Event) -> None:
        account.compute.virtual_machines.begin_deallocate(group, name, polling=False)

    send_parallel([partial(ask, *split_id(each)) for each in ids], is_transient)


def start(
    account: AzureClients,
    ids: Sequence[str],
    is_transient: Callable[[Exception], bool],
    poll: float,
) -> None:
    """Start machines, and wait for the operations: a place may be refused late.

    Parameters
    ----------
    poll
        Most seconds between two looks at an operation.
    """

    def ask(group: str, name: str, halt: Event) -> None:
        begin = account.compute.virtual_machines.begin_start
        begin(group, name, polling=polling_method(halt, poll)).result()

    send_parallel([partial(ask, *split_id(each)) for each in ids], is_transient)
