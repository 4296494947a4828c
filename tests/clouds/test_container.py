"""Containers on this machine: those of the image that was asked for, and what is said without."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoOffer, SkyPermission
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import container, launchers
from jupyter_sky.clouds import container as container_program
from jupyter_sky.clouds.container import Container, ContainerProgram
from jupyter_sky.clouds.launches.machine_slices import slice_sizes
from jupyter_sky.clouds.local import machine_size
from jupyter_sky.clouds.provider import ProviderError
from jupyter_sky.clouds.testing.provider import Account, wait_until
from jupyter_sky.machines.provisioner.placement import decide_placement, usable_providers
from jupyter_sky.machines.provisioner.preview import preview_plan
from tests.clouds.container_world import REFUSALS, ContainerWorld
from tests.emulators import podman

DOCKER_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker "


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without settings and known offers."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(launchers, "_live_offers", {})
    Sky.clear_instance()
    yield
    Sky.clear_instance()


@pytest.fixture(scope="module")
def world() -> Iterator[ContainerWorld]:
    made = ContainerWorld()
    yield made
    made.close()


@pytest.fixture
def account(
    world: ContainerWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Account]:
    """Yield real podman, with no container."""
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    Sky.clear_instance()
    yield Account(Container(), world, tmp_path)
    world.reset()


def _programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Let a folder be all that there is of programs."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


# -- without a program --------------------------------------------------------------------------


def test_missing_program_is_told_with_the_command_that_installs_it(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch)
    found = clouds.check("container")
    assert (
        not found.usable
        and found.found == "podman is not installed, nor Docker with a running daemon"
    )
    assert "apt-get install -y podman" in found.fix
    with pytest.raises(SkyPermission, match="podman is not installed, nor Docker"):
        decide_placement(Resources.parse(cloud="container"))
    with pytest.raises(ProviderError) as missing:
        list(Container().offers())
    trouble = Container().explain(missing.value)
    assert trouble is not None and trouble.cause == "permission" and "podman" in trouble.fix


def test_program_that_is_named_and_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("SKY_PROVIDERS", repr({"container": {"program": "nerdctl"}}))
    with pytest.raises(ProviderError, match="nerdctl: there is no such program"):
        list(Container().offers())


def test_docker_without_daemon_is_not_taken_by_itself(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch, docker=f"echo '{DOCKER_DOWN}' >&2; exit 1")
    monkeypatch.setattr(container_program, "_SOCKETS", (str(tmp_path / "docker.sock"),))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    assert ContainerProgram().path == ""
    monkeypatch.setenv("DOCKER_HOST", "unix:///gone")
    assert ContainerProgram().path == str(tmp_path / "docker")
    found = clouds.check("container")
    assert not found.usable and "Cannot connect to the Docker daemon" in found.found
    assert "systemctl start docker" in found.fix
    _programs(tmp_path, monkeypatch, podman="exit 0")
    assert ContainerProgram().path == str(tmp_path / "podman")


@pytest.mark.parametrize(
    ("said", "cause", "fix"),
    [
        *((text, cause, "") for cause, text in REFUSALS.items()),
        (REFUSALS["permission"], "permission", "usermod -aG docker"),
        (DOCKER_DOWN, "permission", "systemctl start docker"),
        ("OCI runtime error: crun: cgroups in hybrid mode not supported", "permission", "runc"),
        ("unable to retrieve auth token: unauthorized: access to x denied", "permission", "login"),
        (
            "pull access denied for x, repository does not exist or may require",
            "invalid",
            "--image",
        ),
        ('exec: "sh": executable file not found in $PATH', "invalid", "--image"),
        ("pinging container registry: dial tcp: i/o timeout", "transient", ""),
        ("unknown flag: --nonsense", "invalid", ""),
    ],
)
def test_words_of_both_programs_are_understood(said, cause, fix):
    trouble = Container.explain_refusal(ProviderError(said, code=container_program.REFUSED))
    assert trouble.cause == cause and fix in trouble.fix


def test_description_by_docker_is_read(tmp_path, monkeypatch):
    """Docker writes a slash before names, and addresses by network."""
    state = {"Status": "exited", "ExitCode": 137, "OOMKilled": True}
    labels = {"jupyter-sky-token": "t-1", "jupyter-sky-rank": "1", "jupyter-sky-owner": "ada"}
    network = {"IPAddress": "", "Networks": {"jupyter-sky": {"IPAddress": "172.18.0.3"}}}
    told = {
        "Name": "/sky-t-1-1",
        "State": state,
        "Config": {"Labels": labels},
        "HostConfig": {"NetworkMode": "jupyter-sky"},
        "NetworkSettings": network,
    }
    script = f"[ $1 = ps ] && echo abc || echo '{json.dumps([told])}'"
    _programs(tmp_path, monkeypatch, docker=script)
    monkeypatch.setenv("DOCKER_HOST", "unix:///x")
    (machine,) = Container().describe(["sky-t-1-1"])
    assert (machine.state, machine.rank, machine.private) == ("ended", 1, "172.18.0.3")
    assert machine.reason == "it needed more memory than it has"
    assert machine.through[1:] == ("exec", "-i", "sky-t-1-1", "/usr/local/sbin/jupyter-sky-sshd")


def test_options_of_a_start_fit_the_program(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch, docker="", podman="", runc="")
    limits = {"nofile": 1024, "nproc": 1 << 20}
    monkeypatch.setattr(container_program, "_hard_limits", lambda: limits)
    assert ContainerProgram("docker").start_options([1, 2], 60) == ['--gpus="device=1,2"']
    options = ContainerProgram("podman").start_options([1, 2], 60)
    assert options[:3] == ["--timeout=60", "--device=nvidia.com/gpu=1", "--device=nvidia.com/gpu=2"]
    assert "--ulimit=nofile=1024:1024" in options and "nproc" not in " ".join(options)


def test_gpus_of_this_machine_are_offered(tmp_path, monkeypatch):
    lines = "NVIDIA L4, 23034\\nNVIDIA L4, 23034"
    _programs(tmp_path, monkeypatch, podman="", **{"nvidia-smi": f"printf '{lines}\\n'"})
    assert container.read_gpus() == [("L4", 24.0)] * 2
    with_gpu = [o for o in Container().offers() if o.gpu]
    assert {(o.gpu, o.gpu_count) for o in with_gpu} == {("L4", 1), ("L4", 2)}


def test_gpu_without_memory_of_its_own_is_named(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch, **{"nvidia-smi": "echo 'NVIDIA GB10, [N/A]'"})
    assert container.read_gpus() == [("GB10", 0.0)]


def test_no_gpu_is_given_to_two_containers(tmp_path, monkeypatch):
    labels = {"jupyter-sky-memory": "1", "jupyter-sky-gpus": "0 2"}
    told = json.dumps([{"Config": {"Labels": labels}}])
    gpus = "for gpu in 1 2 3 4; do echo 'NVIDIA L4, 23034'; done"
    podman = f"[ $1 = ps ] && echo abc || echo '{told}'"
    _programs(tmp_path, monkeypatch, podman=podman, **{"nvidia-smi": gpus})
    offer = Offer("container", "this-machine", "1cpu-1gib-1x-L4", 1, 1, gpu="L4", gpu_count=1)
    assert Container()._find_room(offer) == [1]
    assert Container()._find_room(replace(offer, gpu_count=2)) == [1, 3]
    with pytest.raises(ProviderError, match="containers have 2 of 4") as refused:
        Container()._find_room(replace(offer, gpu_count=3))
    assert Container.explain_refusal(refused.value).cause == "capacity"


def test_command_that_hangs_is_given_up(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch, podman="exec /bin/sleep 60")
    monkeypatch.setattr(container_program, "COMMAND_SECONDS", 0.1)
    with pytest.raises(ProviderError, match=r"ps was not done after 0\.1 s") as late:
        Container().identify()
    assert Container.explain_refusal(late.value).cause == "transient"


# -- offers -------------------------------------------------------------------------------------


def test_slices_are_offered_only_where_containers_are_named(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch, podman="")
    cpus, memory = machine_size()
    offers = list(Container().offers())
    assert [(o.vcpus, o.memory) for o in offers] == slice_sizes(cpus, memory)
    assert {o.price for o in offers} == {0.0}
    assert "container" not in usable_providers(Resources())
    need = Resources.parse(cloud="container", cpus="1", memory="4", image="python:3.12")
    assert decide_placement(need).offer.instance_type == "1cpu-4gib"
    with pytest.raises(SkyNoOffer):
        decide_placement(Resources.parse(cloud="container", spot=True))


def test_request_that_this_machine_cannot_meet_says_what_it_has(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch, podman="")
    cpus = machine_size()[0]
    with pytest.raises(SkyNoOffer, match=f"has {cpus} .container this-machine {cpus}cpu"):
        preview_plan(Resources.parse(cloud="container", cpus=str(cpus + 1)))
    with pytest.raises(SkyNoOffer) as refused:
        preview_plan(Resources.parse(cloud="container", spot=True))
    assert "every offer meeting the rest is on-demand" in (refused.value.hint or "")


def test_image_is_met_by_clouds_of_containers_alone(tmp_path, monkeypatch):
    _programs(tmp_path, monkeypatch)
    with pytest.raises(SkyNoOffer, match="--image"):
        decide_placement(Resources.parse(cloud="local", image="python:3.12"))


def test_provider_value_of_functions_names_the_image():
    spec = sky.Spec(provider=sky.Container(image="python:3.12"), vcpus=1)
    assert spec.resources(1).command_line() == "--cpus 1+ --cloud container --image python:3.12"


# -- real ones ----------------------------------------------------------------------------------


def _launch(account: Account, **changes: Any) -> Any:
    request = account.request()
    offer = replace(request.offer, **changes) if changes else request.offer
    return account.managed.launch(replace(request, offer=offer))


@pytest.mark.slow
def test_container_is_of_its_image_and_held_to_its_memory(account):
    machines = _launch(account, memory=2, vcpus=1)
    (slot,) = account.connect(machines)
    said = ssh.run(slot.address, f"cat {podman.MARK}; id -un; cat /proc/1/cgroup").text
    assert said.startswith(f"sky\n{Sky.load().login}\n")
    (found,) = json.loads(account.world.podman.call("inspect", machines[0].id))
    assert found["HostConfig"]["Memory"] == 2 << 30 and found["ImageName"] == podman.IMAGE
    assert found["HostConfig"]["NanoCpus"] == 10**9
    environment = [line.split("=")[0] for line in found["Config"]["CreateCommand"]]
    assert "--env" in environment and "JUPYTER_SKY_SETUP" in str(found["Config"]["CreateCommand"])
    script = found["Config"]["Env"]
    packed = next(line for line in script if line.startswith("JUPYTER_SKY_SETUP="))
    assert packed.partition("=")[2] not in str(found["Config"]["CreateCommand"]), "a secret there"
    account.managed.terminate([machines[0].id])
    assert account.world.podman.every() == set()


@pytest.mark.slow
def test_containers_share_the_memory_of_the_machine(account):
    __, total = machine_size()
    most = int(total) - 2
    _launch(account, memory=most)
    with pytest.raises(sky.SkyError, match=f"containers have {most} of"):
        _launch(account, memory=4)
    assert len(account.world.bill()) == 1


@pytest.mark.slow
def test_container_that_has_ended_is_kept_for_its_last_lines_and_swept(account):
    (machine,) = _launch(account)
    wait_until(lambda: "jupyter-sky-ready" in account.provider.console(machine.id))
    account.world.stop(machine.id)
    assert account.world.podman.every() == {machine.id} and account.world.bill() == set()
    (seen,) = account.provider.describe([machine.id])
    assert (seen.state, seen.reason) == ("ended", "its first process has ended with exit code 0")
    assert account.provider.sweep(machine.owner, {machine.token}) == []
    assert account.provider.sweep(machine.owner, ()) == [f"container that has ended: {machine.id}"]
    assert account.world.podman.every() == set()


@pytest.mark.slow
def test_podman_ends_a_container_whose_own_lease_does_not(account):
    request = account.request(lease=6.0)
    config = account.config(request)
    stuck = replace(config, script="trap '' TERM; while :; do sleep 1; done")
    account._configs[request.token] = stuck
    (machine,) = account.launch(request)
    assert account.world.bill() == {machine.id}
    wait_until(lambda: account.world.bill() == set())


POOL = """
import pathlib, sys
import jupyter_sky as sky

@sky.function
def read_mark(path):
    return pathlib.Path(path).read_text().strip(), sky.instance_info().node

with sky.Compute(provider=sky.Container(image=sys.argv[2]), nodes=2, vcpus=1) as compute:
    print(*(read_mark(sys.argv[1]) @ compute))
"""


@pytest.mark.slow
def test_nodes_of_a_pool_are_containers_on_one_network(account, monkeypatch):
    known = account.world.environment()
    options = shlex.join(w for w in shlex.split(podman.options()) if not w.startswith("--network"))
    settings = {"program": str(account.world.podman.program), "options": options}
    known |= {"SKY_PROVIDERS": repr({"container": settings})}
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            [sys.executable, "-c", POOL, podman.MARK, podman.IMAGE],
            env=os.environ | known | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
    finally:
        account.world.reset()
        with suppress(RuntimeError):  # there is none where no container was started
            account.world.podman.call("network", "rm", "--force", container.NETWORK)
    assert done.stdout.split("\n")[-2] == "('sky', 0) ('sky', 1)", done.stderr
