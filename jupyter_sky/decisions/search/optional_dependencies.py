"""Libraries that only some optimizers need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


def import_optional(module: str, what: str) -> Any:
    """Import a library, or say who needs it and how to get it.

    Raises
    ------
    SkyUsageError
        When it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = {"sklearn": "scikit-learn"}.get(module, module)
        raise SkyUsageError(
            _("{what} needs {package}, which cannot be imported: {error}").format(
                what=what, package=package, error=error
            ),
            hint=_("pip install {package}, or choose another one").format(package=package),
        ) from None


@contextlib.contextmanager
def small_models() -> Iterator[None]:
    """Let scikit-learn fit models of some dozen points without threads and checks of arguments.

    These take most of the time there, and change nothing of the result.
    """
    import sklearn
    from joblib import parallel_config

    checks = sklearn.config_context(assume_finite=True, skip_parameter_validation=True)
    with checks, parallel_config(backend="sequential"):
        yield
