"""Conformance checks of a cloud's provider.

Run them with pytest; see `jupyter_sky.testing`. Each check is numbered as in
``jupyter_sky/clouds/README.md``.
"""

from __future__ import annotations

import inspect
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.clouds.cloud_facts import API_VERSION
from jupyter_sky.base.clouds.register import is_known
from jupyter_sky.base.errors import SkyCancelled, SkyError
from jupyter_sky.base.lazy_names import load_class
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches import cloud_init
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.provider import LaunchRequest, Machine, MachineConfig, Provider
from jupyter_sky.clouds.provider.values import ErrorCause
from jupyter_sky.clouds.testing.world import OPERATIONS, Operation, World

STOP_SECONDS = 2.0
CAUSES: tuple[ErrorCause, ...] = ("capacity", "quota", "permission", "invalid", "throttled")
MANY = 100


@pytest.fixture(scope="session")
def provider_path(pytestconfig: pytest.Config) -> str:
    """Return the value of ``--provider``."""
    path = pytestconfig.getoption("--provider", None)
    if not path:
        pytest.fail("name the provider: --provider package.module:Class", pytrace=False)
    return path


@pytest.fixture(scope="session")
def world(pytestconfig: pytest.Config) -> Iterator[World]:
    """Yield the account of all checks, with its environment set."""
    path = pytestconfig.getoption("--world", None)
    if not path:
        pytest.fail("name the account: --world package.module:Class", pytrace=False)
    world = load_class(path)()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment().items():
            patch.setenv(name, value)
        yield world
        world.close()


@pytest.fixture
def account(
    provider_path: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Account]:
    """Yield the account with an empty data directory; nothing is left in it afterwards."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    account = Account(load_class(provider_path)(), world, tmp_path)
    yield account
    world.reset()
    account.close()
    Sky.clear_instance()


# -- facts --------------------------------------------------------------------------------------


def test_01_facts_are_complete_and_read_without_the_sdk(provider_path: str) -> None:
    """Read the facts of the class in another process, whose imports are looked at."""
    module = provider_path.partition(":")[0]
    code = (
        "import sys\n"
        "import jupyter_sky.clouds.launches.launcher\n"  # what drives it is there before
        f"before = set(sys.modules); import {module}\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True,
        capture_output=True,
        text=True,
    )
    own = {module.partition(".")[0], "jupyter_sky"}
    heavy = set(done.stdout.split()) - own - sys.stdlib_module_names
    assert not heavy, f"imported with the class, not where they are used: {sorted(heavy)}"
    facts: type[Provider] = load_class(provider_path)
    step, minimum = facts.billing
    assert issubclass(facts, Provider) and not inspect.isabstract(facts)
    assert facts.api_version == API_VERSION and facts.launchable
    assert facts.name == facts.name.lower() and facts.title and facts.colour.startswith("#")
    assert facts.on_premises or (step > 0 and minimum >= 0 and facts.login)
    assert not facts.packages or facts.install, "the command that installs the SDK is missing"


def test_02_credentials_are_found_without_the_network(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Find credentials offline; a refused request says how to get others."""

    def connect(*__: object) -> None:
        pytest.fail("`configured` uses the network")

    with monkeypatch.context() as patch:
        patch.setattr("socket.socket.connect", connect)
        assert account.provider.configured()
    checked = account.managed.check()
    assert checked.usable, checked
    assert account.provider.identify()
    account.world.refuse("permission")
    with pytest.raises(Exception) as refused:
        account.launch(account.request())
    trouble = account.provider.explain(refused.value)
    assert trouble is not None and trouble.cause == "permission" and trouble.fix, trouble


def test_03_offers_can_be_planned_with(account: Account) -> None:
    """List offers with prices, places and accelerators by the names of the catalog."""
    offers = list(account.provider.offers())
    assert offers
    for offer in offers:
        assert offer.cloud == account.provider.name and offer.region and offer.instance_type
        assert offer.vcpus >= 0 and offer.memory >= 0, offer  # 0 where not known
        assert offer.price is None or offer.price > 0 or account.provider.on_premises, offer
        assert not offer.gpu or accelerators.canonical(offer.gpu) == offer.gpu, offer
        assert offer.gpu or not offer.gpu_count, offer
    assert any(o.vcpus and o.memory and o.price is not None for o in offers), "none can be planned"


# -- launches -----------------------------------------------------------------------------------


