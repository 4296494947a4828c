"""Refusals of AWS: credentials, regions, codes, and answers that are not its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from string import Formatter

import botocore.exceptions
import botocore.session
import pytest

from jupyter_sky.clouds.aws import clients
from jupyter_sky.clouds.aws.errors import TABLE
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.launches.launcher import delete_unused_resources
from tests.clouds.aws_cases import (  # noqa: F401 fixtures
    REGION,
    account_fixture,
    client,
    create,
    ec2_fixture,
    order,
    provider_fixture,
    trouble,
    use,
)
from tests.emulators.ec2 import Ec2

# -- credentials -------------------------------------------------------------------------------


def test_credentials_that_work(ec2: Ec2, provider: Aws) -> None:
    assert provider.configured() == "environment variable AWS_ACCESS_KEY_ID"
    assert ec2.account.number in provider.identify()


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("none", "aws configure"),
        ("wrong", "sts get-caller-identity"),
        ("unknown", "sts get-caller-identity"),
        ("expired", "get new ones"),
    ],
)
def test_credentials_that_do_not_work(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch, kind: str, word: str
) -> None:
    use(monkeypatch, ec2.wrong_env(kind))
    assert bool(provider.configured()) == (kind != "none")
    for request in (provider.identify, lambda: provider.machines(regions=[REGION])):
        found = trouble(provider, request)
        assert found.cause == "permission" and word in found.fix, found
    found = trouble(provider, lambda: create(provider, order()))
    assert found.cause == "permission" and word in found.fix, found
    assert ec2.machines() == []
    use(monkeypatch, ec2.env())
    assert provider.identify(), "new keys are taken up at once"


@pytest.mark.parametrize(("skew", "word"), [(1200, "behind"), (-1200, "ahead")])
def test_a_clock_that_is_wrong(ec2: Ec2, provider: Aws, skew: float, word: str) -> None:
    ec2.skew = skew
    for request in (provider.identify, lambda: provider.machines(regions=[REGION])):
        found = trouble(provider, request)
        assert found.cause == "permission" and "timedatectl" in found.fix
        assert f"20 minutes {word}" in found.message


@pytest.mark.parametrize(
    ("text", "file", "grants"),
    [
        ("[default]\naws_access_key_id = A\naws_secret_access_key = B\n", "credentials", True),
        ("[other]\naws_access_key_id = A\n", "credentials", False),
        ("[default]\nregion = eu-west-1\n", "config", False),
        ("[default]\nsso_session = me\n", "config", True),
        ("[default\nnonsense", "config", False),
    ],
)
def test_credentials_are_found_in_known_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, file: str, grants: bool
) -> None:
    use(monkeypatch, {})
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert clients.configured() == ""
    (tmp_path / file).write_text(text)
    assert (str(tmp_path / file) in clients.configured()) == grants
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert clients.configured() == "profile work"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_variables_that_lead_to_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    nowhere = str(tmp_path / "none")
    use(monkeypatch, {"AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_CONFIG_FILE": nowhere})
    assert clients.configured() == ""
    monkeypatch.setenv(name, "something")
    assert clients.configured() == f"environment variable {name}"


def test_asking_whether_there_are_credentials_imports_no_sdk() -> None:
    code = (
        "import sys; from jupyter_sky.clouds.aws.provider import Aws; d = Aws();"
        "d.configured(); d.explain(ValueError()); "
        "assert not {'boto3', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_profile_that_is_not_there(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    found = trouble(provider, provider.identify)
    assert (found.cause, found.code) == ("permission", "ProfileNotFound")
    assert "list-profiles" in found.fix


def test_a_region_that_is_not_enabled(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trouble(provider, lambda: create(provider, order(region="ap-east-1")))
    assert (found.cause, found.scope, found.code) == ("quota", "market", "OptInRequired")
    assert "ap-east-1 is not enabled" in found.message and "enable-region" in found.fix
    (made,) = create(provider, order())
    assert [m.id for m in provider.machines(owner="me", regions=["ap-east-1", REGION])] == [made.id]
    assert delete_unused_resources(provider, "me", ["ap-east-1"]) == []
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    found = trouble(provider, lambda: provider.machines(owner="me", regions=["ap-east-1"]))
    assert found.code == "AuthFailure", "with wrong keys we know nothing of it"


# -- what AWS refuses --------------------------------------------------------------------------

RAISED = [name for name in TABLE if hasattr(botocore.exceptions, name)]
"""Errors that botocore raises before, or in place of, an answer of AWS."""


@pytest.mark.parametrize("name", RAISED)
def test_every_error_of_botocore_in_the_table(provider: Aws, name: str) -> None:
    kind = getattr(botocore.exceptions, name)
    words = {field: "word" for _, field, _, _ in Formatter().parse(kind.fmt) if field}
    error = kind(
        **words | {"error": "it broke"} if "error" in words or name == "HTTPClientError" else words
    )
    found = provider.explain(error)
    assert found and (found.code, (found.cause, found.scope, found.fix)) == (name, TABLE[name])
    assert found.message


@pytest.mark.parametrize("code", [code for code in TABLE if code not in RAISED])
def test_every_code_of_the_table(ec2: Ec2, provider: Aws, code: str) -> None:
    ec2.refuse(code, action="DescribeInstances", times=9)
    cause, width, fix = TABLE[code]
    found = trouble(provider, lambda: describe_once(provider))
    assert (found.code, found.cause, found.scope) == (code, cause, width)
    assert fix in found.fix and found.message and "Encoded" not in found.message


def describe_once(provider: Aws) -> None:
    provider._access.client("ec2", REGION, once=True).describe_instances()


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("InsufficientUnobtainiumCapacity", 500, "capacity"),
        ("GoldenInstanceLimitExceeded", 400, "quota"),
        ("UnauthorizedSomething", 403, "permission"),
        ("InvalidSomething.Malformed", 400, "invalid"),
        ("SomethingElse", 503, "transient"),
        ("SomethingElse", 400, "unknown"),
    ],
)
def test_codes_that_are_not_in_the_table(
    ec2: Ec2, provider: Aws, code: str, status: int, cause: str
) -> None:
    ec2.refuse(code, action="describe", status=status)
    found = trouble(provider, lambda: describe_once(provider))
    assert (found.code, found.cause) == (code, cause)


def test_errors_that_are_not_of_aws(provider: Aws) -> None:
    assert provider.explain(ValueError("no")) is None
    assert provider.explain(KeyError("no")) is None


def test_unavailable_offers_are_refused(ec2: Ec2, provider: Aws) -> None:
    gone = trouble(provider, lambda: create(provider, order(instance_type="x0.huge")))
    assert gone.cause == "invalid" and "catalog refresh" in gone.fix and "x0.huge" in gone.message
    unknown = trouble(provider, lambda: create(provider, order(instance_type="x0.huge", arch="")))
    assert unknown.cause == "invalid" and "catalog refresh" in unknown.fix
    large = trouble(provider, lambda: create(provider, order("big"), disk=70000))
    assert large.cause == "invalid" and "--disk" in large.fix and "65536GiB" in large.message
    wordy = trouble(provider, lambda: create(provider, order("long"), user_data="x" * 20000))
    assert wordy.cause == "invalid" and "16384" in wordy.message
    elsewhere = trouble(
        provider,
        lambda: create(
            provider, order(instance_type="p3dn.24xlarge", zone="us-east-1f", gpu="V100")
        ),
    )
    assert (elsewhere.cause, elsewhere.scope) == ("capacity", "zone")
    assert ec2.machines() == []


@pytest.mark.parametrize(
    ("status", "code"), [(200, "ResponseParserError"), (502, "502"), (403, None)]
)
def test_a_proxy_in_between_that_answers_with_a_page(
    ec2: Ec2, provider: Aws, status: int, code: str | None
) -> None:
    ec2.garble("create", status)
    found = trouble(provider, lambda: create(provider, order()))
    assert found.cause in ("transient", "unknown") and "HTTPS_PROXY" in found.fix
    assert code in (None, found.code) and ec2.machines() == []


def test_nobody_answers(
    ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://localhost:9")
    found = trouble(provider, lambda: describe_once(provider))
    assert (found.cause, found.code) == ("transient", "EndpointConnectionError")
    monkeypatch.setenv("HTTPS_PROXY", "http://localhost:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://ec2.example")
    found = trouble(provider, lambda: describe_once(provider))
    assert (found.cause, found.code) == ("transient", "ProxyConnectionError")
    use(monkeypatch, ec2.env())
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    found = trouble(provider, lambda: describe_once(provider))
    assert found.code == "SSLError" and "AWS_CA_BUNDLE" in found.fix


def test_a_refusal_speaks_of_the_place_it_was_asked_for(ec2: Ec2, provider: Aws) -> None:
    ec2.refuse("InsufficientInstanceCapacity", zone="us-east-1a", instance_type="m5.large", times=9)
    ec2.refuse("MaxSpotInstanceCountExceeded", spot=True, times=9)
    found = trouble(provider, lambda: create(provider, order(zone="us-east-1a")))
    assert found.cause == "capacity" and "us-east-1a" in found.message
    found = trouble(provider, lambda: create(provider, order(zone="us-east-1b", spot=True)))
    assert (found.cause, found.scope) == ("quota", "market")
    assert len(create(provider, order(zone="us-east-1b"))) == 1
    ec2.throttle("create")
    assert trouble(provider, lambda: create(provider, order("b-1"))).cause == "throttled"
