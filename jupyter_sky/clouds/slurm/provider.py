"""Slurm: nodes of a cluster that ``sbatch`` gives, from this machine or from a login node.

A launch is one job, whose nodes are its machines. They are reached through ``srun``, so they need
no address, port or firewall. The time limit of the job is the lease. A job that waits for nodes is
waited for; one that waits for a limit of the account or for a partition that cannot take it is
cancelled and told.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import shlex
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Event
from typing import ClassVar

from jupyter_sky.base.errors import SkyUnreachable, SkyUsageError
from jupyter_sky.base.remote.slurm import (
    LOST,
    NodeShape,
    SlurmClient,
    SlurmError,
    SlurmJob,
    expand_nodes,
    job_options,
)
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources, parse_duration, parse_usd
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import N_, _
from jupyter_sky.clouds.launches.machine_script import SETUP_VARIABLE, pack_script
from jupyter_sky.clouds.launches.machine_slices import powers_of_two, slice_name, slice_sizes
from jupyter_sky.clouds.launches.rest_provider import read_mark, write_mark
from jupyter_sky.clouds.provider.classification import ProviderError, Refinement, group_codes
from jupyter_sky.clouds.provider.naming import TOKEN, tagged_machine
from jupyter_sky.clouds.provider.parallel_requests import pause
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

# -- Meaning of what Slurm refuses: messages of its commands, and reasons for which a job ---------

PENDING = "PENDING"
"""Code of a refusal by which a job waits, with Slurm's reason in the message."""
LOGIN_FIX = "set providers.slurm.login to user@host, or run this on a login node of the cluster"
_ACCOUNT_FIX = (
    "sacctmgr show assoc user=$USER lists what may be used; name it by the setting "
    "providers.slurm.options, such as --account=physics --qos=normal"
)
_QUOTA_FIX = "wait until other jobs of the account have ended, or use another one: " + _ACCOUNT_FIX
_SIZE_FIX = "ask for less or for another partition (--region), or for a shorter lease (Sky.lease)"
_COMMANDS = "sbatch squeue sinfo scancel"

ERRORS = group_codes(
    ("capacity", "region", "", PENDING),
    ("invalid", "region", _SIZE_FIX, "sbatch"),
    ("unknown", "region", "", "squeue sinfo scancel tail ls rm"),
)
"""Meaning by command, where its message says no more; a job that waits is waited for."""
REFINEMENTS = (
    Refinement(
        f"{PENDING} {_COMMANDS}",
        r"\b(QOS|Assoc)\w*(Max|Grp|Limit)|MaxJobsPer|MaxSubmit|accounting/QOS policy",
        cause="quota",
        fix=_QUOTA_FIX,
    ),
    Refinement(
        f"{PENDING} {_COMMANDS}",
        r"(?i)invalid ?account|InvalidQOS|invalid qos|NotAllowed|not permitted|JobHeldAdmin|"
        r"permission denied|authentication|munge",
        cause="permission",
        fix=_ACCOUNT_FIX,
    ),
    Refinement(
        PENDING,
        r"Partition(Time|Node)Limit|BadConstraints|DeadLine|JobHeldUser",
        cause="invalid",
        fix=_SIZE_FIX,
    ),
    Refinement(
        _COMMANDS,
        r"(?i)temporarily un(able|available)|rate limit",
        cause="throttled",
        fix="",
    ),
    Refinement(
        _COMMANDS,
        r"(?i)unable to contact|timed out|standby mode|zero bytes|communication|connection refused",
        cause="transient",
        fix="",
    ),
    Refinement(
        "sbatch",
        r"(?i)not available now|down, drained or reserved",
        cause="capacity",
        fix="",
    ),
    Refinement(
        _COMMANDS,
        r"(?i)not found|no such file|configuration source",
        cause="invalid",
        fix=LOGIN_FIX,
    ),
)


# -- Slurm: nodes of a cluster that ``sbatch`` gives, from this machine or from a -----------------

FOLDER = ".cache/jupyter_sky/slurm"
"""Files of jobs below the user's home: a log each, and a folder for each of its nodes."""
QUEUE_SECONDS = 600.0
"""Time that a job may wait for nodes, unless the setting ``queue`` says so."""
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf")
_POLL_SECONDS = 0.5
_EXPORTED = "HOME,USER,LOGNAME,SHELL,PATH,LANG,LD_LIBRARY_PATH,MODULEPATH"
"""Variables of this machine that a job gets: others may hold keys."""
_SUBMIT = f"""mkdir -p -m 700 "$HOME/{FOLDER}" && cd "$HOME" && exec "$@\""""
_LIST_FILES = f'cd "$HOME/{FOLDER}" 2>/dev/null && ls -1; true'
_REMOVE_FILES = f'cd "$HOME/{FOLDER}" && rm -rf -- "$@"'
_READ_LOG = f'tail -n 40 "$HOME/{FOLDER}/$1.log" 2>/dev/null; true'


