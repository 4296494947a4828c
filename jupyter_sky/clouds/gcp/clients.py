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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from jupyter_sky.clouds.gcp.errors import has_code, is_transient, no_project_error, operation_error
from jupyter_sky.clouds.provider.parallel_requests import pause

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.cloud import compute_v1

Answer = TypeVar("Answer")
Entry = TypeVar("Entry")

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


def _with_token_session(credentials: Credentials) -> Credentials:
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
        self._clients: dict[type, Any] = {}
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

    @property
    def instances(self) -> compute_v1.InstancesClient:
        """Client of instances."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.InstancesClient)

    @property
    def disks(self) -> compute_v1.DisksClient:
        """Client of disks."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.DisksClient)

    @property
    def firewalls(self) -> compute_v1.FirewallsClient:
        """Client of firewalls."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.FirewallsClient)

    @property
    def networks(self) -> compute_v1.NetworksClient:
        """Client of networks."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.NetworksClient)

    @property
    def projects(self) -> compute_v1.ProjectsClient:
        """Client of projects."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.ProjectsClient)

    @property
    def regions(self) -> compute_v1.RegionsClient:
        """Client of regions."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.RegionsClient)

    @property
    def zone_operations(self) -> compute_v1.ZoneOperationsClient:
        """Client of zone operations."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.ZoneOperationsClient)

    @property
    def global_operations(self) -> compute_v1.GlobalOperationsClient:
        """Client of global operations."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.GlobalOperationsClient)

    @property
    def accelerator_types(self) -> compute_v1.AcceleratorTypesClient:
        """Client of accelerator types."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.AcceleratorTypesClient)

    @property
    def machine_types(self) -> compute_v1.MachineTypesClient:
        """Client of machine types."""
        import google.cloud.compute_v1 as compute_v1

        return self._client(compute_v1.MachineTypesClient)

    def _client(self, kind: Any) -> Any:
        """Return the client of a class of the SDK, one for each."""
        with self._lock:
            if kind not in self._clients:
                options = {"host": self.host} if self.host else {}
                transport = kind.get_transport_class("rest")(credentials=self.tokens, **options)
                self._clients[kind] = kind(transport=transport)
            return self._clients[kind]

    def call(self, method: Callable[..., Answer], **request: Any) -> Answer:
        """Send one request by a client's method; of a list, all pages are read as needed."""
        return method(request={"project": self.project, **request}, **CALL_OPTIONS)

    def list_all_zones(
        self, method: Callable[..., Any], members: Callable[[Any], Iterable[Entry]], filter: str
    ) -> Iterator[tuple[str, Entry]]:
        """Yield zone and entry of a filtered list of all zones, by a client's `aggregated_list`.

        Raises
        ------
        google.api_core.exceptions.ServiceUnavailable
            A zone does not answer: what it holds may not be taken for gone.
        """
        from google.api_core.exceptions import ServiceUnavailable

        asked = {"filter": filter, "max_results": PAGE_SIZE}
        for scope, found in self.call(method, **asked):
            if found.warning.code == "UNREACHABLE":
                raise ServiceUnavailable(f"{scope} does not answer: {found.warning.message}")
            for each in members(found):
                yield scope.removeprefix("zones/"), each

    def await_operations(
        self, operations: Sequence[compute_v1.Operation], stop: threading.Event, zone: str = ""
    ) -> None:
        """Wait until operations are done, of a zone or global ones.

        Raises
        ------
        ProviderError
            The first that failed; see `errors.operation_error`.
        StopRequested
            `stop` is set.
        """
        get = self.zone_operations.get if zone else self.global_operations.get
        place = {"zone": zone} if zone else {}
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
                pending = [self.call(get, operation=name, **place) for name in names]
                missed = 0
            except Exception as error:
                missed += 1
                if missed > MAX_FAILED_POLLS or not is_transient(error):
                    raise

    def retry_until_ready(self, request: Callable[[], Answer], stop: threading.Event) -> Answer:
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
