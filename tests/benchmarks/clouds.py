"""The figures of machines elsewhere, on SSH servers of this machine's loopback network.

`tunnel_added_ms` is what a round trip takes longer than on a local engine, measured in turns in
one kernel. `first_output_s` is the first output on a machine that has nothing of ours yet; its
packages come from this machine's cache. `gang4_over_1` is the same on four machines at once.
"""

import contextlib
import sys
import time
from pathlib import Path
from statistics import median

from driver import Kernel, spread

sys.path.insert(0, str(Path(__file__).parents[1] / "emulators"))

from hosts import SshHost

SKY = "%load_ext jupyter_sky"


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def kernel_with(count: int):
    """A kernel whose pool is so many new machines."""
    machines = []
    try:
        machines += [SshHost(101 + number) for number in range(count)]
        with Kernel() as kernel:
            pool = "\n".join(host.toml(f"m{at}") for at, host in enumerate(machines))
            (kernel.home / "sky_data_dir" / "hosts.toml").write_text(pool)
            kernel.run(SKY)
            try:
                yield kernel
            finally:
                kernel.run("%sky down all")
    finally:
        for host in machines:
            host.close()


def first_output(nodes: int) -> float:
    with kernel_with(nodes) as kernel:
        cell = kernel.run(f"%%sky --cloud ssh --nodes {nodes}\nprint('first')")
        log = kernel.run("%sky logs --provision", allow_error=True).text
        again = time.perf_counter()
        kernel.run("%sky down all")
        kernel.run(f"%%sky --cloud ssh --nodes {nodes}\nprint('again')")
        warm = time.perf_counter() - again
    say(f"{nodes} machines: first output after {cell.first_stream:.2f} s; again {warm:.2f} s")
    say(log)
    return cell.first_stream


def tunnel(quick: bool) -> dict:
    blocks, size = (2, 10) if quick else (10, 20)
    cells = {"ssh": "%%sky -c there\n1", "local": "%%sky -c here\n1"}
    seconds = {name: [] for name in cells}
    with kernel_with(1) as kernel:
        kernel.run("%%sky --cloud ssh -c there\n1")
        kernel.run("%%sky --cloud local -c here\n1")
        for _ in range(blocks):
            for name, code in cells.items():
                seconds[name] += [kernel.run(code).seconds for _ in range(size)]
    for name in cells:
        say(f"round trip, {name}: {spread(seconds[name])}")
    return {"tunnel_added_ms": (median(seconds["ssh"]) - median(seconds["local"])) * 1e3}


def main(quick: bool) -> dict:
    figures = tunnel(quick)
    times = 1 if quick else 3
    one = [first_output(1) for _ in range(times)]
    four = [first_output(4) for _ in range(times)]
    say(f"first output: one {one}, four {four}")
    return {
        **figures,
        "first_output_s": median(one),
        "gang4_over_1": median(four) / median(one),
    }
