"""Extension of the time for which an unused cluster is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.controller_requests import Extend, UseReply


def extend_cluster(
    store: Store, row: ClusterRow, seconds: float, ask: Callable[[Extend], UseReply]
) -> float:
    """Prevent a cluster from ending for idleness before some time has passed.

    The last call counts: a shorter time takes a longer one back.

    Parameters
    ----------
    ask
        Sends a request to its controller.

    Returns
    -------
    float
        Seconds after which it ends if it is not used.

    Raises
    ------
    SkyUsageError
        Its machines end before that, whatever is asked of them.
    """
    now = time.time()
    if not 0 < seconds < math.inf:
        raise SkyUsageError(
            _("{seconds} seconds: nothing to extend by").format(seconds=seconds),
            hint=_("such as 1h"),
        )
    ends = [end for machine in row.machines if (end := machine.get("lease_end")) is not None]
    if ends and now + seconds > min(ends):
        left = format_duration(max(0.0, min(ends) - now))
        raise SkyUsageError(
            _(
                "cluster {name} cannot be kept for {seconds}: the lease of its "
                "machines ends in {left}"
            ).format(name=row.name, seconds=format_duration(seconds), left=left),
            hint=_(
                "extend it by {left} at most; Sky.lease says how long machines are rented for"
            ).format(left=left),
        )
    answer = ask(Extend(seconds))
    store.keep_cluster_until(row.id, now + seconds)
    return answer.idle_left