class Slurm(Provider):
    """A Slurm cluster as a cloud; an ID is the number of a job and the rank of its node.

    Examples
    --------
    >>> waits = ProviderError("the job waits: QOSMaxCpuPerUserLimit", code=PENDING)
    >>> Slurm.explain_refusal(waits).cause
    'quota'
    """

    name, title, note = "slurm", "Slurm", "nodes of your Slurm"
    account = N_("a login on a cluster with Slurm 20.11 or later")
    permissions = N_("to submit jobs to a partition")
    launchable = on_premises = has_live_offers = True
    settings: ClassVar = {
        "login": "Login node, as user@host or by its name in hosts.toml; without one, this machine "
        "where it has sbatch.",
        "options": "Further options of sbatch, such as --account=physics --qos=normal.",
        "price": "USD/h of a node, and by partition, such as '0.1, gpu=2.5'; else nodes are free.",
        "queue": "Time that a job may wait for nodes before another place is asked; 10m.",
    }

    login, power_off = LOGIN_FIX, 'scancel "$SLURM_JOB_ID"'
    errors, refinements = ERRORS, REFINEMENTS

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}

    # -- the cluster ------------------------------------------------------------------------------

    def configured(self) -> str:
        """Return the login node, or that Slurm is on this machine; empty without both."""
        if login := _setting("login"):
            return f"login node {login}"
        is_here = "SLURM_CONF" in os.environ or any(map(os.path.exists, _CONFIGURATIONS))
        return "sbatch on this machine" if is_here and shutil.which("sbatch") else ""

    def identify(self) -> str:
        """Ask for the partitions."""
        with _refusals():
            shapes = self._client().list_shapes()
        names = dict.fromkeys(shape.partition for shape in shapes)
        return f"partitions {', '.join(names)}" if names else "no partition has a node that is up"

    def offers(self) -> Iterator[Offer]:
        """Yield parts of nodes that are up, from one processor or GPU to a whole node."""
        with _refusals():
            shapes = self._client().list_shapes()
        prices = parse_prices(_setting("price"))
        for shape in shapes:
            yield from node_offers(shape, prices)

    def _client(self) -> SlurmClient:
        from jupyter_sky.clouds.ssh import login_address

        login = _setting("login")
        return SlurmClient(login_address(login) if login else None)

    # -- machines ---------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Submit one job for all nodes, once, and wait until it has them."""
        with self._locks.setdefault(request.token, threading.Lock()), _refusals():
            client = self._client()
            if job := self._find(client, request.token):
                number = job.number
            else:
                try:
                    number = self._submit(client, request, config)
                except SkyUnreachable:  # the answer may be lost, and not the request
                    if (job := self._find(client, request.token)) is None:
                        raise
                    number = job.number
            return self._await_nodes(client, number, stop)

    def _submit(self, client: SlurmClient, request: LaunchRequest, config: MachineConfig) -> str:
        offer, need = request.offer, request.resources
        gpu, place = gpu_type(offer.instance_type), offer.region
        shapes = [shape for shape in client.list_shapes() if shape.partition == place]
        fitting = [shape for shape in shapes if shape.gpu == gpu and shape.cpus >= offer.vcpus]
        cpus, memory = job_size(need, offer, min(fitting, key=_memory_share, default=None))
        minutes = min((shape.minutes for shape in shapes), default=math.inf)
        seconds = min(request.lease, minutes * 60)
        options = [
            f"--export={_EXPORTED}",
            *job_options(need.nodes, cpus, memory, gpu, offer.gpu_count, seconds),
            *_own_options(),
            f"--partition={place}",  # where it is looked for
            f"--job-name=js-{request.token}",
            f"--output={FOLDER}/%j.log",
            f"--comment={write_mark(config.tags)}",
        ]
        step = f"srun --export=ALL --nodes={need.nodes} --ntasks={need.nodes} --mem=0 --quiet"
        step += f" --cpus-per-task={math.ceil(cpus)} --cpu-bind=none --kill-on-bad-exit=1"
        step += f" sh -c {shlex.quote(_node_script())}"
        script = f"#!/bin/sh\nexport {SETUP_VARIABLE}={pack_script(config.script)}\nexec {step}\n"
        return client.submit(options, script, _SUBMIT)

    def _await_nodes(self, client: SlurmClient, number: str, stop: Event) -> list[Machine]:
        """Wait while a job waits for nodes; cancel it where it waits for anything else."""
        begun, longest = time.monotonic(), QUEUE_SECONDS
        if queue := _setting("queue"):
            longest = parse_duration(queue, "providers.slurm.queue")
        while True:
            job = next((each for each in _our_jobs(client) if each.number == number), None)
            if job is None or (job.state == "CANCELLED" and not job.nodes):
                raise ProviderError("the job was cancelled before it had nodes", code=PENDING)
            if job.state != "PENDING":
                return self._machines_of(client, job)
            waits = ProviderError(f"the job waits for nodes: {job.reason}", code=PENDING)
            passed = time.monotonic() - begun
            if passed > longest or self.explain_refusal(waits).cause != "capacity":
                client.cancel(numbers=[number])
                raise waits
            try:
                pause(stop, _POLL_SECONDS if passed < 20 else 5.0)
            except BaseException:
                client.cancel(numbers=[number])
                raise

    def _find(self, client: SlurmClient, token: str) -> SlurmJob | None:
        jobs = [job for job in _our_jobs(client) if read_mark(job.comment)[TOKEN] == token]
        return next((job for job in jobs if job.is_open), None)

    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List the nodes of jobs that wait or run."""
        return [
            machine
            for machine, region in self._list()
            if machine.state != "ended"
            and owner in ("", machine.owner)
            and token in ("", machine.token)
            and (regions is None or region in regions)
        ]

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return the machines of these ids, those that have ended lately, too."""
        return [machine for machine, _region in self._list() if machine.id in ids]

    def _list(self) -> list[tuple[Machine, str]]:
        client = self._client()
        with _refusals():
            jobs = _our_jobs(client)
        return [(each, job.partition) for job in jobs for each in self._machines_of(client, job)]

    def _machines_of(self, client: SlurmClient, job: SlurmJob) -> list[Machine]:
        tags, nodes = read_mark(job.comment), expand_nodes(job.nodes)
        state: MachineState = "running" if job.is_open else "ended"
        if job.state in ("PENDING", "CONFIGURING"):
            state = "starting"
        user = client.login.user if client.login is not None else getpass.getuser()
        found = list[Machine]()
        for rank in range(job.count):
            node = nodes[rank] if rank < len(nodes) else ""
            script = f'exec sh "$HOME/{FOLDER}/{job.number}.{node}/connect"'
            machine = tagged_machine(
                tags,
                id=f"{job.number}.{rank}",
                cloud=self.name,
                rank=rank,
                state=state,
                started=job.started if node else job.submitted,
                ended=None if job.is_open else job.ends or None,
                reason="" if job.is_open else f"the job ended as {job.state}",
                preempted=job.state in LOST,
                address=node,
                private=node,
                user=user,
                through=client.connect_command(job.number, node, script) if node else (),
            )
            ends = [time for time in (machine.lease_end, job.ends) if time]
            found.append(replace(machine, lease_end=min(ends, default=None)))
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """Cancel the jobs of machines, each with all of its nodes."""
        client = self._client()
        numbers = {id.partition(".")[0] for id in ids}
        with _refusals():  # only what is known as ours: a number may be anybody's
            jobs = [job for job in _our_jobs(client) if job.is_open and job.number in numbers]
            client.cancel(numbers=[job.number for job in jobs])

    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete the files of jobs that have ended; they cost nothing, and are not told."""
        client = self._client()
        with _refusals():
            files = client.run("sh", "-c", _LIST_FILES, name="ls").split()
            there = {job.number for job in client.list_jobs()}  # those that have just ended, too
            if left := [name for name in files if name.partition(".")[0] not in there]:
                client.run("sh", "-c", _REMOVE_FILES, "sh", *left, name="rm")
        return []

    def console(self, id: str) -> str:
        """Return the end of the log of a machine's job."""
        words = ("sh", "-c", _READ_LOG, "sh", id.partition(".")[0])
        return self._client().run(*words, name="tail")


