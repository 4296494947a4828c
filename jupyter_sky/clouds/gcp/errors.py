"""Meaning of Google Cloud's codes, and how they are read out of errors of its SDK.

A code stands in one of four places: in the error of an operation that was accepted and then failed
(``ZONE_RESOURCE_POOL_EXHAUSTED``), in the details of an HTTP error (``SERVICE_DISABLED``), among
its errors (``quotaExceeded``), or in the answer of the server that hands out tokens
(``invalid_grant``). Where there is none, the HTTP status has to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from jupyter_sky.clouds.provider.classification import (
    ErrorTable,
    ProviderError,
    Refinement,
    first_known,
    group_codes,
    is_html,
    status_meaning,
)
from jupyter_sky.clouds.provider.protocol import TRANSIENT_CAUSES

if TYPE_CHECKING:
    from google.cloud.compute_v1 import Operation

_LOGIN = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the file "
_LOGIN += "of a service account's key"
_ROLE = (
    "ask for the role: gcloud projects add-iam-policy-binding PROJECT --member=user:YOU "
    "--role=roles/compute.instanceAdmin.v1 (and roles/compute.networkAdmin for the network), or "
    "one of the least rights: jupyter sky setup gcp --policy"
)
_ACT_AS = (
    "ask for the role: gcloud iam service-accounts add-iam-policy-binding ACCOUNT "
    "--member=user:YOU --role=roles/iam.serviceAccountUser"
)
_QUOTA = "ask for more: https://console.cloud.google.com/iam-admin/quotas"
_ENABLE = "gcloud services enable compute.googleapis.com --project PROJECT; it takes some minutes"
_BILLING = "gcloud billing projects link PROJECT --billing-account ACCOUNT"
_PROJECT = "set GOOGLE_CLOUD_PROJECT to a project of yours: gcloud projects list"
_POLICY = "a rule of your organisation forbids it: ask its administrator, or take another region"
_CLOCK = "set this machine's clock, as by: sudo timedatectl set-ntp true"
_PROXY = (
    "see which proxy is set (HTTPS_PROXY), let it pass compute.googleapis.com and "
    "oauth2.googleapis.com, or add them to NO_PROXY"
)
_CERTIFICATES = "set REQUESTS_CA_BUNDLE to the certificates of the proxy in between"
_NO_CREDENTIALS, _NO_PROJECT = "no credentials", "no project"

_CODES = group_codes(
    # operations that were accepted and failed
    ("capacity", "zone", "", "ZONE_RESOURCE_POOL_EXHAUSTED RESOURCE_POOL_EXHAUSTED"),
    ("capacity", "zone", "", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
    ("capacity", "zone", "", "UNSUPPORTED_OPERATION"),  # taken back while it was being made
    ("capacity", "region", "", "REGION_RESOURCE_POOL_EXHAUSTED IP_SPACE_EXHAUSTED"),
    ("quota", "region", _QUOTA, "QUOTA_EXCEEDED"),
    ("permission", "zone", _ROLE, "PERMISSIONS_ERROR ACCESS_DENIED"),
    ("permission", "region", _ACT_AS, "SERVICE_ACCOUNT_ACCESS_DENIED"),
    ("permission", "zone", _POLICY, "CONDITION_NOT_MET"),
    ("invalid", "region", "", "EXTERNAL_RESOURCE_NOT_FOUND"),  # as is a service account
    ("invalid", "zone", "", "RESOURCE_NOT_FOUND INVALID_FIELD_VALUE INVALID_USAGE"),
    ("throttled", "zone", "", "RESOURCE_OPERATION_RATE_EXCEEDED"),
    ("transient", "zone", "", "RESOURCE_NOT_READY RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"),
    ("transient", "zone", "", "RESOURCE_ALREADY_EXISTS"),  # one of that name is being removed
    ("transient", "zone", "", "INTERNAL_ERROR SERVICE_UNAVAILABLE"),
    # details of an HTTP error
    ("permission", "region", _ENABLE, "SERVICE_DISABLED"),
    ("permission", "region", _BILLING, "BILLING_DISABLED"),
    ("permission", "region", _PROJECT, "CONSUMER_INVALID USER_PROJECT_DENIED"),
    ("permission", "region", _ROLE, "IAM_PERMISSION_DENIED"),
    ("permission", "region", _LOGIN, "ACCESS_TOKEN_EXPIRED ACCESS_TOKEN_SCOPE_INSUFFICIENT"),
    ("permission", "region", _LOGIN, "ACCESS_TOKEN_TYPE_UNSUPPORTED ACCOUNT_STATE_INVALID"),
    ("permission", "region", _LOGIN, "CREDENTIALS_MISSING"),
    ("throttled", "region", "", "RATE_LIMIT_EXCEEDED"),
    # errors of an HTTP error
    ("capacity", "zone", "", "resourcePoolExhausted insufficientCapacity"),
    ("quota", "region", _QUOTA, "quotaExceeded dailyLimitExceeded"),
    ("permission", "region", _LOGIN, "authError"),
    ("permission", "region", _ROLE, "forbidden insufficientPermissions"),
    ("permission", "region", _ENABLE, "accessNotConfigured"),
    ("permission", "zone", _POLICY, "conditionNotMet"),
    ("invalid", "zone", "", "invalid invalidUsage badRequest parseError notFound"),
    ("throttled", "region", "", "rateLimitExceeded userRateLimitExceeded"),
    ("throttled", "region", "", "concurrentOperationQuotaExceeded"),
    ("transient", "zone", "", "operationInProgress resourceNotReady alreadyExists"),
    ("transient", "zone", "", "resourceInUseByAnotherResource backendError internalError"),
    # the server of tokens
    ("permission", "region", _LOGIN, "invalid_grant invalid_client invalid_scope invalid_rapt"),
    ("permission", "region", _LOGIN, "unauthorized_client access_denied unauthorized"),
    ("transient", "region", "", "server_error temporarily_unavailable internal_failure"),
    # what this module makes of errors without a code
    ("unknown", "region", _PROXY, "page"),
    ("unknown", "region", _CERTIFICATES, "certificate"),
    ("transient", "region", "", "connection timeout"),
)
TABLE: ErrorTable = {
    **_CODES,
    _NO_CREDENTIALS: ("permission", "region", _LOGIN),
    _NO_PROJECT: ("permission", "region", _PROJECT),
}
"""Meaning of the codes that Google sends, and of errors without one."""
STATUSES: ErrorTable = {
    400: TABLE["invalid"],
    401: TABLE["authError"],
    403: TABLE["forbidden"],
    404: TABLE["notFound"],
    408: TABLE["timeout"],
    412: TABLE["conditionNotMet"],
    429: TABLE["rateLimitExceeded"],
}
"""Meaning of an HTTP status without a code."""

_QUOTA_CODES = "QUOTA_EXCEEDED quotaExceeded dailyLimitExceeded"
_QUOTA_FIX = rf"{_QUOTA}; the quota is \1"
_REGIONAL_METRICS = r"CPUS|INSTANCES|IN_USE_ADDRESSES|\w*_TOTAL_GB|\w*_ALL_REGIONS"
REFINEMENTS = (
    Refinement(
        "notFound forbidden 404",
        r"(?:resource|on|for) 'projects/[^/']+'(?: was not found|$)",
        "permission",
        "region",
        f"{_PROJECT}; if it is yours, {_ROLE}",
    ),
    Refinement(
        _QUOTA_CODES, r"(?i)Quota '(PREEMPTIBLE_CPUS\w*)' exceeded", scope="market", fix=_QUOTA_FIX
    ),
    Refinement(
        _QUOTA_CODES, rf"(?i)Quota '({_REGIONAL_METRICS})' exceeded", scope="region", fix=_QUOTA_FIX
    ),
    Refinement(_QUOTA_CODES, r"(?i)Quota '([A-Z0-9_-]+)' exceeded", scope="family", fix=_QUOTA_FIX),
    Refinement("invalid_grant", "reasonable timeframe", fix=_CLOCK),
    Refinement("backendError", "^a page came", fix=_PROXY),
    Refinement("connection", "^the proxy does not let us through", fix=_PROXY),
)
_HTTP_CALL = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) https?://\S+: ")


def read_error(error: Exception) -> ProviderError | None:
    """Read code, HTTP status and message out of an error of Google's SDK; None for any other.

    Examples
    --------
    >>> read_error(ValueError("no")) is None
    True
    """
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf.json_format import ParseError

    if isinstance(error, ProviderError):
        return error
    if isinstance(error, api.GoogleAPICallError):
        return _read_call(error)
    if isinstance(error, auth.TransportError | requests.RequestException):
        return _read_connection_error(error)
    if isinstance(error, auth.RefreshError):
        return _read_token_error(error)
    if isinstance(error, auth.GoogleAuthError):
        return ProviderError(str(error.args[0] if error.args else error), code=_NO_CREDENTIALS)
    if isinstance(error, ParseError) or _is_token_response_error(error):
        return ProviderError("what came is not from Google", code="page")
    return None


def is_transient(error: Exception) -> bool:
    """Whether an error is Google's and passes by itself."""
    refusal = read_error(error)
    if refusal is None:
        return False
    known = TABLE.get(refusal.code) or STATUSES.get(refusal.status)
    return (known or status_meaning(refusal.status))[0] in TRANSIENT_CAUSES


