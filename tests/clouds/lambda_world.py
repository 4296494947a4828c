"""Account of the emulated Lambda under the conformance suite."""

from __future__ import annotations

from typing import ClassVar

from tests.clouds.rest_world import RestWorld
from tests.emulators.lambda_machines import LambdaMachines
from tests.emulators.lambdalabs import KEY


class LambdaWorld(RestWorld):
    """The emulated account."""

    cloud, account, path = "lambda", LambdaMachines, "/api/v1"
    key: ClassVar = {"LAMBDA_API_KEY": KEY}
    requests: ClassVar = {
        "launch": "POST /api/v1/instance-operations/launch",
        "machines": "GET /api/v1/instances",
        "terminate": "POST /api/v1/instance-operations/terminate",
    }
    codes: ClassVar = {
        "capacity": "instance-operations/launch/insufficient-capacity",
        "quota": "global/quota-exceeded",
        "permission": "global/invalid-api-key",
        "invalid": "global/invalid-parameters",
        "throttled": "global/too-many-requests",
    }
