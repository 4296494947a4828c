"""``GET state``: clusters that are up, runs, costs."""

from __future__ import annotations

import json

from jupyter_sky.base.errors import SkyError
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized


class StateHandler(SkyHandler):
    """Handler of the state: all of it, or 304 where the front end has it already."""

    _etag: str | None = None

    def compute_etag(self) -> str | None:
        """Return the cursor of the answer: it need not be computed of its text."""
        return self._etag

    @authorized
    async def get(self) -> None:
        """Answer from the store alone: no cloud and no cluster is asked."""
        try:
            cursor = await self.service.run_in_thread(self.service.cursor)
            self.service.poller.touch()
            known = self.request.headers.get("If-None-Match", "")
            if known.removeprefix("W/").strip('"') == cursor:
                self.set_status(304)
                self.finish()
                return
            state = await self.service.run_in_thread(self.service.overview)
        except SkyError as error:
            self.refuse(error)
            return
        self._etag = f'"{state["cursor"]}"'
        self.finish(json.dumps(state))


HANDLERS = [("state", StateHandler)]
