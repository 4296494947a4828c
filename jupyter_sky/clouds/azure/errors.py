"""Meaning of the codes of Azure's Resource Manager and Entra, and how they are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jupyter_sky.clouds.provider.classification import (
    ErrorTable,
    ProviderError,
    Refinement,
    first_known,
    group_codes,
)

_QUOTA = "ask for more: az quota update, or Quotas in the portal"
_LOGIN = "az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
_SECRET = "az ad app credential reset --id $AZURE_CLIENT_ID, and set AZURE_CLIENT_SECRET to the new"
_SUBSCRIPTION = "az account list, and set AZURE_SUBSCRIPTION_ID to one of them"
_TENANT = "set AZURE_TENANT_ID to what az account show --query tenantId says"
_ROLE = (
    "an owner gives the role: az role assignment create --role Contributor --assignee WHO "
    "--scope /subscriptions/$AZURE_SUBSCRIPTION_ID, or one of the least rights: "
    "jupyter sky setup azure --policy"
)
_REGISTER = "az provider register --wait --namespace Microsoft.Compute (and Microsoft.Network)"
_BILLING = "see Cost Management + Billing in the portal"
_CLOCK = "set this machine's clock: timedatectl set-ntp true"
_SIZE = "az vm list-skus --location REGION --output table, or %sky catalog refresh azure"
_DISK = "ask for a smaller --disk: a boot disk of Azure has 4095 GiB at most"
_PLACE = "leave out --region, or name another"
_POLICY = "ask who owns the policy, or leave out what it forbids: --region, --instance-type"
_CERTIFICATE_AUTHORITY = "if it is your proxy, set REQUESTS_CA_BUNDLE to the file of its authority"
_GROUPS = "az group list, and delete what is not used"
_RULE = "a rule of the tenant forbids it: ask its administrator"
_PROXY = "look at HTTPS_PROXY, or try where no proxy is in between"

TABLE: ErrorTable = group_codes(
    # no machine left
    ("capacity", "zone", "", "AllocationFailed ZonalAllocationFailed SkuNotAvailable"),
    ("capacity", "zone", "", "OverconstrainedAllocationRequest"),
    ("capacity", "zone", "", "OverconstrainedZonalAllocationRequest"),
    ("capacity", "zone", "", "SpotPriceGreaterThanProvidedMaxPrice"),
    ("capacity", "zone", "leave out --spot", "AzureSpotIsNotSupportedForThisVMSize"),
    # none for this subscription
    ("quota", "family", _QUOTA, "QuotaExceeded OperationNotAllowed"),
    ("quota", "region", _QUOTA, "ResourceQuotaExceeded PublicIPCountLimitReached"),
    ("quota", "region", _GROUPS, "ResourceGroupQuotaExceeded"),
    ("quota", "market", "leave out --spot", "AzureSpotFeatureNotEnabledForSubscription"),
    ("quota", "region", _PLACE, "RequestDisallowedByAzure"),
    # who we are
    ("permission", "zone", _SECRET, "AADSTS7000215 AADSTS7000222"),
    ("permission", "zone", "the application is disabled: enable it in Entra", "AADSTS7000112"),
    ("permission", "zone", f"AZURE_CLIENT_ID is not of that tenant; {_TENANT}", "AADSTS700016"),
    ("permission", "zone", _CLOCK, "AADSTS700024"),
    ("permission", "zone", "the certificate is not one of the application's", "AADSTS700027"),
    ("permission", "zone", _TENANT, "AADSTS90002 AADSTS900023 UnknownTenant"),
    ("permission", "zone", _TENANT, "InvalidAuthenticationTokenTenant"),
    ("permission", "zone", "AZURE_RESOURCE_MANAGER_URL is not of that tenant", "AADSTS500011"),
    ("permission", "zone", "az login", "AADSTS50076 AADSTS50079 AADSTS50173 AADSTS70043"),
    ("permission", "zone", "az login", "AADSTS700082"),
    ("permission", "zone", _RULE, "AADSTS53003"),
    ("permission", "zone", _CERTIFICATE_AUTHORITY, "UntrustedCertificate"),
    ("permission", "zone", _LOGIN, "CredentialUnavailable AuthenticationFailed"),
    ("permission", "zone", _LOGIN, "AuthenticationFailedMissingToken InvalidAuthenticationToken"),
    ("permission", "zone", _LOGIN, "InvalidAuthenticationTokenAudience"),
    ("permission", "zone", f"az login; or {_CLOCK}", "ExpiredAuthenticationToken"),
    # what we may
    ("permission", "zone", _ROLE, "AuthorizationFailed LinkedAuthorizationFailed"),
    ("permission", "zone", _SUBSCRIPTION, "SubscriptionNotFound InvalidSubscriptionId"),
    ("permission", "zone", _SUBSCRIPTION, "MissingSubscription"),
    ("permission", "zone", _REGISTER, "MissingSubscriptionRegistration SubscriptionNotRegistered"),
    ("permission", "zone", _BILLING, "ReadOnlyDisabledSubscription SubscriptionDisabled"),
    ("permission", "zone", _BILLING, "MarketplacePurchaseEligibilityFailed"),
    ("permission", "zone", _BILLING, "ResourcePurchaseValidationFailed"),
    ("permission", "zone", _POLICY, "RequestDisallowedByPolicy"),
    ("permission", "zone", "az lock list, and delete the lock", "ScopeLocked"),
    # what we asked
    ("invalid", "zone", "", "InvalidParameter InvalidRequestContent InvalidRequestFormat"),
    ("invalid", "zone", "", "InvalidResourceName InvalidResourceGroupLocation"),
    ("invalid", "zone", "", "PlatformImageNotFound ImageNotFound ResourceNotFound"),
    ("invalid", "zone", "", "ResourceGroupNotFound PropertyChangeNotAllowed"),
    ("invalid", "zone", "leave out --zone, or name another", "InvalidAvailabilityZone"),
    ("invalid", "zone", "leave out --zone", "ResourceTypeNotSupportAvailabilityZones"),
    ("invalid", "region", _PLACE, "LocationNotAvailableForResourceGroup"),
    ("invalid", "region", _PLACE, "LocationNotAvailableForResourceType NoRegisteredProviderFound"),
    ("invalid", "zone", _SIZE, "VMSizeNotSupported"),
    # what passes
    ("throttled", "zone", "", "TooManyRequests OperationThrottled ResourceRequestsThrottled"),
    ("throttled", "zone", "", "SubscriptionRequestsThrottled"),
    ("transient", "zone", "", "AnotherOperationInProgress ReferencedResourceNotProvisioned"),
    ("transient", "zone", "", "RetryableError PrincipalNotFound ResourceGroupBeingDeleted"),
    ("transient", "zone", "", "InternalServerError InternalExecutionError OSProvisioningTimedOut"),
    ("transient", "zone", "", "InternalOperationError NetworkingInternalOperationError"),
    ("transient", "zone", "", "ServerTimeout ServiceUnavailable GatewayTimeout"),
)
"""Meaning of the codes that Azure sends."""
OTHERS: ErrorTable = {
    "AzureError": ("transient", "zone", ""),  # no connection, no answer, half an answer
    **dict.fromkeys(("DecodeError", "Page", "Unreachable"), ("transient", "zone", _PROXY)),
    **dict.fromkeys((400, 404), ("invalid", "zone", "")),
    **dict.fromkeys((401, 403), ("permission", "zone", _ROLE)),
    408: ("transient", "zone", ""),
}
"""Meaning of errors without a code of Azure's."""

