"""Schedules of EventBridge that end what was launched at the end of its lease."""

from __future__ import annotations

import json
import logging
import math
import uuid
from contextlib import suppress
from datetime import UTC, datetime

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.aws.clients import AwsClients
from jupyter_sky.clouds.aws.facts import AwsFacts
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig

RETRIES = 20
"""Number of tries of EventBridge; what it is to end may be gone long since."""
_NAMESPACE = uuid.UUID("1c1a0a7e-52f6-4b8e-9d5b-6a3d2f0c9b11")
log = logging.getLogger(__name__)


def schedule_end(
    access: AwsClients,
    request: LaunchRequest,
    config: MachineConfig,
    action: str,
    arguments: JsonObject,
) -> None:
    """Let EventBridge end what a request has made, where the settings name a role for that.

    It ends by itself too, so that a refusal is told and no reason to launch nothing.

    Parameters
    ----------
    action
        Of an API, such as ``ec2:terminateInstances``.
    arguments
        Of that action.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    role = scheduler_role()
    if not role:
        return
    region = request.offer.region
    when = datetime.fromtimestamp(math.ceil(config.lease_end), UTC)
    client = access.client("scheduler", region)
    try:
        client.create_schedule(
            Name=_schedule_name(request.token),
            Description=f"ends what {request.token} has launched"[:512],
            ScheduleExpression=f"at({when:%Y-%m-%dT%H:%M:%S})",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            ClientToken=client_token(request.token, "schedule"),
            Target={
                "Arn": f"arn:{access.partition(region)}:scheduler:::aws-sdk:{action}",
                "RoleArn": role,
                "Input": json.dumps(arguments),
                "RetryPolicy": {"MaximumRetryAttempts": RETRIES},
            },
        )
    except client.exceptions.ConflictException:
        pass  # the request was sent before
    except (BotoCoreError, ClientError) as error:
        log.warning("%s: EventBridge will not end it at %s: %s", request.token, when, error)


def remove_schedule(access: AwsClients, region: str, token: str) -> None:
    """Delete the schedule of a request, if there is one."""
    if scheduler_role():
        client = access.client("scheduler", region)
        # it has ended them, or there was no role then
        with suppress(client.exceptions.ResourceNotFoundException):
            client.delete_schedule(Name=_schedule_name(token))


def scheduler_role() -> str:
    """Return the ARN of the role that EventBridge takes; empty where the settings name none."""
    return Sky.load().provider_setting(AwsFacts.name, "scheduler_role")


def client_token(token: str, *words: object) -> str:
    """Return the same name for the same things, in the few signs that AWS takes for tokens.

    Examples
    --------
    >>> client_token("train-1", "us-east-1") == client_token("train-1", "us-east-1")
    True
    """
    return str(uuid.uuid5(_NAMESPACE, json.dumps([token, *words])))


def _schedule_name(token: str) -> str:
    return f"jupyter-sky-{client_token(token)}"
