"""Providers of managed services whose sessions speak Spark Connect."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.provider.protocol import Provider


@dataclass(frozen=True, slots=True)
class SessionEndpoint:
    """Address and tokens by which clients reach a session, by TLS.

    Attributes
    ----------
    host : str
        Name and port.
    headers : dict
        Metadata of each request with the token, or headers of each WebSocket.
    expires : float
        Unix seconds at which the token is no longer accepted.
    authority : str
        File with certificates that are trusted beside those of the system; empty without any.
    bridge : str
        Path at which bytes are taken in WebSocket messages; empty where gRPC is spoken.
    """

    host: str
    headers: dict[str, str] = field(repr=False)
    expires: float
    authority: str = ""
    bridge: str = ""


class SessionProvider(Provider):
    """A managed service: what it launches are sessions, one for each request."""

    def offers(self) -> Iterator[Offer]:
        """Yield nothing: `jupyter_sky.knowledge.catalog.tables` prices each request."""
        yield from ()

    @abstractmethod
    def endpoint(self, id: str) -> SessionEndpoint | None:
        """Return where a session is reached, with a new token; None while it starts.

        Raises
        ------
        ProviderError
            It has failed or ended; has the service's reason.
        """
