"""Classification of boto3 errors by a table of AWS's own codes."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

from ..base import CloudError, ErrorCause, RefusalScope

_LOGIN = "aws configure, aws sso login, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_RENEW_CREDENTIALS = (
    "get new ones: aws sso login, or whatever they came from; then run the cell again"
)
_KEYS = (
    "see whose they are: aws sts get-caller-identity; set others: aws configure. Where a region "
    "alone refuses, see that it is enabled: aws account list-regions"
)
_POLICY = (
    "ask for ec2:RunInstances, ec2:TerminateInstances, ec2:CreateTags, ec2:Describe*, "
    "ec2:CreateSecurityGroup, ec2:DeleteSecurityGroup, ec2:AuthorizeSecurityGroupIngress and "
    "ssm:GetParameter"
)
_ENABLE = "enable the region: aws account enable-region --region-name REGION; or --cloud gcp"
_VCPUS = (
    "see the limits, and ask for more: aws service-quotas list-service-quotas --service-code ec2"
)
_CLOCK = "set the clock of this machine: sudo timedatectl set-ntp true"
_TYPE = "read the offers anew: jupyter sky catalog refresh aws"
_TOO_MANY_GROUPS = "delete what no machine uses: %sky reap"
_NETWORK = "see that the network is up, and HTTPS_PROXY and AWS_ENDPOINT_URL if they are set"
_PROXY = "what answers is not AWS but something in between: see HTTPS_PROXY and AWS_ENDPOINT_URL"
_CA = "if a company's proxy is in between, name its authority: AWS_CA_BUNDLE=/path/to/ca.pem"
_PROFILE = "see aws configure list-profiles, then set AWS_PROFILE"
_SPOT_ROLE = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"

TABLE: dict[str, tuple[ErrorCause, RefusalScope, str]] = {
    # -- the place has none left
    "InsufficientInstanceCapacity": ("capacity", "zone", ""),
    "InsufficientHostCapacity": ("capacity", "zone", ""),
    "InsufficientCapacity": ("capacity", "zone", ""),
    "InsufficientVolumeCapacity": ("capacity", "zone", ""),
    "InsufficientFreeAddressesInSubnet": ("capacity", "zone", ""),
    "InsufficientAddressCapacity": ("capacity", "region", ""),
    "SpotMaxPriceTooLow": ("capacity", "zone", ""),
    "CapacityReservationExceeded": ("capacity", "zone", ""),
    "ReservationCapacityExceeded": ("capacity", "zone", ""),
    # it never had: a type that the zone does not sell, a zone that is being closed
    "Unsupported": ("capacity", "zone", ""),
    "UnsupportedOperation": ("capacity", "zone", ""),
    "MissingInput": ("capacity", "zone", ""),
    # -- none for this account
    "VcpuLimitExceeded": ("quota", "family", _VCPUS),
    "MaxSpotInstanceCountExceeded": ("quota", "market", _VCPUS),
    "InstanceLimitExceeded": ("quota", "family", _VCPUS),
    "SpotInstanceCountLimitExceeded": ("quota", "market", _VCPUS),
    "VolumeLimitExceeded": ("quota", "region", _VCPUS),
    "MaxIOPSLimitExceeded": ("quota", "region", _VCPUS),
    "SecurityGroupLimitExceeded": ("quota", "region", _TOO_MANY_GROUPS),
    "RulesPerSecurityGroupLimitExceeded": (
        "quota",
        "region",
        "name fewer networks in Sky.ssh_from",
    ),
    "NetworkInterfaceLimitExceeded": ("quota", "region", _VCPUS),
    "ResourceLimitExceeded": ("quota", "region", _VCPUS),
    "ServiceQuotaExceededException": ("quota", "region", _VCPUS),
    "VpcLimitExceeded": ("quota", "region", "delete a VPC of the region, or ask for more"),
    # -- who we are, and what we may
    "AuthFailure": ("permission", "region", _KEYS),
    "InvalidClientTokenId": ("permission", "region", _KEYS),
    "UnrecognizedClientException": ("permission", "region", _KEYS),
    "InvalidAccessKeyId": ("permission", "region", _KEYS),
    "SignatureDoesNotMatch": ("permission", "region", _KEYS),
    "InvalidSignatureException": ("permission", "region", _KEYS),
    "IncompleteSignature": ("permission", "region", _KEYS),
    "MissingAuthenticationToken": ("permission", "region", _LOGIN),
    "MissingAuthenticationTokenException": ("permission", "region", _LOGIN),
    "RequestExpired": ("permission", "region", _RENEW_CREDENTIALS),
    "ExpiredToken": ("permission", "region", _RENEW_CREDENTIALS),
    "ExpiredTokenException": ("permission", "region", _RENEW_CREDENTIALS),
    "RequestTimeTooSkewed": ("permission", "region", _CLOCK),
    "UnauthorizedOperation": ("permission", "region", _POLICY),
    "AccessDenied": ("permission", "region", _POLICY),
    "AccessDeniedException": ("permission", "region", _POLICY),
    "UnauthorizedException": ("permission", "region", _POLICY),
    "ForbiddenException": ("permission", "region", _POLICY),
    "InvalidGrantException": ("permission", "region", "aws sso login"),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ("permission", "market", _SPOT_ROLE),
    # other regions are there, and most accounts have enabled but some of them
    "OptInRequired": ("quota", "market", _ENABLE),
    "RegionDisabledException": ("quota", "market", _ENABLE),
    "PendingVerification": ("permission", "region", "AWS checks the account: wait for its mail"),
    "Blocked": ("permission", "region", "AWS has blocked the account: see its support centre"),
    "AccountDisabled": ("permission", "region", "AWS has closed the account: see its billing"),
    # before anything is sent
    "NoCredentialsError": ("permission", "region", _LOGIN),
    "PartialCredentialsError": ("permission", "region", _LOGIN),
    "CredentialRetrievalError": ("permission", "region", _RENEW_CREDENTIALS),
    "TokenRetrievalError": ("permission", "region", "aws sso login"),
    "SSOTokenLoadError": ("permission", "region", "aws sso login"),
    "UnauthorizedSSOTokenError": ("permission", "region", "aws sso login"),
    "SSOError": ("permission", "region", "aws sso login"),
    "LoginRefreshRequired": ("permission", "region", "aws login"),
    "ProfileNotFound": ("permission", "region", _PROFILE),
    "ConfigParseError": ("permission", "region", "mend the file, or write it anew: aws configure"),
    "ConfigNotFound": ("permission", "region", _LOGIN),
    "InvalidConfigError": ("permission", "region", "mend ~/.aws/config, or run aws configure"),
    "NoAuthTokenError": ("permission", "region", "aws sso login"),
    # -- what was asked cannot be had anywhere
    "InvalidInstanceType": ("invalid", "region", _TYPE),
    "InvalidInstanceType.NotFound": ("invalid", "region", _TYPE),
    "InvalidAMIID.NotFound": ("invalid", "region", "the image is gone; run the cell again"),
    "InvalidAMIID.Malformed": ("invalid", "region", ""),
    "InvalidAMIID.Unavailable": ("invalid", "region", "the image is being withdrawn; run it again"),
    "ParameterNotFound": ("invalid", "region", "the region has no such image: try another region"),
    "InvalidBlockDeviceMapping": ("invalid", "region", "ask for another size: --disk 100"),
    "InvalidParameter": ("invalid", "region", ""),
    "InvalidParameterValue": ("invalid", "region", ""),
    "InvalidParameterCombination": ("invalid", "region", ""),
    "InvalidRequest": ("invalid", "region", ""),
    "InvalidInput": ("invalid", "region", ""),
    "InvalidUserData.Malformed": ("invalid", "region", ""),
    "MissingParameter": ("invalid", "region", ""),
    "ValidationError": ("invalid", "region", ""),
    "ValidationException": ("invalid", "region", ""),
    "ParamValidationError": ("invalid", "region", ""),
    "InvalidSubnetID.NotFound": ("invalid", "zone", ""),
    "VPCIdNotSpecified": ("invalid", "region", "aws ec2 create-default-vpc"),
    "IdempotentParameterMismatch": ("invalid", "zone", "%sky reap ends what is left of the order"),
    "InvalidRegionError": ("invalid", "region", ""),
    "UnknownEndpointError": ("invalid", "region", ""),
    # -- passes
    "RequestLimitExceeded": ("throttled", "region", ""),
    "Throttling": ("throttled", "region", ""),
    "ThrottlingException": ("throttled", "region", ""),
    "ThrottledException": ("throttled", "region", ""),
    "TooManyRequestsException": ("throttled", "region", ""),
    "EC2ThrottledException": ("throttled", "region", ""),
    "SlowDown": ("throttled", "region", ""),
    "InternalError": ("transient", "zone", ""),
    "InternalFailure": ("transient", "zone", ""),
    "InternalServerError": ("transient", "zone", ""),
    "InternalServerException": ("transient", "zone", ""),
    "Unavailable": ("transient", "zone", ""),
    "ServiceUnavailable": ("transient", "zone", ""),
    "ServiceUnavailableException": ("transient", "zone", ""),
    "RequestTimeout": ("transient", "zone", ""),
    # what was made a moment ago is not known everywhere yet
    "InvalidGroup.NotFound": ("transient", "zone", ""),
    "InvalidGroupId.NotFound": ("transient", "zone", ""),
    "InvalidInstanceID.NotFound": ("transient", "zone", ""),
    "InvalidVpcID.NotFound": ("transient", "zone", ""),
    # no answer, or half of one
    "ConnectionClosedError": ("transient", "zone", ""),
    "ConnectTimeoutError": ("transient", "zone", _NETWORK),
    "ReadTimeoutError": ("transient", "zone", _NETWORK),
    "EndpointConnectionError": ("transient", "zone", _NETWORK),
    "ProxyConnectionError": ("transient", "zone", _PROXY),
    "HTTPClientError": ("transient", "zone", _NETWORK),
    "ResponseStreamingError": ("transient", "zone", _NETWORK),
    "IncompleteReadError": ("transient", "zone", _NETWORK),
    "ResponseParserError": ("transient", "zone", _PROXY),
    "SSLError": ("unknown", "region", _CA),
}
"""By AWS's code, or the name of botocore's exception: cause, width of the refusal, and fix."""

_CODE_PATTERNS: tuple[tuple[str, ErrorCause, RefusalScope, str], ...] = (
    (r"Insufficient.*Capacity", "capacity", "zone", ""),
    (r".*LimitExceeded", "quota", "region", _VCPUS),
    (r"(Unauthorized|AccessDenied).*", "permission", "region", _POLICY),
    (r"(Invalid|Malformed|Missing|Incorrect|Validation).*", "invalid", "region", ""),
    (r".*Throttl.*", "throttled", "region", ""),
)
"""Codes that the table does not have, by what they look like."""

_MESSAGE_HINTS = (
    ("InstanceType|instance type", _TYPE),
    ("(?i)too large for volume|volume size|VolumeSize", "ask for a smaller disk: --disk 100"),
    ("(?i)user data is limited", "shorten its user data"),
)
"""Fixes for codes that say little by themselves, by what the message says."""

_CLOCK_SENSITIVE_CODES = {
    "RequestExpired",
    "AuthFailure",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
}
_SKEW_SECONDS = 240.0
_MAX_MESSAGE_CHARS = 400


def explain(error: Exception) -> CloudError | None:
    """Say what an error of boto3 or botocore means; None for any other.

    Examples
    --------
    >>> from botocore.exceptions import NoCredentialsError
    >>> explain(NoCredentialsError()).cause
    'permission'
    """
    if not any(each.__module__.startswith(("botocore", "boto3")) for each in type(error).__mro__):
        return None
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict) and "Error" in response:
        return _explain_response(response)
    for kind in type(error).__mro__:  # subclasses are read as what they derive from
        if kind.__name__ in TABLE:
            cause, width, fix = TABLE[kind.__name__]
            return CloudError(cause, type(error).__name__, _shorten(str(error)), width, fix)
    return CloudError("unknown", type(error).__name__, _shorten(str(error)), "region")


def _explain_response(response: dict[str, Any]) -> CloudError:
    """An answer of AWS itself, or of something that stands in between."""
    code = str(response["Error"].get("Code") or "Unknown")
    message = _shorten(str(response["Error"].get("Message") or code))
    meta = response.get("ResponseMetadata", {})
    status = int(meta.get("HTTPStatusCode") or 0)
    if code in _CLOCK_SENSITIVE_CODES and (skew := _describe_clock_skew(message, meta)):
        return CloudError("permission", code, f"{message} ({skew})", "region", _CLOCK)
    cause, width, fix = TABLE.get(code) or _match_code_pattern(code, status)
    fix = fix or next((fix for said, fix in _MESSAGE_HINTS if re.search(said, message)), "")
    return CloudError(cause, code, message, width, fix)


def _match_code_pattern(code: str, status: int) -> tuple[ErrorCause, RefusalScope, str]:
    if code.isdigit():  # botocore's word for a body that is not AWS's: a proxy's page
        return ("transient" if status >= 500 else "unknown"), "region", _PROXY
    for pattern, cause, width, fix in _CODE_PATTERNS:
        if re.fullmatch(pattern, code):
            return cause, width, fix
    return ("transient" if status >= 500 else "unknown"), "zone", ""


def _describe_clock_skew(message: str, meta: dict[str, Any]) -> str:
    """In words, how far this machine's clock is from AWS's; empty if that is not the matter."""
    try:
        theirs = parsedate_to_datetime(meta["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        theirs = None
    off = time.time() - theirs if theirs is not None else 0.0
    if abs(off) > _SKEW_SECONDS:
        return f"the clock here is {abs(off) / 60:.0f} minutes {'ahead' if off > 0 else 'behind'}"
    if re.search("Signature (expired|not yet current)", message):
        return "the clock here is not right"
    return ""


def _shorten(message: str) -> str:
    """A message without the coded part that only AWS can read, on one line."""
    words = " ".join(message.partition("Encoded authorization failure message")[0].split())
    return words if len(words) <= _MAX_MESSAGE_CHARS else f"{words[:_MAX_MESSAGE_CHARS]}…"