def _our_jobs(client: SlurmClient) -> list[SlurmJob]:
    """Return the jobs that were launched from here, those that have ended lately, too."""
    return [job for job in client.list_jobs() if TOKEN in read_mark(job.comment)]


def _setting(key: str) -> str:
    return Sky.load().provider_setting(Slurm.name, key)


def _own_options() -> list[str]:
    label, text = "providers.slurm.options", _setting("options")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SkyUsageError(_("{label}: {error}").format(label=label, error=error)) from None


def _memory_share(shape: NodeShape) -> float:
    """Return memory per processor."""
    return shape.memory / shape.cpus


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise what Slurm refuses as the refusal of a cloud."""
    try:
        yield
    except SlurmError as error:
        raise ProviderError(error.words, code=error.command) from None


@cache
def _node_script() -> str:
    text = Path(__file__).with_name("node.sh").read_text()
    return text.replace("@FOLDER@", FOLDER).replace("@SETUP_VARIABLE@", SETUP_VARIABLE)


# -- Offers of a Slurm cluster: parts of its nodes, by partition ----------------------------------

LEAST_GIB_PER_CPU = 1.0
"""Parts of a node with less memory are not offered, unless the node has less."""


def parse_prices(text: str) -> dict[str, float]:
    """Return USD/h of a whole node by partition; the empty name stands for all others.

    Examples
    --------
    >>> parse_prices("0.1, gpu=2.5")
    {'': 0.1, 'gpu': 2.5}
    """
    label, prices = "providers.slurm.price", dict[str, float]()
    for part in filter(None, (part.strip() for part in text.split(","))):
        partition, _is, price = part.rpartition("=")
        if partition.strip() in prices:
            raise SkyUsageError(
                _("{label}: {part} names a partition twice").format(label=label, part=part),
                hint=_('such as "0.1, gpu=2.5": USD/h of a node, and of one in the partition gpu'),
            )
        prices[partition.strip()] = parse_usd(price, label)
    return prices


def node_offers(shape: NodeShape, prices: Mapping[str, float]) -> Iterator[Offer]:
    """Yield parts of a node, from one processor or GPU to all of it, at their share of its price.

    GPUs of a type that Slurm's configuration does not name are passed over.

    Examples
    --------
    >>> for offer in node_offers(NodeShape("cpu", 2, 8192), {"": 0.6}):
    ...     print(offer.instance_type, offer.price)
    1cpu-2gib 0.3
    1cpu-4gib 0.3
    1cpu-8gib 0.6
    2cpu-2gib 0.6
    2cpu-4gib 0.6
    2cpu-8gib 0.6
    >>> offers = list(node_offers(NodeShape("gpu", 64, 262144, "a100", 4), {"gpu": 8}))
    >>> offers[-1].instance_type, offers[-1].gpu, offers[-1].gpu_count, offers[0].price
    ('64cpu-256gib-4x-a100', 'A100', 4, 2.0)
    """
    price = prices.get(shape.partition, prices.get("", 0.0))
    gpu = _accelerator(shape.gpu) if shape.gpu else None
    total = shape.gpu_count if gpu else 1
    for count in sorted({*powers_of_two(1, total), total}):
        gib = shape.memory / 1024
        for cpus, memory in slice_sizes(shape.cpus * count / total, gib * count / total):
            if memory < cpus * min(LEAST_GIB_PER_CPU, gib / shape.cpus):
                continue
            share = max(cpus / shape.cpus, memory / gib, count / total if gpu else 0)
            yield Offer(
                Slurm.name,
                shape.partition,
                slice_name(cpus, memory, shape.gpu, count if gpu else 0),
                cpus,
                memory,
                gpu=gpu,
                gpu_count=count if gpu else 0,
                price=round(price * share, 6),
                source="sinfo",
                date=time.strftime("%Y-%m-%d"),
            )


def gpu_type(instance_type: str) -> str:
    """Return the type of an instance type's GPUs in Slurm's configuration; empty without any.

    Examples
    --------
    >>> gpu_type("16cpu-64gib-1x-a100"), gpu_type("1cpu-2gib")
    ('a100', '')
    """
    found = re.search(r"gib-\d+x-(.+)", instance_type)
    return found[1] if found else ""


def job_size(need: Resources, offer: Offer, shape: NodeShape | None) -> tuple[float, float]:
    """Return processors and GiB of a job: what was asked for, else the share that goes with it.

    Examples
    --------
    >>> offer = Offer("slurm", "cpu", "16cpu-16gib", 16, 16)
    >>> job_size(Resources.parse(cpus=16), offer, NodeShape("cpu", 64, 262144))
    (16.0, 64.0)
    >>> job_size(Resources.parse(cpus=16, memory=16), offer, NodeShape("cpu", 64, 262144))
    (16.0, 16.0)
    """
    cpus = need.cpus.value if need.cpus else offer.vcpus
    memory = need.memory.value if need.memory else offer.memory
    if shape is not None:
        share = offer.gpu_count / shape.gpu_count if shape.gpu_count else 0.0
        if need.memory is None:
            memory = max(memory, math.floor(shape.memory * max(share, cpus / shape.cpus)) / 1024)
        if need.cpus is None:
            cpus = max(cpus, math.floor(shape.cpus * max(share, 1024 * memory / shape.memory)))
    return cpus, memory


def _accelerator(name: str) -> str:
    """Return the name of a GPU as the catalog has it; one of its own that this does not know.

    Examples
    --------
    >>> _accelerator("a100"), _accelerator("nvidia_h100_80gb_hbm3"), _accelerator("big_one")
    ('A100', 'H100', 'big_one')
    """
    words = name.replace("_", " ").split()
    for count in range(len(words), 0, -1):
        try:
            return accelerators.canonical(" ".join(words[:count]))
        except SkyUsageError:
            continue
    return name
