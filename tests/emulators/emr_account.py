"""An account of AWS with one of EMR's services: credentials, refusals, tokens of sessions."""

from __future__ import annotations

import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path

from .connect_server import TokenProxy
from .ec2 import KEY, SECRET, account_env
from .ec2_errors import stranger
from .server import Emulator, Request, Response, write_authority

AUTH = "x-aws-proxy-auth"
LIVE = ("SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY")
"""States of a session that costs."""


class EmrAccount(Emulator):
    """An account of AWS.

    Parameters
    ----------
    upstream
        Port of the Connect server behind the endpoints of all sessions; 0 without one.
    start
        Seconds until what is launched is up.

    Attributes
    ----------
    failing : list of str
        Reasons for which what is launched next fails as it starts.
    token_seconds : float
        Life of a token.
    """

    def __init__(self, upstream: int = 0, *, start: float) -> None:
        self.start = start
        self._proxy = TokenProxy(upstream, AUTH, self.admits) if upstream else None
        self._kept = tempfile.TemporaryDirectory(prefix="emr-")
        self._folder = Path(self._kept.name)
        write_authority(self._folder / "authority.pem")
        self.reset()
        super().__init__()

    def reset(self) -> None:
        """Begin anew, with an account that has nothing."""
        self.refusals: list[tuple[str, str, str, str]] = []
        self.failing: list[str] = []
        self.token_seconds = 3600.0
        self._ids = count(1)

    def close(self) -> None:
        """Leave nothing of it."""
        super().close()
        if self._proxy is not None:
            self._proxy.close()
        self._kept.cleanup()

    def env(self) -> dict[str, str]:
        """Environment that points a process at it, with credentials of the account."""
        return account_env(self.url, self._folder)

    @property
    def endpoint(self) -> str:
        """Address of the Connect server of each session."""
        return f"https://localhost:{self._proxy.port if self._proxy else 443}"

    def refuse(self, action: str, code: str, message: str = "", region: str = "") -> None:
        """Refuse the next request of an action, in one region or any."""
        self.refusals.append((action, region, code, message or code))

    @abstractmethod
    def live_tokens(self) -> Iterable[Mapping[str, float]]:
        """Tokens of each session that is up, with the unix seconds at which they expire."""

    def admits(self, token: str) -> str:
        """Why a token does not open a session; empty where it does."""
        now = time.time()
        for tokens in self.live_tokens():
            if token in tokens:
                return "" if now < tokens[token] else "the token has expired"
        return "the token belongs to no session"

    def stranger(self, request: Request) -> Response | None:
        """Refusal of a request that the account has not signed."""
        return stranger(request, {KEY: (SECRET, "")}, set(), time.time())

    def refused(self, action: str, region: str) -> tuple[str, str] | None:
        """Code and message with which the next request of an action is to be refused."""
        for refusal in self.refusals:
            if refusal[0] == action and refusal[1] in ("", region):
                self.refusals.remove(refusal)
                return refusal[2:]
        return None
