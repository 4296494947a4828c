"""Clouds and kinds of machines as values."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.accelerators import accelerator
from jupyter_sky.base.requests.offers import InstanceType, Offer
from jupyter_sky.clouds.provider import Provider
from jupyter_sky.execution.functions.pools import providers

PROVIDERS = """
AWS Azure Container GCP Hyperstack Kubernetes Lambda Local Nebius RunPod SSH Slurm VastAI Verda
"""


def test_every_cloud_has_provider() -> None:
    made = {name: getattr(sky, name)() for name in PROVIDERS.split()}
    assert {each.name for each in made.values()} == {*BUILT_IN}
    assert made["VastAI"].name == "vast" and made["Container"] != made["Kubernetes"]
    assert pickle.loads(pickle.dumps(made["AWS"])) == providers.AWS()
    assert isinstance(made["AWS"], sky.AWS) and not isinstance(made["GCP"], sky.AWS)
    with pytest.raises(AttributeError):
        made["AWS"].region = "x"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("name", "parameter"), [("AWS", "profile"), ("RunPod", "api_key"), ("Container", "user")]
)
def test_parameters_of_other_packages_are_refused_with_what_stands_for_them(
    name: str, parameter: str
) -> None:
    with pytest.raises(SkyUsageError, match=f"{parameter}=") as error:
        getattr(sky, name)(**{parameter: "x"})
    assert "%sky setup" in (error.value.hint or "")


@pytest.mark.parametrize("make", [lambda kind: kind, lambda kind: kind()])
def test_a_driver_that_no_package_names_is_refused_with_the_way(make: Any) -> None:
    class Nimbus(Provider):
        name = "nimbus"
        offers = launch = machines = terminate = sweep = lambda *__, **___: []

    with pytest.raises(SkyUsageError, match="nimbus: no installed package") as error:
        sky.Compute(provider=make(Nimbus))
    assert 'entry-points."jupyter_sky.providers"] nimbus = "my_module:Nimbus"' in str(error.value)


def test_a_region_goes_into_the_request() -> None:
    a100 = sky.accelerators.A100(count=8)
    spec = sky.Spec(provider=sky.AWS(region="eu-west-1"), accelerator=a100)
    asked = "--gpus A100:8+ --nodes 2 --cloud aws --region eu-west-1"
    assert spec.resources(2).command_line() == asked


def test_instance_type_is_independent_of_price() -> None:
    spot = Offer("aws", "us-east-1", "p4d.24xlarge", 96, 1152, None, "A100", 8, True, 12.0)
    dear = Offer("aws", "eu-west-1", "p4d.24xlarge", 96, 1152, None, "A100", 8, False, 40.0)
    wanted = InstanceType("p4d.24xlarge", accelerator("A100", 8), 96, 1152)
    assert spot.machine == dear.machine == wanted and len({spot.machine, dear.machine}) == 1
    assert Offer("local", "here", "x86_64", 2, 4).machine.accelerator is None
    assert sky.InstanceType is InstanceType
    assert (spot.spot_price, spot.on_demand_price) == (12.0, None)
    assert (dear.spot_price, dear.on_demand_price) == (None, 40.0)


def test_offers_of_the_catalog_have_the_prices_of_both_markets() -> None:
    labels = {"cloud": "aws", "region": "us-east-1"}
    spot = sky.offers("p4d.24xlarge", spot=True, **labels)[0]
    dear = sky.offers("p4d.24xlarge", spot=False, zone=spot.zone, **labels)[0]
    assert spot.price == spot.spot_price == dear.spot_price
    assert dear.price == dear.on_demand_price == spot.on_demand_price
    assert None not in (spot.price, dear.price) and spot.price != dear.price
    alone = sky.offers(cloud="lambda", spot=False)[0]
    assert alone.on_demand_price is not None and alone.spot_price is None


@pytest.mark.parametrize(
    ("cloud", "unit"),
    [("aws", "second"), ("lambda", "minute"), ("verda", "600 s"), ("local", ""), ("gone", "")],
)
def test_billing_unit_of_offers(cloud: str, unit: str) -> None:
    assert Offer(cloud, "here", "a", 1, 1, price=1.0).billing_unit == unit


def test_frameworks_are_imported_when_they_are_used() -> None:
    code = (
        "import sys\n"
        "from jupyter_sky.execution.functions import plugins\n"
        "from jupyter_sky.execution.functions.calls import shard\n"
        "from jupyter_sky.execution.functions.images import image\n"
        "from jupyter_sky.execution.functions.shared import collections\n"
        "from jupyter_sky.execution.functions.pools import pool\n"
        "plugins.torch(), plugins.jax(), plugins.mpi(), shard.shard([1]), collections.Dict('d')\n"
        "heavy = 'dask distributed torch jax sklearn joblib mpi4py numpy pandas'.split()\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    root = Path(__file__).parents[2]
    outcome = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert outcome.stdout == "[]\n", outcome
