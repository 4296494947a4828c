"""``POST examples``: the example notebooks, copied below the folder of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_sky.interfaces.api.examples import FOLDER, copy_examples
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized


def copy_below(root: Path) -> dict[str, Any]:
    """Copy the example notebooks; return their paths, relative to the folder of the server."""
    copied = copy_examples(root / FOLDER)
    return {"paths": [each.path.relative_to(root).as_posix() for each in copied]}


class ExamplesHandler(SkyHandler):
    """Handler that copies the example notebooks."""

    @authorized
    async def post(self) -> None:
        """Copy those that are not there; return the paths of all."""
        root = Path(self.settings["server_root_dir"]).expanduser()
        await self.answer(copy_below, root)


HANDLERS = [(r"examples", ExamplesHandler)]
