"""Facts of clouds, and the clouds that other packages add."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import ClassVar

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.clouds import index, register
from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.launches.catalog_provider import CatalogProvider
from jupyter_sky.clouds.provider import CloudError, Provider, ProviderError
from jupyter_sky.knowledge.ledger.billing import billed_seconds
from jupyter_sky.machines.provisioner.placement import decide_placement

ROOT = Path(__file__).parents[2]


def _clear() -> None:
    for cached in (register._entry_points, register.find_provider, clouds.get):
        cached.cache_clear()
    sys.modules.pop("sky_toy", None)


@pytest.fixture
def toy(toy_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The toy cloud in this process."""
    monkeypatch.syspath_prepend(str(toy_site))
    _clear()
    yield toy_site
    _clear()


def _add_entry_point(folder: Path, name: str, value: str) -> None:
    info = folder / f"{name}_cloud-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-cloud\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{register.GROUP}]\n{name} = {value}\n")


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, for entry points that do not work."""
    monkeypatch.syspath_prepend(str(tmp_path))
    _clear()
    yield tmp_path
    _clear()


@pytest.mark.parametrize("name", BUILT_IN)
def test_facts_of_a_built_in_cloud_are_complete(name: str) -> None:
    facts = BUILT_IN[name]
    step, least = facts.billing
    assert facts.name == name and facts.title and facts.colour.startswith("#")
    assert (step > 0) is not facts.on_premises and least >= 0 and 1 <= facts.pue < 2
    rented = facts.launchable and not facts.on_premises
    assert bool(facts.packages) is bool(facts.install)
    assert facts.on_premises is (name in index.ON_PREMISES)
    assert bool(facts.account) is bool(facts.permissions) and (facts.account or not rented)
    is_provided = bool(facts.provider) or issubclass(facts, Provider)
    assert is_provided is (name not in clouds.ON_PREMISES)
    assert name not in clouds.ON_PREMISES or not (rented or facts.only_by_name)
    assert bool(facts.schemes) is bool(facts.storage_region) is bool(facts.storage_class)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if BUILT_IN[name].packages])
def test_extra_of_the_project_installs_the_sdk(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project["optional-dependencies"][name]
    installed = {re.split(r"[<>=\[ ]", requirement)[0] for requirement in requirements}
    assert BUILT_IN[name].install == f"pip install 'jupyter_sky[{name}]'"
    provided = packages_distributions()
    for module in BUILT_IN[name].packages:
        direct = {*provided[module]} & installed
        indirect = {*provided[module]} & {need for each in installed for need in _needs(each)}
        assert direct or indirect, f"{module} comes with none of {installed}"


def _needs(distribution: str) -> set[str]:
    """Return the distributions that one requires."""
    return {re.split(r"[^\w.-]", line)[0] for line in requires(distribution) or ()}


def test_extras_of_clouds_are_known_to_the_register() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    others = {"dask", "examples", "lab", "search", "spark", "test"}
    names = {*extras["optional-dependencies"]} - others
    assert names == {*(name for name in BUILT_IN if BUILT_IN[name].packages), "ssh"}


def test_built_in_clouds_ask_no_entry_points() -> None:
    code = (
        "import importlib.metadata, sys\n"
        "def fail(**_): raise AssertionError('entry points are asked')\n"
        "importlib.metadata.entry_points = fail\n"
        "from jupyter_sky import clouds\n"
        "from jupyter_sky.base.clouds.index import BUILT_IN\n"
        "from jupyter_sky.base.clouds.register import find_facts, is_known\n"
        "assert all(is_known(name) and find_facts(name) is BUILT_IN[name] for name in BUILT_IN)\n"
        "clouds.get('local')\n"
        "sdks = {'boto3', 'azure', 'google.cloud', 'requests', 'pandas', 'numpy'}\n"
        "assert not sdks & set(sys.modules), sdks & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", clouds.provider_names())
def test_built_in_cloud_is_a_provider_with_its_facts(name: str) -> None:
    provider = clouds.get_launcher(name).provider
    assert isinstance(provider, Provider) and isinstance(provider, BUILT_IN[name])
    assert provider.launchable and provider.login and provider.billing == BUILT_IN[name].billing
    if not isinstance(provider, CatalogProvider):  # its offers are asked by a request
        return
    offer = next(iter(provider.offers()))
    assert offer.cloud == name and offer.price is not None and offer.price > 0


def test_facts_of_a_driver_are_read_without_its_sdk() -> None:
    code = (
        "import sys\n"
        "from jupyter_sky import clouds\n"
        "for name in clouds.provider_names():\n"
        "    clouds.get_launcher(name).provider.quota_family('m5.large')\n"
        "sdks = {'boto3', 'botocore', 'azure', 'google.cloud', 'google.auth', 'requests'}\n"
        "assert not sdks & set(sys.modules), sdks & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_package_adds_a_cloud_with_its_facts(toy: Path) -> None:
    assert register.installed_names() == ("toy",) and "toy" in clouds.reachable_names()
    assert Resources.parse(cloud="toy").clouds == ("toy",)
    assert billed_seconds("toy", 10) == 120 and billed_seconds("toy", 121) == 180
    assert clouds.is_rented("toy") and not clouds.is_ready("toy")
    assert clouds.launch_obstacle(Offer("toy", "toy-1", "toy-2", 2, 4)) == ""
    missing = clouds.get("toy").check()
    assert not missing.usable and missing.fix == "set TOY_URL and TOY_KEY"


def test_unknown_cloud_is_refused_with_the_known_ones(toy: Path) -> None:
    with pytest.raises(SkyUsageError, match="not a known cloud") as error:
        Resources.parse(cloud="tox")
    assert error.value.hint
    with pytest.raises(SkyUsageError, match="'tox' cannot launch"):
        clouds.get("tox")
    assert register.find_facts("tox") is CloudFacts


def test_built_in_name_wins(broken: Path) -> None:
    _add_entry_point(broken, "aws", "nowhere:Class")
    assert register.installed_names() == () and register.find_facts("aws") is BUILT_IN["aws"]


@pytest.mark.parametrize(
    ("value", "source", "says"),
    [
        ("dim_cloud:Dim", "import nowhere_at_all", "cannot be imported: No module named"),
        ("dim_cloud:Dim", "Dim = dict", "no subclass"),
        ("dim_cloud:Other", "Dim = dict", "cannot be imported"),
        (
            "dim_cloud:Dim",
            "from jupyter_sky.provider import Provider\nclass Dim(Provider): name = 'other'",
            "calls its cloud 'other'",
        ),
        (
            "dim_cloud:Dim",
            "from jupyter_sky.provider import Provider\n"
            "class Dim(Provider): name, api_version = 'dim', 99",
            "version 99 of the protocol",
        ),
        (
            "dim_cloud:Dim",
            "from jupyter_sky.provider import Provider\n"
            "class Dim(Provider): name, billing = 'dim', (60.0, 90000.0)",
            "exceeds a day",
        ),
    ],
)
def test_driver_that_cannot_be_used_is_told(
    broken: Path, value: str, source: str, says: str
) -> None:
    (broken / "dim_cloud.py").write_text(source)
    _add_entry_point(broken, "dim", value)
    sys.modules.pop("dim_cloud", None)
    with pytest.raises(SkyUsageError, match=says):
        clouds.get("dim")
    assert register.find_facts("dim") is CloudFacts


def test_driver_that_cannot_be_imported_hides_no_other_cloud(broken: Path) -> None:
    (broken / "dim_cloud.py").write_text("import nowhere_at_all")
    _add_entry_point(broken, "dim", "dim_cloud:Dim")
    sys.modules.pop("dim_cloud", None)
    rows = {row[0]: row for row in sky.check().rows}
    assert rows["local"][1] == "yes" and rows["dim"][1] == "no"
    assert "cannot be imported: No module named" in rows["dim"][2]
    assert rows["dim"][3].startswith("install its package again")
    with pytest.raises(SkyNoOffer, match="dim: its provider dim_cloud:Dim cannot be imported"):
        decide_placement(Resources.parse(cloud="dim"))


class _Refusing(Provider):
    """Provider of which only the classification of errors is used."""

    name, login = "refusing", "set KEY"
    errors: ClassVar = {
        "sold_out": ("capacity", "zone", ""),
        402: ("quota", "region", "pay the bill"),
    }


def _explain(error: Exception) -> CloudError | None:
    _Refusing.__abstractmethods__ = frozenset()  # its operations are not called
    return _Refusing().explain(error)  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProviderError("no", code="sold_out", status=400), ("capacity", "zone", "")),
        (ProviderError("no", code="other", status=402), ("quota", "region", "pay the bill")),
        (ProviderError("no", status=401), ("permission", "region", "set KEY")),
        (ProviderError("no", status=429), ("throttled", "region", "")),
        (ProviderError("no", status=503), ("transient", "region", "")),
        (ProviderError("no", status=418), ("unknown", "region", "")),
        (ConnectionResetError("reset"), ("transient", "zone", "")),
    ],
)
def test_errors_are_classified_by_a_table(error: Exception, expected: tuple[str, str, str]) -> None:
    trouble = _explain(error)
    assert trouble is not None and (trouble.cause, trouble.scope, trouble.fix) == expected
    assert _explain(KeyError("x")) is None
