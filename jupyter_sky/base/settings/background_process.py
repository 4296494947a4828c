"""Python processes that go on when the notebook, terminal or server that began them ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.settings.layers import as_environment

if TYPE_CHECKING:
    from jupyter_sky.base.settings.settings import Sky


def start_background_process(
    arguments: Sequence[str],
    settings: Sky,
    output: int = subprocess.DEVNULL,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start Python, with these settings.

    Parameters
    ----------
    arguments
        Of the interpreter: with ``-P``, modules of the working folder are not imported.
    settings
        Settings of the process.
    output
        File descriptor of what it prints.
    folder
        In which it works; that of this process unless given.
    """
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **as_environment(settings)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        cwd=folder,
    )
