"""SkyPilot's candidate search over our offers, in a separate process.

Its catalog files are written from ours into a home directory that is thrown away: the same offers
of AWS, Azure and Google Cloud, in its columns. What is timed is the function with which its
optimizer finds the machines for a task, for requests that both sides can express.
"""

import json
import os
import subprocess
from pathlib import Path

SEARCH = """
import json, sys, time
import sky
from sky import check, clouds, optimizer

enabled = [clouds.AWS(), clouds.Azure(), clouds.GCP()]
optimizer.sky_check.get_cached_enabled_clouds_or_refresh = lambda *a, **k: enabled

def task(labels):
    wanted = {}
    if "cpus" in labels:
        wanted["cpus"] = labels["cpus"]
    if "memory" in labels:
        wanted["memory"] = labels["memory"]
    if "gpus" in labels:
        wanted["accelerators"] = labels["gpus"]
    if labels.get("spot"):
        wanted["use_spot"] = True
    made = sky.Task(run="true")
    made.set_resources(sky.Resources(**wanted))
    return made

tasks = [task(labels) for labels in json.load(sys.stdin)]
fill = optimizer._fill_in_launchable_resources
fill(tasks[0], None, quiet=True)  # reads the files
found, start, cpu = 0, time.perf_counter(), time.process_time()
for one in tasks:
    launchable = fill(one, None, quiet=True)[0]
    found += sum(map(len, launchable.values()))
print(json.dumps({
    "version": sky.__version__,
    "seconds": time.perf_counter() - start,
    "cpu_seconds": time.process_time() - cpu,
    "tasks": len(tasks),
    "candidates": found,
}))
"""

COLUMNS = {
    "instance_type": "InstanceType",
    "accelerator": "AcceleratorName",
    "accelerator_count": "AcceleratorCount",
    "vcpus": "vCPUs",
    "memory_gib": "MemoryGiB",
    "on_demand_usd_h": "Price",
    "spot_usd_h": "SpotPrice",
    "region": "Region",
    "zone": "AvailabilityZone",
    "arch": "Arch",
}


def write_catalogs(home: Path) -> None:
    from jupyter_sky import catalog

    offers = catalog.load().table("offers").to_pandas()
    offers["zone"] = offers["zone"].astype(str)
    for cloud in ("aws", "azure", "gcp"):
        mine = offers[(offers["cloud"] == cloud) & (offers["kind"] == "vm")]
        table = mine[list(COLUMNS)].rename(columns=COLUMNS)
        # names that it cannot parse: machines that we put together, and Azure's oldest sizes
        names = table["InstanceType"].astype(str)
        odd = names.str.contains("+", regex=False)
        if cloud == "azure":
            odd |= ~names.str.fullmatch(r"(Standard|Basic)_[A-Z]+\d+(-\d+)?\w*")
        table = table[~odd]
        table.insert(5, "GpuInfo", "")
        table["Generation"] = "V2"
        folder = home / ".sky" / "catalogs" / "v8" / cloud
        folder.mkdir(parents=True)
        table.to_csv(folder / "vms.csv", index=False)

    names = sorted(set(offers["accelerator"].astype(str)) - {""})
    common = home / ".sky" / "catalogs" / "v8" / "common"
    common.mkdir()
    (common / "accelerators.csv").write_text(
        "\n".join(["AcceleratorName,Clouds", *(f"{name},aws" for name in names)]) + "\n"
    )


def expressible(labels: dict) -> bool:
    return bool(labels.keys() & {"cpus", "gpus"}) and not str(labels.get("gpus")).startswith("tpu")


def run(python: str, home: str, tasks: list[dict]) -> dict:
    """Seconds that SkyPilot takes for those of the tasks that it can express."""
    asked = [labels for labels in tasks if expressible(labels)]
    environment = {**os.environ, "HOME": home, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    command = [python, "-c", SEARCH]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, env=environment, cwd=home
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])
