"""Offers of a Slurm cluster: parts of its nodes, by partition."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping

from jupyter_sky.base.clouds.on_premises_facts import SlurmFacts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.remote.slurm import NodeShape
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources, parse_usd
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.machine_slices import powers_of_two, slice_name, slice_sizes

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
                SlurmFacts.name,
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