_QUOTA_CODES = "OperationNotAllowed QuotaExceeded"
REFINEMENTS = (
    Refinement("OperationNotAllowed", r"(?is)\A(?!.*quota)", "invalid", "zone", ""),
    Refinement(_QUOTA_CODES, "(?i)lowprioritycores|low-priority|spot", scope="market"),
    Refinement(_QUOTA_CODES, "(?i)total regional|regional cores", scope="region"),
    Refinement("InvalidParameter", "(?is)disk.*size|size.*disk", fix=_DISK),
    Refinement("InvalidParameter", "(?i)vm ?size", fix=_SIZE),
    Refinement(
        "MissingSubscriptionRegistration",
        r"Microsoft\.\w+",
        fix=r"az provider register --wait --namespace \g<0>",
    ),
)
# what the SDK says of a connection where it keeps the error itself to itself
_CONNECTION_ERROR = re.compile(
    "Failed to (establish|resolve)|timed out|Connection (aborted|reset)|EOF"
)
_ENTRA = re.compile(r"AADSTS\d+")


def read_error(error: BaseException) -> ProviderError | None:
    """Read code, HTTP status and message out of an error of Azure's SDK; None for any other.

    Examples
    --------
    >>> from azure.core.exceptions import ServiceRequestError
    >>> read_error(ServiceRequestError("connection refused")).message
    'connection refused'
    """
    try:
        from azure.core import exceptions as azure
    except ImportError:  # then it cannot be one of theirs
        return None
    if isinstance(error, azure.AzureError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        words = "what answers shows a certificate that nobody here trusts"
        return ProviderError(words, code="UntrustedCertificate")
    if isinstance(error, azure.ClientAuthenticationError):
        return _read_credentials_error(error)
    # the SDK reads some answers without a look at what they are
    if isinstance(error, azure.DecodeError | json.JSONDecodeError):
        return ProviderError("the answer is not Azure's", code="DecodeError")
    if isinstance(error, azure.HttpResponseError):
        return _read_response(error)
    if isinstance(error, azure.AzureError):
        return ProviderError(str(error), code="AzureError")
    return None


def error_code(error: BaseException) -> str:
    """Return the code of an error of Azure's SDK; empty for any other."""
    refusal = read_error(error)
    return refusal.code if refusal else ""


def _read_credentials_error(error: Any) -> ProviderError:
    """Read why there are no credentials, or Entra or the Resource Manager refuse them."""
    text = str(error)
    code, message = first_known(_nested_errors(error), TABLE)
    if code in TABLE:
        return ProviderError(message, code=code)
    if found := _ENTRA.search(text):
        sentence = text[found.end() :].lstrip(": ").split("Trace ID")[0]
        if found[0] in TABLE:
            return ProviderError(sentence, code=found[0])
        return ProviderError(f"{found[0]}: {sentence}", code="AuthenticationFailed")
    if "Unable to get authority configuration" in text:  # the SDK keeps the rest to itself
        words = "there is no such tenant, or something else answers in the place of Entra"
        return ProviderError(words, code="UnknownTenant")
    if _CONNECTION_ERROR.search(text):
        return ProviderError(text.rpartition("EnvironmentCredential: ")[2], code="Unreachable")
    missing = type(error).__name__ == "CredentialUnavailableError"
    return ProviderError(text, code="CredentialUnavailable" if missing else "AuthenticationFailed")


def _read_response(error: Any) -> ProviderError:
    """Read an error that the Resource Manager has sent, or something on the way to it."""
    code, message = first_known(_nested_errors(error), TABLE)
    status = getattr(error, "status_code", None) or 0
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    if not code and "html" in str(headers.get("Content-Type", "")).lower():
        words = f"a page came in place of Azure's answer (status {status}): a proxy, it seems"
        return ProviderError(words, code="Page", status=status)
    retry_after = headers.get("Retry-After")
    return ProviderError(message or str(error), code=code, status=status, retry_after=retry_after)


def _nested_errors(error: Any) -> Iterator[tuple[str, str]]:
    """Yield code and message of an error and of what is within it, the innermost first."""
    outer = getattr(error, "error", None)
    if outer is None or not getattr(outer, "code", None):
        return
    for inner in outer.details or ():
        if getattr(inner, "code", None):
            yield inner.code, inner.message or ""
    yield outer.code, outer.message or ""
