"""Words of a request: clouds, accelerators, processors, areas and managed services."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from jupyter_sky.base.clouds.register import check_name, known_names
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.quantities import Amount
from jupyter_sky.base.translation import _

ARCHES = ("x86_64", "arm64")
VENDORS = ("AMD", "AWS", "Ampere", "Apple", "Google", "Intel", "Microsoft", "NVIDIA")
SERVERLESS = ("dataproc-serverless", "emr-serverless")
"""Services without machines: paid by the vCPU, the GiB and the hour."""
OWN_SPARK = "own-spark"
"""Spark on bare machines, without surcharge."""
SERVICES = ("dataproc", "emr", "hdinsight", OWN_SPARK, *SERVERLESS)
PACKAGES = ("hadoop", "spark")

_ARCH = {
    **dict.fromkeys(("x86_64", "x86-64", "x86", "x64", "amd64"), "x86_64"),
    **dict.fromkeys(("arm64", "arm", "aarch64"), "arm64"),
}
_VENDOR = {vendor.lower(): vendor for vendor in VENDORS} | {"graviton": "AWS"}
_AREA_PATTERN = r"(?i:[a-z]{2}|eea|us-gov)"
_AREA_NAMES = {
    **{"britain": "GB", "great britain": "GB", "uk": "GB", "europe": "EU", "european union": "EU"},
    **{"korea": "KR", "russia": "RU", "turkey": "TR", "uae": "AE"},
}
"""Areas by names that ISO 3166 does not have."""
_AREAS_AS_REGIONS = {"europe": "eu", "usa": "us", "uk": "gb"}
_COUNT_PATTERN = r"(>=)?([1-9]\d{0,5}|0?\.\d{1,6}|1/[2-9])(\+?)"
_REQUIREMENT_PATTERN = r"(?i:([a-z][a-z-]*)\s*((?:[<>=!~]=?|===).*)?)"


def parse_cloud_name(text: str, label: str) -> str:
    """Read a name in a cloud's own words."""
    if not re.fullmatch(r"[\w.:/+-]+", text):
        raise SkyUsageError(
            _("{label} {text}: not a name; names have letters, digits and . : / + - _").format(
                label=label, text=text
            ),
            hint=_name_hint(text, label),
        )
    return text


def _name_hint(text: str, label: str) -> str:
    """Return an example of a name that resembles a text."""
    near = "-".join(re.findall(r"[\w.:/+-]+", text))
    if not near:
        return _("{label} takes one name").format(label=label)
    return _("such as {example}").format(example=f"{label} {near}")


def parse_region(text: str, label: str) -> str:
    """Read a region in a cloud's own words, or an area by its usual name.

    ``europe`` is the Union: every place there is in Europe.

    Examples
    --------
    >>> [parse_region(text, "--region") for text in ("us-east-1", "Europe", "usa")]
    ['us-east-1', 'eu', 'us']
    """
    return _AREAS_AS_REGIONS.get(text.strip().lower()) or parse_cloud_name(text, label)


def parse_clouds(text: str, label: str) -> tuple[str, ...]:
    """Read a list of clouds, such as ``aws,gcp``."""
    clouds = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    for cloud in clouds:
        check_name(cloud, f"{label} {cloud}: not a known cloud")
    if not clouds:
        raise SkyUsageError(
            _("{label} needs a cloud").format(label=label),
            hint=_("known: {known_names}").format(known_names=", ".join(known_names())),
        )
    return clouds


def parse_gpus(text: str, label: str) -> tuple[str, Amount]:
    """Read ``V100``, ``V100:4``, ``V100:4+`` or ``L4:1/2`` into a canonical name and a count.

    Examples
    --------
    >>> parse_gpus("nvidia-tesla-v100:4+", "--gpus")
    ('V100', Amount(value=4.0, at_least=True))
    """
    name, colon, count = text.strip().partition(":")
    if not name or name.isdigit():
        raise SkyUsageError(
            _("{label} {text}: not an accelerator").format(label=label, text=text),
            hint=_("write a name and a count, such as {label} V100:1").format(label=label),
        )
    match = re.fullmatch(_COUNT_PATTERN, count.replace(" ", "")) if colon else None
    if colon and not match:
        memory = re.fullmatch(r"(?i:\d+\s*gi?b)", count)
        meant = f"{name}-{count}" if memory else name
        raise SkyUsageError(
            _("{label} {text}: {count!r} is not a count").format(
                label=label, text=text, count=count
            ),
            hint=_("such as {label} {meant}:1").format(label=label, meant=meant),
        )
    amount = Amount(_parse_count(match[2]), bool(match[1] or match[3])) if match else Amount(1)
    return accelerators.canonical(name), amount


