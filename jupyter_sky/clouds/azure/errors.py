"""Classification of Azure errors: a table of the codes that its Resource Manager and Entra send."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..base import CloudError, ErrorCause, RefusalScope

_QUOTA = "ask for more: az quota update, or Quotas in the portal"
_LOGIN = "az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
_SECRET = "az ad app credential reset --id $AZURE_CLIENT_ID, and set AZURE_CLIENT_SECRET to the new"
_SUBSCRIPTION = "az account list, and set AZURE_SUBSCRIPTION_ID to one of them"
_TENANT = "set AZURE_TENANT_ID to what az account show --query tenantId says"
_ROLE = (
    "an owner gives the role: az role assignment create --role Contributor --assignee WHO "
    "--scope /subscriptions/$AZURE_SUBSCRIPTION_ID"
)
_REGISTER = "az provider register --wait --namespace Microsoft.Compute (and Microsoft.Network)"
_BILLING = "see Cost Management + Billing in the portal"
_CLOCK = "set this machine's clock: timedatectl set-ntp true"
_SIZE = "az vm list-skus --location REGION --output table, or %sky catalog refresh azure"
_DISK = "ask for a smaller --disk: a boot disk of Azure has 4095 GiB at most"
_PLACE = "leave out --region, or name another"
_POLICY = "ask who owns the policy, or leave out what it forbids: --region, --instance-type"
_CERTIFICATE_AUTHORITY = "if it is your proxy, set REQUESTS_CA_BUNDLE to the file of its authority"
_PROXY = "look at HTTPS_PROXY, or try where no proxy is in between"

TABLE: dict[str, tuple[ErrorCause, RefusalScope, str]] = {
    # no machine left
    "AllocationFailed": ("capacity", "zone", ""),
    "ZonalAllocationFailed": ("capacity", "zone", ""),
    "OverconstrainedAllocationRequest": ("capacity", "zone", ""),
    "OverconstrainedZonalAllocationRequest": ("capacity", "zone", ""),
    "SkuNotAvailable": ("capacity", "zone", ""),
    "AzureSpotIsNotSupportedForThisVMSize": ("capacity", "zone", "leave out --spot"),
    "SpotPriceGreaterThanProvidedMaxPrice": ("capacity", "zone", ""),
    # none for this subscription
    "QuotaExceeded": ("quota", "family", _QUOTA),
    "OperationNotAllowed": ("quota", "family", _QUOTA),
    "ResourceQuotaExceeded": ("quota", "region", _QUOTA),
    "ResourceGroupQuotaExceeded": ("quota", "region", "az group list, and delete what is not used"),
    "PublicIPCountLimitReached": ("quota", "region", _QUOTA),
    "AzureSpotFeatureNotEnabledForSubscription": ("quota", "market", "leave out --spot"),
    "RequestDisallowedByAzure": ("quota", "region", _PLACE),
    # who we are
    "AADSTS7000215": ("permission", "zone", _SECRET),
    "AADSTS7000222": ("permission", "zone", _SECRET),
    "AADSTS7000112": ("permission", "zone", "the application is disabled: enable it in Entra"),
    "AADSTS700016": ("permission", "zone", f"AZURE_CLIENT_ID is not of that tenant; {_TENANT}"),
    "AADSTS700024": ("permission", "zone", _CLOCK),
    "AADSTS700027": ("permission", "zone", "the certificate is not one of the application's"),
    "AADSTS90002": ("permission", "zone", _TENANT),
    "AADSTS900023": ("permission", "zone", _TENANT),
    "AADSTS500011": ("permission", "zone", "AZURE_RESOURCE_MANAGER_URL is not of that tenant"),
    "AADSTS50076": ("permission", "zone", "az login"),
    "AADSTS50079": ("permission", "zone", "az login"),
    "AADSTS50173": ("permission", "zone", "az login"),
    "AADSTS53003": ("permission", "zone", "a rule of the tenant forbids it: ask its administrator"),
    "AADSTS70043": ("permission", "zone", "az login"),
    "AADSTS700082": ("permission", "zone", "az login"),
    "UntrustedCertificate": ("permission", "zone", _CERTIFICATE_AUTHORITY),
    "UnknownTenant": ("permission", "zone", _TENANT),
    "CredentialUnavailable": ("permission", "zone", _LOGIN),
    "AuthenticationFailed": ("permission", "zone", _LOGIN),
    "AuthenticationFailedMissingToken": ("permission", "zone", _LOGIN),
    "ExpiredAuthenticationToken": ("permission", "zone", f"az login; or {_CLOCK}"),
    "InvalidAuthenticationToken": ("permission", "zone", _LOGIN),
    "InvalidAuthenticationTokenAudience": ("permission", "zone", _LOGIN),
    "InvalidAuthenticationTokenTenant": ("permission", "zone", _TENANT),
    # what we may
    "AuthorizationFailed": ("permission", "zone", _ROLE),
    "LinkedAuthorizationFailed": ("permission", "zone", _ROLE),
    "SubscriptionNotFound": ("permission", "zone", _SUBSCRIPTION),
    "InvalidSubscriptionId": ("permission", "zone", _SUBSCRIPTION),
    "MissingSubscription": ("permission", "zone", _SUBSCRIPTION),
    "MissingSubscriptionRegistration": ("permission", "zone", _REGISTER),
    "SubscriptionNotRegistered": ("permission", "zone", _REGISTER),
    "ReadOnlyDisabledSubscription": ("permission", "zone", _BILLING),
    "SubscriptionDisabled": ("permission", "zone", _BILLING),
    "RequestDisallowedByPolicy": ("permission", "zone", _POLICY),
    "ScopeLocked": ("permission", "zone", "az lock list, and delete the lock"),
    "MarketplacePurchaseEligibilityFailed": ("permission", "zone", _BILLING),
    "ResourcePurchaseValidationFailed": ("permission", "zone", _BILLING),
    # what we asked
    "InvalidParameter": ("invalid", "zone", ""),
    "InvalidRequestContent": ("invalid", "zone", ""),
    "InvalidRequestFormat": ("invalid", "zone", ""),
    "InvalidResourceName": ("invalid", "zone", ""),
    "InvalidResourceGroupLocation": ("invalid", "zone", ""),
    "InvalidAvailabilityZone": ("invalid", "zone", "leave out --zone, or name another"),
    "ResourceTypeNotSupportAvailabilityZones": ("invalid", "zone", "leave out --zone"),
    "LocationNotAvailableForResourceGroup": ("invalid", "region", _PLACE),
    "LocationNotAvailableForResourceType": ("invalid", "region", _PLACE),
    "NoRegisteredProviderFound": ("invalid", "region", _PLACE),
    "VMSizeNotSupported": ("invalid", "zone", _SIZE),
    "PlatformImageNotFound": ("invalid", "zone", ""),
    "ImageNotFound": ("invalid", "zone", ""),
    "ResourceNotFound": ("invalid", "zone", ""),
    "ResourceGroupNotFound": ("invalid", "zone", ""),
    "PropertyChangeNotAllowed": ("invalid", "zone", ""),
    # what passes
    "TooManyRequests": ("throttled", "zone", ""),
    "OperationThrottled": ("throttled", "zone", ""),
    "ResourceRequestsThrottled": ("throttled", "zone", ""),
    "SubscriptionRequestsThrottled": ("throttled", "zone", ""),
    "AnotherOperationInProgress": ("transient", "zone", ""),
    "ReferencedResourceNotProvisioned": ("transient", "zone", ""),
    "RetryableError": ("transient", "zone", ""),
    "PrincipalNotFound": ("transient", "zone", ""),
    "ResourceGroupBeingDeleted": ("transient", "zone", ""),
    "InternalServerError": ("transient", "zone", ""),
    "InternalExecutionError": ("transient", "zone", ""),
    "InternalOperationError": ("transient", "zone", ""),
    "NetworkingInternalOperationError": ("transient", "zone", ""),
    "OSProvisioningTimedOut": ("transient", "zone", ""),
    "ServerTimeout": ("transient", "zone", ""),
    "ServiceUnavailable": ("transient", "zone", ""),
    "GatewayTimeout": ("transient", "zone", ""),
}
"""Code: cause, how much around the place it is true of, and what to do."""

# what the SDK says of a connection where it keeps the error itself to itself
_CONNECTION_ERROR = re.compile(
    "Failed to (establish|resolve)|timed out|Connection (aborted|reset)|EOF"
)
_ENTRA = re.compile(r"AADSTS\d+")
_MAX_MESSAGE_CHARS = 400  # of a message: some list all sizes of a region


def explain(error: Exception) -> CloudError | None:
    """Say what an error of Azure's SDK means; None for one that is not of it.

    Examples
    --------
    >>> from azure.core.exceptions import ServiceRequestError
    >>> explain(ServiceRequestError("connection refused")).cause
    'transient'
    """
    try:
        from azure.core import exceptions as azure
    except ImportError:  # then it cannot be one of theirs
        return None
    if isinstance(error, azure.AzureError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        cause, width, fix = TABLE["UntrustedCertificate"]
        message = "what answers shows a certificate that nobody here trusts"
        return CloudError(cause, "UntrustedCertificate", message, width, fix)
    if isinstance(error, azure.ClientAuthenticationError):
        return _explain_credentials(error)
    # the SDK reads some answers without a look at what they are
    if isinstance(error, azure.DecodeError | json.JSONDecodeError):
        return CloudError("transient", "DecodeError", "the answer is not Azure's", fix=_PROXY)
    if isinstance(error, azure.HttpResponseError):
        return _explain_response(error)
    if isinstance(error, azure.AzureError):  # no connection, no answer, half an answer
        return CloudError("transient", type(error).__name__, _shorten(str(error)))
    return None


def is_transient(error: BaseException) -> bool:
    """Whether the same request may do well when it is sent again."""
    trouble = explain(error) if isinstance(error, Exception) else None
    return trouble is not None and trouble.cause in ("throttled", "transient")


def _explain_credentials(error: Any) -> CloudError:
    """No credentials, or ones that Entra or the Resource Manager refuse."""
    text = str(error)
    for code, message in _nested_errors(error):
        if code in TABLE:
            return _explain_code(code, message)
    if found := _ENTRA.search(text):
        cause, width, fix = TABLE.get(found[0], ("permission", "zone", _LOGIN))
        sentence = text[found.end() :].lstrip(": ").split("Trace ID")[0]
        return CloudError(cause, found[0], _shorten(sentence), width, fix)
    if "Unable to get authority configuration" in text:  # the SDK keeps the rest to itself
        cause, width, fix = TABLE["UnknownTenant"]
        message = "there is no such tenant, or something else answers in the place of Entra"
        return CloudError(cause, "UnknownTenant", message, width, fix)
    if _CONNECTION_ERROR.search(text):
        where = text.rpartition("EnvironmentCredential: ")[2]
        return CloudError("transient", "Unreachable", _shorten(where), fix=_PROXY)
    if type(error).__name__ == "CredentialUnavailableError":
        cause, width, fix = TABLE["CredentialUnavailable"]
        return CloudError(cause, "CredentialUnavailable", _shorten(text), width, fix)
    return CloudError("permission", "AuthenticationFailed", _shorten(text), fix=_LOGIN)


def _explain_response(error: Any) -> CloudError:
    """An error that the Resource Manager has sent, or something on the way to it."""
    found = list(_nested_errors(error))
    for code, message in found:
        if code in TABLE:
            return _explain_code(code, message)
    status = getattr(error, "status_code", None) or 0
    if not found and _is_html(error):
        message = f"a page came in place of Azure's answer (status {status}): a proxy, it seems"
        return CloudError("transient", f"HTTP {status}", message, fix=_PROXY)
    code, message = found[0] if found else (f"HTTP {status}", str(error))
    cause: ErrorCause = "unknown"
    if status == 429:
        cause = "throttled"
    elif status >= 500 or status == 408:
        cause = "transient"
    elif status in (401, 403):
        return CloudError("permission", code, _shorten(message), fix=_ROLE)
    elif status in (400, 404):
        cause = "invalid"
    return CloudError(cause, code, _shorten(message))


def _nested_errors(error: Any) -> Iterator[tuple[str, str]]:
    """Yield code and message of an error and of what is within it, the innermost first."""
    outer = getattr(error, "error", None)
    if outer is None or not getattr(outer, "code", None):
        return
    for inner in outer.details or ():
        if getattr(inner, "code", None):
            yield inner.code, inner.message or ""
    yield outer.code, outer.message or ""


def _explain_code(code: str, message: str) -> CloudError:
    """Read a message where the code alone says too little."""
    cause, width, fix = TABLE[code]
    low = message.lower()
    if code == "OperationNotAllowed" and "quota" not in low:
        cause, width, fix = "invalid", "zone", ""
    elif code in ("OperationNotAllowed", "QuotaExceeded"):
        if "lowprioritycores" in low or "low-priority" in low or "spot" in low:
            width = "market"
        elif "total regional" in low or "regional cores" in low:
            width = "region"
    elif code == "InvalidParameter" and ("disk" in low and "size" in low):
        fix = _DISK
    elif code == "InvalidParameter" and ("vm size" in low or "vmsize" in low):
        fix = _SIZE
    elif code == "MissingSubscriptionRegistration":
        found = re.search(r"Microsoft\.\w+", message)
        fix = f"az provider register --wait --namespace {found[0]}" if found else fix
    return CloudError(cause, code, _shorten(message), width, fix)


def _is_html(error: Any) -> bool:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return "html" in str(headers.get("Content-Type", "")).lower()


def _shorten(message: str) -> str:
    """Return a message as one line, without all that some carry behind."""
    words = " ".join(message.split())
    return (
        words
        if len(words) <= _MAX_MESSAGE_CHARS
        else f"{words[:_MAX_MESSAGE_CHARS].rsplit(' ', 1)[0]}…"
    )
