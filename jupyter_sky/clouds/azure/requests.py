"""Request bodies for Azure: pure functions from a launch request to JSON.

A cluster is one resource group: a network, a firewall, and the machines, each of which brings its
own disk, interface and address, and takes them away. Deleting the group ends it all.
"""

from __future__ import annotations

import base64
import math
import re

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.launches.self_delete import wrap_in_shell
from jupyter_sky.clouds.provider.naming import fit_name
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig

Body = JsonObject
"""JSON of a resource, as the Resource Manager's REST API takes it."""
CREATED_TAG = "jupyter-sky-made"
"""Tag of a group: unix seconds at which it was made."""
SPOT_TAG = "jupyter-sky-spot"
"""Tag of a group whose machines Azure may take back, and then keeps no trace of."""
NETWORK, SUBNET, FIREWALL = "network", "nodes", "firewall"
_ADDRESSES = "10.77.0.0/16"
IMAGE_GIB = 30
GPU_IMAGE_GIB = 128
"""The image with drivers nearly fills the 64 GiB that it comes with."""
_MAX_NAME_CHARS = 50  # of a name: Azure allows 64 to a machine, of which its rank takes some
_AMD_GPUS = re.compile("MI300|V710|MI25")


def resource_prefix(token: str) -> str:
    """Return the name of a request in Azure's alphabet: ``[a-z][a-z0-9-]*``.

    Examples
    --------
    >>> resource_prefix("train-3f2a91c0")
    'train-3f2a91c0'
    >>> resource_prefix("Ünruly name-3f2a91c0")
    'nruly-name-3f2a91c0-3cdfb2'
    """
    return fit_name(token, _MAX_NAME_CHARS)


def group_name(token: str) -> str:
    """Return the name of a request's resource group."""
    return f"jupyter-sky-{resource_prefix(token)}"


def machine_name(token: str, rank: int) -> str:
    """Return the name of a machine of a request."""
    return f"{resource_prefix(token)}-{rank}"


def zone_number(offer: Offer) -> str:
    """Return the zone as Azure calls it within a region.

    Examples
    --------
    >>> zone_number(Offer("azure", "eastus", "Standard_D2s_v5", 2, 8, zone="eastus-2"))
    '2'
    """
    return (offer.zone or "").rpartition("-")[2]


def select_image(offer: Offer) -> tuple[str, str, str]:
    """Return publisher, offer and SKU: the latest Ubuntu LTS, with drivers where there are GPUs.

    Examples
    --------
    >>> select_image(Offer("azure", "eastus", "Standard_NC4as_T4_v3", 4, 28, gpu="T4", gpu_count=1))
    ('microsoft-dsvm', 'ubuntu-hpc', '2404')
    """
    if offer.gpu_count:
        kind = "-gb200" if offer.arch == "arm64" else ""
        if _AMD_GPUS.search(offer.gpu or ""):
            kind = "-rocm"
        return "microsoft-dsvm", "ubuntu-hpc", f"2404{kind}"
    return "Canonical", "ubuntu-24_04-lts", "server-arm64" if offer.arch == "arm64" else "server"


def format_tags(config: MachineConfig) -> dict[str, str]:
    """Return the tags as Azure takes them: any text, 256 characters at most."""
    return {name: value[:256] for name, value in config.tags.items()}


def group_tags(request: LaunchRequest, config: MachineConfig, now: float) -> dict[str, str]:
    """Return the tags of a group that is made `now`, in unix seconds."""
    return (
        format_tags(config)
        | {CREATED_TAG: str(int(now))}
        | ({SPOT_TAG: "yes"} if request.offer.spot else {})
    )


def virtual_network(request: LaunchRequest, config: MachineConfig) -> Body:
    """Return a private network for one cluster."""
    subnet = {"name": SUBNET, "properties": {"addressPrefix": _ADDRESSES}}
    properties = {"addressSpace": {"addressPrefixes": [_ADDRESSES]}, "subnets": [subnet]}
    return {"location": request.offer.region, "tags": format_tags(config), "properties": properties}


