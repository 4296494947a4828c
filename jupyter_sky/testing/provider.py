"""Conformance checks of a cloud's provider, as pytest finds them; see `jupyter_sky.testing`."""

import pytest

pytest.register_assert_rewrite("jupyter_sky.clouds.testing.provider")

from jupyter_sky.clouds.testing.provider import *  # noqa: E402, F403
