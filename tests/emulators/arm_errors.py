"""In which words Azure refuses: status and message of each code, and whether it says so later."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """Form in which a code is sent.

    Attributes
    ----------
    later : bool
        The request is taken, and its operation fails.
    """

    status: int
    message: str
    later: bool = False


_MORE = "Please read more about improving likelihood of allocation success at https://aka.ms/allocation-guidance"
WORDS = {
    "NoRegisteredProviderFound": Words(
        400,
        "No registered resource provider found for location '{region}' and API version "
        "'2024-11-01' for type 'locations/usages'.",
    ),
    "SkuNotAvailable": Words(
        409,
        "The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: "
        "{size}' is currently not available in location '{region}'. Please try another size or "
        "deploy to a different location or different zone. See https://aka.ms/azureskunotavailable "
        "for details.",
    ),
    "AllocationFailed": Words(
        200,
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this "
        f"region. {_MORE}",
        True,
    ),
    "ZonalAllocationFailed": Words(
        200,
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this "
        f"zone. {_MORE}",
        True,
    ),
    "OverconstrainedAllocationRequest": Words(
        200,
        "Allocation failed. VM(s) with the following constraints cannot be allocated, because the "
        "condition is too restrictive. Please remove some constraints and try again. Constraints "
        "applied are: - Networking Constraints (such as Accelerated Networking or IPv6) - VM Size",
        True,
    ),
    "OverconstrainedZonalAllocationRequest": Words(
        200,
        "Allocation failed. VM(s) with the following constraints cannot be allocated, because the "
        "condition is too restrictive. Constraints applied are: - Availability Zone - VM Size",
        True,
    ),
    "OSProvisioningTimedOut": Words(
        200, "OS Provisioning for VM did not finish in the allotted time.", True
    ),
    "InternalExecutionError": Words(200, "An internal execution error occurred.", True),
    "OperationNotAllowed": Words(
        409,
        "Operation could not be completed as it results in exceeding approved {cores} Cores quota. "
        "Additional details - Deployment Model: Resource Manager, Location: {region}, Current "
        "Limit: 10, Current Usage: 8, Additional Required: 4, (Minimum) New Limit Required: 12.",
    ),
    "QuotaExceeded": Words(
        409,
        "Operation could not be completed as it results in exceeding approved {cores} Cores quota. "
        "Additional details - Location: {region}, Current Limit: 10, Current Usage: 10, Additional "
        "Required: 4.",
    ),
    "PublicIPCountLimitReached": Words(
        400, "Cannot create more than 20 public IP addresses for this subscription in this region."
    ),
    "AuthorizationFailed": Words(
        403,
        "The client '{who}' with object id '{who}' does not have authorization to perform action "
        "'{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, "
        "please refresh your credentials.",
    ),
    "SubscriptionNotFound": Words(404, "The subscription '{scope}' could not be found."),
    "MissingSubscriptionRegistration": Words(
        409,
        "The subscription is not registered to use namespace '{namespace}'. See "
        "https://aka.ms/rps-not-found for how to register subscriptions.",
    ),
    "ReadOnlyDisabledSubscription": Words(
        409, "The subscription is disabled and therefore marked as read only."
    ),
    "RequestDisallowedByPolicy": Words(
        403,
        "Resource '{name}' was disallowed by policy. Policy identifiers: "
        '\'[{{"policyAssignment":{{"name":"Allowed locations"}}}}]\'.',
    ),
    "RequestDisallowedByAzure": Words(
        403,
        "Resource '{name}' was disallowed by Azure: This policy maintains a set of best available "
        "regions where your subscription can deploy resources.",
    ),
    "ScopeLocked": Words(
        409, "The scope '{scope}' cannot perform write operation because it is locked."
    ),
    "TooManyRequests": Words(429, "The request is being throttled as the limit has been reached."),
    "OperationThrottled": Words(429, "Number of write requests for subscription is too high."),
    "ResourceRequestsThrottled": Words(429, "Number of requests for resources is too high."),
    "SubscriptionRequestsThrottled": Words(
        429, "Number of 'write' requests for subscription exceeded the limit of '1200'."
    ),
    "InternalServerError": Words(500, "Encountered internal server error."),
    "ServiceUnavailable": Words(503, "The service is temporarily unavailable."),
    "GatewayTimeout": Words(504, "The gateway did not receive a response in time."),
    "ServerTimeout": Words(503, "The request timed out."),
    "AuthenticationFailed": Words(401, "Authentication failed."),
    "AuthenticationFailedMissingToken": Words(
        401, "Authentication failed. The 'Authorization' header is missing the access token."
    ),
    "ExpiredAuthenticationToken": Words(
        401, "The access token expiry UTC time is earlier than current UTC time."
    ),
    "InvalidAuthenticationToken": Words(401, "The access token is invalid."),
    "InvalidAuthenticationTokenAudience": Words(
        401, "The access token has been obtained for wrong audience or resource."
    ),
    "InvalidAuthenticationTokenTenant": Words(
        401, "The access token is from the wrong issuer. It must match the tenant."
    ),
    "RoleAssignmentExists": Words(409, "The role assignment already exists."),
    "PreconditionFailed": Words(412, "The precondition failed: the resource exists."),
    "ResourceGroupBeingDeleted": Words(
        409,
        "The resource group '{group}' is in deprovisioning state and cannot perform this "
        "operation.",
    ),
    "ResourceGroupNotFound": Words(404, "Resource group '{group}' could not be found."),
    "ResourceNotFound": Words(
        404, "The Resource '{scope}' under resource group '{group}' was not found."
    ),
    "PlatformImageNotFound": Words(404, "The platform image is not available."),
}
"""For a code that is not here, see `words`."""

ENTRA = {
    "AADSTS7000215": (
        "invalid_client",
        "Invalid client secret provided. Ensure the secret being sent in the request is the client "
        "secret value, not the client secret ID, for a secret added to app '{client}'.",
    ),
    "AADSTS7000222": (
        "invalid_client",
        "The provided client secret keys for app '{client}' are expired. Visit the Azure portal to "
        "create new keys for your app.",
    ),
    "AADSTS700016": (
        "unauthorized_client",
        "Application with identifier '{client}' was not found in the directory. This can happen if "
        "the application has not been installed by the administrator of the tenant.",
    ),
    "AADSTS90002": (
        "invalid_tenant",
        "Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are "
        "signing into the correct cloud.",
    ),
    "AADSTS500011": (
        "invalid_resource",
        "The resource principal named {scope} was not found in the tenant.",
    ),
}
"""Error and message of what Entra says of who asks for a token."""


def words(code: str) -> Words:
    """Return how a code is sent."""
    return WORDS.get(code) or Words(400, f"The request was refused: {code}.")
