"""Settings of single clouds, in every layer that sets them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from traitlets import TraitError
from traitlets.config import Config, Configurable

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.interfaces.api.settings import config
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.magics.completer import complete_names

ROLE = "arn:aws:iam::123456789012:role/ends-machines"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Remove settings from outside."""
    for name in [name for name in os.environ if name.startswith("SKY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    Sky.clear_instance()
    yield
    Sky.clear_instance()


def _application(**settings: object) -> Configurable:
    return Configurable(config=Config({"Sky": settings}))


def test_unset_setting_is_empty() -> None:
    assert Sky.load().provider_setting("aws", "scheduler_role") == ""
    assert Sky.load().provider_setting("nowhere", "key") == ""


def test_layers_combine_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_PROVIDERS", "{'gcp': {'service_account': 'one'}}")
    monkeypatch.setenv("SKY_PROVIDERS_AWS_SCHEDULER_ROLE", "weak")
    settings = Sky.load(_application(providers={"aws": {"scheduler_role": ROLE}}))
    assert settings.provider_setting("aws", "scheduler_role") == ROLE
    assert settings.provider_setting("gcp", "service_account") == "one"


def test_variable_of_one_setting_wins_over_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_PROVIDERS", "{'gcp': {'service_account': 'one'}}")
    monkeypatch.setenv("SKY_PROVIDERS_GCP_SERVICE_ACCOUNT", " two ")
    settings = Sky.load()
    assert settings.provider_setting("gcp", "service_account") == "two"
    origin = "environment variable SKY_PROVIDERS, SKY_PROVIDERS_GCP_SERVICE_ACCOUNT"
    assert settings.origin("providers") == origin


def test_old_name_by_hand_keeps_other_clouds() -> None:
    settings = Sky.load(_application(providers={"gcp": {"service_account": "one"}}))
    with pytest.warns(FutureWarning, match="is now providers.aws.scheduler_role"):
        settings.update_config(Config({"Sky": {"aws_scheduler_role": ROLE}}))
    assert settings.provider_setting("aws", "scheduler_role") == ROLE
    assert settings.provider_setting("gcp", "service_account") == "one"


@pytest.mark.parametrize(
    ("variable", "text", "says", "hint"),
    [
        ("SKY_PROVIDERS", "{'awz': {}}", "'awz' is not a known cloud", "did you mean aws"),
        (
            "SKY_PROVIDERS",
            "{'aws': {'schedule_role': 'x'}}",
            "aws has no setting 'schedule_role'",
            "did you mean scheduler_role",
        ),
        ("SKY_PROVIDERS", "{'aws': 'x'}", "providers", ""),
        ("SKY_PROVIDERS_AZURE_ROLE", "x", "azure has no setting 'role'", "none is known"),
        ("SKY_PROVIDERS_NIMBUS_ROLE", "x", "'nimbus' is not a known cloud", "nebius"),
    ],
)
def test_unknown_cloud_or_key_is_refused_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, says: str, hint: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(SkyUsageError, match=variable) as failure:
        Sky.load()
    assert says in str(failure.value) and hint in str(failure.value)


def test_invalid_value_by_hand_changes_nothing() -> None:
    settings = Sky.load()
    with pytest.raises(TraitError, match="no setting"):
        settings.providers = {"gcp": {"role": "x"}}
    assert settings.providers == {}


def test_config_verb_sets_one_setting_and_lists_all() -> None:
    assert config("providers.aws.scheduler_role", ROLE) == ROLE
    assert config("providers.gcp.service_account", "default") == "default"
    assert config("providers.aws.scheduler_role") == ROLE
    assert Sky.load().providers["gcp"] == {"service_account": "default"}
    rows = {row[0]: row for row in config().rows}
    assert rows["providers.aws.scheduler_role"][1:3] == (repr(ROLE), "%config")
    assert "EventBridge" in rows["providers.aws.scheduler_role"][4]


def test_config_verb_refuses_an_undeclared_setting() -> None:
    with pytest.raises(SkyUsageError, match=r"providers\.aws\.role") as failure:
        config("providers.aws.role", "x")
    assert "providers.aws.scheduler_role" in str(failure.value.hint)


def test_settings_of_clouds_are_completed() -> None:
    texts = [text for text, _ in complete_names("setting", CompletionContext())]
    assert "providers.gcp.service_account=" in texts and "idle=" in texts
