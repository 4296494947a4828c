from __future__ import annotations

import itertools
import re

import pytest

from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.candidates import candidates, no_offer

LOCAL = Offer("local", "this-machine", "", 2, 7.66341, price=0.0, disk=50)
SMALL = Offer("aws", "us-east-1", "m5.large", 2, 8, price=0.096)
SMALL_SPOT = Offer("aws", "us-east-1", "m5.large", 2, 8, price=0.035, spot=True)
LARGE = Offer("aws", "us-east-1", "m5.4xlarge", 16, 64, price=0.768)
GPU = Offer("aws", "us-east-1", "p3.2xlarge", 8, 61, gpu="V100", gpu_count=1, price=3.06)
GPUS = Offer("aws", "us-west-2", "p3.8xlarge", 32, 244, gpu="V100", gpu_count=4, price=12.24)
UNPRICED = Offer("gcp", "us-central1", "n2-standard-2", 2, 8)
CLOUD = [SMALL, SMALL_SPOT, LARGE, GPU, GPUS, UNPRICED]


def test_cheapest_first_and_unknown_price_last():
    assert candidates(Resources(), [*CLOUD, LOCAL]) == [
        *(LOCAL, SMALL_SPOT, SMALL, LARGE, GPU, GPUS, UNPRICED),
    ]
    assert candidates(Resources.parse(cpus="4+", on_demand=True), CLOUD) == [LARGE, GPU, GPUS]
    assert candidates(Resources.parse(cpus="3"), CLOUD) == []


def test_ties_do_not_depend_on_the_order_of_offers():
    twins = [Offer("aws", region, "m5.large", 2, 8, price=0.1) for region in "cab"]
    twins += [Offer("aws", "a", "m5.small", 1, 8, price=0.1)]
    orders = {tuple(candidates(Resources(), order)) for order in itertools.permutations(twins)}
    (only,) = orders
    assert [(offer.instance_type, offer.region) for offer in only] == [
        *(("m5.small", "a"), ("m5.large", "a"), ("m5.large", "b"), ("m5.large", "c")),
    ]


def test_the_most_that_there_is():
    error = no_offer(Resources.parse(cpus="64+"), [LOCAL])
    assert isinstance(error, SkyNoOffer)
    assert str(error) == (
        "--cpus 64+ cannot be met: the most that any offer has is 2 (this machine); "
        "nearest: --cpus 2"
    )


@pytest.mark.parametrize(
    ("labels", "offers", "pieces"),
    [
        (
            {"cpus": "64+", "memory": "4+"},
            CLOUD,
            ["any offer meeting the rest has is 32", "--cpus 32"],
        ),
        ({"cpus": "12"}, CLOUD, ["nearest offer has 16", "nearest: --cpus 16"]),
        ({"disk": "100"}, [LOCAL], ["the most that any offer has is 50", "--disk 50"]),
        ({"gpus": "V100:1"}, [LOCAL], ["no offer has an accelerator", "nearest: no --gpus"]),
        (
            {"gpus": "V100:8"},
            CLOUD,
            ["V100:4 (aws us-west-2 p3.8xlarge)", "nearest: --gpus V100:4"],
        ),
        ({"gpus": "T4:1"}, CLOUD, ["--gpus T4:1 cannot", "nearest: --gpus V100:1"]),
        (
            {"spot": True, "cpus": "4+"},
            [LARGE],
            ["every offer meeting the rest is on-demand", "nearest: --on-demand"],
        ),
        ({"on_demand": True}, [SMALL_SPOT], ["every offer is spot", "nearest: --spot"]),
        (
            {"max_hourly_cost": "0.01"},
            [SMALL, SMALL_SPOT],
            ["cheapest offer is 0.035 USD/h", "cost 0.035"],
        ),
        ({"max_hourly_cost": "9"}, [UNPRICED], ["no price is known", "nearest: no --max"]),
        (
            {"region": "us-east-2"},
            CLOUD,
            ["offers have region us-east-1, us-west-2", "--region us-east-1"],
        ),
        ({"zone": "us-east-1a"}, CLOUD, ["no offer names a zone"]),
        ({"instance_type": "p3.8xlrge"}, CLOUD, ["nearest: --instance-type p3.8xlarge"]),
        (
            {"cloud": "gcp", "memory": "99+"},
            CLOUD,
            ["--memory 99+ cannot be met", "or else --cloud gcp"],
        ),
        (
            {"cpus": "64+", "memory": "999+"},
            [LOCAL],
            ["--cpus 64+ --memory 999+ cannot", "nearest: --cpus 2 --memory 7.663"],
        ),
    ],
)
def test_names_the_label_in_the_way_and_what_is_nearest(labels, offers, pieces):
    text = str(no_offer(Resources.parse(**labels), offers))
    for piece in pieces:
        assert piece in text


@pytest.mark.parametrize(
    "labels",
    [
        {"cpus": "64+"},
        {"memory": "7"},
        {"cpus": "3", "memory": "500+"},
        {"gpus": "H100:8", "spot": True},
        {"max_hourly_cost": "0.00001", "cpus": "16+"},
        {"max_hourly_cost": "0.05", "nodes": 3, "on_demand": True},
        {"region": "eu-west-1", "cpus": "99"},
    ],
)
def test_suggested_requests_have_offers(labels):
    request = Resources.parse(**labels)
    offers = [*CLOUD, Offer("azure", "eastus", "odd", 3.3333333, 7.66341, price=0.0333333)]
    assert candidates(request, offers) == []
    message = no_offer(request, offers).message
    changed = message.split(" cannot be met")[0]
    nearest = re.sub(r"no --\S+", "", message.split("nearest: ")[1])
    kept = request.command_line()
    for option in re.findall(r"--\S+(?: [^-]\S*)?", changed):
        kept = kept.replace(option, "").strip()
    options = re.findall(r"--([\w-]+)(?: ([^-]\S*))?", f"{kept} {nearest}")
    retry = {key.replace("-", "_"): value or True for key, value in options}
    assert candidates(Resources.parse(**retry), offers)


def test_a_cloud_that_cannot_launch():
    error = no_offer(Resources.parse(cloud="azure", cpus="64+"), [LOCAL, SMALL])
    assert "azure cannot launch here; clouds that can: aws, local" in error.message
    assert "%sky check" in (error.hint or "")


def test_nothing_on_sale():
    assert "nothing is on sale for --cpus 4+" in str(no_offer(Resources.parse(cpus="4+"), []))
