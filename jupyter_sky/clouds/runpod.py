"""RunPod: pods of its Secure Cloud, which are containers with a public port for SSH.

Pods are launched by the GraphQL API, since that alone ends them at a time and takes bids; they are
listed and ended by the REST API. A pod removes itself with the key that RunPod gives it, and RunPod
ends it at the end of its lease. What RunPod takes back stays, stopped, and its disk is billed.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from jupyter_sky.base.json_types import JsonMapping
from jupyter_sky.base.requests.geography import jurisdiction_of
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.launches.machine_script import SETUP_COMMAND, SETUP_VARIABLE, pack_script
from jupyter_sky.clouds.launches.rest_provider import (
    RANK,
    ListedMachine,
    RestProvider,
    read_mark,
    write_mark,
)
from jupyter_sky.clouds.provider.classification import ProviderError, Refinement, group_codes
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig

GRAPHQL = "https://api.runpod.io/graphql"
IMAGE = "runpod/base:0.6.2-cuda12.4.1"
_MARK_VARIABLE = "JUPYTER_SKY_MARK"
_KEY_FIX = "create a key at https://console.runpod.io/user/settings and set RUNPOD_API_KEY"
_STOCK = """{
  gpuTypes {
    id displayName memoryInGb maxGpuCountSecureCloud securePrice secureSpotPrice
    lowestPrice(input: {gpuCount: 1, secureCloud: true}) { minVcpu minMemory }
  }
  dataCenters { id listed gpuAvailability { gpuTypeId available stockStatus } }
}"""
_RENT = {
    False: "mutation($input: PodFindAndDeployOnDemandInput!)"
    " { pod: podFindAndDeployOnDemand(input: $input) { id } }",
    True: "mutation($input: PodRentInterruptableInput!)"
    " { pod: podRentInterruptable(input: $input) { id } }",
}


class RunPod(RestProvider):
    """RunPod as a cloud that rents machines; an ID is that of a pod.

    Examples
    --------
    >>> gone = ProviderError("There are no longer any instances available", code="GRAPHQL")
    >>> RunPod.explain_refusal(gone).cause
    'capacity'
    """

    name, title, billing = "runpod", "RunPod", (1.0, 0.0)
    console_page = "https://console.runpod.io/pods"
    account = N_("an account with credit: https://console.runpod.io")
    permissions = N_("an API key that may read and write REST and GraphQL")
    launchable, has_live_offers, power_off_cost, colour = True, True, "disk", "#7048e8"
    runs_images = True
    settings: ClassVar = {
        "endpoint": "Address of the REST API, where it is not that of RunPod.",
        "graphql": "Address of the GraphQL API, where it is not that of RunPod.",
        "image": "Image of the pods, with a shell and either sshd or apt.",
        "launch_seconds": "Seconds from one launch to the next.",
    }

    api = "https://rest.runpod.io/v1"
    error_code, error_message = "code", "error"
    login, variables = _KEY_FIX, ("RUNPOD_API_KEY",)
    power_off = "kill 1"
    errors: ClassVar = group_codes(
        ("invalid", "region", "", "GRAPHQL RUNPOD BAD_USER_INPUT GRAPHQL_VALIDATION_FAILED"),
        ("permission", "region", _KEY_FIX, "UNAUTHENTICATED FORBIDDEN"),
        ("throttled", "region", "", "RATE_LIMITED"),
        ("transient", "region", "", "INTERNAL_SERVER_ERROR"),
    )
    refinements = (
        Refinement(
            "GRAPHQL RUNPOD INTERNAL_SERVER_ERROR",
            r"(?i)no (longer any )?instances|not have the resources|no resources",
            cause="capacity",
        ),
        Refinement(
            "GRAPHQL RUNPOD INTERNAL_SERVER_ERROR BAD_USER_INPUT",
            r"(?i)balance|funds|spend limit|rented .* limit",
            cause="quota",
            fix="add credit: https://console.runpod.io/user/billing",
        ),
        Refinement(
            "GRAPHQL RUNPOD", r"(?i)unauthori[sz]ed|api key", cause="permission", fix=_KEY_FIX
        ),
        Refinement("GRAPHQL RUNPOD", r"(?i)too many requests|rate limit", cause="throttled"),
    )

    # -- what is on sale ------------------------------------------------------------------------

    def offers(self) -> Iterator[Offer]:
        """Yield the GPUs that data centres have free now, at both markets' prices."""
        found = self._ask(_STOCK)
        kinds = {kind["id"]: kind for kind in found["gpuTypes"]}
        for centre in found["dataCenters"]:
            for stock in centre["gpuAvailability"] if centre["listed"] else ():
                if stock["available"] and stock["gpuTypeId"] in kinds:
                    yield from self._offers_of(kinds[stock["gpuTypeId"]], centre["id"])

    def _offers_of(self, kind: JsonMapping, region: str) -> Iterator[Offer]:
        from jupyter_sky.clouds.prices.entries import canonical_accelerator, nominal_memory

        country = country_of(region)
        gpu = canonical_accelerator(kind["displayName"], kind["memoryInGb"])
        least = kind["lowestPrice"] or {}
        prices = (kind["securePrice"], kind["secureSpotPrice"])
        for spot, (price, other) in ((False, prices), (True, prices[::-1])):
            for count in powers_of_two(kind["maxGpuCountSecureCloud"] or 0) if price else ():
                yield Offer(
                    self.name,
                    region,
                    f"{count}x_{kind['id'].replace(' ', '_')}",
                    (least.get("minVcpu") or 0) * count,
                    (least.get("minMemory") or 0) * count,
                    gpu=gpu,
                    gpu_count=count,
                    gpu_memory=nominal_memory(gpu, kind["memoryInGb"]),
                    spot=spot,
                    price=round(price * count, 4),
                    other_price=round(other * count, 4) if other else None,
                    source=self.live_source,
                    arch="x86_64",
                    country=country,
                    jurisdiction=jurisdiction_of(country),
                )

    def identify(self) -> str:
        """Prove the key by one request."""
        return self._ask("{ myself { id } }")["myself"]["id"]

    # -- machines -------------------------------------------------------------------------------

    def self_delete_script(self, request: LaunchRequest) -> str:
        """Return shell commands that remove the pod by the key that RunPod has put into it."""
        return 'until runpodctl remove pod "$RUNPOD_POD_ID"; do sleep 20; done'

    def create_machine(
        self, request: LaunchRequest, config: MachineConfig, tags: Mapping[str, str], prepared: None
    ) -> Machine:
        """Rent one pod, which RunPod ends with the lease."""
        offer = request.offer
        count, _, gpu = offer.instance_type.partition("x_")
        env = {SETUP_VARIABLE: pack_script(config.script), _MARK_VARIABLE: write_mark(tags)}
        wanted = {
            "name": f"{request.token}-{tags[RANK]}"[:190],
            "cloudType": "SECURE",
            "dataCenterId": offer.region,
            "gpuTypeId": gpu.replace("_", " "),
            "gpuCount": int(count),
            "imageName": request.resources.image or self.setting("image", IMAGE),
            "dockerArgs": f"sh -c '{SETUP_COMMAND}'",
            "env": [{"key": name, "value": value} for name, value in env.items()],
            "ports": "22/tcp",
            "supportPublicIp": True,
            "globalNetwork": request.resources.nodes > 1,
            "containerDiskInGb": math.ceil(config.disk),
            "volumeInGb": 0,  # it would be billed when the pod has stopped
            "terminateAfter": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(config.lease_end)),
        }
        if offer.spot and offer.price:
            wanted["bidPerGpu"] = offer.price / int(count)
        pod = self._ask(_RENT[offer.spot], {"input": wanted})["pod"]
        if pod is None:
            raise ProviderError("there are no instances available", code="GRAPHQL")
        return self.tagged(tags, id=pod["id"], state="starting")

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the pods of the account that were launched from here, by anybody."""
        for pod in self.call("GET", "/pods", query={"includeMachine": "true"}) or ():
            if tags := read_mark((pod.get("env") or {}).get(_MARK_VARIABLE)):
                yield self._parse_pod(pod, tags)

    def _parse_pod(self, pod: JsonMapping, tags: Mapping[str, str]) -> ListedMachine:
        status, address = pod["desiredStatus"], pod.get("publicIp") or ""
        port = int((pod.get("portMappings") or {}).get("22") or 0)
        is_outbid = status == "EXITED" and bool(pod.get("interruptible"))
        ended = status == "TERMINATED" or is_outbid
        machine = self.tagged(
            tags,
            id=pod["id"],
            # the port comes later than the state
            state="ended" if ended else "running" if port or status == "EXITED" else "starting",
            preempted=is_outbid,
            reason="RunPod took the pod back" if is_outbid else "",
            address=address if port else "",
            private=f"{pod['id']}.runpod.internal",
            port=port,
            stopped=status == "EXITED" and not is_outbid,
        )
        region = (pod.get("machine") or {}).get("dataCenterId") or ""
        return ListedMachine(machine, region, status != "TERMINATED")

    def delete_machine(self, id: str) -> None:
        """Terminate one pod, a stopped one too."""
        self.call("DELETE", f"/pods/{id}")

    # -- the API --------------------------------------------------------------------------------

    def _ask(self, query: str, variables: JsonMapping | None = None) -> Any:
        """Send a GraphQL request; a refusal comes with HTTP status 200."""
        body = {"query": query, "variables": variables or {}}
        answer = self.client(self.setting("graphql", GRAPHQL)).call("POST", "", body)
        if errors := answer.get("errors"):
            code = (errors[0].get("extensions") or {}).get("code") or "GRAPHQL"
            raise ProviderError(errors[0]["message"], code=code)
        return answer["data"]


def country_of(data_centre: str) -> str:
    """Return the two letters of the country in the name of a data centre; empty without one.

    Examples
    --------
    >>> country_of("EU-RO-1"), country_of("US-KS-2"), country_of("OC-AU-1"), country_of("EUR-IS-1")
    ('RO', 'US', 'AU', 'IS')
    """
    first, _, rest = data_centre.partition("-")
    if first in ("US", "CA"):
        return first
    found = re.match(r"[A-Z]{2}(?=-|$)", rest)
    return found[0] if found else ""


def powers_of_two(most: int) -> Iterable[int]:
    """Return the counts of GPUs in a machine up to a most.

    Examples
    --------
    >>> powers_of_two(6)
    [1, 2, 4]
    """
    return [count for count in (1, 2, 4, 8) if count <= most]
