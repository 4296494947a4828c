"""Quotas of accounts, read from emulated clouds by their SDKs, and kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyPermission
from jupyter_sky.clouds import get_launcher
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.knowledge.tracker import quotas
from jupyter_sky.knowledge.tracker.quotas import (
    KEPT_SECONDS,
    AccountQuota,
    QuotaTable,
    read_quotas,
    write_quotas,
)
from tests.clouds.aws_cases import account_fixture, ec2_fixture, provider_fixture  # noqa: F401
from tests.emulators.arm import Arm
from tests.emulators.ec2 import Ec2
from tests.emulators.ec2_account import REGIONS
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.azure_fixtures", "tests.clouds.gcp_fixtures"]


def metric(name: str, limit: float, usage: float = 0.0) -> dict[str, object]:
    """Return a quota as Compute Engine writes it."""
    return {"metric": name, "limit": limit, "usage": usage}


def test_aws_tells_vcpus_of_each_series_in_each_region(ec2: Ec2, provider: Aws) -> None:
    name = "Running On-Demand G and VT instances"
    ec2.account.quotas["eu-west-1"][name] = 64.0
    found = provider.quotas()
    assert {quota.region for quota in found} == set(REGIONS)
    assert len(found) == 7 * len(REGIONS), "all pages, and only what machines count against"
    table = QuotaTable(found)
    g5, p5 = table.families("aws", "g5.xlarge"), table.families("aws", "p5.48xlarge")
    raised = table.tightest("aws", "eu-west-1", g5, False, "vcpus")
    assert raised is not None and (raised.limit, raised.name) == (64.0, name)
    assert raised.page.endswith("/services/ec2/quotas/L-DB2E81BA")
    assert table.tightest("aws", "us-east-1", p5, False, "vcpus").limit == 0.0
    assert table.tightest("aws", "us-east-1", p5, True, "vcpus").limit == 192.0
    p4 = table.families("aws", "p4d.24xlarge")
    assert table.tightest("aws", "us-east-1", p4, True, "vcpus").limit == 0.0
    assert table.tightest("aws", "us-east-1", {"u"}, True, "vcpus") is None


def test_quotas_that_may_not_be_read_are_a_permission_error(ec2: Ec2) -> None:
    ec2.refuse("AccessDeniedException", action="ListServiceQuotas", times=99)
    provider = get_launcher("aws")
    assert provider.has_quotas()
    with pytest.raises(SkyPermission):
        provider.list_quotas()


def test_gcp_tells_vcpus_and_gpus_of_regions_and_of_the_project(compute: Compute) -> None:
    compute.quotas = {
        "us-central1": [
            metric("CPUS", 24.0, 8.0),
            metric("N2D_CPUS", 500.0),
            metric("PREEMPTIBLE_CPUS", 0.0),
            metric("NVIDIA_T4_GPUS", 4.0),
            metric("PREEMPTIBLE_NVIDIA_T4_GPUS", 1.0),
            metric("COMMITTED_NVIDIA_T4_GPUS", 0.0),
            metric("SSD_TOTAL_GB", 250.0),
        ],
        "europe-west4": [metric("CPUS", 8.0), metric("PREEMPTIBLE_CPUS", 100.0)],
        "": [metric("GPUS_ALL_REGIONS", 2.0), metric("SNAPSHOTS", 1000.0)],
    }
    compute.page = 1
    table = QuotaTable(Gcp().quotas())

    def limit(region: str, kind: str, spot: bool) -> float | None:
        found = table.tightest("gcp", region, table.families("gcp", kind), spot, "vcpus")
        return found.limit if found else None

    assert limit("us-central1", "n1-standard-8", False) == 24.0
    assert limit("us-central1", "n1-standard-8", True) == 24.0, "it has no quota of spot machines"
    assert limit("europe-west4", "n1-standard-8", True) == 100.0
    assert limit("us-central1", "n2d-standard-8", False) == 500.0
    assert limit("us-central1", "n2-standard-8", False) is None
    gpus = [table.tightest("gcp", "us-central1", {"t4"}, spot, "gpus") for spot in (False, True)]
    assert [quota.limit for quota in gpus] == [2.0, 1.0], "that of all regions is the tighter one"


def test_azure_tells_vcpus_of_families_and_regions(arm: Arm, azure: Azure) -> None:
    arm.state.usages = {
        "eastus": [
            ("cores", "Total Regional vCPUs", 4, 20),
            ("lowPriorityCores", "Total Regional Spot vCPUs", 0, 3),
            ("virtualMachines", "Virtual Machines", 1, 25000),
            ("standardDSv3Family", "Standard DSv3 Family vCPUs", 4, 10),
            ("StandardNCADSA100v4Family", "Standard NCADS_A100_v4 Family vCPUs", 0, 0),
        ]
    }
    found = azure.quotas()
    assert [quota.region for quota in found] == ["eastus"] * 4, "other regions are not there"
    table = QuotaTable(found)

    def limit(kind: str, spot: bool = False) -> float:
        families = table.families("azure", kind)
        quota = table.tightest("azure", "eastus", families, spot, "vcpus")
        assert quota is not None
        return quota.limit

    assert limit("Standard_D4s_v3") == 10.0
    assert limit("Standard_NC24ads_A100_v4") == 0.0
    assert limit("Standard_E4s_v5") == 20.0, "the whole region's"
    assert limit("Standard_D4s_v3", spot=True) == 3.0


def test_quotas_are_read_though_another_thread_forgets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            """Keep nothing."""

    monkeypatch.setattr(quotas, "_loaded", Forgetful())
    quota = AccountQuota("aws", "P", 8.0, "vcpus")
    now = time.time()
    write_quotas(tmp_path, "aws", [quota], now)
    assert read_quotas(tmp_path, now).quotas == (quota,)


def test_quotas_are_kept_for_a_week(tmp_path: Path) -> None:
    quota = AccountQuota("aws", "P", 8.0, "vcpus", "us-east-1", ("p4*", "p3*"), False, "https://q")
    now = time.time()
    assert not read_quotas(tmp_path, now).table
    write_quotas(tmp_path, "aws", [quota], now)
    known = read_quotas(tmp_path, now)
    assert known.quotas == (quota,) and known.read_at == {"aws": now}
    assert read_quotas(tmp_path, now) is known
    assert not read_quotas(tmp_path, now + KEPT_SECONDS + 1).quotas
    write_quotas(tmp_path, "gcp", [quota], now)
    (tmp_path / "quotas" / "aws.json").write_text("{")
    assert list(read_quotas(tmp_path, now).read_at) == ["gcp"], "a damaged file limits nothing"
    assert (tmp_path / "quotas" / "gcp.json").stat().st_mode & 0o077 == 0
