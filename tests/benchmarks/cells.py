"""Figures of a cell: `%%sky` beside `%%px`, raw ipyparallel and a bare kernel.

Ratios, each of two things measured in turns in the same run, so that a busy machine is busy for
both. `client_peak_gb`, `flushed_lines_mb` and `load_ext_s` stand alone.
"""

import subprocess
import sys
import time
from statistics import median

from notebook_client import Kernel, spread

SKY = "%load_ext jupyter_sky"
PX = """
import ipyparallel as ipp
px_cluster = ipp.Cluster(n={n}, log_level=40)
px_client = px_cluster.start_and_connect_sync()
px_view = px_client[:]
px_view.block = True  # what %%px needs to show anything
px_view.activate()
"""


def say(text: str) -> None:
    print(text, flush=True)


def warm(kernel: Kernel, px: bool) -> None:
    """Yield a kernel with a sky cluster of one engine and, on request, an ipyparallel cluster."""
    kernel.run(SKY)
    kernel.run("%%sky -c bench\n1")
    if px:
        kernel.run(PX.format(n=1))
        kernel.run("%%px\n1")


def end(kernel: Kernel) -> None:
    kernel.run("%sky down all")


def roundtrip(quick: bool) -> dict:
    """Return a trivial cell, from the request to the kernel's idle."""
    blocks, size = (2, 10) if quick else (10, 20)
    cells = {"sky": "%%sky -c bench\n1", "px": "%%px\n1", "kernel": "1"}
    seconds = {name: [] for name in cells}
    with Kernel() as kernel:
        warm(kernel, px=True)
        for _ in range(blocks):
            for name, code in cells.items():
                seconds[name] += [kernel.run(code).seconds for _ in range(size)]
        end(kernel)
    for name in cells:
        say(f"round trip, {name}: {spread(seconds[name])}")
    sky, px, bare = (median(seconds[name]) for name in cells)
    return {"roundtrip_over_px": sky / px, "roundtrip_over_kernel": sky / bare}


def sky_start() -> float:
    with Kernel() as kernel:
        load = kernel.run(SKY).seconds
        start = load + kernel.run("%%sky --nodes 2 -c bench\nprint(1)").first_stream
        end(kernel)
    return start


def ipyparallel_start() -> float:
    with Kernel() as kernel:
        code = PX.format(n=2) + "print(px_client[:].execute('print(1)', block=True).stdout)"
        seconds, message = next(
            (at, m)
            for at, m in kernel.run(code).messages
            if m["msg_type"] == "stream" and m["content"]["name"] == "stdout"
        )
        assert "1" in message["content"]["text"]
        kernel.run("px_cluster.stop_cluster_sync()")
    return seconds


def coldstart(quick: bool) -> dict:
    """Two engines from nothing to the first line they print, in a fresh kernel each time."""
    sky, raw = [], []
    for _ in range(1 if quick else 3):
        sky.append(sky_start())
        raw.append(ipyparallel_start())
        say(f"cold start: sky {sky[-1]:.2f} s, ipyparallel {raw[-1]:.2f} s")
    return {"coldstart_over_ipyparallel": median(sky) / median(raw)}


def flushed_lines(quick: bool) -> dict:
    """Many flushed lines of 100 bytes, paced as a training log that nothing can merge away."""
    body = "import time\nfor _ in range({}):\n    print('x' * 99, flush=True); time.sleep(0.002)"
    with Kernel() as kernel:
        warm(kernel, px=True)
        lines = 400 if quick else 4000
        sky = kernel.run("%%sky -c bench\n" + body.format(lines))
        assert sky.text.count("x" * 99) == lines, "lines were lost on the way"
        say(f"{lines} flushed lines, sky: {sky.megabytes:.2f} MB, {len(sky.messages)} messages")
        px = kernel.run("%%px\n" + body.format(400))  # quadratic: 4,000 would be 800 MB
        say(f"400 flushed lines, px: {px.megabytes:.2f} MB, {len(px.messages)} messages")
        end(kernel)
    return {"flushed_lines_mb": sky.megabytes}


def move_array(cells: dict[str, str], megabytes: int) -> tuple[float, dict[str, float]]:
    """Seconds for an array out and back, and the peaks of memory, in a fresh kernel."""
    with Kernel() as kernel:
        items = megabytes * 125_000
        kernel.run(f"import numpy as np; x = np.random.default_rng(0).random({items})")
        kernel.run(cells["start"]) if "start" in cells else warm(kernel, px=False)
        out = kernel.run(cells["out"]).seconds
        # Another value than x, so that no cache of contents can answer.
        kernel.run(cells["make"])
        back = kernel.run(cells["back"]).seconds
        peaks = kernel.peaks()
        kernel.run("assert y.shape == x.shape and y[0] == x[-1] and y[-1] == x[0]")
        kernel.run(cells["stop"])
    say(f"{cells['name']}: out {megabytes / out:.0f} MB/s, back {megabytes / back:.0f} MB/s")
    say("  peaks: " + ", ".join(f"{role} {gb:.2f} GB" for role, gb in peaks.items()))
    return out + back, peaks


def array(quick: bool) -> dict:
    megabytes = 100 if quick else 1000
    sky = {
        "name": f"{megabytes} MB through sky",
        "out": "%%sky -c bench -i x --yes\nassert len(x)",
        "make": "%%sky -c bench\ny = x[::-1].copy()",
        "back": "%%sky -c bench -o y --yes\nassert len(y)",
        "stop": "%sky down all",
    }
    raw = {
        "name": f"{megabytes} MB through ipyparallel",
        "start": PX.format(n=1),
        "out": "_ = px_client[0].push({'x': x}, block=True)",
        "make": "_ = px_client[0].execute('y = x[::-1].copy()', block=True)",
        "back": "y = px_client[0].pull('y', block=True)",
        "stop": "px_cluster.stop_cluster_sync()",
    }
    raw_seconds, _ = move_array(raw, megabytes)
    sky_seconds, peaks = move_array(sky, megabytes)
    return {"array_1gb_over_raw": raw_seconds / sky_seconds, "client_peak_gb": peaks["client"]}


def ipython_start(code: str) -> tuple[float, float]:
    """Seconds of an IPython that only runs `code`, and its peak memory in MB."""
    report = "import resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    command = [sys.executable, "-m", "IPython", "--quick", "-c", f"{code}\n{report}"]
    start = time.perf_counter()
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, kilobytes = time.perf_counter() - start, float(out.split()[-1])
    return seconds, kilobytes / 1e3


def load_ext(quick: bool) -> dict:
    """Return the time that `%load_ext jupyter_sky` adds to the start of IPython."""
    plain, loaded = [], []
    ipython_start(SKY)  # compiles what was never imported
    for _ in range(2 if quick else 7):
        plain.append(ipython_start("pass"))
        loaded.append(ipython_start(SKY))
    seconds, megabytes = (
        median(one[i] for one in loaded) - median(one[i] for one in plain) for i in (0, 1)
    )
    base = median(one[0] for one in plain)
    say(f"load_ext: {seconds:.3f} s and {megabytes:.1f} MB more than the {base:.2f} s without")
    return {"load_ext_s": seconds}


def main(quick: bool = False) -> dict[str, float]:
    figures = {}
    for part in (load_ext, roundtrip, coldstart, flushed_lines, array):
        figures |= part(quick)
    return figures
