"""Where a new cluster goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.executor.clusters import Clusters
from jupyter_sky.offers import Offer
from jupyter_sky.resources import Resources
from jupyter_sky.store import Store


def test_among_several_offers_the_optimizer_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `sky.plan` does; where there is one offer, nothing has to be decided or loaded."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    clusters = Clusters(Store.open(tmp_path), "a.ipynb", "session")
    here = [
        Offer("ssh", "rack", name, 8, 32, price=price)
        for name, price in (("old", 0.40), ("new", 0.15), ("borrowed", 0.90))
    ]
    monkeypatch.setattr(clusters, "plan", lambda resources: here)
    assert clusters._choose(Resources.parse(cpus="4+")).instance_type == "new"
    monkeypatch.setattr(clusters, "plan", lambda resources: here[:1])
    assert clusters._choose(Resources()).instance_type == "old"
