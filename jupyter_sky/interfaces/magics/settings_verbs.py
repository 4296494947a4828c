"""Verbs for settings and short names of options."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from jupyter_sky.interfaces.magics.arguments import rest, word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, verb


@verb(
    "alias",
    "alias big --cpus 8+",
    word("[NAME]", "Short name; all are listed unless given.", "alias"),
    rest("[OPTIONS]", "Options that it stands for."),
    only=NOTEBOOK,
)
def alias(name: str | None, options: Sequence[str]) -> Any:
    """Give options of %%sky a short name."""
    from jupyter_sky.interfaces.api import settings

    return settings.alias(name, shlex.join(options)) if name else settings.alias()


@verb(
    "config",
    "config idle=20m",
    word("[SETTING[=VALUE]]", "Setting; all are listed unless given.", "setting"),
)
def config(setting: str | None) -> Any:
    """Show the settings, or set one for this session."""
    from jupyter_sky.interfaces.api import settings

    if setting is None:
        return settings.config()
    key, equals, value = setting.partition("=")
    return settings.config(key.strip(), value.strip() if equals else None)
