"""Requests to Nebius: credentials, the projects of a tenant, lists of several pages, refusals."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any

from jupyter_sky.clouds.provider.classification import ProviderError

TOKEN_VARIABLE, FILE_VARIABLE = "NEBIUS_IAM_TOKEN", "NEBIUS_CREDENTIALS_FILE"
TENANT_VARIABLE = "NEBIUS_TENANT_ID"
TIMEOUT_SECONDS = 60.0
_NO_ANSWER = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_CLOSE_SECONDS = 10.0
_PAGE = 500


def credentials_file() -> Path:
    """Return the file with the credentials of a service account, which need not exist."""
    named = os.environ.get(FILE_VARIABLE)
    return Path(named) if named else Path.home() / ".nebius" / "credentials.json"


class NebiusApi:
    """Connection to the API; the SDK is imported with the first request.

    Parameters
    ----------
    endpoint
        Host and port of all services; empty for those of Nebius.
    tenant
        ID of the tenant; empty for the first one that the credentials reach.
    projects
        IDs of the projects to use, separated by commas; empty for the first one of each region.
    """

    def __init__(self, endpoint: str = "", tenant: str = "", projects: str = "") -> None:
        self._endpoint, self._tenant = endpoint, tenant
        self._wanted = {each.strip() for each in projects.split(",") if each.strip()}
        self._connection: Any = None
        self._projects: dict[str, str] = {}
        self._lock = threading.RLock()

    @property
    def connection(self) -> Any:
        """The SDK, which services take; it gets and renews tokens."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Any:
        from grpc import ssl_channel_credentials
        from nebius.aio.token.static import EnvBearer
        from nebius.base.resolver import Constant
        from nebius.sdk import SDK

        getLogger("nebius").setLevel(CRITICAL)  # it logs what it raises, too
        options: dict[str, Any] = {"user_agent_prefix": "jupyter-sky"}
        if os.environ.get(TOKEN_VARIABLE):
            options["credentials"] = EnvBearer(TOKEN_VARIABLE)
        else:
            options["credentials_file_name"] = credentials_file()
        if self._endpoint:
            options["resolver"] = Constant(self._endpoint)
        # gRPC has a variable of its own for what others take from these
        named = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
        if named:
            roots = Path(named).read_bytes()
            options["tls_credentials"] = ssl_channel_credentials(root_certificates=roots)
        try:
            return SDK(**options)
        except Exception as error:  # of reading the file, of many kinds
            text = f"the credentials in {credentials_file()} cannot be read: {error}"
            raise ProviderError(text, code="UNAUTHENTICATED") from None

    def call(self, method: Callable[..., Any], request: Any, key: str = "") -> Any:
        """Send a request once; return the answer.

        Parameters
        ----------
        key
            Of idempotency: a request with the same one is answered as the first was.

        Raises
        ------
        ProviderError
            Nebius refuses.
        ConnectionError
            No answer has come; the request may have been carried out.
        """
        from nebius.aio.service_error import RequestError
        from nebius.aio.token.options import OPTION_REPORT_ERROR
        from nebius.base.error import SDKError

        options: dict[str, Any] = {"timeout": TIMEOUT_SECONDS, "retries": 0}
        options |= {"auth_timeout": TIMEOUT_SECONDS, "auth_options": {OPTION_REPORT_ERROR: "1"}}
        options |= {"metadata": [("x-idempotency-key", key)]} if key else {}
        sent = method(request, **options)
        # in a thread, since the SDK refuses to wait in one with an event loop, as kernels have
        worker = ThreadPoolExecutor(1, thread_name_prefix="jupyter-sky-nebius")
        try:
            return worker.submit(sent.wait).result()
        except RequestError as error:
            refusal = read_refusal(error.status)
            if getattr(refusal, "code", "") == "UNAUTHENTICATED":
                # it would go on asking for tokens; the next call connects anew
                with self._lock:
                    connection, self._connection = self._connection, None
                if connection is not None:
                    worker.submit(connection.sync_close, _CLOSE_SECONDS)
            raise refusal from None
        except SDKError as error:
            raise ConnectionError(str(error)) from None
        finally:
            worker.shutdown(wait=False)

    def pages(self, method: Callable[..., Any], request: type, parent: str) -> Iterator[Any]:
        """Yield the items of a list, page by page."""
        token = ""
        while True:
            asked = request(page_size=_PAGE, page_token=token)
            if parent:
                asked.parent_id = parent
            page = self.call(method, asked)
            yield from page.items
            if not (token := page.next_page_token):
                return

    def tenant(self) -> str:
        """Return the ID of the tenant."""
        from nebius.api.nebius.iam import v2 as iam

        if not (self._tenant or os.environ.get(TENANT_VARIABLE)):
            list_tenants = iam.TenantServiceClient(self.connection).list
            found = next(self.pages(list_tenants, iam.ListTenantsRequest, ""), None)
            if found is None:
                raise ProviderError("the credentials reach no tenant", code="PERMISSION_DENIED")
            self._tenant = found.metadata.id
        return self._tenant or os.environ[TENANT_VARIABLE]

    def projects(self) -> dict[str, str]:
        """Return the ID of a project by region; asked for once."""
        from nebius.api.nebius.iam import v2 as iam

        with self._lock:
            if not self._projects:
                service = iam.ProjectServiceClient(self.connection)
                for each in self.pages(service.list, iam.ListProjectsRequest, self.tenant()):
                    if not self._wanted or each.metadata.id in self._wanted:
                        self._projects.setdefault(each.spec.region, each.metadata.id)
            return self._projects


def read_refusal(status: Any) -> ProviderError | ConnectionError:
    """Return the error that a status tells: its code is that of the first detail, if it has one."""
    details = [error.details for error in status.service_errors if error.details is not None]
    name, text = status.code.name, status.message or status.code.name
    if name in _NO_ANSWER and not status.service_errors:
        return ConnectionError(text)
    code = details[0].field if details else name
    return ProviderError(text, code=code, status=404 if name == "NOT_FOUND" else 0)
