"""Offers that can be launched with any account."""

from __future__ import annotations

from jupyter_sky.base.clouds.cloud_facts import parse_release
from jupyter_sky.base.clouds.index import BUILT_IN, LOCAL, MANAGED
from jupyter_sky.base.clouds.register import find_facts, find_provider_problem
from jupyter_sky.base.requests.geography import OWN_SPARK, requirement_name, split_requirements
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _

ON_PREMISES = (LOCAL, "ssh")
"""Built-in clouds of running on-premises machines, without a `Provider`."""


def provider_names() -> tuple[str, ...]:
    """Return the built-in clouds with a `Provider`; see `is_rented` for those of other packages."""
    return tuple(name for name in BUILT_IN if name not in ON_PREMISES)


def launchable() -> tuple[str, ...]:
    """Return the names of the built-in clouds that can launch machines."""
    return ON_PREMISES + provider_names()


def is_launchable(name: str) -> bool:
    """Whether machines of a cloud can be launched, by this package or by another."""
    return find_facts(name).launchable


def is_rented(name: str) -> bool:
    """Whether machines of a cloud are launched by a provider, mostly for an account."""
    return name not in ON_PREMISES and is_launchable(name)


def is_service_launchable(name: str, version: str) -> bool:
    """Whether a managed service is launched from here; Spark on bare machines is one.

    Examples
    --------
    >>> is_service_launchable("emr", "8.0.0"), is_service_launchable("emr", "6.5.0")
    (True, False)
    """
    if name not in MANAGED:
        return name == OWN_SPARK
    return parse_release(version) >= MANAGED[name].first_release


def launcher_name(offer: Offer) -> str:
    """Return the name of what launches an offer: a managed service, or its cloud.

    Examples
    --------
    >>> launcher_name(Offer("aws", "us-east-1", "emr-serverless", 4, 16, service="emr-serverless"))
    'emr-serverless'
    """
    return offer.service if offer.service in MANAGED else offer.cloud


def runs_here(name: str) -> bool:
    """Whether cells of what a name launches run on this machine.

    Examples
    --------
    >>> runs_here("local"), runs_here("emr-serverless"), runs_here("aws")
    (True, True, False)
    """
    return name == LOCAL or name in MANAGED


def launch_obstacle(offer: Offer) -> str:
    """Say why an offer cannot be launched from here; empty when it can be.

    Credentials are another matter: see `jupyter_sky.clouds.is_ready`.

    Examples
    --------
    >>> launch_obstacle(Offer("aws", "us-east-1", "mac2.metal", 8, 16))[:48]
    'mac2.metal runs on a Dedicated Host, billed for '
    """
    if why := _service_obstacle(offer):
        return why
    if offer.service in MANAGED:
        return ""
    if not is_launchable(offer.cloud):
        words = f"machines of {offer.cloud} cannot be launched from here yet"
        return find_provider_problem(offer.cloud) or words
    if offer.cloud in ON_PREMISES:
        return ""
    prefix = find_facts(offer.cloud).dedicated_host_prefix
    if prefix and offer.instance_type.startswith(prefix):
        return (
            f"{offer.instance_type} runs on a Dedicated Host, billed for 24 h at least, "
            "which cannot be launched from here yet"
        )
    return ""


def _service_obstacle(offer: Offer) -> str:
    """Say why the managed service of an offer cannot be launched; empty when it can be."""
    version = dict(each.split("==", 1) for each in offer.packages).get(offer.service or "", "")
    if not offer.service or is_service_launchable(offer.service, version):
        return ""
    if offer.service in MANAGED:
        facts = MANAGED[offer.service]
        return (
            f"{facts.short_title} {version} can be planned and priced, not launched: its sessions "
            f"begin with {'.'.join(map(str, facts.first_release))}"
        )
    return (
        f"{offer.service} can be planned and priced, not launched from here; what can be: "
        + ", ".join(MANAGED)
    )


def power_off_note(cloud: str, instance_type: str = "") -> str:
    """Return what a machine costs that has powered itself off, in a sentence; empty if nothing.

    Examples
    --------
    >>> power_off_note("lambda")[:59]
    'Lambda bills a machine in full until it is terminated by a '
    """
    facts = find_facts(cloud)
    if facts.is_billed_when_off(instance_type):
        text = _(
            "{cloud} bills a machine in full until it is terminated by a request, also one that is "
            "off: a process on this machine sends it, else the next notebook or %sky reap"
        )
    elif not facts.deletes_itself:
        text = _(
            "{cloud} bills the disk of a machine that is off until it is deleted by a request: a "
            "process on this machine sends it, else the next notebook or %sky reap"
        )
    else:
        return ""
    return text.format(cloud=facts.title)


def stop_obstacle(cloud: str, spot: bool = False, instance_type: str = "") -> str:
    """Say why machines of a cloud cannot be stopped and started again; empty where they can.

    Examples
    --------
    >>> stop_obstacle("aws"), stop_obstacle("local")
    ('', 'a cluster on a machine of your own costs nothing')
    >>> stop_obstacle("lambda")
    'Lambda bills a machine in full until it is terminated, also one that is off'
    >>> stop_obstacle("gcp", instance_type="tpu-v3-8")
    'Google Cloud bills a machine in full until it is terminated, also one that is off'
    """
    facts = find_facts(cloud)
    if facts.on_premises:
        return _("a cluster on a machine of your own costs nothing")
    if facts.host:
        return _("a session of {title} cannot be stopped, only ended").format(title=facts.title)
    if facts.is_billed_when_off(instance_type):
        text = _("{title} bills a machine in full until it is terminated, also one that is off")
        return text.format(title=facts.title)
    if not facts.can_stop:
        text = _("{title} may give the place of a stopped machine to others, and bills its disk")
        return text.format(title=facts.title)
    if spot:
        return _("a spot machine that is stopped loses its place, and cannot always be started")
    return ""


def connects_nodes(name: str) -> bool:
    """Whether machines of a launch reach each other."""
    return find_facts(name).has_private_network


def permanent_obstacle(need: Resources) -> str:
    """Say why no offer that meets a request can be launched on any cloud; empty when some can be.

    Examples
    --------
    >>> permanent_obstacle(Resources.parse(service="dataproc"))[:64]
    'dataproc can be planned and priced, not launched from here; what'
    >>> permanent_obstacle(Resources.parse(cloud="vast", nodes=2))
    'machines of vast do not reach each other: ask for one node'
    """
    if need.nodes > 1 and need.clouds and not any(map(connects_nodes, need.clouds)):
        return _("machines of {clouds} do not reach each other: ask for one node").format(
            clouds=", ".join(need.clouds)
        )
    named = [requirement_name(each) for each in split_requirements(need.service)[0]]
    refused = [] if any(name in (*MANAGED, OWN_SPARK) for name in named) else named
    probe = Offer(
        cloud=next(iter(need.clouds), "") if len(need.clouds) == 1 else provider_names()[0],
        region="",
        instance_type=need.instance_type or "",
        vcpus=0,
        memory=0,
        gpu=need.gpu,
        service=next(iter(refused), ""),
    )
    return launch_obstacle(probe)
