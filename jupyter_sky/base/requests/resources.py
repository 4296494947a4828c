"""Requests for machines as values: one schema of labels for cells, offers and plans."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import InitVar, dataclass, fields, replace
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests import accelerators, geography
from jupyter_sky.base.requests.geography import in_area, is_area, parse_clouds, parse_gpus
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import (
    Amount,
    format_duration,
    format_elapsed,
    format_run_time,
    parse_amount,
    parse_count,
    parse_duration,
    parse_usd,
    plain_number,
)
from jupyter_sky.base.translation import _

__all__ = [
    "OTHER_FORM",
    "Amount",
    "Resources",
    "format_duration",
    "format_elapsed",
    "format_option",
    "format_run_time",
    "parse_amount",
    "parse_clouds",
    "parse_count",
    "parse_duration",
    "parse_gpus",
    "parse_usd",
    "plain_number",
]

OTHER_FORM = 5.0
"""Distance of an accelerator in another form factor, beside the logarithms of ratios of sizes."""
Label = str | int | float | bool | tuple[str, ...] | list[str] | accelerators.Accelerator | None


def format_option(key: str, value: str = "") -> str:
    """Format a label as it is written on a command line.

    Examples
    --------
    >>> format_option("instance_type", "g5.xlarge")
    '--instance-type g5.xlarge'
    """
    flag = "--" + key.replace("_", "-")
    return flag if key in _FLAGS or not value else f"{flag} {value}"


def _gpu_fields(text: str, label: str) -> dict[str, Any]:
    gpu, amount = parse_gpus(text, label)
    count = int(amount.value) if amount.value == int(amount.value) else amount.value
    form = accelerators.named_form(text) if len(accelerators.form_factors(gpu)) > 1 else ""
    found = {"gpu": gpu, "gpu_count": count, "gpu_at_least": amount.at_least}
    return found | {"gpu_form": form or None}


_FLAGS = ("spot", "on_demand", "intel_sgx")
# an option of a cell that has no value comes as an empty one
_YES, _NO = ("", "true", "yes", "1"), ("false", "no", "0")
_PARSERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "cpus": lambda text, label: {"cpus": parse_amount(text, label, units=False)},
    "memory": lambda text, label: {"memory": parse_amount(text, label)},
    "gpus": _gpu_fields,
    "gpu_memory": lambda text, label: {"gpu_memory": parse_amount(text, label)},
    "nodes": lambda text, label: {"nodes": parse_count(text, label)},
    "disk": lambda text, label: {"disk": parse_amount(text, label)},
    "arch": lambda text, label: {"arch": geography.parse_arch(text, label)},
    "cpu_vendor": lambda text, label: {"cpu_vendor": geography.parse_vendor(text, label)},
    "cloud": lambda text, label: {"clouds": parse_clouds(text, label)},
    "region": lambda text, label: {"region": geography.parse_region(text, label)},
    "zone": lambda text, label: {"zone": geography.parse_cloud_name(text, label)},
    "country": lambda text, label: {"country": geography.parse_area(text, label)},
    "jurisdiction": lambda text, label: {"jurisdiction": geography.parse_area(text, label)},
    "instance_type": lambda text, label: {"instance_type": geography.parse_cloud_name(text, label)},
    "image": lambda text, label: {"image": geography.parse_image(text, label)},
    "intel_sgx": lambda text, label: {"intel_sgx": True},
    "service": lambda text, label: {"service": geography.parse_service(text, label)},
    "spot": lambda text, label: {"spot": True},
    "on_demand": lambda text, label: {"spot": False},
    "max_hourly_cost": lambda text, label: {"max_hourly_cost": parse_usd(text, label)},
}


@dataclass(frozen=True, slots=True)
class Resources:
    """Request for machines. ``Resources()`` admits any offer.

    Attributes
    ----------
    cpus, memory, disk : Amount, optional
        vCPUs, GiB of memory and GiB of disk, of each node. A larger disk always will do.
    gpu, gpu_count, gpu_at_least
        Canonical name of the accelerator, how many each node has, and whether more will do.
    gpu_memory : Amount, optional
        GiB of memory of each accelerator.
    nodes : int
        Number of machines.
    arch, cpu_vendor : str, optional
        ``x86_64`` or ``arm64``, and who makes the processor.
    clouds : tuple of str
        Clouds to choose from; empty for all.
    region, zone, instance_type : str, optional
        In the cloud's own words. A region of two letters is a country or jurisdiction.
    country, jurisdiction : str, optional
        Where the machine stands, and the law that holds there, as ``DE`` and ``EU``.
    intel_sgx : bool
        Whether enclaves of Intel SGX are needed.
    service : tuple of str
        Managed services, any of which will do, and what they must bring:
        ``("emr", "spark==3.5.*")``.
    spot : bool, optional
        True for spot machines, False for on-demand ones, None for either.
    max_hourly_cost : float, optional
        Most USD/h that all nodes together may cost.
    gpu_form : str, optional
        ``SXM`` or ``PCIe``, for accelerators that are sold in both: ``--gpus A100-SXM:8``.
    image : str, optional
        Image of the containers that machines are: ``python:3.12``. Only clouds that rent
        containers meet it.

    Notes
    -----
    ``accelerator``, ``cpu``, ``ram`` (GiB) and ``num_nodes`` are taken as in Listing 1 of the
    SkyPilot paper; what they set is read as ``gpu``, ``cpus``, ``memory`` and ``nodes``.

    Examples
    --------
    >>> Resources(accelerator="google-tpu-v3-8", cpu=4).command_line()
    '--cpus 4 --gpus tpu-v3-8:1'
    >>> Resources.parse(cpus="4+", gpus="v100").command_line()
    '--cpus 4+ --gpus V100:1'
    """

    cpus: Amount | None = None
    memory: Amount | None = None
    gpu: str | None = None
    gpu_count: float = 0
    gpu_at_least: bool = False
    gpu_memory: Amount | None = None
    nodes: int = 1
    disk: Amount | None = None
    arch: str | None = None
    cpu_vendor: str | None = None
    clouds: tuple[str, ...] = ()
    region: str | None = None
    zone: str | None = None
    country: str | None = None
    jurisdiction: str | None = None
    instance_type: str | None = None
    intel_sgx: bool = False
    service: tuple[str, ...] = ()
    spot: bool | None = None
    max_hourly_cost: float | None = None
    gpu_form: str | None = None
    image: str | None = None
    accelerator: InitVar[str | None] = None
    cpu: InitVar[float | str | None] = None
    ram: InitVar[float | str | None] = None
    num_nodes: InitVar[int | None] = None

    def __post_init__(
        self,
        accelerator: str | None,
        cpu: float | str | None,
        ram: float | str | None,
        num_nodes: int | None,
    ) -> None:
        """Take the labels of the SkyPilot paper for those of the same meaning."""
        given = {"gpus": accelerator, "cpus": cpu, "memory": ram, "nodes": num_nodes}
        if any(value is not None for value in given.values()):
            parsed = Resources.parse(**given)
            for each in fields(parsed):
                value = getattr(parsed, each.name)
                if value != each.default:
                    object.__setattr__(self, each.name, value)

    @classmethod
    def parse(cls, **texts: Label) -> Resources:
        """Request of option strings, named as the options are; None means not given.

        ``spot=False`` asks for machines on demand; of any other label False means not given.

        Raises
        ------
        SkyUsageError
            For an unknown or malformed label, or for both ``spot`` and ``on_demand``.
        """
        fields: dict[str, Any] = {}
        given = {
            name: _text(value, name)
            for key, value in texts.items()
            if (name := _name(key, value)) is not None
        }
        for key, text in given.items():
            if key not in _PARSERS:
                raise SkyUsageError(
                    _("{key!r} is not a label").format(key=key), hint=suggest(key, _PARSERS)
                )
            fields |= _PARSERS[key](text, format_option(key))
        if fields.get("gpu") and "gpu_memory" in fields:
            fields["gpu"] = accelerators.variant(fields["gpu"], fields["gpu_memory"].admits)
        if "spot" in given and "on_demand" in given:
            raise SkyUsageError(
                _("--spot and --on-demand exclude each other"), hint=_("give one of them, or none")
            )
        return cls(**fields)

    @property
    def is_tpu(self) -> bool:
        """Whether the accelerator is a TPU."""
        return (self.gpu or "").startswith("tpu-")

    @property
    def gpu_name(self) -> str:
        """Name of the accelerator, with the form factor that is asked for; empty without one."""
        return f"{self.gpu or ''}{f'-{self.gpu_form}' if self.gpu_form else ''}"

    @property
    def gpus(self) -> Amount:
        """Number of accelerators of each node, as an amount."""
        return Amount(self.gpu_count, self.gpu_at_least)

    def labels(self) -> dict[str, str]:
        """Canonical option strings; ``Resources.parse(**r.labels()) == r``."""
        market = {None: None, True: "spot", False: "on_demand"}[self.spot]
        cost = self.max_hourly_cost
        everything = {
            "cpus": self.cpus,
            "memory": self.memory,
            "gpus": f"{self.gpu_name}:{self.gpus}" if self.gpu else None,
            "gpu_memory": self.gpu_memory,
            "nodes": self.nodes if self.nodes > 1 else None,
            "disk": self.disk,
            "arch": self.arch,
            "cpu_vendor": self.cpu_vendor,
            "cloud": ",".join(self.clouds) or None,
            "region": self.region,
            "zone": self.zone,
            "country": self.country,
            "jurisdiction": self.jurisdiction,
            "instance_type": self.instance_type,
            "image": self.image,
            "intel_sgx": "true" if self.intel_sgx else None,
            "service": ",".join(self.service) or None,
            market: "true" if market else None,
            "max_hourly_cost": None if cost is None else plain_number(cost),
        }
        return {key: str(text) for key, text in everything.items() if key and text is not None}

    def command_line(self) -> str:
        """Format the request as it is written above a cell."""
        return " ".join(format_option(key, _quoted(text)) for key, text in self.labels().items())

    def unmet_labels(self, offer: Offer) -> tuple[str, ...]:
        """Keys of `labels` that an offer fails to meet."""
        failed = [key for key, meets in _PREDICATES.items() if not meets(self, offer)]
        if self.spot is not None and self.spot != offer.spot:
            failed.append("spot" if self.spot else "on_demand")
        return tuple(failed)

    def satisfied_by(self, offer: Offer) -> bool:
        """Whether an offer meets every label."""
        return not self.unmet_labels(offer)

    def override(self, given: Resources) -> Resources:
        """Return the request with the labels of another above its own.

        Examples
        --------
        >>> base = Resources.parse(cpus="4", spot=True)
        >>> base.override(Resources.parse(gpus="T4", on_demand=True)).command_line()
        '--cpus 4 --gpus T4:1 --on-demand'
        """
        own, others = self.labels(), given.labels()
        for flag, other in (("spot", "on_demand"), ("on_demand", "spot")):
            if flag in others:
                own.pop(other, None)
        return Resources.parse(**{**own, **others})

    def as_minimum(self) -> Resources:
        """Return the request with every amount as the least that will do.

        Examples
        --------
        >>> Resources.parse(cpus="1", gpus="v100").as_minimum().command_line()
        '--cpus 1+ --gpus V100:1+'
        """
        amounts = {name: getattr(self, name) for name in ("cpus", "memory", "gpu_memory", "disk")}
        least = {key: amount and replace(amount, at_least=True) for key, amount in amounts.items()}
        return replace(self, gpu_at_least=bool(self.gpu), **least)


def _name(key: str, value: Label) -> str | None:
    """Return the label of a value; None when it is not given."""
    if value is None:
        return None
    if key in _FLAGS:
        if str(value).lower() not in _YES + _NO:
            raise SkyUsageError(
                _("{key}={value!r}: neither true nor false").format(key=key, value=value),
                hint=f"{key}=True",
            )
        if str(value).lower() in _NO:
            return "on_demand" if key == "spot" else None
    return None if value is False or str(value).lower() == "false" else key


def _text(value: Label, key: str) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if value is True and key not in _FLAGS:
        raise SkyUsageError(
            _("{key}=True: {key2} needs a value").format(key=key, key2=format_option(key))
        )
    return str(value)


def _quoted(text: str) -> str:
    """Quote a text that a shell would split."""
    return f'"{text}"' if re.search(r"[\s*<>!~]", text) else text


def _runs_image(need: Resources, offer: Offer) -> bool:
    from jupyter_sky.base.clouds.register import find_facts  # which needs the values of this module

    return need.image is None or find_facts(offer.cloud).runs_images


def _in_region(need: Resources, offer: Offer) -> bool:
    if need.region in (None, offer.region):
        return True
    area = need.region or ""
    return is_area(area) and in_area(area, offer.country, offer.jurisdiction)


def _has_size(need: Resources, amount: Amount | None, offer: Offer, size: float) -> bool:
    """Whether a machine has a size.

    VMs of TPUs come in one size, which must not be smaller than what is asked for; they are for
    requests that name a TPU.
    """
    if amount is None:
        return True
    if need.is_tpu:
        return not size or size >= amount.bounds()[0]
    return amount.admits(size) and not (offer.gpu or "").startswith("tpu-")


# Label -> whether an offer meets it; a label that was not given is met by every offer.
_PREDICATES: dict[str, Callable[[Resources, Offer], bool]] = {
    "cpus": lambda need, offer: _has_size(need, need.cpus, offer, offer.vcpus),
    "memory": lambda need, offer: _has_size(need, need.memory, offer, offer.memory),
    "gpus": lambda need, offer: (
        need.gpu is None
        or (
            need.gpu == offer.gpu
            and need.gpus.admits(offer.gpu_count)
            and need.gpu_form in (None, offer.form_factor)
        )
    ),
    "gpu_memory": lambda need, offer: (
        need.gpu_memory is None
        # what a slice of TPUs has together is not what one GPU has
        or (
            need.gpu_memory.admits(offer.gpu_memory or 0)
            and (need.gpu is not None or not (offer.gpu or "").startswith("tpu-"))
        )
    ),
    "disk": lambda need, offer: (
        need.disk is None or offer.disk is None or offer.disk >= need.disk.value
    ),
    "arch": lambda need, offer: need.arch in (None, offer.arch),
    "cpu_vendor": lambda need, offer: need.cpu_vendor in (None, offer.cpu_vendor),
    "cloud": lambda need, offer: not need.clouds or offer.cloud in need.clouds,
    "region": _in_region,
    "zone": lambda need, offer: need.zone in (None, offer.zone),
    "country": lambda need, offer: (
        need.country is None or in_area(need.country, offer.country, offer.jurisdiction)
    ),
    "jurisdiction": lambda need, offer: (
        need.jurisdiction is None or in_area(need.jurisdiction, "", offer.jurisdiction)
    ),
    "instance_type": lambda need, offer: need.instance_type in (None, offer.instance_type),
    "image": _runs_image,
    "intel_sgx": lambda need, offer: offer.intel_sgx or not need.intel_sgx,
    "service": lambda need, offer: geography.provides_packages(need.service, offer.packages),
    "max_hourly_cost": lambda need, offer: (
        # A limit on an unknown price cannot be shown to be kept.
        need.max_hourly_cost is None
        or (offer.price is not None and offer.price * need.nodes <= need.max_hourly_cost)
    ),
}
