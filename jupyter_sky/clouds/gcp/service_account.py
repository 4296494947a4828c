"""The service account that machines of Google Cloud may have, and what they do with it.

A machine that is powered off from within is kept, and its disk is billed. One that has an account
which may delete machines deletes itself instead, and its disk goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.clouds.gcp.errors import read_error
from jupyter_sky.clouds.gcp.facts import GcpFacts
from jupyter_sky.clouds.launches.self_delete import wrap_in_shell

SCOPE = "https://www.googleapis.com/auth/compute"
"""Scope of the account's tokens on our machines, whatever else it may do."""
COMPUTE = "https://compute.googleapis.com"
_ACCOUNT_REFUSAL = re.compile(
    r"'serviceAccount' was not found|serviceAccounts?\.actAs|setServiceAccount|\.serviceAccounts\["
)


def configured_account() -> str:
    """Return the service account that machines get: an e-mail address, ``default`` or nothing."""
    from jupyter_sky.base.settings.settings import Sky

    return Sky.load().provider_setting(GcpFacts.name, "service_account")


def service_account_entry(account: str) -> list[JsonObject]:
    """Return an account as Compute Engine takes it with a machine."""
    return [{"email": account, "scopes": [SCOPE]}] if account else []


def is_refused(error: Exception) -> bool:
    """Whether a machine was refused for its account: there is none such, or it is not ours to give.

    Examples
    --------
    >>> is_refused(ValueError("no"))
    False
    """
    refusal = read_error(error)
    if refusal is None:
        return False
    denied = refusal.code == "SERVICE_ACCOUNT_ACCESS_DENIED"
    told = refusal.status in (400, 403, 404) and _ACCOUNT_REFUSAL.search(refusal.message)
    return denied or bool(told)


@contextmanager
def ignore_refusals() -> Iterator[None]:
    """Let errors pass by which a machine was refused for its account."""
    try:
        yield
    except Exception as error:
        if not is_refused(error):
            raise


def self_delete_script(host: str) -> str:
    """Return shell commands by which a machine that has an account deletes itself.

    Parameters
    ----------
    host
        Scheme and host of Compute Engine; empty for Google's own.
    """
    # a machine that is off costs its disk alone: that is better than to stay up
    return wrap_in_shell(_DELETE_REQUEST.format(compute=host or COMPUTE), retry_forever=False)


_DELETE_REQUEST = """\
def read_instance(path):
    return read_metadata("computeMetadata/v1/" + path, {{"Metadata-Flavor": "Google"}})

def delete_request():
    token = json.loads(read_instance("instance/service-accounts/default/token"))["access_token"]
    url = "{compute}/compute/v1/projects/" + read_instance("project/project-id") + "/zones/"
    url += read_instance("instance/zone").rpartition("/")[2]
    url += "/instances/" + read_instance("instance/name")
    return url, token

"""
