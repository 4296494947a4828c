"""What clouds that rent machines share: journal, retries, waiting, confirmed ends.

A cloud itself is a `Driver`: the calls of its SDK and what their errors mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..config import Sky
from ..errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyPermission,
    SkyStoreError,
    SkyUnreachable,
)
from ..together import at_once
from . import birth, journals, keeper, machine_lease
from .asking import Asking
from .base import Credentials, Driver, Launch, Machine, Say, Tick, patient
from .keeper import Node
from .records import Records, identity, is_launching, noting

UP_SECONDS = 600.0
"""A machine that does not answer by then is given up."""
GONE_SECONDS = 300.0
NEW_SECONDS = 60.0
"""A machine that was just launched may not be in the cloud's listings yet."""


class RentedCloud:
    """A cloud whose machines are rented by the second, through its driver.

    Parameters
    ----------
    driver
        What differs between clouds.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver, self.name = driver, driver.name
        self.ask = Asking(driver)
        self._unnoted = dict[str, list[Machine]]()  # of orders, while the disk is full

    # -- before anything is launched ---------------------------------------------------------

    def usable(self) -> bool:
        """Whether there are credentials to try; asks nobody."""
        return bool(self.ask.installed(self.driver.configured))

    def check(self) -> Credentials:
        """Prove the credentials by one request."""
        try:
            found = self.ask.installed(self.driver.configured)
            if not found:
                raise SkyPermission("no credentials", hint=self.driver.login)
            who = self.ask(self.driver.identify)
        except SkyError as error:
            return Credentials(self.name, False, error.message, error.hint or "")
        return Credentials(self.name, True, f"{found}: {who}")

    # -- launching ---------------------------------------------------------------------------

    def launch(self, order: Launch, tick: Tick = patient) -> list[Machine]:
        """Launch all machines of an order, or none; what is noted before says where to look."""
        records = records_of()
        note = {
            "cloud": self.name,
            "region": order.offer.region,
            "cluster": order.cluster,
            "offer": asdict(order.offer),
            "owner": order.owner,
            "notebook": order.notebook,
            "started": time.time(),
            "lease_end": time.time() + order.lease,
            "machines": [],
        }
        record = records.open(order.token, note)

        vain = partial(self._note_machines, order.token)

        try:
            folder = records.folder(order.token)
            ending = self.ask(lambda: self.driver.ending(order), order.offer)
            with noting(folder):
                born = birth.birth(order, folder, ending, time.time())
            records.write(order.token, record | {"sent": time.time()})
            machines = self.ask(
                lambda: self.driver.create(order, born, tick, vain), order.offer, tick
            )
            self._note_machines(order.token, machines)
            return machines
        except BaseException as error:
            try:
                self._undo(order.token, order.offer.region)
            except SkyError as trouble:  # the note stays, for the reaper
                with suppress(SkyStoreError):
                    self._note(order.token, launching=None)
                if isinstance(error, SkyError):
                    left = f"machines may be up there ({trouble.message}): %sky reap"
                    error.hint = f"{error.hint}\n{left}" if error.hint else left
            raise

    def _undo(self, token: str, region: str) -> None:
        """End all that an order has made, whatever was heard of it, and see that it is gone."""
        machines = self.ask(lambda: self.driver.machines(token=token, regions=[region]))
        every = {machine.id: machine for machine in (*self.noted(token), *machines)}
        with suppress(SkyStoreError):  # what cannot be noted is ended all the same
            self._note_machines(token, list(every.values()))
        self._end([machine.id for machine in machines])
        records_of().close(token, {"time": time.time(), "reason": "it was not used"})

    def noted(self, token: str) -> list[Machine]:
        """Return the machines that an order is known to have made, up or not."""
        if token in self._unnoted:
            return self._unnoted[token]
        return [Machine(**machine) for machine in records_of().read(token).get("machines", ())]

    def _note_machines(self, token: str, machines: Sequence[Machine]) -> None:
        """Note the machines of an order; where the disk refuses, they are known here at least."""
        self._unnoted[token] = list(machines)
        self._note(token, machines=[asdict(machine) for machine in machines])
        del self._unnoted[token]

    def launched(self, token: str) -> list[Machine]:
        """Return the machines that an order has made, by our note or else by the cloud."""
        return self.noted(token) or self._ended(token) or []

    def unknown_span(self, token: str, now: float) -> tuple[float, float] | None:
        """Return within which times an order may have had machines of which nothing is known.

        A machine on which no cluster has begun ends by itself after `machine_lease.BOOT_SECONDS`.

        Returns
        -------
        tuple of float or None
            Unix seconds; None where the order was not sent, or its cloud says that there were none.
        """
        record = records_of().read(token)
        if self._ended(token) is not None:
            return None
        sent = record["sent"]
        return sent, min(now, record["lease_end"], sent + machine_lease.BOOT_SECONDS)

    def _ended(self, token: str) -> list[Machine] | None:
        """Return the machines of an order that have ended; None where the cloud cannot tell."""
        record = records_of().read(token)
        sent = record.get("sent")
        if sent is None or "ended" in record:
            return []
        return self.ask(lambda: self.driver.ended(token, record["region"], sent))

    def recorded_end(self, token: str) -> dict[str, Any]:
        """Return ``time`` and ``reason`` of the end of an order, as noted here; empty if it is not.

        Its reason is ``stopped`` where it was ended from here, and the cloud has confirmed it.
        """
        ended = records_of().read(token).get("ended")
        return ended if isinstance(ended, dict) else {}

    # -- from machines to nodes --------------------------------------------------------------

    def nodes(self, machines: Sequence[Machine], say: Say = patient) -> list[Node]:
        """Wait until machines answer; take the one slot of each.

        Raises
        ------
        SkyClusterLost
            A machine has ended, or does not answer; with the last of its console.
        """
        machines, ended = self._running(machines, say), threading.Event()
        folder = self.folder(machines)
        note = {"cluster": machines[0].cluster, "owner": machines[0].owner}
        note |= {"started": machines[0].started}
        host_key = birth.next_host_key(folder)

        def one(machine: Machine) -> Node:
            where = birth.address(folder, machine.address)
            node = Node(
                machine.rank,
                token=f"{machine.token}.{machine.rank}",
                host=machine.id,
                address=where,
                private=machine.private,
            )
            return self._answered(machine, node, note, host_key, ended)

        addresses = [birth.address(folder, machine.address) for machine in machines]
        say("first contact")
        nodes = at_once(
            [partial(one, machine) for machine in machines], lambda: say("first contact"), ended
        )
        self._note(machines[0].token, nodes=[asdict(node) for node in nodes], launching=None)
        if host_key:
            over = partial(_is_over, machines[0].token)
            threading.Thread(
                target=birth.settle_host_keys,
                args=(folder, addresses, over),
                name="jupyter-sky-host-keys",
                daemon=True,
            ).start()
        return nodes

    def taken(self, machines: Sequence[Machine]) -> list[Node]:
        """Return the slots as they were noted when their machines answered; asks nobody."""
        record = records_of().read(machines[0].token)
        return [Node.load(node) for node in record.get("nodes", [])]

    def limits(self, machines: Sequence[Machine]) -> dict[str, object]:
        """Return what engines are held to: nothing, the machine is all theirs."""
        return {}

    def folder(self, machines: Sequence[Machine]) -> Path:
        """Return where on this machine a cluster is noted."""
        return records_of().folder(machines[0].token)

    def _running(self, machines: Sequence[Machine], say: Say) -> list[Machine]:
        ids, begun = [machine.id for machine in machines], time.monotonic()
        wait = 0.1
        while True:
            found = {machine.id: machine for machine in self._ask_states(ids)}
            for machine in found.values():
                if machine.state == "ended":
                    raise self._never_up(machine, machine.reason or "it ended as it started")
            if len(found) == len(ids) and all(
                machine.state == "running" and machine.address for machine in found.values()
            ):
                up = [replace(found[old.id], token=old.token, rank=old.rank) for old in machines]
                self._note(up[0].token, machines=[asdict(machine) for machine in up])
                return up
            if time.monotonic() - begun > UP_SECONDS:
                late = next((m for m in machines if m.id not in found), machines[0])
                raise self._never_up(late, f"it is not running after {UP_SECONDS:g} s")
            until = time.monotonic() + wait
            while time.monotonic() < until:
                say("machine starting")
                time.sleep(min(0.1, wait))
            wait = min(wait * 1.3, 3.0)

    def _answered(
        self,
        machine: Machine,
        node: Node,
        note: dict[str, Any],
        host_key: str,
        ended: threading.Event,
    ) -> Node:
        """Take a slot as soon as there is an answer by SSH, a while after the machine runs."""
        begun = time.monotonic()
        while not ended.is_set():
            try:
                return keeper.take(node, note, host_key)
            except SkyUnreachable as error:
                passed = time.monotonic() - begun
                if passed > UP_SECONDS or ("another host key" in error.message and passed > 60):
                    raise self._never_up(machine, error.message) from None
            for seen in self._ask_states([machine.id]):
                if seen.state == "ended":
                    raise self._never_up(seen, seen.reason or "it ended as it started")
            ended.wait(0.2)
        raise SkyCancelled(f"{machine.id} is no longer waited for")

    def _ask_states(self, ids: Sequence[str]) -> list[Machine]:
        return self.ask(lambda: self.driver.describe(ids))

    def _never_up(self, machine: Machine, why: str) -> SkyClusterLost:
        last = ""
        with suppress(Exception):  # it is only to explain
            lines = self.driver.console(machine.id).strip().splitlines()[-8:]
            last = "".join(f"\n    {line}" for line in lines)
        error = SkyClusterLost(f"{machine.id} on {self.name} did not come up: {why}{last}")
        return error

    def _note(self, token: str, **values: Any) -> None:
        records = records_of()
        records.write(token, records.read(token) | values)

    # -- afterwards --------------------------------------------------------------------------

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are; of those that cannot be asked about, that they run."""
        try:
            found = self._ask_states(ids)
        except SkyError as error:
            noted = _noted(self.name, ids)
            return [
                replace(noted[name][0], state="running", reason=error.message)
                for name in ids
                if name in noted
            ]
        return self._as_noted(ids, found)

    def _as_noted(self, ids: Sequence[str], found: Sequence[Machine]) -> list[Machine]:
        """Complete what the cloud says of machines by what is noted of them here."""
        noted, seen_now = _noted(self.name, ids), {machine.id: machine for machine in found}
        now, answers = time.time(), list[Machine]()
        for name in ids:
            old, was_there = noted.get(name, (None, False))
            if seen := seen_now.get(name):
                answers.append(_completed(seen, old))
            elif old is not None:
                ended = was_there or old.state == "ended"
                new = not ended and now - old.started < NEW_SECONDS
                why = "" if new else "the cloud no longer knows it"
                answers.append(replace(old, state="starting" if new else "ended", reason=why))
        return answers

    def terminate(self, ids: Sequence[str]) -> None:
        """End machines, with what cells there have printed brought home before; see them gone."""
        records = records_of()
        mine = {token: record for token, record in records.unfinished() if _has(record, ids)}
        missing: dict[str, str] = {}
        try:
            missing = _bring_home(mine, self._ended_of(ids))
        finally:  # whatever is in the way of a log, an interrupt too, the machine is ended
            self._end_or_tell(ids, mine)
        for token, record in mine.items():
            if all(machine["id"] in ids for machine in record["machines"]):
                end = {"time": time.time(), "reason": "stopped", "missing": missing.get(token, "")}
                records.close(token, end)
        with suppress(SkyError):  # what cannot be deleted yet, the reaper does
            self.leftovers({record["region"] for record in mine.values()})

    def _ended_of(self, ids: Sequence[str]) -> set[str]:
        """Return which machines have ended already, by one request that may be in vain."""
        try:
            found = self._as_noted(ids, self.driver.describe(ids))
        except Exception:  # of any SDK: the request that ends them says why
            return set()
        return {machine.id for machine in found if machine.state == "ended"}

    def mine(self, everywhere: bool = False) -> list[Machine]:
        """List machines of this user of this installation that have not ended.

        Parameters
        ----------
        everywhere
            Ask in all regions, not only where something was launched lately.
        """
        noted = {
            record["region"]
            for _, record in records_of().unfinished()
            if record["cloud"] == self.name
        }
        if not noted and not (everywhere and self.usable()):
            return []
        if not self.usable():
            raise SkyPermission(
                f"{self.name}: machines may be up in {', '.join(sorted(noted))}, and there are no "
                "credentials to ask with",
                hint=self.driver.login,
            )
        owner = identity(Path(Sky.load().data_dir))
        regions: Collection[str] | None = None if everywhere else noted
        return self.ask(lambda: self.driver.machines(owner=owner, regions=regions))

    def leftovers(self, regions: Collection[str] | None = None) -> list[str]:
        """Delete what no machine uses any more, in some regions or all; say what."""
        if not self.usable() or (regions is not None and not regions):
            return []
        owner = identity(Path(Sky.load().data_dir))
        return self.ask(lambda: self.driver.leftovers(owner, regions))

    def settle(self) -> None:
        """Close the notes of orders that have no machine any more, once the cloud has said so."""
        alive, regions = {machine.token for machine in self.mine()}, set[str]()
        for token, record in list(records_of().unfinished()):
            if record["cloud"] == self.name and token not in alive and not is_launching(record):
                records_of().close(token, {"time": time.time(), "reason": "it has ended"})
                regions.add(record["region"])
        self.leftovers(regions)

    def _end_or_tell(self, ids: Sequence[str], orders: dict[str, dict[str, Any]]) -> None:
        """End machines; where the cloud does not let us any more, let them end themselves.

        Raises
        ------
        SkyError
            Their end is not confirmed; says what becomes of them.
        """
        try:
            self._end(ids)
        except SkyError as error:
            nodes = [Node.load(node) for each in orders.values() for node in each.get("nodes", ())]
            told = keeper.end_machines([node for node in nodes if node.host in ids])
            ends = max((each.get("lease_end", 0.0) for each in orders.values()), default=0.0)
            said = f"{error.message.rstrip('.')}. {_meanwhile(ids, told, ends)}"
            error.message, error.args = said, (said,)
            again = "once the cloud can be asked again, %sky reap confirms it"
            error.hint = f"{error.hint}\n{again}" if error.hint else again
            raise

    def _end(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines until the cloud says that they have ended."""
        begun, wait, left = time.monotonic(), 0.1, list(ids)
        if left:
            self.ask(lambda: self.driver.remove(left))
        while left:
            alive = {m.id for m in self._ask_states(left) if m.state != "ended"}
            left = [name for name in left if name in alive]
            if left and time.monotonic() - begun > GONE_SECONDS:
                raise SkyUnreachable(
                    f"{', '.join(left)} on {self.name} did not end within {GONE_SECONDS:g} s",
                    hint="look again with %sky reap, or end it in the cloud's own console",
                )
            if left:
                time.sleep(wait)
                wait = min(wait * 1.5, 3.0)


def records_of() -> Records:
    """Return the notes of what was launched on clouds that rent machines."""
    return Records(Path(Sky.load().data_dir) / "machines")


def _meanwhile(ids: Sequence[str], told: Sequence[str], ends: float) -> str:
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


def _is_over(token: str) -> bool:
    """Whether the machines of an order have ended."""
    record = records_of().read(token)
    return not record or "ended" in record


def _bring_home(orders: dict[str, dict[str, Any]], ended: Collection[str]) -> dict[str, str]:
    """Bring home the journals of orders, side by side; return in words what of each is missing.

    Machines that have `ended` are not asked: they would not answer for a long time.
    """
    records = records_of()

    def one(token: str, record: dict[str, Any]) -> str:
        try:
            nodes = [Node.load(node) for node in record.get("nodes", ())[:1]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return "its log: the note of its machine is damaged"
        into, gone = records.folder(token) / "journal", any(node.host in ended for node in nodes)
        return journals.bring_home(nodes, into, gone)

    said = at_once([partial(one, *order) for order in orders.items()])
    return dict(zip(orders, said, strict=True))


def _noted(cloud: str, ids: Collection[str]) -> dict[str, tuple[Machine, bool]]:
    """Return each machine that is noted, with whether it has answered once, or its end is known."""
    return {
        machine["id"]: (Machine(**machine), bool(record.get("nodes") or "ended" in record))
        for record in records_of().naming(ids)
        if record.get("cloud") == cloud
        for machine in record["machines"]
    }


def _completed(seen: Machine, old: Machine | None) -> Machine:
    """What the cloud says of a machine; what it no longer knows is taken from our note."""
    if old is None:
        return seen
    known = ("cluster", "token", "owner", "started", "lease_end", "address", "private")
    return replace(
        seen, rank=old.rank, **{name: getattr(seen, name) or getattr(old, name) for name in known}
    )


def _has(record: dict[str, Any], ids: Collection[str]) -> bool:
    return any(machine["id"] in ids for machine in record["machines"])
