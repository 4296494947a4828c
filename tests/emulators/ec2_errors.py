"""Refusals of AWS: status and message of its codes, and signatures that it does not accept."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from .server import Request, Response

_CREDENTIAL = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request, ?"
    r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]+)"
)
WORDS: dict[str, tuple[int, str]] = {
    "InsufficientInstanceCapacity": (
        500,
        "We currently do not have sufficient {type} capacity in the Availability Zone you "
        "requested ({zone}). Our system will be working on provisioning additional capacity.",
    ),
    "InsufficientHostCapacity": (500, "Insufficient capacity on the host."),
    "InsufficientAddressCapacity": (500, "Not enough available addresses."),
    "InsufficientVolumeCapacity": (500, "Insufficient capacity for the volume."),
    "InsufficientCapacity": (500, "There is no capacity for this request."),
    "Unsupported": (
        400,
        "Your requested instance type ({type}) is not supported in your requested Availability "
        "Zone ({zone}).",
    ),
    "SpotMaxPriceTooLow": (
        400,
        "Your Spot request price is lower than the minimum required price.",
    ),
    "VcpuLimitExceeded": (
        400,
        "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the "
        "instance bucket that the specified instance type belongs to.",
    ),
    "MaxSpotInstanceCountExceeded": (400, "Max spot instance count exceeded"),
    "InstanceLimitExceeded": (400, "You have requested more instances than your current limit."),
    "MissingInput": (400, "No default subnet for availability zone: '{zone}'."),
    "UnauthorizedOperation": (
        403,
        "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/me "
        "is not authorized to perform: ec2:RunInstances. Encoded authorization failure message: "
        + "Qx7z"
        * 400,
    ),
    "AuthFailure": (401, "AWS was not able to validate the provided access credentials"),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        403,
        "The provided credentials do not have permission to create the service-linked role for EC2 "
        "Spot Instances.",
    ),
    "AccessDenied": (403, "User is not authorized to perform the action"),
    "AccessDeniedException": (400, "User is not authorized to perform the action"),
    "OptInRequired": (401, "You are not subscribed to this service."),
    "PendingVerification": (
        400,
        "Your request for accessing resources in this region is validated.",
    ),
    "Blocked": (400, "This account is currently blocked and not recognized as a valid account."),
    "InvalidClientTokenId": (403, "The security token included in the request is invalid."),
    "UnrecognizedClientException": (400, "The security token included in the request is invalid."),
    "SignatureDoesNotMatch": (
        403,
        "The request signature we calculated does not match the signature you provided.",
    ),
    "ExpiredToken": (403, "The security token included in the request is expired"),
    "ExpiredTokenException": (400, "The security token included in the request is expired"),
    "RequestExpired": (400, "Request has expired."),
    "RequestLimitExceeded": (503, "Request limit exceeded."),
    "Throttling": (400, "Rate exceeded"),
    "ThrottlingException": (400, "Rate exceeded"),
    "InternalError": (500, "An internal error has occurred"),
    "InternalFailure": (500, "The request processing has failed because of an unknown error."),
    "InternalServerError": (500, "An internal error has occurred"),
    "Unavailable": (503, "The server is overloaded and can't handle the request."),
    "ServiceUnavailable": (503, "The request has failed due to a temporary failure."),
    "InvalidParameterValue": (400, "Invalid value '{type}' for InstanceType."),
    "IdempotentParameterMismatch": (
        400,
        "Arguments on this idempotent request are inconsistent with arguments used in previous "
        "request(s).",
    ),
    "ParameterNotFound": (400, "The parameter does not exist."),
}


def error(service: str, code: str, message: str = "", status: int = 0, **words: str) -> Response:
    """A refusal in the protocol of a service; words of AWS's own unless others are given."""
    known, told = WORDS.get(code, (400, f"{code} was asked for by a test"))
    told = message or told.format_map({"type": "", "zone": "", **words})
    status = status or known
    if service in ("ssm", "servicequotas"):
        return Response.json({"__type": code, "message": told}, status)
    if service == "scheduler":
        return Response.json({"Message": told}, status, **{"x-amzn-ErrorType": code})
    inner = f"<Error><Code>{code}</Code><Message>{escape(told)}</Message></Error>"
    text = f"<Response><Errors>{inner}</Errors><RequestID>0-0</RequestID></Response>"
    if service == "sts":
        space = "https://sts.amazonaws.com/doc/2011-06-15/"
        text = f'<ErrorResponse xmlns="{space}">{inner}<RequestId>0-0</RequestId></ErrorResponse>'
    return Response(text.encode(), status, {"Content-Type": "text/xml"})


