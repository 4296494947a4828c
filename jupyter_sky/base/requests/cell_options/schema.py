"""Schema of the options of ``%%sky``, the one table of its parser, help, completion and form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from jupyter_sky.base.translation import _

Kind = Literal["value", "names", "flag", "optional", "rest"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of ``%%sky``.

    Attributes
    ----------
    flags : tuple of str
        Spellings, the shortest first.
    dest, group : str
        Name of what it sets, and the heading under which help shows it.
    metavar : str or None
        What its value is called; None for a flag.
    help, example : str
        A sentence, and a use of it.
    kind : str
        ``value`` takes one, ``names`` a comma list and may be repeated, ``optional`` may have one,
        ``rest`` takes all further words.
    complete : str
        Kinds of names that complete its value, separated by spaces: see
        `jupyter_sky.interfaces.forms.completion_names.complete_names`.
    """

    flags: tuple[str, ...]
    dest: str
    group: str
    metavar: str | None
    help: str
    example: str
    kind: Kind = "value"
    complete: str = ""


# Flags, metavar, help, example and what completes the value. The metavar gives the kind: none is a
# flag, [NAME] is optional, NAME,... is a list.
_SCHEMA: dict[str, tuple[tuple[str, str, str, str, str], ...]] = {
    "Resources": (
        ("--cpus", "N[+]", "vCPUs of each node; + means at least.", "--cpus 4+", ""),
        ("--memory", "GiB[+]", "Memory of each node, in GiB.", "--memory 16+", ""),
        (
            "--gpus",
            "NAME[:N]",
            "Accelerators of each node; N+ means at least.",
            "--gpus V100:1",
            "gpu",
        ),
        ("--gpu-memory", "GiB[+]", "Memory of each accelerator.", "--gpu-memory 40+", ""),
        ("--nodes", "N", "Number of machines.", "--nodes 2", ""),
        ("--disk", "GiB", "Disk of each node, in GiB.", "--disk 100", ""),
        ("--arch", "NAME", "Processor: x86_64 or arm64.", "--arch arm64", "arch"),
        ("--cpu-vendor", "NAME", "Maker of the processor.", "--cpu-vendor AMD", "cpu-vendor"),
        ("--cloud", "CLOUDS", "Clouds to choose from.", "--cloud aws,gcp", "cloud"),
        ("--region", "NAME", "Region, or two letters: eu, us, de.", "--region us-east-1", "region"),
        ("--zone", "NAME", "Zone, as the cloud calls it.", "--zone us-east-1a", "zone"),
        ("--country", "CC", "Country, by two letters or by name.", "--country DE", "country"),
        ("--jurisdiction", "CC", "Whose law holds there.", "--jurisdiction eu", "jurisdiction"),
        (
            *("--instance-type", "NAME", "Machine, by name.", "--instance-type g5.xlarge"),
            "instance-type",
        ),
        ("--image", "NAME", "Image of a container or a pod.", "--image python:3.12", ""),
        ("--intel-sgx", "", "Only machines with enclaves of Intel SGX.", "--intel-sgx", ""),
        (
            *("--service", "NAME", "Spark, managed or on plain machines."),
            *('--service "spark==3.5.*"', "service"),
        ),
        ("--spot", "", "Only cheaper machines that the cloud may take back.", "--spot", ""),
        ("--on-demand", "", "Only machines that the cloud leaves alone.", "--on-demand", ""),
        ("--max-hourly-cost", "USD", "Most USD/h for all nodes.", "--max-hourly-cost 2.5", ""),
    ),
    "Limits": (
        ("--max-cost", "USD", "Most USD for this cell; stopped above it.", "--max-cost 5", ""),
        ("--timeout", "TIME", "Stop the cell after this long.", "--timeout 2h", ""),
        ("--idle", "TIME", "Shut the cluster down when unused this long.", "--idle 20m", ""),
    ),
    "Cluster": (
        ("-c --cluster", "NAME", "Cluster to run on, made if need be.", "-c train", "cluster"),
        (
            *("--engine", "NAME", "Data engine on its machines: spark, dask or ray."),
            *("--engine spark", "engine"),
        ),
        ("--on", "RANKS", "Engines that run the cell: 0, 0:4, 0,2 or all.", "--on all", ""),
    ),
    "Environment": (
        ("--pip", "PACKAGE,...", "Packages that the engines need.", '--pip "torch==2.*"', ""),
        ("--env", "NAME,...", "Local environment variables to set.", "--env HF_TOKEN", "env"),
        ("--sync", "PATH,...", "Directories to copy to the engines.", "--sync src/", "path"),
    ),
    "Data": (
        (
            *("--data", "URI[:PATH],...", "Data of a store, as a folder."),
            *("--data s3://imagenet/train", "storage"),
        ),
        (
            *("--mount", "URI[:PATH],...", "Data read as the cell asks for them."),
            *("--mount gs://mine/big", "storage"),
        ),
        (
            *("--out", "PATH:URI[!],...", "Files to upload; ! after an error, too."),
            *("--out ./model:s3://b/7/", ""),
        ),
    ),
    "Variables": (
        ("-i --input", "NAME,...", "Values to send; EXPR->NAME names one.", "-i x,y", "local-name"),
        (
            *("-o --output", "NAME,...", "Values to bring; or file:PATH, NAME!, NAME@URI."),
            *("-o score,file:out/", "remote-name"),
        ),
        ("--auto", "", "Send what the cell reads, and say what was sent.", "--auto", ""),
        ("--no-auto", "", "Send only what -i names.", "--no-auto", ""),
    ),
    "Search": (
        (
            *("--search", "GOAL", "Try machines; say on which cost or time is least."),
            *("--search cost", "cost time"),
        ),
        ("--trials", "N", "Machines that --search tries; else 12.", "--trials 20", ""),
        ("--budget", "USD", "Most USD for all trials together.", "--budget 12", ""),
        ("--deadline", "TIME", "Time after which no trial goes on.", "--deadline 2h", ""),
    ),
    "Running": (
        ("--bg", "[NAME]", "Run in the background, as NAME.", "--bg train", ""),
        (
            *("--task --name", "NAME", "Name of the cell, and of its task in a pipeline."),
            *("--task train", ""),
        ),
        (
            *("--after", "TASK,...", "Tasks that it waits for in a pipeline."),
            *("--after prepare", "task"),
        ),
        (
            *("--map", "NAME=LIST,...", "A task for each value; -o gathers a list."),
            *("--map lr=[0.1,0.01]", ""),
        ),
        (
            *("--sweep", "NAME=VALUES", "A job for each combination, as a bag."),
            *("--sweep lr=0.1,0.01", ""),
        ),
        ("--seed", "VALUES", "Values of seed, beside those of --sweep.", "--seed 0:5", ""),
        (
            *("--at-once", "N", "Most tasks of --map; machines of --sweep."),
            *("--at-once 4", ""),
        ),
        (
            *("--allow-failures", "N", "Tasks of --map that may fail, or N%."),
            *("--map n=R --allow-failures 1", ""),
        ),
        ("--if", "CONDITION", "Run only if it holds.", '--if "acc > .9"', "local-name"),
        (
            *("--default", "NAME=VALUE,...", "Values of -o if --if does not hold."),
            *("--if ok -o m --default m=0", ""),
        ),
        ("--retry", "N", "Tries after an error of its own, in a pipeline.", "--retry 2", ""),
        ("--sql", "", "The cell is SQL, for Spark; shows a table.", "--sql", ""),
        ("--dry-run", "", "Show what would run where, for how much.", "--dry-run", ""),
        (
            *("--retry-until-up", "", "When every place refuses, wait and ask again."),
            *("--retry-until-up", ""),
        ),
        (
            *("--burst", "POLICY", "Rent when own machines are busy."),
            *('--burst "spot<=2/h after 10m"', ""),
        ),
        (
            *("--recover", "[STRATEGY]", "Go on elsewhere when a machine is lost."),
            *("--recover", "strategy"),
        ),
        ("--checkpoint", "TIME", "Time between saves of sky.checkpointed.", "--checkpoint 10m", ""),
        ("--yes", "", "Send large values and replace files without asking.", "--yes", ""),
        (
            *("--untrusted", "", "Bring back data only, and nothing that can run here."),
            *("--untrusted", ""),
        ),
    ),
}


