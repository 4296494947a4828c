"""Errors of Compute Engine as they come over the wire: at once, or from an operation later."""

from __future__ import annotations

from typing import Any

from .server import Response

_STOCKOUT = (
    "The zone 'projects/{project}/zones/{zone}' does not have enough resources available to "
    "fulfill the request.  '(resource type:compute)'."
)
LATE: dict[str, tuple[int, str]] = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": (503, _STOCKOUT),
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": (503, _STOCKOUT),
    "RESOURCE_POOL_EXHAUSTED": (503, _STOCKOUT),
    "REGION_RESOURCE_POOL_EXHAUSTED": (503, "The region does not have enough resources."),
    "IP_SPACE_EXHAUSTED": (400, "IP space of 'regions/{region}/subnetworks/jupyter-sky' is full."),
    "UNSUPPORTED_OPERATION": (400, "Instance '{name}' was preempted during its creation."),
    "QUOTA_EXCEEDED": (403, "Quota '{metric}' exceeded.  Limit: 0.0 in region {region}."),
    "PERMISSIONS_ERROR": (403, "Required permission for '{name}' is missing."),
    "ACCESS_DENIED": (403, "Access to '{name}' is denied."),
    "CONDITION_NOT_MET": (412, "Constraint constraints/gcp.resourceLocations violated."),
    "SERVICE_ACCOUNT_ACCESS_DENIED": (
        400,
        "The user does not have access to service account '{account}'.  User: '{user}'.  Ask a "
        "project owner to grant you the iam.serviceAccountUser role on the service account",
    ),
    "EXTERNAL_RESOURCE_NOT_FOUND": (
        404,
        "The resource '{account}' of type 'serviceAccount' was not found.",
    ),
    "RESOURCE_NOT_FOUND": (404, "The resource 'projects/{project}/x' was not found"),
    "INVALID_FIELD_VALUE": (400, "A field of '{name}' has a value that it cannot have."),
    "INVALID_USAGE": (400, "Operation is not valid for this resource."),
    "RESOURCE_OPERATION_RATE_EXCEEDED": (429, "Operation rate exceeded for resource '{name}'."),
    "RESOURCE_NOT_READY": (400, "The resource '{name}' is not ready"),
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": (400, "The resource '{name}' is already being used."),
    "RESOURCE_ALREADY_EXISTS": (409, "The resource '{name}' already exists"),
    "INTERNAL_ERROR": (500, "Internal error. Please try again or contact Google Support."),
    "SERVICE_UNAVAILABLE": (503, "Service unavailable. Please try again."),
}
"""Codes of operations that fail after they were accepted: HTTP status and message."""

_PERMISSION = "Required '{permission}' permission for '{resource}'"
AT_ONCE: dict[str, tuple[int, str, str]] = {
    "quotaExceeded": (403, "", "Quota '{metric}' exceeded.  Limit: 0.0 in region {region}."),
    "dailyLimitExceeded": (403, "", "Daily Limit Exceeded"),
    "forbidden": (403, "", _PERMISSION),
    "insufficientPermissions": (403, "", "Insufficient Permission"),
    "accessNotConfigured": (403, "", "Access Not Configured. Compute Engine API has not been used"),
    "conditionNotMet": (
        412,
        "",
        "Constraint constraints/compute.vmExternalIpAccess violated for project {project}.",
    ),
    "authError": (401, "", "Invalid Credentials"),
    "resourcePoolExhausted": (503, "", _STOCKOUT),
    "insufficientCapacity": (503, "", _STOCKOUT),
    "invalid": (400, "", "Invalid value for field 'resource'."),
    "invalidUsage": (400, "", "Operation is not valid for this resource."),
    "badRequest": (400, "", "Bad Request"),
    "parseError": (400, "", "Parse Error"),
    "notFound": (404, "", "The resource '{resource}' was not found"),
    "rateLimitExceeded": (403, "", "Rate Limit Exceeded"),
    "userRateLimitExceeded": (403, "", "User Rate Limit Exceeded"),
    "concurrentOperationQuotaExceeded": (403, "", "Too many operations at once."),
    "operationInProgress": (400, "", "An operation on this resource is in progress."),
    "resourceNotReady": (400, "", "The resource '{resource}' is not ready"),
    "resourceInUseByAnotherResource": (400, "", "The resource '{resource}' is in use."),
    "alreadyExists": (409, "", "The resource '{resource}' already exists"),
    "backendError": (503, "", "The service is currently unavailable."),
    "internalError": (500, "", "Internal error encountered."),
    "SERVICE_DISABLED": (
        403,
        "accessNotConfigured",
        "Compute Engine API has not been used in project {project} before or it is disabled. "
        "Enable it by visiting https://console.developers.google.com/apis/api/"
        "compute.googleapis.com/overview?project={project} then retry.",
    ),
    "BILLING_DISABLED": (
        403,
        "forbidden",
        "This API method requires billing to be enabled. Please enable billing on project "
        "#{project} then retry.",
    ),
    "CONSUMER_INVALID": (403, "forbidden", "Permission denied on resource project {project}."),
    "USER_PROJECT_DENIED": (403, "forbidden", "Caller does not have permission to use {project}."),
    "IAM_PERMISSION_DENIED": (403, "forbidden", _PERMISSION),
    "ACCESS_TOKEN_EXPIRED": (
        401,
        "authError",
        "Request had invalid authentication credentials. Expected OAuth 2 access token.",
    ),
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": (401, "authError", "Request had invalid credentials."),
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": (
        403,
        "insufficientPermissions",
        "Request had insufficient authentication scopes.",
    ),
    "ACCOUNT_STATE_INVALID": (401, "authError", "The account has been disabled."),
    "CREDENTIALS_MISSING": (401, "required", "Login Required."),
    "RATE_LIMIT_EXCEEDED": (
        429,
        "rateLimitExceeded",
        "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'.",
    ),
}
"""Codes of refusals at once: HTTP status, reason beside a detail's code, and message."""

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
PAGE = b"<!DOCTYPE html><html><head><title>Blocked</title></head><body>Ask IT.</body></html>"


def refusal(code: str, **words: str) -> Response:
    """The answer that refuses with a code; ``page:403`` is a page of HTML with that status."""
    if code.startswith("page"):
        status = int(code.partition(":")[2] or 503)
        return Response(PAGE, status, {"Content-Type": "text/html"})
    status, reason, message = AT_ONCE[code]
    return error(status, reason or code, message.format(**words), code if reason else "")


def error(status: int, reason: str, message: str, detail: str = "") -> Response:
    """An error of an HTTP request; `detail` is the code among its details."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    body: dict[str, Any] = {"code": status, "message": message, "errors": errors}
    body["status"] = _STATUS.get(status, "UNKNOWN")
    if detail:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        metadata = {"service": "compute.googleapis.com"}
        body["details"] = [
            {"@type": kind, "reason": detail, "domain": "googleapis.com", "metadata": metadata}
        ]
    return Response.json({"error": body}, status)


def late(code: str, **words: str) -> dict[str, Any]:
    """The members of an operation that failed with a code."""
    status, message = LATE[code]
    said = message.format(**words)
    return {
        "error": {"errors": [{"code": code, "message": said}]},
        "httpErrorStatusCode": status,
        "httpErrorMessage": _STATUS.get(status, "UNKNOWN").replace("_", " "),
    }
