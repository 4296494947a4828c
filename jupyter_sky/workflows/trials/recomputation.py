"""Expected hours of a run on spot machines, over those without a loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.assumptions import SPIN_UP_HOURS
from jupyter_sky.knowledge.lifetimes.priors import spot_lifetimes
from jupyter_sky.knowledge.lifetimes.recomputation import expected_runs
from jupyter_sky.knowledge.tracker.estimates import preempted_share
from jupyter_sky.knowledge.tracker.knowledge import Bands, no_bands


def redone(hours: float, offer: Offer, nodes: int, bands: Bands = no_bands) -> float:
    """Return how many times over a run is paid for, 1 or more; 1 on demand.

    A trial that was not interrupted took less than the same run will take on average: what a lost
    machine had done is done again.

    Parameters
    ----------
    hours
        Of a run without interruption.
    offer
        Machine of a node.
    nodes
        Machines that work together.
    bands
        The interruption band of a cloud, region and instance type, as the catalog's.

    Examples
    --------
    >>> offer = Offer("aws", "us-east-1", "m5.large", 2, 8, price=0.03, spot=True)
    >>> redone(4.0, replace(offer, spot=False), 1)
    1.0
    >>> 1.0 < redone(4.0, offer, 1) < redone(4.0, offer, 4)
    True
    """
    if not offer.spot or hours <= 0:
        return 1.0
    share = preempted_share(bands(offer.cloud, offer.region, offer.instance_type))
    shares = np.array([np.nan if share is None else share])
    lives = spot_lifetimes(shares, np.array([float(offer.vcpus)]))
    lives = replace(lives, nodes=np.array([float(nodes)]))
    return float(expected_runs(np.array([hours]), lives, np.array([SPIN_UP_HOURS]))[0])
