"""Steps of the setup of a cloud, against an emulated account."""

from __future__ import annotations

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.clouds.account_setup import DONE, TO_DO, setup_names, setup_steps
from jupyter_sky.clouds.aws.facts import AwsFacts
from tests.clouds.aws_cases import account_fixture, ec2_fixture, use
from tests.emulators.ec2 import Ec2

__all__ = ["account_fixture", "ec2_fixture"]


def test_steps_are_done_once_the_credentials_are_proved(
    ec2: Ec2, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds.get.cache_clear()
    steps = setup_steps("aws")
    assert [step.state for step in steps] == [DONE] * 4
    assert AwsFacts.account in steps[0].text and "RunInstances" in steps[1].text
    assert "cells can rent there" in str(sky.setup("aws"))

    use(monkeypatch, {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"})
    clouds.get.cache_clear()
    steps = setup_steps("aws")
    assert [step.state for step in steps] == ["", "", DONE, TO_DO]
    assert "aws configure" in steps[-1].text
    assert "then: %sky check" in str(sky.setup("aws"))


def test_missing_package_is_a_step(ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AwsFacts, "packages", ("boto3", "not_installed_anywhere"))
    states = {step.text: step.state for step in setup_steps("aws")}
    assert states["pip install 'jupyter_sky[aws]'"] == TO_DO


def test_every_cloud_that_launches_has_steps_and_a_mistyped_one_is_told() -> None:
    assert {"aws", "azure", "gcp", "ssh"} <= set(setup_names())
    with pytest.raises(SkyUsageError, match="did you mean aws"):
        sky.setup("asw")
