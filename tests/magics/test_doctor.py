"""Findings of the doctor: each with the command that mends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.settings import paths
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.clouds.launches.launch_records import LaunchRecords
from jupyter_sky.execution.sessions import session
from jupyter_sky.interfaces.api import doctor
from jupyter_sky.interfaces.api.doctor import Finding, find_version_problems
from jupyter_sky.knowledge.tracker.quotas import read_quotas
from tests.clouds.aws_cases import account_fixture, ec2_fixture, use
from tests.emulators.ec2 import Ec2

__all__ = ["account_fixture", "ec2_fixture"]
GPUS = "Running On-Demand G and VT instances"


@pytest.fixture(autouse=True)
def fresh_session(own_data: None) -> Iterator[None]:
    clouds.get.cache_clear()
    yield
    session.close()
    clouds.get.cache_clear()


def found(findings: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(one.state, one.text) for one in findings]


def test_quotas_that_are_0_are_told_with_their_page(ec2: Ec2) -> None:
    for limits in ec2.account.quotas.values():
        limits.update(dict.fromkeys(limits, 8.0))
    (all_fine,) = doctor.examine_quotas()
    assert all_fine.state == "ok" and "none of" in all_fine.text, all_fine
    ec2.account.quotas["us-east-1"][GPUS] = 0.0
    ec2.account.quotas["us-west-2"][GPUS] = 0.0
    (empty,) = doctor.examine_quotas()
    assert empty.state == "look" and f"{GPUS} (2 regions)" in empty.text, empty
    assert "console.aws.amazon.com/servicequotas" in empty.fix
    kept = read_quotas(paths.data_dir(), time.time())
    assert set(kept.read_at) == {"aws"}, "what was read limits plans"
    families = kept.table.families("aws", "g5.xlarge")
    limit = kept.table.tightest("aws", "us-east-1", families, False, "vcpus")
    assert limit is not None and limit.limit == 0.0


def test_refused_account_is_one_finding(ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ec2.wrong_env("wrong"))
    (refused,) = [one for one in doctor.examine_clouds() if one.about == "aws"]
    assert refused.state == "wrong" and "aws configure" in refused.fix
    (quota,) = doctor.examine_quotas()
    assert quota.state == "look" and quota.fix, quota


def test_machines_that_nobody_can_ask_about(
    ec2: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = {"cloud": "aws", "region": "us-east-1", "machines": [], "started": time.time()}
    LaunchRecords(tmp_path / "machines").create("train-1", record | {"lease_end": 0.0})
    use(monkeypatch, {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"})
    (left,) = doctor.examine_leftovers()
    assert left.state == "wrong" and "machines may be up in us-east-1" in left.text
    assert "aws configure" in left.fix


def test_stopped_cluster_is_told_with_its_cost() -> None:
    offer = Offer("aws", "us-east-1", "t3.small", 2, 2, price=0.02)
    machine = {"id": "us-east-1/i-1", "rank": 0, "lease_end": 1_900_000_000.0}
    place = ("aws", "us-east-1", "t3.small", False, 0.02, 2, "--disk 100", asdict(offer))
    row = ClusterRow(
        "train", "stopped", *place, [machine], {"token": "t"}, "a.ipynb", 1.0, 600.0, "", ""
    )
    finding = doctor.describe_stopped(row)
    assert finding.state == "look" and "$0.03/h until 2030-" in finding.text, finding
    assert finding.fix == "jupyter sky start train, or jupyter sky down train"


def test_packages_of_extras_are_compared_where_they_are_here() -> None:
    needs = ["numpy>=999; extra == 'x'", "no-such-package>=2; extra == 'x'", "numpy>=1"]
    ((told, fix),) = find_version_problems(needs)
    assert "numpy is" in told and fix == "pip install 'numpy>=999'"
    old = "numpy>=999; extra == 'x' and python_version < '3'"
    assert not list(find_version_problems([old])), "not for this Python"


def test_missing_ssh_keygen(monkeypatch: pytest.MonkeyPatch) -> None:
    which = doctor.shutil.which
    monkeypatch.setattr(doctor.shutil, "which", lambda n: None if n == "ssh-keygen" else which(n))
    (finding,) = doctor.examine_ssh()
    assert (
        finding.state == "wrong" and "ssh-keygen" in finding.text and "apt install" in finding.fix
    )


def test_clock_and_network_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(doctor.judge_clock("Fri, 27 Nov 2026 20:00:00 GMT", 1795809000.0)) == [
        ("wrong", "this machine is 600 s behind: clouds refuse its signatures")
    ]
    (finding,) = doctor.examine_clock(["http://127.0.0.1:9"])
    assert finding.state == "wrong" and "does not answer" in finding.text
    assert finding.fix == "curl -I http://127.0.0.1:9 says more"