def firewall(request: LaunchRequest, config: MachineConfig) -> Body:
    """Return the firewall: SSH from where it may come; Azure itself lets the nodes meet."""
    ssh = {
        "protocol": "Tcp",
        "access": "Allow",
        "direction": "Inbound",
        "priority": 100,
        "sourceAddressPrefixes": list(config.ssh_from),
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "22",
    }
    rules = {"securityRules": [{"name": "ssh", "properties": ssh}]}
    return {"location": request.offer.region, "tags": format_tags(config), "properties": rules}


def virtual_machine(
    request: LaunchRequest, config: MachineConfig, rank: int, group_id: str
) -> Body:
    """Return one machine with its disk, interface and address, which end with it."""
    offer, name = request.offer, machine_name(request.token, rank)
    body: Body = {
        "location": offer.region,
        "tags": format_tags(config),
        "identity": {"type": "SystemAssigned"},
        "properties": {
            "hardwareProfile": {"vmSize": offer.instance_type},
            "storageProfile": _storage_profile(offer, config, name),
            "osProfile": _os_profile(config, name),
            "networkProfile": _network_profile(config, name, group_id),
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        },
    }
    if zone := zone_number(offer):
        body["zones"] = [zone]
    if offer.spot:
        body["properties"] |= {
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "billingProfile": {"maxPrice": -1},  # up to the on-demand price
        }
    return body


def _storage_profile(offer: Offer, config: MachineConfig, name: str) -> Body:
    publisher, product, sku = select_image(offer)
    image = {"publisher": publisher, "offer": product, "sku": sku, "version": "latest"}
    least = GPU_IMAGE_GIB if offer.gpu_count else IMAGE_GIB
    disk = {
        "name": f"{name}-disk",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": max(least, math.ceil(config.disk)),
        # Premium disks are refused by sizes without an "s"
        "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
    }
    return {"imageReference": image, "osDisk": disk}


def _os_profile(config: MachineConfig, name: str) -> Body:
    path = f"/home/{config.user}/.ssh/authorized_keys"
    return {
        "computerName": name,
        "adminUsername": config.user,
        "customData": base64.b64encode(config.user_data.encode()).decode(),
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [{"path": path, "keyData": config.public_key}]},
        },
    }


def _network_profile(config: MachineConfig, name: str, group_id: str) -> Body:
    """Return the interface, which Azure makes with the machine, as is its address."""
    around, written = f"{group_id}/providers/Microsoft.Network", format_tags(config)
    address = {
        "name": f"{name}-address",
        "tags": written,
        "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
    }
    inside = {
        "subnet": {"id": f"{around}/virtualNetworks/{NETWORK}/subnets/{SUBNET}"},
        "primary": True,
        "publicIPAddressConfiguration": address,
    }
    interface = {
        "primary": True,
        "deleteOption": "Delete",
        "networkSecurityGroup": {"id": f"{around}/networkSecurityGroups/{FIREWALL}"},
        "ipConfigurations": [{"name": "inside", "properties": inside}],
    }
    named = {"name": f"{name}-interface", "tags": written, "properties": interface}
    return {"networkApiVersion": "2022-11-01", "networkInterfaceConfigurations": [named]}


def self_delete_script(manager: str, subscription: str, token: str) -> str:
    """Return shell commands by which the head deletes its group, and another machine itself.

    A power-off alone would not do: Azure bills a machine that is off until it is deallocated.
    """
    where = _DELETE_REQUEST.format(
        resource=f"{manager}/",
        group=f"{manager}/subscriptions/{subscription}/resourcegroups/{group_name(token)}",
        others=f"{resource_prefix(token)}-",
        head=machine_name(token, 0),
    )
    return wrap_in_shell(where, retry_forever=True)


_DELETE_REQUEST = """\
def delete_request():
    me, url = socket.gethostname(), "{group}"
    if me.startswith("{others}") and me != "{head}":
        url += "/providers/Microsoft.Compute/virtualMachines/" + me
        url += "?api-version=2024-07-01&forceDeletion=true"
    else:
        url += "?api-version=2021-04-01&forceDeletionTypes=Microsoft.Compute/virtualMachines"
    query = urllib.parse.urlencode({{"api-version": "2018-02-01", "resource": "{resource}"}})
    identity = read_metadata("metadata/identity/oauth2/token?" + query, {{"Metadata": "true"}})
    return url, json.loads(identity)["access_token"]

"""
