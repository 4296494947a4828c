"""Signatures and accounts of Azure, without a server."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from urllib.parse import parse_qs

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.stores.azure_signing import (
    VERSION,
    AccountKey,
    DelegationKey,
    SasScope,
    SasSigner,
    SharedAccess,
    azure_time,
    sign_sas,
)
from jupyter_sky.machines.storage.stores.signing import Clock
from jupyter_sky.machines.storage.stores.store import masked
from jupyter_sky.machines.storage.stores.stores import DelegationKeys, find_account
from tests.emulators.object_store.azure_signatures import SignedAddress, verify_address
from tests.emulators.object_store.refusals import Refusal
from tests.emulators.object_store.signatures import Account

NOW = 1.8e9
KEY = AccountKey("skytest", "a2V5IG9mIHRoZSB0ZXN0")


@pytest.mark.parametrize("key", ["plain", "a b/ü+&=%41", ""])
@pytest.mark.parametrize("protocol", ["", "https"])
def test_signature_is_that_of_microsofts_client(key, protocol):
    from azure.storage.blob import generate_blob_sas, generate_container_sas

    ours = sign_sas(KEY, SasScope("data", key, "r", azure_time(NOW), protocol))
    expiry = datetime.fromtimestamp(NOW, UTC)
    options = {"account_key": KEY.key, "permission": "r", "expiry": expiry}
    options["protocol"] = protocol or None
    with patch("azure.storage.blob._shared_access_signature.X_MS_VERSION", VERSION):
        theirs = (
            generate_blob_sas("skytest", "data", key, **options)
            if key
            else generate_container_sas("skytest", "data", **options)
        )
    assert parse_qs(ours) == parse_qs(theirs)


def signer(grant=KEY, offset: float = 0.0) -> SasSigner:
    return SasSigner("data", lambda: grant, Clock(offset, lambda: NOW), "")


def test_validity_follows_the_clock_of_the_store_and_ends_with_the_credentials():
    query, expires = signer().sign("k", "r", 900)
    assert (parse_qs(query)["se"], expires) == ([azure_time(NOW + 900)], NOW + 900)
    query, expires = signer(offset=1200).sign("k", "r", 900)
    assert (parse_qs(query)["se"], expires) == ([azure_time(NOW + 2100)], NOW + 900)
    short = DelegationKey("skytest", "o", "t", "s", "e", "b", VERSION, KEY.key, NOW + 60)
    assert signer(short).sign("k", "r", 900)[1] == NOW + 60


def verified(query: str, method: str = "GET", path: str = "/skytest/data/k") -> None:
    account = Account()
    account.delegations[("s", azure_time(NOW + 3600))] = "ZGVsZWdhdGVk"
    account.clock_offset = NOW - datetime.now(UTC).timestamp()
    fields = {name: values[0] for name, values in parse_qs(query).items()}
    verify_address(account, SignedAddress(method, path, fields, {}))


def test_signature_grants_one_blob_one_permission_and_a_short_time():
    query = signer().sign("k", "r", 900)[0]
    verified(query)
    with pytest.raises(Refusal, match="AuthorizationPermissionMismatch"):
        verified(query, "PUT")
    for changed, path in ((query, "/skytest/data/other"), (query.replace("sp=r", "sp=rw"), "")):
        with pytest.raises(Refusal) as refusal:
            verified(changed, path=path or "/skytest/data/k")
        assert "did not match" in refusal.value.fields["AuthenticationErrorDetail"]
    with pytest.raises(Refusal) as refusal:
        verified(signer(offset=-1800).sign("k", "r", 900)[0])
    assert "time frame" in refusal.value.fields["AuthenticationErrorDetail"]


def test_delegation_key_signs_as_well():
    ends = azure_time(NOW + 3600)
    key = DelegationKey("skytest", "o", "t", "s", ends, "b", VERSION, "ZGVsZWdhdGVk", NOW + 3600)
    query = signer(key).sign("k", "r", 900)[0]
    assert parse_qs(query)["skoid"] == ["o"]
    verified(query)
    with pytest.raises(Refusal):
        verified(query.replace("skoid=o", "skoid=p"))


def test_secrets_are_not_shown():
    query = signer().sign("k", "r", 900)[0]
    assert KEY.key not in repr(KEY) and "t0ken" not in repr(SharedAccess("a", "sig=t0ken"))
    assert parse_qs(query)["sig"][0] not in masked(f"https://h/data/k?{query}")


CONNECTION = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5;EndpointSuffix=c.net"


@pytest.mark.parametrize(
    ("environment", "endpoint", "grant"),
    [
        ({"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, "https://me.blob.c.net", "a2V5"),
        ({"AZURE_STORAGE_KEY": "azE="}, "https://me.blob.core.windows.net", "azE="),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "azE=", "AZURE_STORAGE_ACCOUNT": "me"}, "", "azE="),
        ({"AZURE_STORAGE_SAS_TOKEN": "?sp=r&se=2027-01-15T08:00:00Z&sig=x"}, "", "sp=r&"),
    ],
)
def test_credentials_come_from_the_variables_of_azures_tools(environment, endpoint, grant):
    account = find_account("me", environment=environment)
    assert account.endpoint == (endpoint or "https://me.blob.core.windows.net")
    found = account.grant()
    text = found.key if isinstance(found, AccountKey) else getattr(found, "token", "")
    assert text.startswith(grant)
    assert found.expires in (float("inf"), NOW)


def test_credentials_of_another_account_are_not_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)  # as where it is not installed
    theirs = {"AZURE_STORAGE_ACCOUNT": "they", "AZURE_STORAGE_KEY": "azE="}
    for environment in (theirs, {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}):
        with pytest.raises(SkyUsageError, match="azure-identity is missing") as error:
            find_account("unknown", environment=environment)
        assert 'pip install "jupyter_sky[azure]"' in str(error.value)


def test_delegation_key_is_asked_for_once_and_renewed_at_half(monkeypatch):
    now = datetime.now(UTC)
    asked = []

    def ask(account, endpoint, token):
        asked.append(token)
        ends = now + timedelta(minutes=90 if len(asked) == 1 else 120)
        return DelegationKey(account, "o", "t", "s", "e", "b", VERSION, "aw==", ends.timestamp())

    monkeypatch.setattr("jupyter_sky.machines.storage.stores.stores.ask_delegation_key", ask)
    keys = DelegationKeys("me", "https://h", lambda: "token")
    assert keys.find() is keys.find() and asked == ["token"]
    monkeypatch.setattr("time.time", lambda: (now + timedelta(minutes=31)).timestamp())
    keys.find()
    assert asked == ["token", "token"]