def _kind(metavar: str) -> Kind:
    if not metavar:
        return "flag"
    if metavar.startswith("["):
        return "optional"
    return "names" if metavar.endswith(",...") else "value"


def _options() -> Iterator[Option]:
    for group, rows in _SCHEMA.items():
        for flags, metavar, text, example, complete in rows:
            spellings = tuple(flags.split())
            dest = spellings[-1].lstrip("-").replace("-", "_")
            yield Option(
                spellings, dest, group, metavar or None, text, example, _kind(metavar), complete
            )


OPTIONS: tuple[Option, ...] = tuple(_options())
BY_FLAG: Mapping[str, Option] = MappingProxyType({f: opt for opt in OPTIONS for f in opt.flags})
BY_DEST: Mapping[str, Option] = MappingProxyType({option.dest: option for option in OPTIONS})


def help_text() -> str:
    """Every option by group, with examples: what ``%%sky?`` shows.

    Examples
    --------
    >>> "--gpus V100:1" in help_text()
    True
    """
    lines = [
        _("Run the cell on engines in a cloud, and show its output here."),
        "",
        "    %%sky [ALIAS] [OPTIONS]",
        "",
        "    %%sky --gpus V100:1 -i data -o score",
        "    %%sky --cpus 8+ --spot --bg train --max-cost 5",
        "    %%sky -c train -i df.test->test -o report,model!",
    ]
    for group in dict.fromkeys(option.group for option in OPTIONS):
        lines += ["", group_text(group)]
    return "\n".join([*lines, ""])


def group_text(group: str) -> str:
    """Return the options of one group, each with an example.

    Examples
    --------
    >>> group_text("Resources").splitlines()[1]
    '  --cpus N[+]                vCPUs of each node; + means at least. E.g. --cpus 4+'
    """
    lines = [_(group)]
    for option in (option for option in OPTIONS if option.group == group):
        usage = " ".join(filter(None, (", ".join(option.flags), option.metavar)))
        text = _(option.help)
        if option.metavar:
            text = _("{text} E.g. {example}").format(text=text, example=option.example)
        lines.append(f"  {usage:25}  {text}")
    return "\n".join(lines)