def no_project_error(path: str) -> ProviderError:
    """Return the error of a file of credentials that names no project."""
    return ProviderError(f"no project is set with the credentials in {path}", code=_NO_PROJECT)


def _error_codes(error: Any) -> Iterator[str]:
    """Yield the codes of an error of google-api-core, the most telling first."""
    if error.reason:
        yield error.reason
    for each in error.errors or ():
        if isinstance(each, dict) and each.get("reason"):
            yield each["reason"]


def _read_call(error: Any) -> ProviderError:
    status, message = int(error.code or 0), _HTTP_CALL.sub("", str(error.message or error))
    if is_html(message):
        return _page_error(status)
    code, _ = first_known(((code, "") for code in _error_codes(error)), TABLE)
    headers = getattr(error.response, "headers", None) or {}
    retry_after = headers.get("Retry-After")
    return ProviderError(message, code=code, status=status, retry_after=retry_after)


def _page_error(status: int = 0) -> ProviderError:
    words = "a page came in place of Google's answer" + (f" (HTTP {status})" if status else "")
    return ProviderError(words, code="backendError" if status >= 500 else "page")


def _read_token_error(error: Any) -> ProviderError:
    """Read an answer of the token server, or of what stands before it."""
    message = str(error.args[0] if error.args else error)
    if is_html(message):
        return _page_error()
    code, _, said = message.partition(": ")
    if code not in TABLE:
        code, said = ("server_error" if error.retryable else "invalid_grant"), message
    return ProviderError(message if said in ("", "None") else said, code=code)


