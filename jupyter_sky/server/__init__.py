"""Jupyter Server extension: state and actions of JupyterLab's panel, without any kernel.

Everything is answered from the store and by the clusters themselves, below ``jupyter-sky/``.
Nothing heavy is imported before the first question.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..translation import _

PREFIX = "jupyter-sky"


def load(server_app: Any) -> None:
    """Add the handlers to a Jupyter server."""
    from jupyter_server.utils import url_path_join

    from . import (
        bags,
        cell_states,
        clusters,
        cost,
        examples,
        files,
        form,
        help,
        notebook_runs,
        offers,
        overview,
        pipelines,
        runs,
    )
    from .poller import SCHEMA
    from .service import SkyService

    web = server_app.web_app
    logger = server_app.event_logger
    if SCHEMA["$id"] not in logger.schemas:
        logger.register_event_schema(SCHEMA)
    web.settings["jupyter_sky"] = service = SkyService(server_app, logger)
    cost.enforce_budget(service)
    base = web.settings["base_url"]
    own = (overview, clusters, files, runs, notebook_runs, pipelines, cell_states, bags)
    modules = (*own, offers, form, cost, examples, help)
    web.add_handlers(
        ".*$",
        [
            (url_path_join(base, PREFIX, path), handler)
            for module in modules
            for path, handler in module.HANDLERS
        ],
    )
    if note := missing_panel_reason():
        server_app.log.warning(note)


def missing_panel_reason() -> str:
    """Return why JupyterLab has no panel; nothing if it has."""
    from jupyter_core.paths import jupyter_path

    folders = jupyter_path("labextensions")
    if any(Path(folder, PREFIX, "package.json").exists() for folder in folders):
        return ""
    return _(
        "jupyter_sky was installed from source without npm, so JupyterLab has "
        "no Sky panel. Install Node.js 20 or later and jupyter_sky again, or a "
        "released wheel."
    )
