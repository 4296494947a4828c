"""Classification of Google Cloud errors: one table of its own codes, and how they are read.

A code stands in one of four places: in the error of an operation that was accepted and then failed
(``ZONE_RESOURCE_POOL_EXHAUSTED``), in the details of an HTTP error (``SERVICE_DISABLED``), among
its errors (``quotaExceeded``), or in the answer of the server that hands out tokens
(``invalid_grant``). Where there is none, the HTTP status has to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from ..base import CloudError, ErrorCause, RefusalScope

_LOGIN = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to the file "
_LOGIN += "of a service account's key"
_ROLE = (
    "ask for the role: gcloud projects add-iam-policy-binding PROJECT --member=user:YOU "
    "--role=roles/compute.instanceAdmin.v1 (and roles/compute.networkAdmin for the network)"
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

Meaning = tuple[ErrorCause, RefusalScope, str]

TABLE: dict[str, Meaning] = {
    # operations that were accepted and failed
    "ZONE_RESOURCE_POOL_EXHAUSTED": ("capacity", "zone", ""),
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": ("capacity", "zone", ""),
    "RESOURCE_POOL_EXHAUSTED": ("capacity", "zone", ""),
    "REGION_RESOURCE_POOL_EXHAUSTED": ("capacity", "region", ""),
    "IP_SPACE_EXHAUSTED": ("capacity", "region", ""),
    "UNSUPPORTED_OPERATION": ("capacity", "zone", ""),  # taken back while it was being made
    "QUOTA_EXCEEDED": ("quota", "region", _QUOTA),
    "PERMISSIONS_ERROR": ("permission", "zone", _ROLE),
    "ACCESS_DENIED": ("permission", "zone", _ROLE),
    "SERVICE_ACCOUNT_ACCESS_DENIED": ("permission", "region", _ACT_AS),
    "CONDITION_NOT_MET": ("permission", "zone", _POLICY),
    "EXTERNAL_RESOURCE_NOT_FOUND": ("invalid", "region", ""),  # as is a service account
    "RESOURCE_NOT_FOUND": ("invalid", "zone", ""),
    "INVALID_FIELD_VALUE": ("invalid", "zone", ""),
    "INVALID_USAGE": ("invalid", "zone", ""),
    "RESOURCE_OPERATION_RATE_EXCEEDED": ("throttled", "zone", ""),
    "RESOURCE_NOT_READY": ("transient", "zone", ""),
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": ("transient", "zone", ""),
    "RESOURCE_ALREADY_EXISTS": ("transient", "zone", ""),  # one of that name is being removed
    "INTERNAL_ERROR": ("transient", "zone", ""),
    "SERVICE_UNAVAILABLE": ("transient", "zone", ""),
    # details of an HTTP error
    "SERVICE_DISABLED": ("permission", "region", _ENABLE),
    "BILLING_DISABLED": ("permission", "region", _BILLING),
    "CONSUMER_INVALID": ("permission", "region", _PROJECT),
    "USER_PROJECT_DENIED": ("permission", "region", _PROJECT),
    "IAM_PERMISSION_DENIED": ("permission", "region", _ROLE),
    "ACCESS_TOKEN_EXPIRED": ("permission", "region", _LOGIN),
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": ("permission", "region", _LOGIN),
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": ("permission", "region", _LOGIN),
    "ACCOUNT_STATE_INVALID": ("permission", "region", _LOGIN),
    "CREDENTIALS_MISSING": ("permission", "region", _LOGIN),
    "RATE_LIMIT_EXCEEDED": ("throttled", "region", ""),
    # errors of an HTTP error
    "resourcePoolExhausted": ("capacity", "zone", ""),
    "insufficientCapacity": ("capacity", "zone", ""),
    "quotaExceeded": ("quota", "region", _QUOTA),
    "dailyLimitExceeded": ("quota", "region", _QUOTA),
    "authError": ("permission", "region", _LOGIN),
    "forbidden": ("permission", "region", _ROLE),
    "insufficientPermissions": ("permission", "region", _ROLE),
    "accessNotConfigured": ("permission", "region", _ENABLE),
    "conditionNotMet": ("permission", "zone", _POLICY),
    "invalid": ("invalid", "zone", ""),
    "invalidUsage": ("invalid", "zone", ""),
    "badRequest": ("invalid", "zone", ""),
    "parseError": ("invalid", "zone", ""),
    "notFound": ("invalid", "zone", ""),
    "rateLimitExceeded": ("throttled", "region", ""),
    "userRateLimitExceeded": ("throttled", "region", ""),
    "concurrentOperationQuotaExceeded": ("throttled", "region", ""),
    "operationInProgress": ("transient", "zone", ""),
    "resourceNotReady": ("transient", "zone", ""),
    "resourceInUseByAnotherResource": ("transient", "zone", ""),
    "alreadyExists": ("transient", "zone", ""),
    "backendError": ("transient", "zone", ""),
    "internalError": ("transient", "zone", ""),
    # the server of tokens
    "invalid_grant": ("permission", "region", _LOGIN),
    "invalid_client": ("permission", "region", _LOGIN),
    "invalid_scope": ("permission", "region", _LOGIN),
    "invalid_rapt": ("permission", "region", _LOGIN),
    "unauthorized_client": ("permission", "region", _LOGIN),
    "access_denied": ("permission", "region", _LOGIN),
    "unauthorized": ("permission", "region", _LOGIN),
    "server_error": ("transient", "region", ""),
    "temporarily_unavailable": ("transient", "region", ""),
    "internal_failure": ("transient", "region", ""),
    # what this module makes of errors without a code
    "clock": ("permission", "region", _CLOCK),
    "no credentials": ("permission", "region", _LOGIN),
    "no project": ("permission", "region", _PROJECT),
    "wrong project": ("permission", "region", f"{_PROJECT}; if it is yours, {_ROLE}"),
    "page": ("unknown", "region", _PROXY),
    "certificate": ("unknown", "region", _CERTIFICATES),
    "connection": ("transient", "region", ""),
    "timeout": ("transient", "region", ""),
}
"""What each code means: its cause, how much around the place is refused too, and what to do."""

_STATUS_MEANINGS: dict[int, Meaning] = {
    400: TABLE["invalid"],
    401: TABLE["authError"],
    403: TABLE["forbidden"],
    404: TABLE["notFound"],
    408: TABLE["timeout"],
    412: TABLE["conditionNotMet"],
    429: TABLE["rateLimitExceeded"],
}
_NO_SUCH_PROJECT = re.compile(r"(?:resource|on|for) 'projects/[^/']+'(?: was not found|$)")
_METRIC = re.compile(r"Quota '([A-Z0-9_-]+)' exceeded", re.IGNORECASE)
_REGIONAL_METRICS = re.compile(r"CPUS|INSTANCES|IN_USE_ADDRESSES|\w*_TOTAL_GB|\w*_ALL_REGIONS")
_HTTP_CALL = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) https?://\S+: ")


class NoProjectError(Exception):
    """No project is set in which to launch."""


def explain(error: Exception) -> CloudError | None:
    """Say what an error of Google's SDK means; None for one that is not of it.

    Examples
    --------
    >>> explain(NoProjectError("no project is set")).cause
    'permission'
    >>> explain(ValueError("no")) is None
    True
    """
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf.json_format import ParseError

    if isinstance(error, NoProjectError):
        return _make_cloud_error("no project", str(error))
    if isinstance(error, api.GoogleAPICallError):
        return _explain_call(error)
    if isinstance(error, auth.DefaultCredentialsError):
        return _make_cloud_error(
            "no credentials", _one_line(str(error.args[0] if error.args else error))
        )
    if isinstance(error, auth.TransportError):
        return _explain_connection_error(error)
    if isinstance(error, auth.RefreshError):
        return _explain_token_error(error)
    if isinstance(error, auth.GoogleAuthError):
        return _make_cloud_error("no credentials", _one_line(str(error)))
    if isinstance(error, ParseError) or _is_token_response_error(error):
        return _make_cloud_error("page", "what came is not from Google")
    if isinstance(error, requests.RequestException):
        return _explain_connection_error(error)
    return None


def error_codes(error: Any) -> Iterator[str]:
    """Yield the codes of an error of google-api-core, the most telling first."""
    if error.reason:
        yield error.reason
    for each in error.errors or ():
        if isinstance(each, dict) and each.get("reason"):
            yield each["reason"]


def _explain_call(error: Any) -> CloudError:
    status, message = int(error.code or 0), _HTTP_CALL.sub("", str(error.message or error))
    if _is_html(message):
        meaning = TABLE["backendError"] if status >= 500 else TABLE["page"]
        words = f"a page came in place of Google's answer (HTTP {status})"
        return CloudError(meaning[0], str(status), words, meaning[1], _PROXY)
    code = next((code for code in error_codes(error) if code in TABLE), "")
    if (status == 404 or code == "forbidden") and _NO_SUCH_PROJECT.search(message):
        return _make_cloud_error("wrong project", message, code or str(status))
    if not code:
        known = next(error_codes(error), str(status))
        transient = TABLE["backendError"] if status >= 500 else ("unknown", "zone", "")
        cause, width, fix = _STATUS_MEANINGS.get(status, transient)
        return CloudError(cause, known, _one_line(message), width, fix)
    trouble = _make_cloud_error(code, message)
    if trouble.cause == "quota" and (metric := _METRIC.search(message)):
        fix = f"{_QUOTA}; the quota is {metric[1]}"
        return CloudError("quota", code, trouble.message, _quota_scope(metric[1].upper()), fix)
    return trouble


def _quota_scope(metric: str) -> RefusalScope:
    """How far a quota reaches, by its name."""
    if metric.startswith("PREEMPTIBLE_CPUS"):
        return "market"
    return "region" if _REGIONAL_METRICS.fullmatch(metric) else "family"


def _explain_token_error(error: Any) -> CloudError:
    """An answer of the token server, or of what stands before it."""
    message = str(error.args[0] if error.args else error)
    if _is_html(message):
        return _make_cloud_error("page", "a page came in place of Google's answer")
    code, _, said = message.partition(": ")
    if "reasonable timeframe" in message:
        return _make_cloud_error("clock", said or message, code)
    if code not in TABLE:
        code, said = ("server_error" if error.retryable else "invalid_grant"), message
    return _make_cloud_error(code, message if said in ("", "None") else said)


def _explain_connection_error(error: BaseException) -> CloudError:
    words = f"{type(error).__name__}: {error}"
    if "CERTIFICATE_VERIFY_FAILED" in words or "certificate verify failed" in words:
        return _make_cloud_error(
            "certificate", "the certificate shown is not one that is trusted here"
        )
    if "ProxyError" in words or "Tunnel connection failed" in words:
        trouble = _make_cloud_error(
            "connection", f"the proxy does not let us through: {_one_line(str(error))}"
        )
        return CloudError("transient", trouble.code, trouble.message, "region", _PROXY)
    late = "Timeout" in words or "timed out" in words
    return _make_cloud_error("timeout" if late else "connection", _one_line(str(error)))


def _make_cloud_error(code: str, message: str, shown: str = "") -> CloudError:
    cause, width, fix = TABLE[code]
    return CloudError(cause, shown or code, _one_line(message), width, fix)


def _one_line(message: str) -> str:
    """The message in one line of bearable length."""
    words = " ".join(message.split())
    return words if len(words) <= 400 else words[:399] + "…"


def _is_html(message: str) -> bool:
    return bool(re.match(r"\s*<(?:!doctype|html|head|body|\?xml)", message, re.IGNORECASE))


def _is_token_response_error(error: BaseException) -> bool:
    """Whether google-auth stumbled over an answer that is not JSON (it expects a dict)."""
    if not isinstance(error, TypeError | AttributeError | ValueError):
        return False
    trace, name = error.__traceback__, ""
    while trace is not None:
        name, trace = trace.tb_frame.f_globals.get("__name__", ""), trace.tb_next
    return name.startswith(("google.oauth2", "google.auth"))


def operation_error(operation: Any) -> Exception:
    """Return the error of an operation that failed, as the SDK's own futures would raise it.

    Parameters
    ----------
    operation : google.cloud.compute_v1.Operation
        Its errors' codes become the reasons of the error.
    """
    from google.api_core import exceptions as api

    errors = [
        {"reason": each.code, "message": each.message, "domain": "operation"}
        for each in operation.error.errors
    ]
    words = "; ".join(each["message"] for each in errors) or operation.http_error_message
    status = operation.http_error_status_code or 500
    return api.from_http_status(status, words, errors=errors)


def has_code(error: Any, *wanted: str) -> bool:
    """Whether an error of google-api-core has one of some codes.

    ``gone`` stands for the answer that what is asked for is not there, by Google itself and within
    a project that is.
    """
    from google.api_core.exceptions import GoogleAPICallError

    if not isinstance(error, GoogleAPICallError):
        return False
    gone = "gone" in wanted and error.code == 404 and _explain_call(error).cause == "invalid"
    return gone or any(code in wanted for code in error_codes(error))


class ignore_codes(AbstractContextManager[None]):
    """Let errors with one of some codes pass; see `has_code`."""

    def __init__(self, *wanted: str) -> None:
        self._wanted = wanted

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        return has_code(error, *self._wanted)
