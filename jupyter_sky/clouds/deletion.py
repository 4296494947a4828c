"""How a machine deletes itself through its cloud: with the token of its own identity."""

from __future__ import annotations

RETRY_DELAYS = (1, 5, 20, 60, 120, 300)
"""Seconds between tries."""


def wrap_in_shell(request_source: str, *, retry_forever: bool) -> str:
    """Return shell commands that delete what a piece of Python names, and try until it is gone.

    Parameters
    ----------
    order
        Defines ``order()``, which returns an address and a token; it may ask ``told(path,
        headers)`` of the metadata service.
    retry_forever
        Never return: where a machine that is powered off is billed as one that runs, it must not
        be powered off before it is deleted. Else it is given up after some minutes, or when the
        cloud has accepted it.
    """
    program = _PROGRAM.replace("# the order\n", request_source)
    return program.replace("RETRY_DELAYS", repr(RETRY_DELAYS)).replace(
        "FOR_EVER", repr(retry_forever)
    )


_PROGRAM = """python3 - <<'EOF'
import itertools, json, socket, time, urllib.error, urllib.parse, urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def told(path, headers):
    asked = urllib.request.Request("http://169.254.169.254/" + path, headers=headers)
    return direct.open(asked, timeout=10).read().decode()

# the order
waits = WAITS
for wait in itertools.chain(waits, itertools.repeat(waits[-1]) if FOR_EVER else ()):
    try:
        url, token = order()
        sent = urllib.request.Request(url, method="DELETE")
        sent.add_header("Authorization", "Bearer " + token)
        urllib.request.urlopen(sent, timeout=30)
        if not FOR_EVER:
            break
        wait = max(wait, waits[3])  # it is on its way, and may yet fail there
    except urllib.error.HTTPError as error:
        print("jupyter-sky: not deleted:", error.code, error.read()[:500], flush=True)
        if error.code == 404 and not FOR_EVER:
            break
    except Exception as error:
        print("jupyter-sky: not deleted:", error, flush=True)
    time.sleep(wait)
EOF"""
