"""Process of a cluster's controller, on its head node.

python -m jupyter_sky.machines.engines.controller CONFIG
"""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_sky.machines.engines.controller.controller import ClusterController
from jupyter_sky.machines.engines.node.engine import import_dependencies
from jupyter_sky.machines.engines.node.engine_process import load_config
from jupyter_sky.machines.engines.node.overlay import FOLDER, PackageOverlay


def main(argv: list[str]) -> None:
    """Start the engines at once, and the controller while they load."""
    path = Path(argv[0])
    config = load_config(path)
    several = config["nodes"] - len(config.get("elsewhere", ())) > 1
    if several:
        import_dependencies()
    controller = ClusterController(config, path, loaded=several)
    try:
        if config.get("keeps_environment"):
            PackageOverlay(controller.directory / FOLDER).create()
        # takes long: engines start meanwhile
        from jupyter_sky.machines.engines.controller.hub import run_controller

        run_controller(controller)
    finally:
        controller.stop("ended")


if __name__ == "__main__":
    main(sys.argv[1:])
