"""Public protocol of a cloud, for packages that add one."""

from jupyter_sky.clouds.provider import *  # noqa: F403