def _parse_count(text: str) -> float:
    whole, __, parts = text.partition("/")
    return round(float(whole) / float(parts or 1), 3) if parts else float(text)


def parse_arch(text: str, label: str) -> str:
    """Read an architecture: ``x86``, ``amd64``, ``arm``...

    Examples
    --------
    >>> parse_arch("aarch64", "--arch")
    'arm64'
    """
    arch = _ARCH.get(text.strip().lower())
    if arch is None:
        raise SkyUsageError(
            _("{label} {text}: not an architecture").format(label=label, text=text),
            hint=suggest(text, ARCHES),
        )
    return arch


def parse_vendor(text: str, label: str) -> str:
    """Read the maker of a processor; ``graviton`` is AWS.

    Examples
    --------
    >>> parse_vendor("amd", "--cpu-vendor")
    'AMD'
    """
    vendor = _VENDOR.get(text.strip().lower())
    if vendor is None:
        raise SkyUsageError(
            _("{label} {text}: makes no processor").format(label=label, text=text),
            hint=suggest(text, VENDORS),
        )
    return vendor


def parse_image(text: str, label: str) -> str:
    """Read the name of a container's image, as registries have it.

    Examples
    --------
    >>> parse_image("docker:python:3.12", "--image")
    'python:3.12'
    """
    image = text.strip().removeprefix("docker:")
    if not re.fullmatch(r"[A-Za-z0-9][\w.\-/:@]*", image):
        raise SkyUsageError(
            _("{label} {text}: not the name of an image").format(label=label, text=text),
            hint=_("such as {label} python:3.12").format(label=label),
        )
    return image


# -- areas ---------------------------------------------------------------------------------


def is_area(text: str) -> bool:
    """Whether a word is a country or a jurisdiction: no cloud has a region of two letters.

    (One marketplace names its regions by their countries, which comes to the same.)
    """
    return re.fullmatch(_AREA_PATTERN, text) is not None


def parse_area(text: str, label: str) -> str:
    """Read a country or a jurisdiction: ``eu``, ``us``, ``de``, ``uk``, ``Germany``.

    Examples
    --------
    >>> parse_area("eu", "--jurisdiction"), parse_area("South-Korea", "--country")
    ('EU', 'KR')
    """
    word = re.sub(r"[\s_-]+", " ", text.strip().lower())
    area = _AREA_NAMES.get(word) or (text.strip().upper() if is_area(text.strip()) else "")
    if area := area or _country_code(word):
        return area
    near = suggest(word, _area_names())
    two = f"write two letters, such as {label} eu, {label} us or {label} de"
    raise SkyUsageError(
        _("{label} {text}: neither a country nor a jurisdiction").format(label=label, text=text),
        hint=near if near.startswith("did") else two,
    )


def _country_code(name: str) -> str:
    """Return two letters for a country's name in ISO 3166, common or official; else nothing."""
    import pycountry

    try:
        return pycountry.countries.lookup(name).alpha_2
    except LookupError:
        return ""


def _area_names() -> list[str]:
    """Return the names of countries in lower case, the common ones where they differ."""
    import pycountry

    names = (getattr(country, "common_name", country.name) for country in pycountry.countries)
    return [*_AREA_NAMES, *(name.lower() for name in names)]


def in_area(area: str, country: str, jurisdiction: str) -> bool:
    """Whether a place of this country and jurisdiction lies in an area.

    Regions that a government keeps for itself are in no area but their own: nobody else can use
    them. The European Economic Area contains the Union.

    Examples
    --------
    >>> in_area("eu", "FI", "EU"), in_area("us", "US", "US-GOV"), in_area("eea", "FR", "EU")
    (True, False, True)
    """
    area = {"UK": "GB"}.get(area.upper(), area.upper())
    if area == jurisdiction or (area == "EEA" and jurisdiction == "EU"):
        return True
    return area == country != "" and not jurisdiction.endswith("-GOV")


_EU_EEA_COUNTRIES = frozenset(
    "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK".split()
)


