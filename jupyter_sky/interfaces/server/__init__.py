"""Jupyter Server extension: state and actions of JupyterLab's panel, without any kernel.

Everything is answered from the store and by the clusters themselves, below ``jupyter-sky/``.
Nothing heavy is imported before the first question.
"""

from __future__ import annotations

from typing import Any

from jupyter_sky.base.settings.paths import missing_panel_reason

PREFIX = "jupyter-sky"


def load(server_app: Any) -> None:
    """Add the handlers to a Jupyter server."""
    from jupyter_server.utils import url_path_join

    from jupyter_sky.interfaces.server import (
        bags,
        clusters,
        files,
        form,
        help,
        overview,
        pipelines,
        runs,
    )
    from jupyter_sky.interfaces.server.poller import SCHEMA
    from jupyter_sky.interfaces.server.service import SkyService

    web = server_app.web_app
    logger = server_app.event_logger
    if SCHEMA["$id"] not in logger.schemas:
        logger.register_event_schema(SCHEMA)
    web.settings["jupyter_sky"] = service = SkyService(server_app, logger)
    overview.enforce_budget(service)
    base = web.settings["base_url"]
    modules = (overview, clusters, files, runs, pipelines, bags, form, help)
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
