"""Offers of clouds: one machine, in one place, at one price."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.accelerators import (
    Accelerator,
    accelerator,
    canonical,
    form_factors,
    named_form,
    tpu_hosts,
)
from jupyter_sky.base.translation import _

LIVE = "-live"
"""End of the source of a price that its cloud was asked for just before."""


class AcceleratorName(str):
    """Canonical name of an accelerator, equal to each of its spellings.

    Sets and dicts, which compare digests first, find the canonical spelling alone.

    Examples
    --------
    >>> AcceleratorName("V100") == "nvidia-v100", AcceleratorName("V100") == "T4"
    (True, False)
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return NotImplemented
        try:
            return str(self) == (str(other) and canonical(other))
        except SkyUsageError:  # no name of an accelerator
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def form_factor(cloud: str, instance_type: str, gpu: str) -> str:
    """Return the form factor of a machine's accelerators; empty where it is not known.

    Examples
    --------
    >>> form_factor("aws", "p4d.24xlarge", "A100"), form_factor("vast", "1x-A100", "A100")
    ('SXM', '')
    """
    match form_factors(gpu):
        case []:
            return ""
        case [form]:
            return form
    return named_form(instance_type) or find_facts(cloud).form_factor(instance_type)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of machine, whatever it costs and wherever it stands.

    Attributes
    ----------
    name : str
        In its cloud's own words.
    accelerator : Accelerator or None
        Kind and number of its accelerators.
    vcpus, memory_gb : float
        Virtual processors, and memory in GiB.
    architecture : str
        ``x86_64`` or ``arm64``; empty when not known.

    Examples
    --------
    >>> InstanceType("m5.large", None, 2, 8, "x86_64").memory_gb
    8
    """

    name: str
    accelerator: Accelerator | None
    vcpus: float
    memory_gb: float
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine that can be had.

    Attributes
    ----------
    cloud, region, instance_type : str
        Where and what, in the cloud's own words.
    vcpus : float
        Virtual processors of one node; 0 when not known.
    memory : float
        Memory of one node, in GiB; 0 when not known.
    zone : str, optional
        Zone within the region; None when the offer holds for the region as a whole.
    gpu, gpu_count
        Canonical name of the accelerators and how many a node has; below 1 for a shared one.
    spot : bool
        Whether the cloud may take the machine back.
    price : float, optional
        USD/h for one node; None when unknown. With a managed service, its surcharge included.
    source, date : str
        Where the price was read and the day it was, as YYYY-MM-DD.
    disk : float, optional
        Size in GiB of a disk that cannot grow; None when a disk of any size can be attached.
    arch, cpu_vendor : str
        ``x86_64`` or ``arm64``, and who makes the processor; empty when not known.
    gpu_memory : float, optional
        Memory of one accelerator, in GiB.
    country, jurisdiction : str
        Two letters of ISO 3166, and the law that holds there: ``EU``, ``US``, ``GB``...
    intel_sgx : bool
        Whether code can run in enclaves that the cloud cannot read.
    service : str
        Managed service that runs on the machine, such as ``emr``; empty for the bare machine.
    packages : tuple of str
        What the service brings: ``("emr==6.5.0", "spark==3.1.2")``.
    note : str
        What to know before the price is believed.
    other_price : float, optional
        USD/h of the same machine in the other market: on demand of a spot machine, and the other
        way round; None when unknown, or not sold.
    surcharge : float
        USD/h of `price` that the managed service takes beside the machine.

    Examples
    --------
    >>> Offer("aws", "us-east-1", "g5.xlarge", 4, 16, gpu="A10G", gpu_count=1, spot=True).place
    'aws us-east-1 g5.xlarge spot'
    """

    cloud: str
    region: str
    instance_type: str
    vcpus: float
    memory: float
    zone: str | None = None
    gpu: str | None = None
    gpu_count: float = 0
    spot: bool = False
    price: float | None = None
    source: str = ""
    date: str = ""
    disk: float | None = None
    arch: str = ""
    cpu_vendor: str = ""
    gpu_memory: float | None = None
    country: str = ""
    jurisdiction: str = ""
    intel_sgx: bool = False
    service: str = ""
    packages: tuple[str, ...] = ()
    note: str = ""
    other_price: float | None = None
    surcharge: float = 0.0

    @property
    def hosts(self) -> int:
        """Machines that it consists of: more than 1 only for a slice of several TPU VMs.

        Examples
        --------
        >>> Offer("gcp", "us-central1", "tpu-v2-32", 96, 334, gpu="tpu-v2-32").hosts
        4
        """
        found = tpu_hosts(self.instance_type)
        return found.count if found else 1

    @property
    def place(self) -> str:
        """The offer in a few words: cloud, zone or region, instance type, spot; or this machine."""
        if self.cloud == "local":
            return _("this machine")
        if self.zone and not self.zone.startswith(self.region):
            where = f"{self.region} {self.zone}"
        else:
            where = self.zone or self.region
        words = (self.cloud, where, self.instance_type, "spot" if self.spot else "")
        return " ".join(word for word in words if word)

    def place_of(self, nodes: int) -> str:
        """Return the place of several machines in a few words.

        Examples
        --------
        >>> Offer("aws", "us-east-1", "m5.large", 2, 8).place_of(3)
        '3 x aws us-east-1 m5.large'
        >>> Offer("local", "this-machine", "", 2, 8).place_of(3)
        'this machine, 3 nodes'
        """
        if nodes == 1:
            return self.place
        if self.cloud == "local":
            return _("{place}, {nodes} nodes").format(place=self.place, nodes=nodes)
        return f"{nodes} x {self.place}"

    @property
    def spot_price(self) -> float | None:
        """Price (USD/h) of the machine when it may be taken back; None when unknown or not sold.

        Examples
        --------
        >>> spot = Offer("aws", "us-east-1", "g5", 4, 16, spot=True, price=0.4, other_price=1)
        >>> spot.spot_price, spot.on_demand_price
        (0.4, 1)
        """
        return self.price if self.spot else self.other_price

    @property
    def on_demand_price(self) -> float | None:
        """Price (USD/h) of the machine on demand; None when unknown or not sold."""
        return self.other_price if self.spot else self.price

    @property
    def billing_unit(self) -> str:
        """Step of billed time: ``second``, ``minute``, ``hour``, or its seconds; empty where free.

        Examples
        --------
        >>> Offer("aws", "us-east-1", "t3.nano", 2, 0.5).billing_unit
        'second'
        >>> Offer("verda", "FIN-01", "1V100.6V", 6, 23).billing_unit
        '600 s'
        """
        step = find_facts(self.cloud).billing[0]
        names = {0.0: "", 1.0: "second", 60.0: "minute", 3600.0: "hour"}
        return names.get(step, f"{step:g} s")

    @property
    def machine(self) -> InstanceType:
        """The machine without its price and place: the same for spot and on demand.

        Examples
        --------
        >>> offer = Offer("aws", "us-east-1", "p3.8xlarge", 32, 244, None, "V100", 4)
        >>> str(offer.machine.accelerator)
        'V100:4'
        """
        kind = accelerator(self.gpu, self.gpu_count) if self.gpu else None
        return InstanceType(self.instance_type, kind, self.vcpus, self.memory, self.arch)

    @property
    def accelerator(self) -> AcceleratorName:
        """Kind of its accelerators, equal to each spelling of the name; empty where it has none.

        Examples
        --------
        >>> Offer("aws", "us-east-1", "p3.2xlarge", 8, 61, gpu="V100").accelerator == "nvidia-v100"
        True
        """
        return AcceleratorName(self.gpu or "")

    @property
    def form_factor(self) -> str:
        """Form factor of its accelerators: ``SXM``, ``PCIe``...; empty where it is not known."""
        return form_factor(self.cloud, self.instance_type, self.gpu or "")

    @property
    def gpu_price(self) -> float | None:
        """USD/h for one accelerator, when both are known.

        Examples
        --------
        >>> Offer("aws", "us-east-1", "p3.8xlarge", 32, 244, None, "V100", 4, price=12).gpu_price
        3.0
        """
        return self.price / self.gpu_count if self.price is not None and self.gpu_count else None


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a launch: cloud, region, zone and type; an empty field stands for any.

    Parameters
    ----------
    cloud, region, zone, instance_type
        Names as in the catalog.
    spot
        Whether it is the spot market of the place.

    Examples
    --------
    >>> zone = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", spot=True)
    >>> str(zone), Place("aws", "us-east-1", spot=True).covers(zone)
    ('aws us-east-1a g5.xlarge spot', True)
    """

    cloud: str
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    spot: bool = False

    @classmethod
    def of(cls, where: Offer | Place) -> Place:
        """Return the place of an offer; a place is returned as it is.

        Raises
        ------
        SkyUsageError
            For anything else, or a place without a cloud.
        """
        if isinstance(where, Offer):
            zone = where.zone or ""
            where = cls(where.cloud, where.region, zone, where.instance_type, where.spot)
        if not isinstance(where, Place):
            raise SkyUsageError(
                _("{where!r} is not a place").format(where=where),
                hint=_('give an offer, or Place("aws", "us-east-1", "us-east-1a", "g5.xlarge")'),
            )
        if not where.cloud:
            raise SkyUsageError(_("a place needs a cloud at least"), hint=_('such as Place("aws")'))
        return where

    def covers(self, other: Place) -> bool:
        """Whether `other` lies within this place."""
        pairs = zip(self._words(), other._words(), strict=True)
        return self.spot == other.spot and all(not mine or mine == its for mine, its in pairs)

    def _words(self) -> tuple[str, str, str, str]:
        return (self.cloud, self.region, self.zone, self.instance_type)

    def __str__(self) -> str:
        zone = self.zone or None
        return Offer(
            self.cloud, self.region, self.instance_type, 0, 0, zone=zone, spot=self.spot
        ).place


@dataclass(frozen=True, slots=True)
class Price:
    """A spot price that was seen: USD/h of one machine, and when, in unix seconds."""

    usd: float
    at: float
