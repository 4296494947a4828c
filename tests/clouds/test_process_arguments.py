"""Secrets of a list of machines are in no process's arguments, where any user could read them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from jupyter_sky.base.remote import ssh
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest, get
from jupyter_sky.clouds.launches import ssh_slot
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.machines.provisioner import bootstrap, ssh_launch
from tests.conftest import wait_until
from tests.emulators.hosts import USABLE, SshHost

SECRET = "s3cr3t-7c1f9be2"
AWKWARD = 'it\'s \\n \\0101 "quoted" $HOME `id` %s %b \u00e9\u0081\u2028 \n\ttwo lines\r'

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def host() -> Iterator[SshHost]:
    made = SshHost(58)
    yield made
    made.close()


@pytest.fixture
def address(host: SshHost, tmp_path: Path) -> ssh.Address:
    user = host.address.partition("@")[0]
    known = tmp_path / "known_hosts"
    return ssh.Address(user, host.ip, host.port, str(host.key), str(known), pinned=False)


class Watch:
    """Collects the arguments of all processes of this machine until it is stopped."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.is_set():
            for pid in psutil.pids():
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                self.seen.add(words.replace(b"\0", b" ").decode(errors="replace"))

    def stop(self) -> set[str]:
        self._ended.set()
        self._thread.join()
        return self.seen


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.stop()


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_scripts_arguments_and_data_arrive_as_they_are(
    address: ssh.Address, tmp_path: Path, kind: str
) -> None:
    data = AWKWARD.encode() * 20_000
    given: bytes | Path = data
    if kind == "file":
        given = tmp_path / "data"
        given.write_bytes(data)
    script = f'# {AWKWARD!r}\nprintf \'%s|%s|%s\\n\' "$0" $# "$1"\ncat; exit 3'
    answer = ssh.run(address, script, AWKWARD, "", "-n", data=given)
    assert answer.code == 3
    assert answer.out == f"sky|3|{AWKWARD}\n".encode() + data


def test_no_argument_holds_a_secret_while_a_command_runs(
    address: ssh.Address, host: SshHost, tmp_path: Path, watch: Watch
) -> None:
    begun = tmp_path / "begun"
    node = Slot(0, "t.0", "box", address, env={"WANDB_API_KEY": SECRET})
    script = f"{node.exports()}touch {begun}; sleep 1; printenv WANDB_API_KEY; exit"
    assert ssh.run(address, script, SECRET).text.strip() == SECRET, "it is in the environment"
    seen = watch.stop()
    assert any("sleep 1" in words for words in seen), "the command was seen"
    assert not [words for words in seen if SECRET in words]


def test_no_argument_holds_a_secret_while_a_cluster_begins(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    (tmp_path / "hosts.toml").write_text(host.toml("box", env={"WANDB_API_KEY": SECRET}))
    cloud = get("ssh")
    offer = cloud.offers(Resources())[0]
    machines = cloud.launch(LaunchRequest("t", "train", offer, Resources(), 60.0, "me", "a.ipynb"))
    (node,) = cloud.await_slots(machines)
    order = ssh_launch._start_command(
        node, "jupyter_sky.machines.engines.controller", {"cluster": "train"}
    )
    bootstrap.prepare([replace(node, ready=True)], lambda what: None, {0: order})
    wait_until(lambda: not host.taken())  # no environment is there: it has ended at once
    ssh_slot.release_slots([node])
    seen = watch.stop()
    assert any("slot-agent" in words for words in seen)
    assert not [words for words in seen if SECRET in words]
    Sky.clear_instance()
