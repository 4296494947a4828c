"""Conformance suite of clouds' providers, for packages that add a cloud.

It needs what ``pip install jupyter_sky pytest`` installs, and OpenSSH's client::

    pytest --pyargs jupyter_sky.testing.provider --provider pkg.mod:Class --world pkg.mod:World
"""

from jupyter_sky.clouds.testing import OPERATIONS, Operation, World

__all__ = ["OPERATIONS", "Operation", "World"]
