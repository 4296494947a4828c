"""End of rented machines: journals copied, termination confirmed by the cloud."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from functools import partial

from jupyter_sky.base.concurrency import run_parallel
from jupyter_sky.base.errors import SkyError, SkyUnreachable
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches import journals, ssh_slot
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.launches.ssh_slot import Slot

TERMINATION_SECONDS = 300.0
"""A machine that has not ended so long after its end was asked for is told as such."""


def terminate_confirmed(call: RetryingCaller, ids: Sequence[str]) -> None:
    """Ask for the end of machines until the cloud says that they have ended."""
    begun, wait, left = time.monotonic(), 0.1, list(ids)
    if left:
        call(partial(call.provider.terminate, left))
    while left:
        found = call(partial(call.provider.describe, left))
        alive = {machine.id for machine in found if machine.state != "ended"}
        left = [name for name in left if name in alive]
        if left and time.monotonic() - begun > TERMINATION_SECONDS:
            raise SkyUnreachable(
                _("{left} on {name} did not end within {termination_seconds:g} s").format(
                    left=", ".join(left), name=call.name, termination_seconds=TERMINATION_SECONDS
                ),
                hint=_("look again with %sky reap, or end it in the cloud's own console"),
            )
        if left:
            time.sleep(wait)
            wait = min(wait * 1.5, 3.0)


def terminate_or_request_shutdown(
    call: RetryingCaller, ids: Sequence[str], records: dict[str, JsonObject]
) -> None:
    """End machines; where the cloud does not let us any more, let them end themselves.

    Parameters
    ----------
    records
        Launch records of the machines, by token.

    Raises
    ------
    SkyError
        Their end is not confirmed; says what becomes of them.
    """
    try:
        terminate_confirmed(call, ids)
    except SkyError as error:
        nodes = [Slot.load(node) for each in records.values() for node in each.get("nodes", ())]
        told = ssh_slot.request_machine_shutdown([node for node in nodes if node.host in ids])
        ends = max((each.get("lease_end", 0.0) for each in records.values()), default=0.0)
        said = f"{error.message.rstrip('.')}. {_shutdown_notice(ids, told, ends)}"
        error.message, error.args = said, (said,)
        again = "once the cloud can be asked again, %sky reap confirms it"
        error.hint = f"{error.hint}\n{again}" if error.hint else again
        raise


def _shutdown_notice(ids: Sequence[str], told: Sequence[str], ends: float) -> str:
    """Say in a sentence what becomes of machines whose cloud cannot be asked to end them."""
    left = [name for name in ids if name not in told]
    if not left:
        return f"{', '.join(told)} was told by SSH to end itself, and does so within a minute"
    lease = time.strftime("%Y-%m-%d %H:%M", time.localtime(ends)) if ends else "an unknown time"
    some = f"{', '.join(told)} was told by SSH to end itself; " if told else ""
    return (
        f"{some}{', '.join(left)} may still be up and billed: it ends by itself when nobody renews "
        f"it, and at {lease} at the latest, which is the end of its lease"
    )


def collect_journals(records: dict[str, JsonObject], ended: Collection[str]) -> dict[str, str]:
    """Copy the journals of launches in parallel; return in words what of each is missing.

    Parameters
    ----------
    records
        Launch records by token.
    ended
        IDs of machines that are not asked: they would time out.
    """
    store = launch_records()

    def one(token: str, record: JsonObject) -> str:
        try:
            nodes = [Slot.load(node) for node in record.get("nodes", ())[:1]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return "its log: the note of its machine is damaged"
        into = store.folder(token) / "journal"
        return journals.collect_journals(nodes, into, any(node.host in ended for node in nodes))

    said = run_parallel([partial(one, *each) for each in records.items()])
    return dict(zip(records, said, strict=True))
