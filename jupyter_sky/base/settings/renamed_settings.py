"""Settings renamed in 0.2; their old names are read until 0.3, with a warning.

A dotted name is a setting of one cloud, a key of ``Sky.providers``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy

from traitlets.config import Config

from jupyter_sky.base.settings.provider_settings import TRAIT, merge, nest
from jupyter_sky.base.translation import _

SECTION = "Sky"
RENAMED: Mapping[str, str] = {
    "auto": "auto_inputs",
    "aws_scheduler_role": "providers.aws.scheduler_role",
    "browser_mb": "max_output_mb",
    "gcp_service_account": "providers.gcp.service_account",
    "keep": "keep_clusters",
    "mirror": "sync_packages",
    "silence": "heartbeat_timeout",
}
"""Current names of settings by their old ones."""


def warn_renamed(old: str, new: str, origin: str) -> None:
    """Warn that `origin`, such as an environment variable, uses an old name."""
    warnings.warn(
        _("{origin}: {old} is now {new}").format(origin=origin, old=old, new=new),
        FutureWarning,
        stacklevel=3,
    )


def current_name(name: str, origin: str) -> str:
    """Return the current name of a setting; warn where `name` is an old one.

    Parameters
    ----------
    name : str
        Name of a setting, which need not exist.
    origin : str
        Place where it was written, for the warning.
    """
    if name not in RENAMED:
        return name
    warn_renamed(name, RENAMED[name], origin)
    return RENAMED[name]


def with_current_names(config: Config, origin: str) -> Config:
    """Return a configuration in which settings have their current names.

    The same object is returned where it has no old name, else a copy: it belongs to the
    application. A value under a current name wins over one under the old name.
    """
    if not RENAMED.keys() & dict.get(config, SECTION, {}).keys():
        return config
    config = deepcopy(config)
    section = config[SECTION]
    for old in RENAMED.keys() & section.keys():
        trait, value = nest(RENAMED[old], section.pop(old))
        if trait in section and trait != TRAIT:
            continue
        warn_renamed(old, RENAMED[old], f"{origin}: {SECTION}")
        section[trait] = merge(value, section.get(trait, {})) if trait == TRAIT else value
    return config
