"""Self-deletion of a machine through the API of its cloud, with the token of its own identity."""

from __future__ import annotations

RETRY_DELAYS = (1, 5, 20, 60, 120, 300)
"""Seconds between tries."""


def wrap_in_shell(request_source: str, *, retry_forever: bool) -> str:
    """Return shell commands that delete what a piece of Python names, and try until it is gone.

    Parameters
    ----------
    request_source
        Defines ``delete_request()``, which returns an address and a token; it may call
        ``read_metadata(path, headers)`` of the metadata service.
    retry_forever
        Never return: where a machine that is powered off is billed as one that runs, it must not
        be powered off before it is deleted. Else it is given up after some minutes, or when the
        cloud has accepted it.
    """
    program = _PROGRAM.replace("# delete_request\n", request_source)
    return program.replace("RETRY_DELAYS", repr(RETRY_DELAYS)).replace(
        "RETRY_FOREVER", repr(retry_forever)
    )


_PROGRAM = """python3 - <<'EOF'
import itertools, json, socket, time, urllib.error, urllib.parse, urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def read_metadata(path, headers):
    request = urllib.request.Request("http://169.254.169.254/" + path, headers=headers)
    return direct.open(request, timeout=10).read().decode()

# delete_request
delays = RETRY_DELAYS
for delay in itertools.chain(delays, itertools.repeat(delays[-1]) if RETRY_FOREVER else ()):
    try:
        url, token = delete_request()
        sent = urllib.request.Request(url, method="DELETE")
        sent.add_header("Authorization", "Bearer " + token)
        urllib.request.urlopen(sent, timeout=30)
        if not RETRY_FOREVER:
            break
        delay = max(delay, delays[3])  # it is on its way, and may yet fail there
    except urllib.error.HTTPError as error:
        print("jupyter-sky: not deleted:", error.code, error.read()[:500], flush=True)
        if error.code == 404 and not RETRY_FOREVER:
            break
    except Exception as error:
        print("jupyter-sky: not deleted:", error, flush=True)
    time.sleep(delay)
EOF"""
