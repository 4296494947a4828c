"""Figures of remote machines: SSH hosts, and machines of emulated clouds.

`tunnel_added_ms` is what a round trip takes longer than on a local engine, measured in turns in
one kernel, on an SSH server of the loopback network. `first_output_s` is the first output on a
rented machine that has nothing of ours yet, from the cell's start, without the time in which the
machine itself boots; its packages come from this machine's cache. `gang4_over_1` is the same on
four machines at once, which all share this machine's CPUs, with each other and with the notebook:
it says how much work a further machine is. `gang4_over_1_own_cpus` says whether machines wait for
each other: there each has 0.4 CPUs of its own, be it one or four, as machines in a cloud have their
own (needs control groups). `failover_8_s` is what eight places that refuse add until the ninth has
accepted, without the time in which the cloud answers. What `chaos_...` means is said in `chaos`.
"""

import contextlib
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from notebook_client import Kernel, spread

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.emulators.cpus import bounded
from tests.emulators.ec2 import Ec2
from tests.emulators.hosts import SshHost
from tests.emulators.loopback import loopback

SKY = "%load_ext jupyter_sky"
OWN_CPUS = 0.4
"""Four machines leave two CPUs enough for the notebook."""


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def environment(**variables: str):
    """Change environment variables of this process for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@contextlib.contextmanager
def kernel_with(host: SshHost):
    """Yield a kernel whose pool is one machine."""
    with Kernel() as kernel:
        (kernel.home / "sky_data_dir" / "hosts.toml").write_text(host.toml("box"))
        kernel.run(SKY)
        try:
            yield kernel
        finally:
            kernel.run("%sky down all")


def first_output(nodes: int, cpus: float = 0.0) -> float:
    with loopback("aws", cpus=cpus) as cloud, environment(**cloud.env), Kernel() as kernel:
        kernel.run(SKY)
        cell = kernel.run(f"%%sky --cloud aws --cpus 2 --nodes {nodes}\nprint('first')")
        log = kernel.run("%sky logs --provision").text
        kernel.run("%sky down --all")
    boot = float(re.search(r"(\d+\.\d) s  machine starting", log)[1])
    say(f"{nodes} machines: first output after {cell.first_stream:.2f} s, of which boot {boot:.1f}")
    say(log)
    return cell.first_stream - boot


def tunnel(quick: bool) -> dict:
    blocks, size = (2, 10) if quick else (10, 20)
    cells = {"ssh": "%%sky -c there\n1", "local": "%%sky -c here\n1"}
    seconds = {name: [] for name in cells}
    host = SshHost(101)
    try:
        with kernel_with(host) as kernel:
            kernel.run("%%sky --cloud ssh -c there\n1")
            kernel.run("%%sky --cloud local -c here\n1")
            for _ in range(blocks):
                for name, code in cells.items():
                    seconds[name] += [kernel.run(code).seconds for _ in range(size)]
    finally:
        host.close()
    for name in cells:
        say(f"round trip, {name}: {spread(seconds[name])}")
    return {"tunnel_added_ms": (median(seconds["ssh"]) - median(seconds["local"])) * 1e3}


class Timed(Ec2):
    """An account whose time for answers is added up."""

    def __init__(self) -> None:
        self.answering = 0.0
        super().__init__()

    def _attend(self, request):
        begun = time.perf_counter()
        try:
            return super()._attend(request)
        finally:
            self.answering += time.perf_counter() - begun


def failover(refusals: int) -> float:
    """Seconds until a place has accepted after so many refusals, the cloud's own left out."""
    from jupyter_sky import clouds
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.clouds import LaunchRequest
    from jupyter_sky.machines.provisioner import broker

    account = Timed()
    try:
        with (
            tempfile.TemporaryDirectory() as data,
            environment(**account.env(), SKY_DATA_DIR=data),
        ):
            Sky.clear_instance()
            need = Resources.parse(cloud="aws", cpus="4+", memory="8+")
            account.refuse("InsufficientInstanceCapacity", times=refusals)

            def launch(offer):
                token = f"bench-{time.monotonic_ns():x}"
                order = LaunchRequest(token, "bench", offer, need, 60.0, "me-1", "bench.ipynb")
                return clouds.get("aws").launch(order)

            begun = time.perf_counter()
            placed = broker.place(need, launch, lambda stage, detail: None)
            seconds = time.perf_counter() - begun - account.answering
            assert len(placed.attempts) == refusals
    finally:
        account.close()
        Sky.clear_instance()
    say(f"{refusals} refusals: {seconds:.2f} s, and {account.answering:.2f} s of the cloud's own")
    return seconds


def main(quick: bool, launches: int = 300, seed: int = 1) -> dict:
    from chaos import chaos

    figures = tunnel(quick)
    times = 1 if quick else 7
    pairs = [(first_output(1), first_output(4)) for _ in range(times)]  # in turns: machines vary
    one, four = zip(*pairs, strict=True)
    say(f"first output: one {one}, four {four}")
    if bounded():
        owning = [(first_output(1, OWN_CPUS), first_output(4, OWN_CPUS)) for _ in range(times)]
        own_one, own_four = zip(*owning, strict=True)
        say(f"first output, CPUs of their own: one {own_one}, four {own_four}")
        figures["gang4_over_1_own_cpus"] = median(own_four) / median(own_one)
    failover(0)  # what is loaded once is not what refusals add
    added = [failover(8) - failover(0) for _ in range(min(times, 3))]
    return {
        **figures,
        "first_output_s": median(one),
        "gang4_over_1": median(four) / median(one),
        "failover_8_s": median(added),
        **chaos(6 if quick else launches, seed),
    }
