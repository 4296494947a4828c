"""Plans of packages for remote machines: requested from an index, or sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.machines.packages import plan
from jupyter_sky.machines.packages.indexes import IndexSettings
from jupyter_sky.machines.packages.plan import (
    local_only_packages,
    plan_named,
    plan_packages,
    split_requirements,
)
from tests.package_sync.installed_packages import CORPORATE, DEFAULT, Index, install


def test_private_dependencies_are_not_requested_from_an_index(site: Path) -> None:
    install(site, "open-tool", requires=("acme-fork",))
    install(site, "acme-fork", direct_url={"url": "file:///fork", "dir_info": {}})
    found = plan_packages(["open-tool"], settings=DEFAULT)
    assert [*found.requirements.values()] == ["open-tool==1.4.2"]
    assert [str(each) for each in found.sent] == ["acme-fork 1.4.2"]
    assert found.dropped == ("acme-fork",)


def test_index_of_this_machine_is_local(tmp_path: Path) -> None:
    index = Index("acme-tool")
    (tmp_path / "acme_wheel-1.0-py3-none-any.whl").touch()
    try:
        settings = IndexSettings(extra=(index.address.replace("//", "//ada:s3cr3t@"),))
        assert local_only_packages(["acme_tool>=1", "./x.whl", "numpy"], settings) == {
            "acme-tool": index.address
        }
        assert local_only_packages(["acme-tool"], IndexSettings(index.address)) == {
            "acme-tool": index.address
        }
    finally:
        index.close()
    settings = IndexSettings(find_links=(str(tmp_path),))
    assert local_only_packages(["acme-wheel", "numpy"], settings) == {"acme-wheel": str(tmp_path)}
    assert local_only_packages(["numpy"], CORPORATE) == {}


def test_extras_that_a_user_names_count(site: Path) -> None:
    install(site, "open-tool", requires=("acme-fork; extra == 'fast'",))
    install(site, "acme-fork", direct_url={"url": "file:///fork", "dir_info": {}})
    assert not plan_named(["open-tool"], DEFAULT).sent
    found = plan_named(["open-tool[fast]>=1"], DEFAULT)
    assert [*found.requirements.values()] == ["open-tool[fast]>=1"]
    assert [each.name for each in found.sent] == ["acme-fork"] and found.dropped == ("acme-fork",)


def test_packages_of_a_private_index_are_asked_of_it_or_sent(site: Path) -> None:
    install(site, "acme-tool")
    found = plan_packages(["acme-tool"], settings=CORPORATE)
    assert [*found.requirements] == ["acme-tool"] and not found.sent
    assert found.environment["UV_DEFAULT_INDEX"] == CORPORATE.default
    assert "s3cr3t" not in repr(found)
    again = plan_packages(["acme-tool"], settings=CORPORATE, send_all=True)
    assert not again.requirements and [each.name for each in again.sent] == ["acme-tool"]


def test_packages_given_by_the_user_are_not_requested(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "local_index_settings", lambda: DEFAULT)
    install(site, "acme-secret", direct_url={"url": "file:///acme", "dir_info": {}})
    given = ["Acme_Secret>=1", "numpy", "not-installed-here", "./acme.whl", "git+https://a/b"]
    assert split_requirements(given) == (given[1:], ["acme-secret"])
