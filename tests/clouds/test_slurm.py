"""Slurm as a cloud: what its nodes do that machines of other clouds do not; on a real one."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.provider import Machine, ProviderError
from jupyter_sky.clouds.slurm.provider import FOLDER, Slurm
from jupyter_sky.clouds.testing.provider import wait_until
from tests.clouds.rest_launches import Launches
from tests.clouds.slurm_world import NODES, SlurmWorld
from tests.emulators import slurm
from tests.emulators.hosts import USABLE, SshHost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (USABLE and slurm.USABLE), reason="needs root, OpenSSH and the packages of Slurm"
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Launches]:
    with Launches(SlurmWorld, Slurm) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(cluster: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    yield from cluster.prepare(tmp_path, monkeypatch)
    assert cluster.world.processes() == [], "nothing outlives its job"


def set_options(patch: pytest.MonkeyPatch, **settings: str) -> None:
    patch.setenv("SKY_PROVIDERS", repr({"slurm": {"options": "--export=ALL"} | settings}))
    Sky.clear_instance()


def run(cluster: Launches, machines: list[Machine], script: str) -> list[str]:
    """Run a script on each of some machines."""
    slots = cluster.account.connect(machines)
    return [ssh.run(slot.address, script).text.strip() for slot in slots]


def managed(cluster: Launches, **request: object) -> list[Machine]:
    return cluster.account.managed.launch(cluster.account.request(**request))  # type: ignore[arg-type]


def test_nodes_of_a_job_are_machines_by_rank(cluster):
    machines = managed(cluster, nodes=2)
    assert [machine.rank for machine in machines] == [0, 1]
    assert len({machine.id.partition(".")[0] for machine in machines}) == 1, "one job"
    seen = run(cluster, machines, 'echo "$SLURM_JOB_ID.$SLURM_NODEID $SLURMD_NODENAME $HOME"')
    names = [cluster.world.node_name(machine.id) for machine in machines]
    assert seen == [
        f"{machine.id} {name} {cluster.world.home}"
        for machine, name in zip(machines, names, strict=True)
    ]
    assert len(set(names)) == 2


def test_program_outlives_its_connection_and_ends_with_its_job(cluster):
    (machine,) = machines = managed(cluster)
    start = "setsid sleep 987 >/dev/null 2>&1 </dev/null & echo $!"
    (pid,) = run(cluster, machines, start)
    (slot,) = cluster.account.managed.recorded_slots(machines)
    subprocess.run([*slot.address.command(), "exit"], check=True)  # not that of the start
    ssh_master = [*slot.address.command(shared=True)]
    subprocess.run([ssh_master[0], "-O", "exit", *ssh_master[1:]], capture_output=True)
    assert ssh.run(slot.address, f"kill -0 {pid} && echo up").text == "up\n"
    cluster.account.managed.terminate([machine.id])
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: not cluster.world.processes())


def test_two_jobs_of_a_user_share_a_node(cluster):
    need, machines = Resources.parse(cpus=1, memory=0.5), []
    for _job in range(2):
        request = replace(cluster.account.request(), resources=need)
        machines += cluster.account.managed.launch(request)
    for machine in machines:
        run(cluster, [machine], "exit 0")
    assert len({cluster.world.node_name(machine.id) for machine in machines}) == 1
    assert len({machine.id for machine in cluster.provider.machines()}) == 2


def test_job_waits_for_nodes(cluster, monkeypatch):
    set_options(monkeypatch, queue="60s")
    other = cluster.world.hold(NODES)
    begun = time.monotonic()
    threading.Timer(3.0, cluster.world.slurm.ask, ("scancel", other)).start()
    (machine,) = cluster.launch()
    assert time.monotonic() - begun > 3 and machine.address


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"region": "single", "nodes": 2}, "PartitionNodeLimit"),
        ({"options": "--time=120", "region": "main"}, "PartitionTimeLimit"),
    ],
)
def test_job_that_no_waiting_helps_is_cancelled(cluster, monkeypatch, request_, reason):
    options = f"--export=ALL {request_.get('options', '')}"
    set_options(monkeypatch, queue="60s", options=options)
    request = cluster.account.request(nodes=request_.get("nodes", 1))
    request = replace(request, offer=replace(request.offer, region=request_["region"]))
    with pytest.raises(ProviderError, match=reason) as refused:
        cluster.account.launch(request)
    assert cluster.provider.explain(refused.value).cause == "invalid"
    assert cluster.world.bill() == set()


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Resources", "capacity"),
        ("Priority", "capacity"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "capacity"),
        ("QOSMaxCpuPerUserLimit", "quota"),
        ("AssocGrpCPUMinutesLimit", "quota"),
        ("QOSNotAllowed", "permission"),
        ("BadConstraints", "invalid"),
        ("PartitionTimeLimit", "invalid"),
    ],
)
def test_reason_of_a_job_that_waits(reason, cause):
    refusal = ProviderError(f"the job waits for nodes: {reason}", code="PENDING")
    assert Slurm.explain_refusal(refusal).cause == cause


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Invalid partition name specified", "invalid"),
        ("Required node not available (down, drained or reserved)", "capacity"),
        ("Unable to contact slurm controller (connect failure)", "transient"),
        ("User's group not permitted to use this partition", "permission"),
        ("[Errno 2] No such file or directory: 'sbatch'", "invalid"),
    ],
)
def test_words_of_sbatch(words, cause):
    assert Slurm.explain_refusal(ProviderError(words, code="sbatch")).cause == cause


def test_job_gets_what_was_asked_for_within_the_limit_of_its_partition(cluster):
    request = cluster.account.request()
    offer = replace(request.offer, region="short")
    need = Resources.parse(cpus=2, memory=0.5)
    (machine,) = cluster.account.launch(replace(request, offer=offer, resources=need))
    asked = cluster.world.slurm.ask("squeue", "-h", "-o", "%P %C %m %l")
    assert asked == "short 2 512M 1:00"
    (seen,) = cluster.provider.describe([machine.id])
    assert seen.lease_end is not None and seen.lease_end - time.time() <= 61


def test_partition_among_the_options_hides_no_job(cluster, monkeypatch):
    set_options(monkeypatch, options="--export=ALL --partition=short")
    request = cluster.account.request()
    request = replace(request, offer=replace(request.offer, region="main"))
    (machine,) = cluster.account.launch(request)
    listed = cluster.provider.machines(token=request.token, regions=["main"])
    assert [each.id for each in listed] == [machine.id]


def test_offers_are_parts_of_nodes_at_their_share_of_the_price(cluster, monkeypatch):
    set_options(monkeypatch, price="0.4, short=0.8")
    offers = list(cluster.provider.offers())
    assert {(offer.region, offer.instance_type): offer.price for offer in offers} == {
        (region, f"{cpus}cpu-2gib"): price
        for region, price in (("main", 0.4), ("short", 0.8), ("single", 0.4))
        for cpus in (1, 2, 3, 4)
    }, "all have the memory of a node, which has 2 GiB"
    set_options(monkeypatch, price="main=1, main=2")
    with pytest.raises(SkyUsageError, match="twice"):
        list(cluster.provider.offers())


def test_job_gets_its_share_of_what_was_not_asked_for(cluster):
    request = cluster.account.request()
    cluster.account.launch(replace(request, resources=Resources.parse(memory=1)))
    assert cluster.world.slurm.ask("squeue", "-h", "-o", "%C %m") == "2 1G"


def test_wrong_options_are_told(cluster, monkeypatch):
    set_options(monkeypatch, options="--account='physics")
    with pytest.raises(SkyUsageError, match=r"providers\.slurm\.options: No closing quotation"):
        cluster.launch()


def test_only_jobs_of_ours_are_cancelled(cluster):
    other = cluster.world.hold(1)
    (machine,) = cluster.launch()
    cluster.provider.terminate([f"{other}.0", machine.id])
    wait_until(lambda: cluster.world.bill() == set())
    assert cluster.world.slurm.jobs() == [other]


def test_keys_of_the_notebook_stay_here(cluster, monkeypatch):
    monkeypatch.setenv("SKY_PROVIDERS", "{}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    Sky.clear_instance()
    (seen,) = run(cluster, managed(cluster), "env")
    assert "SLURM_JOB_ID" in seen and "sesame" not in seen and "JUPYTER_SKY_SETUP" not in seen


def test_files_of_ended_jobs_are_deleted(cluster):
    (machine,) = cluster.launch()
    folder = cluster.world.node_folder(machine.id)
    gone = cluster.world.home / FOLDER / "999999.n1"
    gone.mkdir()
    assert cluster.provider.sweep(machine.owner, [machine.token]) == []
    assert folder.exists() and not gone.exists()
    cluster.provider.terminate([machine.id])
    wait_until(lambda: not folder.exists())


def test_failed_start_is_told_with_the_log_of_its_job(cluster):
    request = cluster.account.request()
    config = replace(cluster.account.config(request), script="echo there is no sshd; exit 1")
    (machine,) = cluster.provider.launch(request, config, Event())
    wait_until(lambda: cluster.provider.describe([machine.id])[0].state == "ended")
    assert "there is no sshd" in cluster.provider.console(machine.id)


def test_login_node_is_reached_by_ssh(cluster, monkeypatch, tmp_path):
    host = SshHost(88, SLURM_CONF=cluster.world.slurm.env["SLURM_CONF"])
    try:
        public = " ".join((host.folder / "host.pub").read_text().split()[:2])
        (tmp_path / "hosts.toml").write_text(host.toml("login", host_key=public))
        set_options(monkeypatch, login="login")
        monkeypatch.delenv("SLURM_CONF")
        assert cluster.provider.configured() == "login node login"
        machines = managed(cluster)
        assert cluster.world.bill() == {machines[0].id}
        seen = run(cluster, machines, 'echo "$SLURM_JOB_ID.0 $HOME"')
        assert seen == [f"{machines[0].id} {host.home}"]
        cluster.account.managed.terminate([machines[0].id])
        cluster.account.costs_nothing()
    finally:
        host.close()


def test_wrong_login_node_is_told(cluster, monkeypatch):
    set_options(monkeypatch, login="no machine")
    with pytest.raises(SkyUsageError, match="no machine") as refused:
        cluster.provider.machines()
    assert "hosts.toml" in (refused.value.hint or "")