def test_04_machine_comes_up_with_its_key_and_marks(account: Account) -> None:
    """Launch a machine, reach it with the key that was made for it, and read its tags back."""
    request = account.request()
    machines = account.managed.launch(request)
    (listed,) = account.provider.machines(token=request.token)
    assert (listed.id, listed.owner, listed.cluster) == (
        machines[0].id,
        request.owner,
        request.cluster,
    )
    assert listed.token == request.token and listed.cloud == account.provider.name
    assert listed.lease_end is None or abs(listed.lease_end - time.time() - 3600) < 120
    (slot,) = account.connect(machines)
    assert slot.address.pinned
    assert ssh.run(slot.address, "echo up").text == "up\n"
    account.managed.terminate([listed.id])
    account.costs_nothing()


def test_05_all_machines_come_or_none(account: Account) -> None:
    """Launch three machines; then three of which the second is refused."""
    machines = account.launch(account.request(nodes=3))
    assert sorted(machine.rank for machine in machines) == [0, 1, 2]
    account.costs_exactly(machines)
    account.provider.terminate([machine.id for machine in machines])
    account.costs_nothing()
    account.world.refuse("capacity", after=1)
    with pytest.raises(SkyError):
        account.managed.launch(account.request(nodes=3))
    account.costs_nothing()


