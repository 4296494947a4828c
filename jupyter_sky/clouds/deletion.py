"""How a machine deletes itself through its cloud: with the token of its own identity."""

from __future__ import annotations


def deletion(order: str) -> str:
    """Return shell commands that delete what a piece of Python names, and try until it is gone.

    Parameters
    ----------
    order
        Defines ``order()``, which returns an address and a token; it may ask ``told(path,
        headers)`` of the metadata service.
    """
    return _PROGRAM.replace("# the order\n", order)


_PROGRAM = """python3 - <<'EOF'
import json, socket, time, urllib.error, urllib.parse, urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def told(path, headers):
    asked = urllib.request.Request("http://169.254.169.254/" + path, headers=headers)
    return direct.open(asked, timeout=10).read().decode()

# the order
for wait in (1, 5, 20, 0):
    try:
        url, token = order()
        sent = urllib.request.Request(url, method="DELETE")
        sent.add_header("Authorization", "Bearer " + token)
        urllib.request.urlopen(sent, timeout=30)
        break
    except urllib.error.HTTPError as error:
        print("jupyter-sky: not deleted:", error.code, error.read()[:500])
        if error.code == 404:
            break
    except Exception as error:
        print("jupyter-sky: not deleted:", error)
    time.sleep(wait)
EOF"""
