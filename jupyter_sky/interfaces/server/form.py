"""The form of a cell, answered without a kernel: ``jupyter-sky/form/...``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import NotFound

if TYPE_CHECKING:
    from jupyter_sky.interfaces.forms.completion import CompletionContext


class FormHandler(SkyHandler):
    """Questions of a form while its user types: ``POST form/match`` and the like."""

    @authorized
    async def post(self, kind: str) -> None:
        """Answer a question of the form, see `jupyter_sky.interfaces.forms.rpc.make_handlers`."""
        await self.answer(self._answered, kind, self.body)

    @authorized
    async def get(self, kind: str) -> None:
        """Answer a question whose parts are in the query; `fields` as JSON."""
        await self.answer(self._answered, kind, self._query)

    def _query(self) -> dict[str, Any]:
        asked: dict[str, Any] = {
            name: self.get_query_argument(name) for name in self.request.query_arguments
        }
        if "fields" in asked:
            try:
                asked["fields"] = json.loads(asked["fields"])
            except ValueError:
                raise SkyUsageError(_("fields: no JSON"), hint=_('fields={"values": {}}')) from None
        return asked

    def _answered(self, kind: str, asked: Any) -> dict[str, Any]:
        from jupyter_sky.interfaces.forms.rpc import make_handlers

        known = make_handlers(self._known)
        if kind not in known:
            raise NotFound(_("form/{kind}: not known").format(kind=kind), hint=suggest(kind, known))
        return known[kind](asked())

    def _known(self, asked: dict[str, Any]) -> CompletionContext:
        """Return the clusters that are up, and the notebook by its path as its kernel knows it."""
        from jupyter_sky.interfaces.forms.completion import CompletionContext

        store = None
        try:
            store = self.service.session.store
            up = tuple(store.clusters())
        except SkyStoreError:
            up = ()  # the panel says what is wrong with it; offers need no store
        path = asked.get("notebook")
        if not isinstance(path, str) or not path:
            return CompletionContext(up, store=store)
        folder = self.kernel_manager.cwd_for_path(path)
        return CompletionContext(up, os.path.join(folder, Path(path).name), store=store)


HANDLERS = [(r"form/([^/]+)", FormHandler)]