def jurisdiction_of(country: str) -> str:
    """Return the jurisdiction of a country: the Union's or the Economic Area's for members.

    Examples
    --------
    >>> jurisdiction_of("FI"), jurisdiction_of("NO"), jurisdiction_of("CH")
    ('EU', 'EEA', 'CH')
    """
    return (
        "EU"
        if country in _EU_EEA_COUNTRIES
        else "EEA"
        if country in ("IS", "LI", "NO")
        else country
    )


# -- managed services ----------------------------------------------------------------------


def parse_service(text: str, label: str) -> tuple[str, ...]:
    """Read a managed service and the packages that it must have: ``emr,spark==3.5.*``.

    Examples
    --------
    >>> parse_service("EMR, spark>=3.4,<3.6", "--service")
    ('emr', 'spark>=3.4,<3.6')
    """
    items = [item.strip() for item in re.split(r",(?!\s*[<>=!~])", text) if item.strip()]
    if not items:
        raise SkyUsageError(
            _("{label} needs a service").format(label=label),
            hint=_("known: {services}").format(services=", ".join(SERVICES)),
        )
    return tuple(dict.fromkeys(_parse_requirement(item, label) for item in items))


def _parse_requirement(item: str, label: str) -> str:
    # as AWS writes its releases: emr-7.0.0
    match = re.fullmatch(_REQUIREMENT_PATTERN, re.sub(r"(?i:^(emr)-(?=\d))", r"\1==", item))
    name = match[1].lower() if match else item
    if match is None or name not in (*SERVICES, *PACKAGES):
        raise SkyUsageError(
            _("{label} {item}: neither a managed service nor a package of one").format(
                label=label, item=item
            ),
            hint=suggest(name, (*SERVICES, *PACKAGES)),
        )
    return name + parse_clause(match[2] or "", label, item, "spark==3.5.*")


def parse_clause(text: str, label: str, item: str, example: str) -> str:
    """Read the versions that a requirement admits; empty for any.

    Parameters
    ----------
    label, item
        Option and the whole requirement, for messages.
    example
        A requirement that can be read.

    Examples
    --------
    >>> parse_clause(" >= 3.4, <4", "--service", "spark >= 3.4, <4", "spark==3.5.*")
    '>=3.4,<4'
    """
    clause = re.sub(r"\s+", "", text)
    if clause:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(clause)
        except InvalidSpecifier:
            raise SkyUsageError(
                _("{label} {item}: {clause} is not a version").format(
                    label=label, item=item, clause=clause
                ),
                hint=_('such as {label} "{example}"').format(label=label, example=example),
            ) from None
    return clause


def provides_packages(asked: Iterable[str], packages: Iterable[str]) -> bool:
    """Whether a service is one of those that are named, and brings all packages.

    Examples
    --------
    >>> provides_packages(("emr", "dataproc", "spark==3.5.*"), ("emr==7.0.0", "spark==3.5.0"))
    True
    >>> provides_packages(("emr", "spark==3.1.*"), ("emr==7.0.0", "spark==3.5.0"))
    False
    """
    brought = dict(package.split("==", 1) for package in packages)
    services, others = split_requirements(asked)
    meets = [_is_met(requirement, brought) for requirement in services]
    return (any(meets) or not meets) and all(_is_met(other, brought) for other in others)


def split_requirements(asked: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the services that a request names, any of which will do, and the packages.

    Examples
    --------
    >>> split_requirements(("emr<7", "dataproc", "spark==3.5.*"))
    (['emr<7', 'dataproc'], ['spark==3.5.*'])
    """
    services, packages = list[str](), list[str]()
    for requirement in asked:
        (services if requirement_name(requirement) in SERVICES else packages).append(requirement)
    return services, packages


def requirement_name(requirement: str) -> str:
    """Return the name in a requirement; empty where there is none.

    Examples
    --------
    >>> requirement_name("spark==3.5.*")
    'spark'
    """
    match = re.fullmatch(_REQUIREMENT_PATTERN, requirement)
    return match[1] if match else ""


def _is_met(requirement: str, brought: Mapping[str, str]) -> bool:
    match = re.fullmatch(_REQUIREMENT_PATTERN, requirement)
    if match is None or match[1] not in brought:
        return False
    return not match[2] or _admits(match[2], brought[match[1]])


@lru_cache(maxsize=4096)
def _admits(clause: str, version: str) -> bool:
    from packaging.specifiers import SpecifierSet

    number = re.match(r"\d+(?:\.\d+)*", version)  # clouds add words: 2.0.29-debian10
    return number is not None and SpecifierSet(clause).contains(number[0], prereleases=True)
