"""Spaces: what can be tried, how alike points are, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.decisions.search import Point, Space, on_sale
from jupyter_sky.decisions.search.kernels import KernelSettings, SpaceKernel
from jupyter_sky.decisions.search.offers import product_family

ARMS = {
    "A": {"family": ["x", "y"], "size": [1, 2], "nodes": [1, 2, 4]},
    "B": {"size": [1, 2], "nodes": [1, 2]},
}


def test_all_combinations_of_each_arm_are_points_with_prices() -> None:
    space = Space.of(ARMS, price=lambda arm, values: values["nodes"] * (1 + (arm == "B")))
    assert len(space) == 12 + 4 and space.arms == ("A", "B")
    assert str(space[0]) == "A family=x size=1 nodes=1"
    assert set(space.members("B")) == set(range(12, 16))
    assert space[15].price == 4 and space[15].nodes == 2
    assert space.shared == ("size", "nodes")


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ((), "without any configuration"),
        ((Point("A", {"n": 1}), Point("A", {"n": 1})), "twice"),
        ((Point("A", {"n": 1}, -1.0),), "price of -1.0"),
        ((Point("A", {"n": 1}, float("nan")),), "price of nan"),
    ],
)
def test_invalid_spaces_are_refused(points: tuple, words: str) -> None:
    with pytest.raises(SkyUsageError, match=words):
        Space(points)


def test_an_unknown_arm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SkyUsageError, match="known: A, B"):
        Space.of(ARMS).members("C")


def test_coordinates_put_different_categories_one_apart_and_numbers_between_0_and_1() -> None:
    space = Space.of(ARMS)
    x = space.features(space.members("A"))
    points = [space[i] for i in space.members("A")]
    place = {str(p): n for n, p in enumerate(points)}
    one, other = place["A family=x size=1 nodes=1"], place["A family=y size=1 nodes=1"]
    assert np.linalg.norm(x[one] - x[other]) == pytest.approx(1)
    assert np.linalg.norm(x[one] - x[place["A family=x size=1 nodes=4"]]) == pytest.approx(1)
    assert np.linalg.norm(x[one] - x[place["A family=x size=1 nodes=2"]]) == pytest.approx(0.5)


def test_a_covariance_is_symmetric_positive_and_knows_of_arms() -> None:
    space = Space.of(ARMS)
    like, setting = SpaceKernel(space), KernelSettings()
    matrix = like.columns(np.arange(len(space)), setting)
    assert np.allclose(matrix, matrix.T)
    assert np.allclose(np.diag(matrix), setting.variance)
    assert np.linalg.eigvalsh(matrix).min() > setting.each / 2
    place = {str(p): n for n, p in enumerate(space.points)}
    here = place["A family=x size=1 nodes=1"]
    elsewhere = matrix[here, place["B size=1 nodes=1"]]
    assert matrix[here, place["A family=y size=1 nodes=1"]] > elsewhere
    assert elsewhere > matrix[here, place["B size=2 nodes=2"]]


@pytest.mark.parametrize(
    ("cloud", "name", "expected"),
    [
        ("aws", "p4d.24xlarge", "p4d"),
        ("gcp", "e2-highcpu-16", "e2-highcpu"),
        ("azure", "Standard_NC6s_v3", "NCs_v3"),
        ("azure", "Standard_E4-2ds_v5", "Eds_v5"),
        ("lambda", "gpu_8x_a100", "gpu_8x_a100"),
    ],
)
def test_the_family_of_an_instance_type(cloud: str, name: str, expected: str) -> None:
    assert product_family(cloud, name) == expected


def test_a_space_of_the_catalog_has_clouds_as_arms_and_prices_of_all_nodes() -> None:
    space = on_sale(cpus="4+", memory="8+", cloud="aws,gcp", nodes=[1, 3], types=6)
    assert set(space.arms) == {"aws", "gcp"}
    assert set(space.parameters) == {"family", "vcpus", "memory", "nodes"}
    for point in space.points:
        assert point.offer is not None and not point.offer.spot
        assert point.price == pytest.approx((point.offer.price or 0) * point.nodes)
        assert point["vcpus"] == point.offer.vcpus >= 4
    assert {point.nodes for point in space.points} == {1, 3}
    spot = on_sale(cpus="4", cloud="aws", spot=True, types=2)
    assert all(point.offer and point.offer.spot for point in spot.points)


def test_accelerators_are_parameters_where_there_are_any() -> None:
    space = on_sale(gpus="A100:1+", cloud="aws,gcp", types=4)
    assert {point["gpu"] for point in space.points} == {"A100"}


def test_requests_that_nothing_meets_say_so() -> None:
    with pytest.raises(SkyNoOffer):
        on_sale(cpus="3000+")
    with pytest.raises(SkyUsageError, match="nodes"):
        on_sale(cpus="4", nodes=[0])
    with pytest.raises(SkyUsageError, match="types"):
        on_sale(cpus="4", types=0)
