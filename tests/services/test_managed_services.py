"""Managed services: planned and priced, refused before anything is rented."""

from __future__ import annotations

from typing import NoReturn

import pytest

import jupyter_sky as sky
from jupyter_sky.errors import SkyNoOffer
from jupyter_sky.offers import Offer
from jupyter_sky.provisioner import broker
from jupyter_sky.resources import Resources


@pytest.mark.parametrize("service", ["emr", "dataproc", "spark==3.5.*"])
def test_launch_is_refused_and_names_own_spark(own_data: None, service: str) -> None:
    def launch(offer: Offer) -> NoReturn:
        pytest.fail(f"{offer} was rented")

    need = Resources.parse(service=service, cpus="4+")
    with pytest.raises(SkyNoOffer, match="planned and priced, not launched") as caught:
        broker.place(need, launch, lambda stage, detail: None)
    assert caught.value.hint is not None
    assert "%%sky --cpus 4+ --engine spark" in caught.value.hint


def test_plan_and_price_stay(own_data: None) -> None:
    plan = sky.plan(Resources.parse(service="emr", instance_type="m5.xlarge"))
    assert plan.tasks[0].offer.service == "emr"
