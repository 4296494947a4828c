"""Offers of a Slurm cluster: parts of its nodes, by partition."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

from ... import accelerators
from ...errors import SkyUsageError
from ...offers import Offer
from ...provider.facts import SlurmFacts
from ...remote.slurm import NodeShape
from ...resources import parse_usd, plain_number
from ...translation import _

_GPU = "-gpu:"


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
    >>> for offer in node_offers(NodeShape("cpu", 6, 12288), {"": 0.6}):
    ...     print(offer.instance_type, offer.vcpus, offer.memory, offer.price)
    1cpu-2gib 1 2.0 0.1
    2cpu-4gib 2 4.0 0.2
    4cpu-8gib 4 8.0 0.4
    6cpu-12gib 6 12.0 0.6
    >>> [o.instance_type for o in node_offers(NodeShape("gpu", 64, 262144, "a100", 4), {})]
    ['16cpu-64gib-gpu:a100:1', '32cpu-128gib-gpu:a100:2', '64cpu-256gib-gpu:a100:4']
    """
    whole = shape.gpu_count if shape.gpu else shape.cpus
    price = prices.get(shape.partition, prices.get("", 0.0))
    gpu = _accelerator(shape.gpu) if shape.gpu else None
    for count in _parts(whole):
        share = count / whole
        cpus = max(1, math.floor(shape.cpus * share))
        memory = math.floor(10 * shape.memory * share / 1024) / 10
        suffix = f"{_GPU}{shape.gpu}:{count}" if shape.gpu else ""
        yield Offer(
            SlurmFacts.name,
            shape.partition,
            f"{cpus}cpu-{plain_number(memory)}gib{suffix}",
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
    >>> gpu_type("16cpu-64gib-gpu:a100:1"), gpu_type("1cpu-2gib")
    ('a100', '')
    """
    return instance_type.partition(_GPU)[2].rpartition(":")[0]


def _parts(whole: int) -> list[int]:
    """Return the powers of two up to a number, and the number itself."""
    return sorted({*(2**n for n in range(whole.bit_length())), whole})


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
