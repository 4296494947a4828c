"""Pipelines of notebooks that another machine carries out: ``pipeline run --controller``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.interfaces.api.launches import start_detached
from jupyter_sky.interfaces.api.pipeline_files import (
    is_strict,
    is_task_file,
    make_checked_graph,
    read_notebook,
)
from jupyter_sky.machines.provisioner.placement import usable_providers


def start_on_machine(
    notebook: Path,
    name: str | None,
    machine: str,
    parameters: Mapping[str, Any],
    flags: Mapping[str, bool],
    strict: bool | None = None,
    **options: str,
) -> str:
    """Have a machine carry out the pipeline of a notebook; return the name of the run.

    The machine is launched, or is one of your own. It needs rights at the clouds whose machines the
    plan may take, and at the store of `Sky.results`: a role of its own, or ``--env`` among its
    options. It ends once it is idle.

    Parameters
    ----------
    machine
        Its options, as after ``%%sky``.
    parameters
        In place of those of the notebook.
    flags, options
        Of ``pipeline run``, without their dashes.
    strict
        Whether cells whose changes would be lost are refused; where nobody is there to see, unless
        given.

    Raises
    ------
    SkyUsageError
        Results stay here, or something is wrong with the notebook or the options.
    """
    from jupyter_sky.workflows.pipelines.files.script_files import modules_beside
    from jupyter_sky.workflows.pipelines.run import controller_machine as controllers

    config = _sessions.current().config
    if is_task_file(notebook):
        raise SkyUsageError(
            _("--controller {machine}: only notebooks are carried out elsewhere").format(
                machine=machine
            ),
            hint=_("without it, --detach has a process of its own here"),
        )
    controllers.check_results(config)
    found = read_notebook(notebook)[1]
    make_checked_graph(found, parameters, strict)
    name = name or f"{notebook.stem}_{time.strftime('%m%d_%H%M%S')}"
    words = [f"--{flag}" for flag, is_given in flags.items() if is_given]
    words.append("--strict" if is_strict(strict) else "--no-strict")  # as here
    words += [word for flag, value in options.items() for word in (f"--{flag}", value)]
    if parameters:
        words += ["-p", ",".join(f"{key}={value!r}" for key, value in parameters.items())]
    modules = modules_beside((cell.body for cell in found.cells), notebook.parent)
    folder = controllers.write_folder(notebook, name, words, config, modules)
    launch = controllers.launch_words(folder, name, machine, usable_providers(Resources()))
    start_detached(["launch", *launch], name, folder)
    return name
