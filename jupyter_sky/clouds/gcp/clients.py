"""Google Cloud credentials, project and endpoint, and one client of each kind.

Of the SDK's own ways three are left aside. It signs requests itself with a service account's key;
asked for a token instead, Google says in words what is wrong with a key or a clock. Its futures
poll the public address even where another is set, so operations are polled here. And behind each
token it looks up, at a third address and with warnings, where requests may go.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_sky.clouds.gcp.errors import has_code, is_transient, no_project_error, operation_error
from jupyter_sky.clouds.provider.parallel_requests import pause

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
PROJECTS = ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
CALL_OPTIONS: dict[str, Any] = {"retry": None, "timeout": 60.0}
"""Options of each request: it is sent once, with a timeout in seconds."""
PAGE_SIZE = 500
OPERATION_SECONDS = 600.0
"""An operation that takes longer is given up."""
MAX_FAILED_POLLS = 8
"""So many looks at an operation may fail one after the other."""


def configured() -> str:
    """Return in words which credentials would be used, empty without any; asks nobody."""
    if path := os.environ.get(KEY_FILE):
        return f"{KEY_FILE}={path}"
    path = _gcloud_file()
    return f"gcloud's application default credentials ({path})" if path.is_file() else ""


def connect() -> GcpClients:
    """Return the access that the environment describes now; the same while it stays the same.

    Raises
    ------
    google.auth.exceptions.DefaultCredentialsError
        There are no credentials, or their file cannot be read.
    ProviderError
        No project is set.
    """
    path = Path(os.environ.get(KEY_FILE) or _gcloud_file())
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    project = next((value for name in PROJECTS if (value := os.environ.get(name))), "")
    with _connection_lock:
        return _connect(str(path), changed, project, os.environ.get(ENDPOINT, ""))


_connection_lock = threading.Lock()


@lru_cache(maxsize=4)
def _connect(path: str, changed: int, project: str, endpoint: str) -> GcpClients:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    if not configured():  # google-auth would ask the network for a machine's own
        raise DefaultCredentialsError("there are no application default credentials")
    credentials, found = google.auth.default(scopes=[SCOPE])
    if not (project or found):
        raise no_project_error(path)
    address = urlsplit(endpoint)
    host = f"{address.scheme}://{address.netloc}" if address.netloc else ""
    return GcpClients(credentials, project or str(found), host)


def _with_token_session(credentials: Any) -> Any:
    """Return credentials that get their tokens from others, and ask for nothing else."""
    from google.auth.credentials import Credentials

    class Tokens(Credentials):
        def __init__(self) -> None:
            super().__init__()
            self._universe_domain = credentials.universe_domain

        def refresh(self, request: Any) -> None:
            credentials.refresh(request)
            self.token, self.expiry = credentials.token, credentials.expiry

        def apply(self, headers: Any, token: str | None = None) -> None:
            credentials.apply(headers, token)

    return Tokens()


def _gcloud_file() -> Path:
    folder = os.environ.get("CLOUDSDK_CONFIG")
    if not folder and os.name == "nt":
        folder = os.path.join(os.environ.get("APPDATA", ""), "gcloud")
    root = Path(folder) if folder else Path.home() / ".config" / "gcloud"
    return root / "application_default_credentials.json"


class GcpClients:
    """Clients of one project.

    Parameters
    ----------
    credentials : google.auth.credentials.Credentials
    project : str
    host : str
        Scheme and host of another address than Google's own; empty for that.
    """

    def __init__(self, credentials: Any, project: str, host: str = "") -> None:
        self.credentials, self.project, self.host = credentials, project, host
        self.tokens = _with_token_session(credentials)
        """Credentials that get their tokens from `credentials`, and ask for nothing else."""
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """E-mail address of the credentials, as far as they say it."""
        email = getattr(self.credentials, "service_account_email", "")
        return str(email or getattr(self.credentials, "account", "") or "your gcloud account")

    def bearer_token(self) -> str:
        """Return a token for requests without a client of the SDK."""
        from google.auth.transport.requests import Request

        with self._lock:
            if not self.credentials.valid:
                self.credentials.refresh(Request())
            return self.credentials.token

    def client(self, kind: str) -> Any:
        """Return the client called ``{kind}Client`` in the SDK."""
        import google.cloud.compute_v1 as compute_v1

        with self._lock:
            if kind not in self._clients:
                made = getattr(compute_v1, f"{kind}Client")
                options: dict[str, Any] = {"host": self.host} if self.host else {}
                transport = made.get_transport_class("rest")(credentials=self.tokens, **options)
                self._clients[kind] = made(transport=transport)
            return self._clients[kind]

    def call(self, kind: str, method: str, **request: Any) -> Any:
        """Send one request; of a list, all pages are read as they are needed."""
        asked = {"project": self.project, **request}
        return getattr(self.client(kind), method)(request=asked, **CALL_OPTIONS)

    def list_all_zones(self, kind: str, member: str, filter: str) -> Iterator[tuple[str, Any]]:
        """Yield zone and entry of all that a project has in all zones, and a filter lets through.

        Raises
        ------
        google.api_core.exceptions.ServiceUnavailable
            A zone does not answer: what it holds may not be taken for gone.
        """
        from google.api_core.exceptions import ServiceUnavailable

        asked = {"filter": filter, "max_results": PAGE_SIZE}
        for scope, found in self.call(kind, "aggregated_list", **asked):
            if found.warning.code == "UNREACHABLE":
                raise ServiceUnavailable(f"{scope} does not answer: {found.warning.message}")
            for each in getattr(found, member):
                yield scope.removeprefix("zones/"), each

    def await_operations(
        self, operations: Sequence[Any], stop: threading.Event, zone: str = ""
    ) -> None:
        """Wait until operations are done, of a zone or global ones.

        Raises
        ------
        ProviderError
            The first that failed; see `errors.operation_error`.
        StopRequested
            `stop` is set.
        """
        kind, place = ("ZoneOperations", {"zone": zone}) if zone else ("GlobalOperations", {})
        pending, wait, missed = list(operations), 0.05, 0
        until = time.monotonic() + OPERATION_SECONDS
        while True:
            for operation in pending:
                if operation.error.errors or operation.http_error_status_code >= 400:
                    raise operation_error(operation)
            pending = [operation for operation in pending if operation.status.name != "DONE"]
            if not pending:
                return
            if time.monotonic() > until:
                raise _is_not_ready(pending[0].name)
            pause(stop, wait)
            wait = min(wait * 1.4, 1.0)
            try:
                names = [operation.name for operation in pending]
                pending = [self.call(kind, "get", operation=name, **place) for name in names]
                missed = 0
            except Exception as error:
                missed += 1
                if missed > MAX_FAILED_POLLS or not is_transient(error):
                    raise

    def retry_until_ready(self, request: Callable[[], Any], stop: threading.Event) -> Any:
        """Send a request again while what it needs is not ready yet."""
        until = time.monotonic() + OPERATION_SECONDS
        while True:
            try:
                return request()
            except Exception as error:
                if not has_code(error, "resourceNotReady") or time.monotonic() > until:
                    raise
            pause(stop, 0.5)


def match_any(field: str, values: Collection[str]) -> str:
    """Return the filter of lists that lets through what has one of some values.

    Examples
    --------
    >>> match_any("name", ["a", "b"])
    '(name = "a") OR (name = "b")'
    """
    return " OR ".join(f'({field} = "{value}")' for value in values)


def _is_not_ready(name: str) -> Exception:
    from google.api_core.exceptions import GatewayTimeout

    return GatewayTimeout(f"{name} is not done after {OPERATION_SECONDS:g} s")
