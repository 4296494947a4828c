"""An account of AWS on loopback for prices, and the data directory that they flow into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.prices.aws import AwsPrices
from tests.emulators.aws import AwsEmulator, spot
from tests.emulators.server import trusted


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory, and credentials of AWS alone."""
    folder = tmp_path / "trust"
    folder.mkdir()
    with trusted(folder, monkeypatch):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "emulated")
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR"):
            monkeypatch.setenv(name, str(folder / "none"))
        for name in ("AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path / "data"))
        monkeypatch.setenv("SKY_RENEW", "true")
        Sky.clear_instance()
        yield tmp_path / "data"
        Sky.clear_instance()


@pytest.fixture
def aws() -> Iterator[AwsEmulator]:
    """Two regions with spot prices; one that the account has not enabled."""
    cloud = AwsEmulator()
    cloud.regions = {
        "us-east-1": "opt-in-not-required",
        "eu-west-1": "opted-in",
        "ap-east-1": "not-opted-in",
    }
    cloud.spot = {
        "us-east-1": [
            spot("g5.xlarge", "us-east-1a", "0.4012"),
            spot("g5.xlarge", "us-east-1a", "0.3500", "2026-11-19T10:00:00.000Z"),
            spot("g5.xlarge", "us-east-1b", "0.4500"),
            spot("m5.large", "us-east-1a", "nonsense"),
        ],
        "eu-west-1": [spot("g5.xlarge", "eu-west-1a", "0.5100")],
    }
    yield cloud
    cloud.close()


@pytest.fixture
def source(aws: AwsEmulator) -> AwsPrices:
    """The price source, which asks this account."""
    return AwsPrices(aws.url, f"{aws.url}/advisor.json")