def scope(request: Request) -> tuple[str, str, str]:
    """Service, region and action of a request; service and region are in its signature."""
    found = _CREDENTIAL.match(request.headers.get("authorization", ""))
    region, service = (found[2], found[3]) if found else ("", "")
    if "x-amz-target" in request.headers:
        return service, region, request.headers["x-amz-target"].rpartition(".")[2]
    if request.path.startswith("/schedules"):
        verbs = {"POST": "CreateSchedule", "DELETE": "DeleteSchedule", "GET": "GetSchedule"}
        return service, region, verbs[request.method]
    return service, region, request.form.get("Action", "")


def nobody(service: str) -> Response:
    """Codes of services for unknown keys; also where a region is not enabled."""
    codes = {"ec2": "AuthFailure", "sts": "InvalidClientTokenId"}
    return error(service, codes.get(service, "UnrecognizedClientException"))


def stranger(
    request: Request, known: dict[str, tuple[str, str]], expired: set[str], now: float
) -> Response | None:
    """Refuse who is not known, whose token has expired, and whose clock is wrong.

    Parameters
    ----------
    known
        Secret and session token (or nothing) by the id of a key.
    expired
        Ids of keys whose session token has expired.
    now
        Unix seconds by AWS's clock.
    """
    service, region, _ = scope(request)
    found = _CREDENTIAL.match(request.headers.get("authorization", ""))
    if not found:
        return error("ec2", "MissingAuthenticationToken", "Request is missing a token", 403)
    key, names, signature = found[1], found[4].split(";"), found[5]
    if key not in known:
        return nobody(service)
    secret, token = known[key]
    sent = request.headers["x-amz-date"]
    when = datetime.strptime(sent, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    if abs(now - when) > 300:
        if service == "ec2":
            return error(service, "RequestExpired" if when < now else "AuthFailure")
        text = f"Signature {'expired' if when < now else 'not yet current'}: {sent}"
        return error(service, "SignatureDoesNotMatch", text)
    if (
        _signed(request, names, Credentials(key, secret, token or None), service, region)
        != signature
    ):
        return error(service, "AuthFailure" if service == "ec2" else "SignatureDoesNotMatch")
    if key in expired:
        code = {"ec2": "RequestExpired", "sts": "ExpiredToken"}.get(service)
        return error(service, code or "ExpiredTokenException")
    return None


def _signed(request: Request, names: list[str], who: Credentials, service: str, region: str) -> str:
    url = f"https://{request.headers['host']}{request.path}"
    headers = {name: request.headers[name] for name in names}
    sent = AWSRequest(request.method, url, headers, request.body, params=request.query)
    sent.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(who, service, region)
    canonical = signer.canonical_request(sent)
    return signer.signature(signer.string_to_sign(sent, canonical), sent)


def parameter(name: str, value: str, arn: str) -> Response:
    """An answer of GetParameter."""
    fields = {"Name": name, "Type": "String", "Value": value, "Version": 1, "ARN": arn}
    body = json.dumps({"Parameter": {**fields, "DataType": "text"}}).encode()
    return Response(body, 200, {"Content-Type": "application/x-amz-json-1.1"})
