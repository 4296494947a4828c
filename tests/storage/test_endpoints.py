"""Settings of stores at other addresses than their cloud's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from traitlets import TraitError

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.machines.storage.stores.places import place_of
from jupyter_sky.machines.storage.stores.stores import amazon_credentials, open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from tests.emulators.object_store import ObjectStore
from tests.emulators.object_store.azure_signatures import ACCOUNT


@pytest.fixture
def settings(own_data: None) -> Iterator[Sky]:
    yield Sky.load()


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_sky.machines.storage.stores import stores

    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = d\n"
        "[lab]\naws_access_key_id = AKIATEST\naws_secret_access_key = secret-of-the-test\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    stores._boto_credentials.cache_clear()


@pytest.mark.parametrize(
    ("endpoints", "message"),
    [
        ({"ftp": "https://h"}, "names no store"),
        ({"s3://": "https://h"}, "names no store"),
        ({"s3": "minio.lab:9000"}, "begins with https://"),
        ({"s3": "https://me:secret@h"}, "begins with https://"),
        ({"s3": "https://h?zone=x"}, "no option zone"),
    ],
)
def test_settings_that_no_store_can_use(settings: Sky, endpoints: dict, message: str) -> None:
    with pytest.raises(TraitError, match=message):
        settings.endpoints = endpoints
    assert settings.endpoints == {}


def test_address_wins_over_bucket_and_bucket_over_scheme(settings: Sky) -> None:
    settings.endpoints = {
        "s3": "https://all.lab?region=all&place=nebius/eu-north1",
        "s3://mine": "https://mine.lab",
        "az://me": "http://127.0.0.1:1",
    }
    assert open_store("s3://other/k").uri.options["endpoint"] == "https://all.lab"
    assert open_store("s3://other/k").region == "all"
    assert dict(open_store("s3://mine/k").uri.options) == {"endpoint": "https://mine.lab"}
    own = open_store("s3://mine/k?endpoint=http://h")
    assert dict(own.uri.options) == {"endpoint": "http://h"}
    uri = StorageUri.parse("s3://other/k")
    assert place_of(open_store(uri), uri) == "nebius/eu-north1"
    uri = StorageUri.parse("s3://mine/k")
    assert place_of(open_store(uri), uri) == "", "it is not in a region of Amazon"


def test_profile_wins_over_the_environment(settings: Sky, profiles: None) -> None:
    assert amazon_credentials().access_key == "OTHER"
    assert amazon_credentials("lab").access_key == "AKIATEST"
    with pytest.raises(SkyUsageError, match="no profile lbb") as error:
        amazon_credentials("lbb")
    assert "did you mean lab" in str(error.value)


@pytest.mark.slow
def test_store_of_the_settings_is_used_by_all_commands(
    settings: Sky, profiles: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a").write_text("one")
    with ObjectStore("r2") as minio, ObjectStore("azure") as azure:
        minio.create("bucket")
        azure.create("data")
        settings.endpoints = {"s3": f"{minio.url}?profile=lab", "az": azure.url}
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_KEY", azure.account.azure_key)
        sky.copy(f"{tmp_path}/set/", "s3://bucket/x/").wait()
        sky.copy("s3://bucket/x/", f"az://{ACCOUNT}/data/y/", via="here").wait()
        with pytest.raises(SkyUsageError, match="part of the source"):
            sky.copy("s3://bucket/x/", "s3://bucket/x/")
        data = sky.Storage(f"az://{ACCOUNT}/data/y/")
        assert [row[0] for row in data.ls().rows] == ["a"]
        assert data.open("a", "r").read() == "one" and data.du().objects == 1
        data.write("b", "two")
        assert (data.fetch() / "b").read_text() == "two"
        assert data.presign("b").startswith(azure.url)
        assert data.delete("b") == 1 and azure.keys("data") == ["y/a"]
        assert not minio.crashes and not azure.crashes
