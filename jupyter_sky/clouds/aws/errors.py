"""Meaning of AWS's codes, and how they are read out of errors of boto3."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.clouds.provider.classification import (
    ErrorTable,
    Meaning,
    ProviderError,
    Refinement,
    group_codes,
)

_LOGIN = "aws configure, aws sso login, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_RENEW = "get new ones: aws sso login, or whatever they came from; then run the cell again"
_KEYS = (
    "see whose they are: aws sts get-caller-identity; set others: aws configure. Where a region "
    "alone refuses, see that it is enabled: aws account list-regions"
)
_POLICY = "the least rights, as JSON to paste: jupyter sky setup aws --policy"
_ENABLE = "enable the region: aws account enable-region --region-name REGION; or --cloud gcp"
_VCPUS = (
    "see the limits, and ask for more: aws service-quotas list-service-quotas --service-code ec2"
)
_CLOCK = "set the clock of this machine: sudo timedatectl set-ntp true"
_TYPE = "read the offers anew: jupyter sky catalog refresh aws"
_NETWORK = "see that the network is up, and HTTPS_PROXY and AWS_ENDPOINT_URL if they are set"
_PROXY = "what answers is not AWS but something in between: see HTTPS_PROXY and AWS_ENDPOINT_URL"
_CA = "if a company's proxy is in between, name its authority: AWS_CA_BUNDLE=/path/to/ca.pem"
_PROFILE = "see aws configure list-profiles, then set AWS_PROFILE"
_SPOT_ROLE = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
_SSO = "aws sso login"
_CLOCK_CODES = "RequestExpired AuthFailure SignatureDoesNotMatch InvalidSignatureException"
_CLOCK_SKEW_SECONDS = 240.0

TABLE: ErrorTable = group_codes(
    # -- the place has none left
    ("capacity", "zone", "", "InsufficientInstanceCapacity InsufficientHostCapacity"),
    ("capacity", "zone", "", "InsufficientCapacity InsufficientVolumeCapacity SpotMaxPriceTooLow"),
    ("capacity", "zone", "", "CapacityReservationExceeded ReservationCapacityExceeded"),
    ("capacity", "zone", "", "InsufficientFreeAddressesInSubnet"),
    ("capacity", "region", "", "InsufficientAddressCapacity"),
    # it never had: a type that the zone does not sell, a zone that is being closed
    ("capacity", "zone", "", "Unsupported UnsupportedOperation MissingInput"),
    # -- none for this account
    ("quota", "family", _VCPUS, "VcpuLimitExceeded InstanceLimitExceeded"),
    ("quota", "market", _VCPUS, "MaxSpotInstanceCountExceeded SpotInstanceCountLimitExceeded"),
    ("quota", "region", _VCPUS, "VolumeLimitExceeded MaxIOPSLimitExceeded ResourceLimitExceeded"),
    ("quota", "region", _VCPUS, "NetworkInterfaceLimitExceeded ServiceQuotaExceededException"),
    ("quota", "region", "delete what no machine uses: %sky reap", "SecurityGroupLimitExceeded"),
    (
        "quota",
        "region",
        "name fewer networks in Sky.ssh_from",
        "RulesPerSecurityGroupLimitExceeded",
    ),
    ("quota", "region", "delete a VPC of the region, or ask for more", "VpcLimitExceeded"),
    # other regions are there, and most accounts have enabled but some of them
    ("quota", "market", _ENABLE, "OptInRequired RegionDisabledException"),
    # -- who we are, and what we may
    ("permission", "region", _KEYS, "AuthFailure InvalidClientTokenId InvalidAccessKeyId"),
    ("permission", "region", _KEYS, "UnrecognizedClientException SignatureDoesNotMatch"),
    ("permission", "region", _KEYS, "InvalidSignatureException IncompleteSignature"),
    ("permission", "region", _LOGIN, "MissingAuthenticationToken"),
    ("permission", "region", _LOGIN, "MissingAuthenticationTokenException"),
    ("permission", "region", _RENEW, "RequestExpired ExpiredToken ExpiredTokenException"),
    ("permission", "region", _CLOCK, "RequestTimeTooSkewed"),
    ("permission", "region", _POLICY, "UnauthorizedOperation AccessDenied AccessDeniedException"),
    ("permission", "region", _POLICY, "UnauthorizedException ForbiddenException"),
    ("permission", "region", _SSO, "InvalidGrantException"),
    ("permission", "market", _SPOT_ROLE, "AuthFailure.ServiceLinkedRoleCreationNotPermitted"),
    ("permission", "region", "AWS checks the account: wait for its mail", "PendingVerification"),
    ("permission", "region", "AWS has blocked the account: see its support centre", "Blocked"),
    ("permission", "region", "AWS has closed the account: see its billing", "AccountDisabled"),
    # before anything is sent
    ("permission", "region", _LOGIN, "NoCredentialsError PartialCredentialsError ConfigNotFound"),
    ("permission", "region", _RENEW, "CredentialRetrievalError"),
    ("permission", "region", _SSO, "TokenRetrievalError SSOTokenLoadError SSOError"),
    ("permission", "region", _SSO, "UnauthorizedSSOTokenError NoAuthTokenError"),
    ("permission", "region", "aws login", "LoginRefreshRequired"),
    ("permission", "region", _PROFILE, "ProfileNotFound"),
    ("permission", "region", "mend the file, or write it anew: aws configure", "ConfigParseError"),
    ("permission", "region", "mend ~/.aws/config, or run aws configure", "InvalidConfigError"),
    # -- what was asked cannot be had anywhere
    ("invalid", "region", _TYPE, "InvalidInstanceType InvalidInstanceType.NotFound"),
    ("invalid", "region", "the image is gone; run the cell again", "InvalidAMIID.NotFound"),
    ("invalid", "region", "the image is being withdrawn; run it again", "InvalidAMIID.Unavailable"),
    ("invalid", "region", "the region has no such image: try another region", "ParameterNotFound"),
    ("invalid", "region", "ask for another size: --disk 100", "InvalidBlockDeviceMapping"),
    ("invalid", "region", "aws ec2 create-default-vpc", "VPCIdNotSpecified"),
    (
        "invalid",
        "zone",
        "%sky reap ends what is left of the request",
        "IdempotentParameterMismatch",
    ),
    ("invalid", "region", "", "InvalidAMIID.Malformed InvalidParameter InvalidParameterValue"),
    ("invalid", "region", "", "InvalidParameterCombination InvalidRequest InvalidInput"),
    ("invalid", "region", "", "InvalidUserData.Malformed MissingParameter ValidationError"),
    ("invalid", "region", "", "ValidationException ParamValidationError InvalidRegionError"),
    ("invalid", "region", "", "UnknownEndpointError"),
    ("invalid", "zone", "", "InvalidSubnetID.NotFound"),
    # -- passes
    ("throttled", "region", "", "RequestLimitExceeded Throttling ThrottlingException SlowDown"),
    ("throttled", "region", "", "ThrottledException TooManyRequestsException"),
    ("throttled", "region", "", "EC2ThrottledException"),
    ("transient", "zone", "", "InternalError InternalFailure InternalServerError"),
    ("transient", "zone", "", "InternalServerException Unavailable ServiceUnavailable"),
    ("transient", "zone", "", "ServiceUnavailableException RequestTimeout"),
    # what was made a moment ago is not known everywhere yet
    ("transient", "zone", "", "InvalidGroup.NotFound InvalidGroupId.NotFound"),
    ("transient", "zone", "", "InvalidInstanceID.NotFound InvalidVpcID.NotFound"),
    # no answer, or half of one
    ("transient", "zone", "", "ConnectionClosedError"),
    ("transient", "zone", _NETWORK, "ConnectTimeoutError ReadTimeoutError HTTPClientError"),
    ("transient", "zone", _NETWORK, "EndpointConnectionError ResponseStreamingError"),
    ("transient", "zone", _NETWORK, "IncompleteReadError"),
    ("transient", "zone", _PROXY, "ProxyConnectionError ResponseParserError"),
    ("unknown", "region", _CA, "SSLError"),
)
"""Meaning of AWS's codes and of the names of botocore's exceptions."""

_VAGUE = "Unsupported InvalidParameter InvalidParameterValue InvalidParameterCombination "
_VAGUE += "InvalidRequest InvalidInput InvalidUserData.Malformed ValidationError MissingParameter"
REFINEMENTS = (
    Refinement(
        _CLOCK_CODES,
        r"\(the clock here is|Signature (expired|not yet current)",
        "permission",
        "region",
        _CLOCK,
    ),
    Refinement(_VAGUE, "InstanceType|instance type", fix=_TYPE),
    Refinement(
        _VAGUE,
        "(?i)too large for volume|volume size|VolumeSize",
        fix="ask for a smaller disk: --disk 100",
    ),
    Refinement(_VAGUE, "(?i)user data is limited", fix="shorten its user data"),
)
_CODE_PATTERNS: tuple[tuple[str, Meaning], ...] = (
    (r"Insufficient.*Capacity", ("capacity", "zone", "")),
    (r".*LimitExceeded", ("quota", "region", _VCPUS)),
    (r"(Unauthorized|AccessDenied).*", ("permission", "region", _POLICY)),
    (r"(Invalid|Malformed|Missing|Incorrect|Validation).*", ("invalid", "region", "")),
    (r".*Throttl.*", ("throttled", "region", "")),
)


def find_unknown_meaning(code: str, status: int) -> Meaning | None:
    """Return the meaning of a code that the table does not have; None if it says nothing.

    Examples
    --------
    >>> find_unknown_meaning("GoldenInstanceLimitExceeded", 400)[0]
    'quota'
    """
    if code.isdigit():  # botocore's word for a body that is not AWS's: a proxy's page
        return ("transient" if status >= 500 else "unknown"), "region", _PROXY
    return next((said for pattern, said in _CODE_PATTERNS if re.fullmatch(pattern, code)), None)


def read_error(error: Exception) -> ProviderError | None:
    """Read code, HTTP status and message out of an error of boto3; None for any other.

    Examples
    --------
    >>> from botocore.exceptions import NoCredentialsError
    >>> read_error(NoCredentialsError()).code
    'NoCredentialsError'
    """
    kinds = type(error).__mro__
    if not any(kind.__module__.startswith(("botocore", "boto3")) for kind in kinds):
        return None
    response: Any = getattr(error, "response", None)
    if not isinstance(response, dict) or "Error" not in response:
        # subclasses are read as what they derive from
        code = next((kind.__name__ for kind in kinds if kind.__name__ in TABLE), kinds[0].__name__)
        return ProviderError(str(error), code=code)
    code = str(response["Error"].get("Code") or "Unknown")
    message = str(response["Error"].get("Message") or code)
    message = message.partition("Encoded authorization failure message")[0]  # AWS alone reads it
    meta = response.get("ResponseMetadata", {})
    if code in _CLOCK_CODES.split():
        message += _describe_clock_skew(meta)
    status = int(meta.get("HTTPStatusCode") or 0)
    retry_after = meta.get("HTTPHeaders", {}).get("retry-after")
    return ProviderError(message, code=code, status=status, retry_after=retry_after)


def _describe_clock_skew(meta: JsonObject) -> str:
    """Return in words how far this machine's clock is from AWS's; empty if it is near."""
    try:
        theirs = parsedate_to_datetime(meta["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return ""
    off = time.time() - theirs
    if abs(off) <= _CLOCK_SKEW_SECONDS:
        return ""
    minutes, side = abs(off) / 60, "ahead" if off > 0 else "behind"
    return f" (the clock here is {minutes:.0f} minutes {side})"
