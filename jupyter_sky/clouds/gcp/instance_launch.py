"""Machines of one order, created in a zone of Compute Engine."""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from jupyter_sky.clouds.gcp import errors, instances, service_account
from jupyter_sky.clouds.gcp.clients import GcpClients
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.naming import TOKEN
from jupyter_sky.clouds.provider.parallel_requests import send_parallel
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig

MAX_FAILED_ATTEMPTS = 20
"""Failures of one order at one place; each spends an ID of requests."""
log = logging.getLogger(__name__)
_NAMESPACE = uuid.UUID("8b5f7a52-21a6-4bd1-9f0e-5f6ad2a0c3de")


@dataclass(frozen=True, slots=True)
class InstanceLaunch:
    """Requests of one order in a zone.

    Attributes
    ----------
    provider : Provider
        The driver, which explains its cloud's errors.
    """

    provider: Provider
    access: GcpClients
    order: LaunchRequest
    config: MachineConfig
    zone: str
    stop: Event

    def create(self, role: bool = True) -> None:
        """Make all machines; without a role, where they may not have the one they are to have."""
        account, asked = service_account.configured_account() if role else "", list[Any]()
        try:
            asked += self._insert(account)
            self.access.await_operations(asked, self.stop, self.zone)
        except Exception as error:
            if not account or not service_account.is_refused(error):
                raise
            trouble = self.provider.explain(error)
            log.warning(
                "gcp: machines do without the service account %r: %s; when one is lost, it is "
                "powered off and its disk billed until %%sky reap. %s",
                account,
                trouble.message if trouble else error,
                trouble.fix if trouble else "",
            )
            for each in asked:  # their names are taken until all have failed
                with service_account.ignore_refusals():
                    self.access.await_operations([each], self.stop, self.zone)
            self.create(role=False)

    def _insert(self, account: str) -> list[Any]:
        """Ask for all machines at once; return the operations that are under way."""
        bodies = [
            instances.instance_body(self.order, self.config, self.zone, rank, account)
            for rank in range(self.order.resources.nodes)
        ]
        requests = [partial(self._insert_machine, body) for body in bodies]
        # an error that does not pass decides: then no machine is waited for
        asked = send_parallel(requests, self.provider.is_transient)
        return [operation for operation in asked if operation is not None]

    def _insert_machine(self, body: Any, _: Event) -> Any | None:
        """Ask for one machine; None when it is there already.

        The id of a request makes it count once, however often it is sent. An order that failed and
        is sent again would only be told of that failure: then it takes the next id.
        """
        for attempt in range(MAX_FAILED_ATTEMPTS):
            place = f"{self.zone}/{self.order.offer.instance_type}/{self.order.offer.spot}"
            place += "".join(f"/{each.email}" for each in body.service_accounts)
            request_id = str(uuid.uuid5(_NAMESPACE, f"{body.name}/{place}/{attempt}"))
            asked = {"zone": self.zone, "instance_resource": body, "request_id": request_id}
            try:
                operation = self.access.call("Instances", "insert_unary", **asked)
            except Exception as error:
                if errors.has_code(error, "alreadyExists") and self._is_there(body):
                    return None
                raise
            last = attempt == MAX_FAILED_ATTEMPTS - 1
            if last or operation.status.name != "DONE" or self._is_there(body):
                return operation
        raise AssertionError

    def _is_there(self, body: Any) -> bool:
        """Whether a machine is there and is the one that is asked for."""
        try:
            found = self.access.call("Instances", "get", zone=self.zone, instance=body.name)
        except Exception as error:
            if errors.has_code(error, "gone"):
                return False
            raise
        same = instances.read_tags(found).get(TOKEN) == instances.read_tags(body).get(TOKEN)
        return same and found.status in ("PROVISIONING", "STAGING", "RUNNING")


def choose_zone(access: GcpClients, order: LaunchRequest) -> str:
    """Choose a zone of the region that has what is asked; the same order gets the same."""
    kind, gpu, _ = instances.split_type(order.offer.instance_type)
    if gpu:
        listed = access.list_all_zones("AcceleratorTypes", "accelerator_types", f'name = "{gpu}"')
    else:
        listed = access.list_all_zones("MachineTypes", "machine_types", f'name = "{kind}"')
    region = order.offer.region
    zones = sorted({zone for zone, _ in listed if instances.region_of_zone(zone) == region})
    if not zones:
        words = f"no zone of {region} has {order.offer.instance_type}"
        raise ProviderError(words, code="notFound")
    return zones[int(hashlib.sha256(order.token.encode()).hexdigest(), 16) % len(zones)]
