"""Base of all request handlers: authorization, worker threads, and errors as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import tornado.web
from jupyter_server.auth import decorator
from jupyter_server.base.handlers import APIHandler

from jupyter_sky.base.errors import SkyBudget, SkyError, SkyNoOffer, SkyStoreError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.service import NotFound, StateConflict

if TYPE_CHECKING:
    from jupyter_sky.interfaces.server.service import SkyService


_STATUS: tuple[tuple[type[SkyError], int], ...] = (
    (NotFound, 404),
    (StateConflict, 409),
    (SkyStoreError, 503),
    (SkyUsageError, 400),
    (SkyNoOffer, 400),
    (SkyBudget, 409),
    (SkyError, 502),
)
"""HTTP status of each kind of error; the first that fits."""


AUTH_RESOURCE = "jupyter_sky"
"""Name under which a server's authorizer is asked about clusters, runs and costs."""
Method = TypeVar("Method", bound=Callable[..., Any])


def authorized(method: Method) -> Method:
    """Answer only users whom the server knows and whom its authorizer admits.

    It is asked for the action of the HTTP verb: ``read`` for GET, ``write`` for all others.
    """
    checked: Any = tornado.web.authenticated(decorator.authorized(method))
    checked.is_authorized = True
    return checked


class SkyHandler(APIHandler):
    """Base of handlers that answer in JSON, errors with a message.

    Every verb of a subclass is `authorized`; a class with another one cannot be defined.
    """

    auth_resource = AUTH_RESOURCE

    def __init_subclass__(cls) -> None:
        """Refuse verbs that anybody could use."""
        super().__init_subclass__()
        for verb in cls.SUPPORTED_METHODS:
            method = vars(cls).get(verb.lower())
            if method is not None and not getattr(method, "is_authorized", False):
                raise TypeError(f"{cls.__name__}.{verb.lower()} is not @authorized")

    _track_activity = False  # a panel that is open is no work: a hub may stop an idle server

    @property
    def service(self) -> SkyService:
        """Service of this server: clusters, runs and costs."""
        return self.settings["jupyter_sky"]

    async def answer(self, work: Callable[..., Any], *args: Any) -> None:
        """Do some work in a thread; answer its result or its error."""
        try:
            found = await self.service.run_in_thread(work, *args)
        except SkyError as error:
            self.refuse(error)
        else:
            self.finish(json.dumps(found))

    def refuse(self, error: SkyError) -> None:
        """Answer an error of ours."""
        self.set_status(next(status for kind, status in _STATUS if isinstance(error, kind)))
        told = {"message": error.message, "hint": error.hint or "", "kind": type(error).__name__}
        self.finish(json.dumps(told | {"guide": error.guide_page}))

    def body(self) -> dict[str, Any]:
        """Return the JSON object in the body of the request.

        Raises
        ------
        SkyUsageError
            The body is no JSON object.
        """
        try:
            found = json.loads(self.request.body or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise SkyUsageError(
                _("what was sent is no JSON object"), hint=_('such as {"time": "1h"}')
            )
        return found

    def number(self, name: str, default: int, least: int = 0) -> int:
        """Return a whole number of the query.

        Raises
        ------
        SkyUsageError
            It is not a whole number, or too small.
        """
        text = self.get_query_argument(name, str(default))
        if not text.isdecimal() or int(text) < least:
            raise SkyUsageError(
                _("{name}={text}: not a count").format(name=name, text=text),
                hint=_("such as {name}={default}").format(name=name, default=default),
            )
        return int(text)
