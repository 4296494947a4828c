"""Origin of packages: from an index, or sent from here."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.machines.packages.indexes import IndexSettings
from jupyter_sky.machines.packages.origins import InstallRecord, PackageOrigin, decide_origin
from jupyter_sky.machines.packages.plan import IndexLookup
from tests.package_sync.installed_packages import CORPORATE, DEFAULT, Index, refuse_lookup


@pytest.mark.parametrize(
    ("record", "settings", "answer", "expected"),
    [
        (InstallRecord("numpy", "pip"), DEFAULT, None, PackageOrigin.PUBLIC),
        (InstallRecord("numpy", "uv"), DEFAULT, None, PackageOrigin.PUBLIC),
        (InstallRecord("acme", "pip", {"url": "file:///acme"}), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", {"vcs_info": {}}), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", {}), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", ""), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "acme-tool"), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", marked_private=True), DEFAULT, None, PackageOrigin.SENT),
        (InstallRecord("acme", "pip", marked_private=True), CORPORATE, None, PackageOrigin.SENT),
        (InstallRecord("numpy", "conda"), DEFAULT, None, PackageOrigin.SENT),
        (
            InstallRecord("numpy", "conda", channel="conda.anaconda.org/conda-forge"),
            *(DEFAULT, None, PackageOrigin.PUBLIC),
        ),
        (
            InstallRecord("acme", "conda", channel="conda.acme.com/private"),
            *(DEFAULT, None, PackageOrigin.SENT),
        ),
        (InstallRecord("numpy", "pip"), CORPORATE, None, PackageOrigin.INDEX),
        (InstallRecord("numpy", "pip"), IndexSettings(""), None, PackageOrigin.SENT),
        (
            InstallRecord("numpy", "pip"),
            IndexSettings("http://localhost/s"),
            None,
            PackageOrigin.SENT,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(extra=("https://a/s",)),
            True,
            PackageOrigin.SENT,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(extra=("https://a/s",)),
            False,
            PackageOrigin.PUBLIC,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(find_links=("/wheels",)),
            True,
            PackageOrigin.SENT,
        ),
        (
            InstallRecord("x", "pip"),
            IndexSettings(find_links=("/wheels",)),
            False,
            PackageOrigin.PUBLIC,
        ),
    ],
)
def test_origin(
    record: InstallRecord, settings: IndexSettings, answer: bool | None, expected: PackageOrigin
) -> None:
    ask = refuse_lookup if answer is None else lambda *_: answer
    assert decide_origin(record, settings, ask) is expected


def test_unanswered_private_index_is_inconclusive() -> None:
    settings = IndexSettings(extra=("https://pypi.acme.com/simple",))
    assert decide_origin(InstallRecord("x", "pip"), settings, lambda *_: None) is PackageOrigin.SENT
    public = IndexSettings(extra=("https://download.pytorch.org/whl/cu124",))
    assert (
        decide_origin(InstallRecord("torch", "pip"), public, refuse_lookup) is PackageOrigin.PUBLIC
    )


def test_private_places_are_asked_once(tmp_path: Path) -> None:
    index, broken = Index("acme"), Index(status=500)
    try:
        lookup = IndexLookup()
        for _ in range(2):
            assert lookup.has(index.address, "acme", True) is True
            assert lookup.has(index.address, "numpy", True) is False
            assert lookup.has(broken.address, "numpy", True) is None
        assert index.asked == ["acme", "numpy"] and broken.asked == ["numpy"]
    finally:
        index.close()
        broken.close()
    assert IndexLookup().has(index.address, "acme", True) is None, "nobody listens any more"
    (tmp_path / "Acme_Secret-1.4.2-py3-none-any.whl").touch()
    (tmp_path / "simple" / "acme").mkdir(parents=True)
    for place in (str(tmp_path), tmp_path.as_uri()):
        assert lookup.has(place, "acme-secret", False) is True
        assert lookup.has(place, "acme", False) is False
    assert lookup.has((tmp_path / "simple").as_uri(), "acme", True) is True
    assert lookup.has((tmp_path / "simple").as_uri(), "numpy", True) is False
