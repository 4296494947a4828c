"""Settings of single clouds, ``Sky.providers``: each cloud's facts declare its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jupyter_sky.base.clouds.register import check_name, find_facts, known_names
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

TRAIT = "providers"
"""The setting that holds them all, by cloud and key."""
ProviderSettings = Mapping[str, Mapping[str, str]]


def dotted_names() -> Iterator[tuple[str, str]]:
    """Yield the settings of all known clouds, each with its description.

    Examples
    --------
    >>> dict(dotted_names())["providers.aws.scheduler_role"][:13]
    'ARN of a role'
    """
    for cloud in known_names():
        for key, description in find_facts(cloud).settings.items():
            yield f"{TRAIT}.{cloud}.{key}", description


def nest(name: str, value: Any) -> tuple[str, Any]:
    """Return the setting and its value for a name that may be dotted.

    Examples
    --------
    >>> nest("providers.aws.scheduler_role", "arn"), nest("idle", "5m")
    (('providers', {'aws': {'scheduler_role': 'arn'}}), ('idle', '5m'))
    """
    trait, *path = name.split(".", 2)
    for key in reversed(path):
        value = {key: value}
    return trait, value


def merge(weaker: ProviderSettings, stronger: ProviderSettings) -> dict[str, dict[str, str]]:
    """Return the settings of two layers, key by key.

    Examples
    --------
    >>> merge({"aws": {"a": "1", "b": "2"}}, {"aws": {"b": "3"}, "gcp": {}})
    {'aws': {'a': '1', 'b': '3'}, 'gcp': {}}
    """
    clouds = dict.fromkeys((*weaker, *stronger))
    return {name: {**weaker.get(name, {}), **stronger.get(name, {})} for name in clouds}


def check(settings: ProviderSettings, label: str) -> None:
    """Raise SkyUsageError for a cloud that no package has, or a key that it does not declare."""
    for cloud, values in settings.items():
        check_name(cloud, f"{label}: {cloud!r} is not a known cloud")
        declared = find_facts(cloud).settings
        for key in values:
            if key not in declared:
                raise SkyUsageError(
                    _("{label}: {cloud} has no setting {key!r}").format(
                        label=label, cloud=cloud, key=key
                    ),
                    hint=suggest(key, declared),
                )
