"""Places of new clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky import clouds
from jupyter_sky.offers import Offer
from jupyter_sky.provisioner import placement
from jupyter_sky.resources import Resources


def test_among_several_offers_the_optimizer_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `sky.plan` does; where there is one offer, nothing has to be decided or loaded."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    here = [
        Offer("ssh", "rack", name, 8, 32, price=price)
        for name, price in (("old", 0.40), ("new", 0.15), ("borrowed", 0.90))
    ]
    monkeypatch.setattr(placement, "on_premises_offers", lambda resources: here)
    monkeypatch.setattr(clouds, "PROVIDERS", ())
    choice = placement.decide_placement(Resources.parse(cpus="4+"))
    assert choice.planned is not None and choice.offer.instance_type == "new"
    monkeypatch.setattr(placement, "on_premises_offers", lambda resources: here[:1])
    choice = placement.decide_placement(Resources())
    assert choice.planned is None and choice.offer.instance_type == "old"
