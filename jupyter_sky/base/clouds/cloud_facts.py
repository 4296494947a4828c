"""Facts of a cloud as class attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

API_VERSION = 1
"""Version of the protocol `Provider`; a provider names the one that it is written for."""
LONGEST_BILLING_UNIT = 86400.0
"""Longest step or minimum of billed time that a cloud may have, seconds."""
_SIZE_SUFFIX = re.compile(r"[-_.]\d+[a-z]*$")


@lru_cache(maxsize=4096)
def parse_release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version.

    Examples
    --------
    >>> parse_release("8.0.0") > parse_release("7.13.0")
    True
    """
    return tuple(map(int, re.findall(r"\d+", version)))


class CloudFacts:
    """Properties of a cloud that other rooms read; all have defaults but ``name``.

    Attributes
    ----------
    name : str
        As in ``%%sky --cloud``; of a managed service, as in ``%%sky --service``.
    host : str
        Cloud of a managed service; empty for a cloud itself.
    first_release : tuple of int
        First version of a managed service that can be launched; empty for any.
    title : str
        As its vendor writes it.
    short_title : str
        Title in a word, where the title is long.
    packages : tuple of str
        Top-level modules of its SDK.
    install : str
        Command that installs them.
    account, permissions : str
        What to get from the vendor before the first launch, and what its user has to be allowed.
    note : str
        A few words beside its name in lists, where no offers are counted.
    settings : mapping of str to str
        Settings of this cloud alone, each with its description: keys of ``Sky.providers[name]``,
        read by ``Sky.load().provider_setting(name, key)``.
    billing : tuple of float
        Step and minimum of billed time, seconds, at most a day; (0, 0) where it costs nothing.
    launchable : bool
        Whether machines can be launched; else its offers are planned and priced only.
    on_premises : bool
        Whether its machines are one's own, which no catalog lists. With a `Provider` they are
        launched as machines of other clouds, and requested after machines without one.
    only_by_name : bool
        Whether it is asked only where a request names it: what it has costs nothing, and would
        else be taken before all others.
    runs_images : bool
        Whether its machines are containers, of an image that a request may name.
    dedicated_host_prefix : str
        Instance types beginning so run on a Dedicated Host alone; empty where none do.
    has_live_offers : bool
        Whether its stock and prices are asked just before a launch, which takes nothing else.
    has_private_network : bool
        Whether the machines of a launch reach each other; else each is launched alone.
    power_off_cost : str
        What a machine costs that has powered itself off: ``none``, as on clouds where it is then
        gone, its ``disk``, or ``full``: it ends only by a request from outside.
    deletes_itself : bool
        Whether one that is off is gone soon; else it stays until a process of this user ends it.
    can_stop : bool
        Whether its machines can be stopped by a request and started again, their disks kept; see
        `Provider.stop`.
    stop_extra_usd : float
        USD/h that a stopped machine costs beside its disk, such as its address.
    pue : float
        Power usage effectiveness of its data centres.
    storage_region : str
        Region of objects whose address names none; empty where it stores none.
    storage_class : str
        Name of its standard storage class.
    schemes, storage_hosts : tuple of str
        URI schemes of its object store, and suffixes of host names in its ``https`` addresses.
    has_flat_egress : bool
        Whether data that leave a region cost the same to every other region.
    form_factors : mapping of str to str
        Form factor of accelerators that are sold in several, by a regular expression of instance
        types that do not name it; the first that is found counts.
    sgx_types : str
        Regular expression of the instance types with Intel SGX; empty where there are none.
    price_source : str
        Module and class in `jupyter_sky.clouds.prices` that read its price list.
    notice_service : str
        Class in `machines.engines.node.notices` that reads what the cloud tells a machine about
        its end; empty where it tells nothing.
    console_page, quota_page, permission_page : str
        Console pages of machines, quotas and permissions; ``{region}`` stands for a region.
    clock : str
        Address whose answers carry the time by which it judges signatures.
    colour : str
        In drawings of plans.
    provider : str
        Module and class of the provider of a cloud of this package, imported at its first use.
    api_version : int
        Version of the protocol that a provider is written for.

    Examples
    --------
    >>> class Nimbus(CloudFacts):
    ...     name, title, billing = "nimbus", "Nimbus Cloud", (60.0, 60.0)
    >>> Nimbus.quota_family("gpu-8"), Nimbus.product_family("gpu-8")
    ('gpu-8', 'gpu')
    """

    name: ClassVar[str]
    host: ClassVar[str] = ""
    first_release: ClassVar[tuple[int, ...]] = ()
    title: ClassVar[str] = ""
    short_title: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    account: ClassVar[str] = ""
    permissions: ClassVar[str] = ""
    note: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, str]] = {}
    billing: ClassVar[tuple[float, float]] = (0.0, 0.0)
    launchable: ClassVar[bool] = False
    on_premises: ClassVar[bool] = False
    only_by_name: ClassVar[bool] = False
    runs_images: ClassVar[bool] = False
    dedicated_host_prefix: ClassVar[str] = ""
    has_live_offers: ClassVar[bool] = False
    has_private_network: ClassVar[bool] = True
    power_off_cost: ClassVar[str] = "none"
    deletes_itself: ClassVar[bool] = True
    can_stop: ClassVar[bool] = False
    stop_extra_usd: ClassVar[float] = 0.0
    pue: ClassVar[float] = 1.2
    storage_region: ClassVar[str] = ""
    storage_class: ClassVar[str] = ""
    schemes: ClassVar[tuple[str, ...]] = ()
    storage_hosts: ClassVar[tuple[str, ...]] = ()
    has_flat_egress: ClassVar[bool] = False
    form_factors: ClassVar[Mapping[str, str]] = {}
    sgx_types: ClassVar[str] = ""
    price_source: ClassVar[str] = ""
    notice_service: ClassVar[str] = ""
    console_page: ClassVar[str] = ""
    quota_page: ClassVar[str] = ""
    permission_page: ClassVar[str] = ""
    clock: ClassVar[str] = ""
    colour: ClassVar[str] = "#8a63c9"
    provider: ClassVar[str] = ""
    api_version: ClassVar[int] = API_VERSION

    @staticmethod
    def quota_family(instance_type: str) -> str:
        """Return the name under which instance types share a quota, by default a type's own."""
        return instance_type

    @classmethod
    def is_billed_when_off(cls, instance_type: str) -> bool:
        """Whether a machine that has powered itself off is billed in full until it is deleted."""
        return cls.power_off_cost == "full"

    @classmethod
    def form_factor(cls, instance_type: str) -> str:
        """Return the form factor of a machine's accelerators; empty where it is not known."""
        found = (form for key, form in cls.form_factors.items() if re.search(key, instance_type))
        return next(found, "")

    @staticmethod
    def product_family(instance_type: str) -> str:
        """Return the name of an instance type without its size."""
        return _SIZE_SUFFIX.sub("", instance_type) or instance_type
