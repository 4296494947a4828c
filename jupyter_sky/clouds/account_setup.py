"""Steps from no account of a cloud to the first machine that a cell rents there."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.translation import N_, _
from jupyter_sky.clouds import check, is_ready, is_rented, reachable_names

DONE, TO_DO = N_("done"), N_("to do")


@dataclass(frozen=True, slots=True)
class SetupStep:
    """Step of the setup of a cloud.

    Attributes
    ----------
    cloud : str
        Name of the cloud.
    text : str
        What to do, with the command where there is one.
    state : str
        ``done``, ``to do``, or empty where it cannot be known from here.
    """

    cloud: str
    text: str
    state: str = ""


def setup_steps(name: str) -> list[SetupStep]:
    """Return the steps of a cloud, in their order; its credentials are proved by one request.

    Parameters
    ----------
    name
        Name of a cloud that can launch machines, one's own machines included.

    Examples
    --------
    >>> [step.state for step in setup_steps("local")]
    ['done']
    """
    found = check(name)
    if not is_rented(name):
        text = found.found if found.usable else f"{found.found}; {found.fix}"
        return [SetupStep(name, text, _state(found.usable))]
    facts = find_facts(name)
    installed = all(importlib.util.find_spec(package) for package in facts.packages)
    ready = installed and is_ready(name)
    steps = [
        (facts.account, DONE if found.usable else ""),
        (facts.permissions, DONE if found.usable else ""),
        (facts.install, _state(installed)),
        (found.fix or _("log in: {found}").format(found=found.found), _state(found.usable)),
    ]
    if ready and not found.usable:  # there are credentials, and they were refused
        steps.insert(3, (_("credentials are here: {found}").format(found=found.found), DONE))
    return [SetupStep(name, text, state) for text, state in steps if text]


def setup_names() -> list[str]:
    """Return the clouds that have steps: all but this machine, which has none."""
    return [name for name in reachable_names() if name != "local"]


def _state(is_done: bool) -> str:
    return DONE if is_done else TO_DO
