"""Valid observations, and refused ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.knowledge.tracker.observations import (
    Observation,
    age_weight,
    check_observation,
    quota_family,
)

HERE = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", True)


def test_place_of_an_offer() -> None:
    offer = Offer("aws", "us-east-1", "g5.xlarge", 4, 16, zone="us-east-1a", spot=True)
    assert Place.of(offer) == HERE and str(HERE) == offer.place
    regional = Offer("azure", "westeurope", "Standard_D4s_v5", 4, 16)
    assert Place.of(regional).zone == "" and str(Place.of(regional)) == regional.place


@pytest.mark.parametrize(
    ("cloud", "instance_type", "expected"),
    [
        ("aws", "m7i.4xlarge", "standard"),
        ("aws", "t3.micro", "standard"),
        ("aws", "im4gn.large", "standard"),
        ("aws", "p5.48xlarge", "p"),
        ("aws", "vt1.3xlarge", "g"),
        ("aws", "g6e.xlarge", "g"),
        ("aws", "trn1.2xlarge", "trn"),
        ("aws", "inf2.xlarge", "inf"),
        ("aws", "dl1.24xlarge", "dl"),
        ("aws", "x2idn.16xlarge", "x"),
        ("aws", "hpc7a.12xlarge", "hpc"),
        ("aws", "u-6tb1.112xlarge", "u"),
        ("gcp", "a2-highgpu-8g", "a2"),
        ("gcp", "tpu-v5e-8", "tpu-v5e"),
        ("gcp", "n1-attach/V100", "V100"),
        ("gcp", "n1-standard-8+V100:2", "V100"),
        ("azure", "Standard_D4s_v5", "Standard_Ds_v5"),
        ("azure", "Standard_E64-16ads_v5", "Standard_Eads_v5"),
        ("azure", "Standard_ND96asr_v4", "Standard_NDasr_v4"),
        ("azure", "Standard_B2ms", "Standard_Bms"),
        ("lambda", "gpu_8x_a100", "gpu_8x_a100"),
        ("aws", "", ""),
    ],
)
def test_family(cloud: str, instance_type: str, expected: str) -> None:
    assert quota_family(cloud, instance_type) == expected


@pytest.mark.parametrize(
    "seen",
    [
        Observation("launched", HERE, 1.0),
        Observation("launched", HERE, 1.0, seconds=31),
        Observation("refused", HERE, 1.0, "capacity", why="none left"),
        Observation("refused", Place("aws"), 1.0, "permission"),
        Observation("preempted", HERE, 1.0, seconds=0.0),
        Observation("ended", HERE, 1.0, seconds=3600),
        Observation("price", HERE, 1.0, usd=0.31),
        Observation("price", HERE, 1.0, usd=0.0),
    ],
)
def test_sensible_observations(seen: Observation) -> None:
    assert check_observation(seen) is seen


@pytest.mark.parametrize(
    ("kind", "fields", "pieces"),
    [
        ("launchd", {}, ["'launchd'", "did you mean launched?"]),
        ("refused", {}, ["'' is not a cause", "known: capacity, quota"]),
        ("refused", {"cause": "capasity"}, ["did you mean capacity?"]),
        ("preempted", {}, ["the machine's age is missing", "seconds="]),
        ("ended", {"seconds": -1.0}, ["seconds=-1.0 cannot be"]),
        ("launched", {"seconds": math.nan}, ["seconds=nan cannot be"]),
        ("launched", {"at": math.inf}, ["at=inf cannot be"]),
        ("launched", {"seconds": "31"}, ["seconds=31 cannot be"]),
        ("launched", {"seconds": True}, ["seconds=True cannot be"]),
        ("price", {}, ["it takes USD/h"]),
        ("price", {"usd": -0.1}, ["usd=-0.1 cannot be"]),
        ("price", {"usd": 1.0, "place": Place("aws", "r", "", "t")}, ["a spot place", "catalog"]),
        ("launched", {"place": Place("aws")}, ["launched at aws", "instance type are missing"]),
        ("launched", {"place": Place("")}, ["needs a cloud"]),
        ("launched", {"place": "us-east-1"}, ["'us-east-1' is not a place", "give an offer"]),
    ],
)
def test_senseless_observations(kind: str, fields: dict[str, Any], pieces: list[str]) -> None:
    values = {"place": HERE, "at": 0.0, **fields}
    with pytest.raises(SkyUsageError) as caught:
        check_observation(Observation(kind, **values))
    for piece in pieces:
        assert piece in str(caught.value)


def test_fading_halves_and_the_future_does_not_count_double() -> None:
    assert [age_weight(age, 10) for age in (0, 10, 20)] == [1, 0.5, 0.25]
    assert age_weight(-5, 10) == 1