def _read_connection_error(error: BaseException) -> ProviderError:
    words = f"{type(error).__name__}: {error}"
    if "certificate_verify_failed" in words.lower().replace(" ", "_"):
        return ProviderError(
            "the certificate shown is not one that is trusted here", code="certificate"
        )
    if "ProxyError" in words or "Tunnel connection failed" in words:
        return ProviderError(f"the proxy does not let us through: {error}", code="connection")
    late = "Timeout" in words or "timed out" in words
    return ProviderError(str(error), code="timeout" if late else "connection")


def _is_token_response_error(error: BaseException) -> bool:
    """Whether google-auth stumbled over an answer that is not JSON (it expects a dict)."""
    if not isinstance(error, TypeError | AttributeError | ValueError):
        return False
    trace, name = error.__traceback__, ""
    while trace is not None:
        name, trace = trace.tb_frame.f_globals.get("__name__", ""), trace.tb_next
    return name.startswith(("google.oauth2", "google.auth"))


def operation_error(operation: Operation) -> ProviderError:
    """Return the error of an operation that failed.

    Parameters
    ----------
    operation : google.cloud.compute_v1.Operation
        Its first known code becomes that of the error.
    """
    errors = operation.error.errors
    words = "; ".join(each.message for each in errors) or operation.http_error_message
    code, _ = first_known(((each.code, "") for each in errors), TABLE)
    return ProviderError(words, code=code, status=operation.http_error_status_code or 500)


def has_code(error: Any, *wanted: str) -> bool:
    """Whether an error of Google has one of some codes.

    ``gone`` stands for the answer that what is asked for is not there, by Google itself and within
    a project that is. Names of states as gRPC has them, such as ``ABORTED``, are codes too.
    """
    from google.api_core.exceptions import GoogleAPICallError

    if isinstance(error, ProviderError):
        return error.code in wanted
    if not isinstance(error, GoogleAPICallError):
        return False
    refusal = _read_call(error)
    project = re.search(REFINEMENTS[0].pattern, refusal.message)
    if "gone" in wanted and refusal.status == 404 and not project:
        return True
    return any(code in wanted for code in (*_error_codes(error), _status_name(error)))


def _status_name(error: Any) -> str:
    """Return the name of an error's state as gRPC has it; empty where none was sent.

    Of several names with one HTTP status, google-api-core takes the first.
    """
    try:
        return str(error.response.json()["error"]["status"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""


class ignore_codes(AbstractContextManager[None]):
    """Let errors with one of some codes pass; see `has_code`."""

    def __init__(self, *wanted: str) -> None:
        self._wanted = wanted

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        """Return whether the error passes."""
        return has_code(error, *self._wanted)