def test_06_same_request_gives_the_same_machines(account: Account) -> None:
    """Send one request twice in turn, and another one twice at once."""
    request = account.request(nodes=2)
    first, second = account.launch(request), account.launch(request)
    assert {machine.id for machine in first} == {machine.id for machine in second}
    account.costs_exactly(first)
    account.provider.terminate([machine.id for machine in first])
    account.costs_nothing()

    request, answers = account.request(nodes=2), list[list[Machine]]()

    def send() -> None:
        with suppress(Exception):  # one of the two may be refused: it is sent again
            answers.append(account.launch(request))

    account.config(request)
    threads = [threading.Thread(target=send) for __ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.append(account.launch(request))
    assert len({frozenset(machine.id for machine in answer) for answer in answers}) == 1
    account.costs_exactly(answers[-1])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_07_lost_answer_makes_nothing_twice(account: Account, operation: Operation) -> None:
    """Lose the answer to each request of a launch and its end in turn."""
    if operation == "launch":
        account.world.lose_answer(operation)
    machines = account.managed.launch(account.request(nodes=2))
    account.costs_exactly(machines)
    if operation != "launch":
        account.world.lose_answer(operation)
    assert {m.id for m in account.managed.list_mine()} == {m.id for m in machines}
    account.managed.terminate([machine.id for machine in machines])
    account.costs_nothing()


def test_08_launch_is_given_up_at_once(account: Account) -> None:
    """Give up a launch whose request takes long; what it makes later is removed."""
    account.world.delay("launch", 4.0)
    begun = time.monotonic()

    def give_up() -> None:
        if time.monotonic() - begun > 0.5:
            raise SkyCancelled(_("the check has given up"))

    with pytest.raises(SkyCancelled):
        account.managed.launch(account.request(nodes=2), give_up)
    assert time.monotonic() - begun < 0.5 + STOP_SECONDS
    time.sleep(max(0.0, begun + 5.0 - time.monotonic()))
    account.costs_nothing()


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", CAUSES)
def test_09_refusal_is_classified(account: Account, cause: ErrorCause) -> None:
    """Refuse a launch for each cause; say what was meant, in the cloud's words."""
    account.world.refuse(cause)
    with pytest.raises(Exception) as refused:
        account.launch(account.request())
    trouble = account.provider.explain(refused.value)
    assert trouble is not None, f"not classified: {refused.value!r}"
    assert trouble.cause == cause and trouble.message and trouble.code, trouble
    assert account.provider.explain(KeyError("of another library")) is None
    account.costs_nothing()


def test_10_throttled_request_is_sent_again(account: Account) -> None:
    """Throttle a launch twice."""
    account.world.refuse("throttled", times=2)
    account.costs_exactly(account.managed.launch(account.request()))


def test_11_listing_may_lag_behind_launches(account: Account) -> None:
    """Hide a new machine from listings; it counts as starting, not as ended."""
    account.world.hide_new(2.0)
    machines = account.managed.launch(account.request())
    (seen,) = account.managed.describe([machines[0].id])
    assert seen.state != "ended"
    wait_until(lambda: bool(account.provider.machines(token=machines[0].token)))


# -- ends ---------------------------------------------------------------------------------------


def test_12_ending_machines_tolerates_unknown_ids(account: Account) -> None:
    """End machines twice, and with an ID among them that the cloud does not know."""
    machines = account.launch(account.request(nodes=2))
    ids = [machine.id for machine in machines]
    unknown = ids[0][:-4] + ("0000" if ids[0][-4:] != "0000" else "1111")
    account.provider.terminate([unknown])
    account.provider.terminate([ids[0], unknown, ids[1]])
    account.costs_nothing()
    account.provider.terminate(ids)
    assert account.provider.machines(token=machines[0].token) == []


def test_13_stopped_machine_is_listed_and_ended(account: Account) -> None:
    """Power a machine off from within; as long as it costs it is listed."""
    machines = account.managed.launch(account.request())
    (id,) = (machine.id for machine in machines)
    wait_until(lambda: account.managed.describe([id])[0].state == "running")
    account.world.stop(id)

    def listed() -> set[str]:
        return {machine.id for machine in account.provider.machines(owner=account.owner)}

    wait_until(lambda: listed() == account.world.bill())  # what costs is listed, also when off
    account.managed.terminate([id])
    account.costs_nothing()
    assert account.managed.describe([id])[0].state == "ended"


def test_13_preempted_machine_is_told_and_ended(account: Account) -> None:
    """Take a machine back, as clouds do with spot machines."""
    machines = account.managed.launch(account.request(spot=True))
    (id,) = (machine.id for machine in machines)
    wait_until(lambda: account.managed.describe([id])[0].state == "running")
    account.world.take_back(id)
    wait_until(lambda: all(m.state == "ended" for m in account.provider.describe([id])))
    account.managed.terminate([id])
    account.costs_nothing()


def test_14_machines_of_others_are_left_alone(account: Account) -> None:
    """Launch as another owner; neither lists nor sweeps of ours touch it."""
    account.world.require("owners")
    others = account.launch(account.request(owner="eve-5678abcd"))
    assert account.provider.machines(owner=account.owner) == []
    assert account.managed.list_mine(everywhere=True) == []
    account.sweep()
    account.costs_exactly(others)


def test_15_sweep_leaves_machines_that_are_up(account: Account) -> None:
    """Sweep an account with a young machine in it."""
    machines = account.managed.launch(account.request())
    account.sweep({machines[0].token})
    account.costs_exactly(machines)
    account.connect(machines)
    account.sweep({machines[0].token})
    assert account.managed.describe([machines[0].id])[0].state == "running"
    account.managed.terminate([machines[0].id])
    account.sweep()
    account.costs_nothing()


def test_16_machine_ends_with_its_lease(account: Account) -> None:
    """Launch with a lease of some seconds, after which the machine powers itself off."""
    account.world.require("leases")
    machines = account.managed.launch(account.request(lease=8.0))
    (id,) = (machine.id for machine in machines)

    def is_up() -> bool:
        return account.managed.describe([id])[0].state == "running"

    wait_until(is_up)
    wait_until(lambda: not is_up(), account.world.boot_seconds)
    account.managed.terminate([id])
    account.costs_nothing()


# -- the account --------------------------------------------------------------------------------


def test_17_secrets_are_written_nowhere(
    account: Account, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Look for the account's secrets in all that a launch writes, says and sends."""
    secrets = account.world.secrets()
    if not secrets:
        pytest.skip("the account has no secrets")
    caplog.set_level(0)
    request = account.request()
    config = account.config(request)
    machines = account.managed.launch(request)
    account.world.refuse("invalid")
    with pytest.raises(SkyError) as refused:
        account.managed.launch(account.request())
    said = capfd.readouterr()
    texts = {
        "the initial configuration": config.user_data + config.script + str(dict(config.tags)),
        "an error": str(refused.value),
        "the provider": repr(account.provider),
        "machines": repr(machines),
        "what was printed": said.out + said.err,
        "the log": caplog.text,
    }
    files = [path for path in account.folder.rglob("*") if path.is_file()]
    texts |= {f"the file {path.name}": path.read_text(errors="replace") for path in files}
    found = [where for where, text in texts.items() for secret in secrets if secret in text]
    assert not found, f"secrets are in {', '.join(found)}"


def test_18_long_lists_are_read_to_their_end(account: Account) -> None:
    """List and end as many machines as no cloud returns in one page."""
    ids = account.world.fill(MANY, account.owner)
    assert {machine.id for machine in account.provider.machines(owner=account.owner)} == ids
    account.provider.terminate(sorted(ids))
    account.costs_nothing()


def test_19_another_process_finds_and_reaches_machines(
    account: Account, provider_path: str
) -> None:
    """Let another process of the same user list a machine and run a command on it."""
    machines = account.managed.launch(account.request())
    account.connect(machines)
    code = (
        "import pathlib, sys\n"
        "from jupyter_sky.base.remote import ssh\n"
        "from jupyter_sky.base.lazy_names import load_class as load\n"
        "from jupyter_sky.clouds.testing.provider import Account\n"
        "account = Account(load(sys.argv[1])(), load(sys.argv[2]), pathlib.Path(sys.argv[3]))\n"
        "(machine,) = account.managed.list_mine()\n"
        "(slot,) = account.managed.recorded_slots([machine])\n"
        "print(machine.id, ssh.run(slot.address, 'echo up').text)"
    )
    world = type(account.world)
    words = [provider_path, f"{world.__module__}:{world.__qualname__}", str(account.folder)]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [machines[0].id, "up"], done.stderr
    account.managed.terminate([machines[0].id])


def test_20_cell_runs_on_the_cloud(account: Account) -> None:
    """Run a cell with ``%%sky --cloud NAME`` in a kernel of its own, and end its cluster."""
    from jupyter_client.manager import start_new_kernel

    account.world.require("cells")
    name = account.provider.name
    assert is_known(name), f"no entry point of the group jupyter_sky.providers is named {name}"
    paths = os.pathsep.join(path for path in sys.path if path)
    printed: list[str] = []

    def collect(message: dict[str, dict[str, str]]) -> None:
        content = message["content"]
        printed.append(content.get("text", "") + "\n".join(content.get("traceback", ())))

    manager, client = start_new_kernel(env=os.environ | {"PYTHONPATH": paths})
    try:
        for cell in (
            "%load_ext jupyter_sky",
            f"%%sky --cloud {name}\nprint('the answer is', 6 * 7)",
            "%sky down --all",
        ):
            client.execute_interactive(cell, timeout=180, output_hook=collect)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert "the answer is 42" in "".join(printed), "".join(printed)
    account.costs_nothing()


# -- Account under test: launches and their expected ends, for the checks of `provider` -----------


def wait_until(holds: Callable[[], bool], seconds: float = World.settle_seconds) -> None:
    """Wait for a condition; fail when it does not come about in time."""
    last = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < last, f"not within {seconds:g} s"
        time.sleep(0.05)


@dataclass
class Account:
    """Provider and world under test, with a data directory of one check.

    Attributes
    ----------
    managed : Launcher
        The provider as jupyter_sky drives it: with records, retries and confirmed ends. Machines of
        one's own have a manager of their own kind.
    """

    provider: Provider
    world: World
    folder: Path
    managed: Launcher = field(init=False)
    _configs: dict[str, MachineConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self._is_wrapped:
            self.managed = clouds.get_launcher(self.provider.name)
        else:
            self.managed = Launcher(self.provider)

    @property
    def _is_wrapped(self) -> bool:
        """Whether the provider under test stands for a cloud that has none."""
        return self.provider.name in clouds.ON_PREMISES

    @property
    def owner(self) -> str:
        """Owner that the data directory's launches carry."""
        return installation_id(self.folder)

    def request(
        self, nodes: int = 1, owner: str = "", lease: float = 3600.0, spot: bool = False
    ) -> LaunchRequest:
        """Return a new launch request."""
        return LaunchRequest(
            token=f"check-{secrets.token_hex(4)}",
            cluster="check",
            offer=self.world.offer(self.provider, spot),
            resources=Resources(nodes=nodes),
            idle=600.0,
            owner=owner or self.owner,
            notebook="check.ipynb",
            lease=lease,
        )

    def config(self, request: LaunchRequest) -> MachineConfig:
        """Return the initial configuration of a request's machines, the same again for the same."""
        if request.token in self._configs:
            return self._configs[request.token]
        folder = self.folder / "configs" / request.token
        folder.mkdir(parents=True, exist_ok=True)
        ending = self.provider.self_delete_script(request)
        config = self._configs[request.token] = cloud_init.create_machine_config(
            request, folder, ending, time.time(), self.provider.power_off
        )
        return config

    def launch(self, request: LaunchRequest) -> list[Machine]:
        """Launch by one call of the provider, without retries and records."""
        return self.provider.launch(request, self.config(request), Event())

    def sweep(self, alive: Collection[str] = ()) -> None:
        """Delete what belongs to no machine, by the provider and as jupyter_sky asks for it."""
        self.provider.sweep(self.owner, alive)
        if not self._is_wrapped:
            self.managed.delete_unused_resources()

    def close(self) -> None:
        """Let what waits for machines that have ended give up."""
        if not self._is_wrapped:
            with suppress(SkyError):
                self.managed.close_ended_records()

    def connect(self, machines: list[Machine]) -> list[Slot]:
        """Wait until machines of a managed launch answer by SSH."""
        self.world.require("ssh")
        return self.managed.await_slots(machines)

    def costs_exactly(self, machines: list[Machine]) -> None:
        """Wait until nothing costs but some machines."""
        ids = {machine.id for machine in machines}
        wait_until(lambda: self.world.bill() == ids, self.world.settle_seconds)

    def costs_nothing(self) -> None:
        """Wait until nothing costs any more."""
        self.costs_exactly([])
