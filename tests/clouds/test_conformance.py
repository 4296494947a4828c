"""The conformance suite on the clouds of this package, each with its emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds.launched_machine import needs_isolation
from tests.emulators import podman, slurm
from tests.emulators.hosts import USABLE
from tests.provider.conformance import CHECKS, run_suite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # each is a run of pytest
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
LISTS = {"11", "18"}
"""Checks that need what the emulators of clouds lack: lists that are late, or long."""
NEED_MACHINES = {"04", "15", "16", "19", "20"}
"""Checks that reach machines: they take most of the suite's time."""
CLOUDS_ALONE = LISTS | {"02", "07", "08", "10", "13", "14", "16", "17"}
"""Checks of what only clouds do that are asked by requests and end machines."""


@pytest.mark.parametrize(
    ("provider", "world", "skipped"),
    [
        ("jupyter_sky.clouds.aws.driver:Aws", "tests.clouds.emulated_worlds:Aws", LISTS),
        ("jupyter_sky.clouds.gcp.driver:Gcp", "tests.clouds.emulated_worlds:Gcp", LISTS),
        ("jupyter_sky.clouds.azure.driver:Azure", "tests.clouds.emulated_worlds:Azure", LISTS),
        ("jupyter_sky.clouds.lambdalabs:Lambda", "tests.clouds.lambda_world:LambdaWorld", set()),
        ("tests.clouds.on_premises:Ssh", "tests.clouds.on_premises_worlds:SshWorld", CLOUDS_ALONE),
    ],
)
def test_cloud_conforms(provider: str, world: str, skipped: set[str], tmp_path: Path) -> None:
    results = run_suite(tmp_path, "--provider", provider, "--world", world)
    assert results.failed == set(), results.text
    assert results.passed == CHECKS - skipped and results.skipped >= len(skipped), results.text


def test_tpu_slices_conform(tmp_path: Path) -> None:
    """Their cells run in a test of their own: the catalog's cheapest machine is none."""
    cloud = ["--provider", "jupyter_sky.clouds.gcp.driver:Gcp"]
    cloud += ["--world", "tests.clouds.emulated_worlds:GcpTpu"]
    results = run_suite(tmp_path, *cloud)
    assert (results.failed, results.passed) == (set(), CHECKS - LISTS - {"20"}), results.text


@pytest.mark.skipif(not slurm.USABLE, reason="needs root and the packages of Slurm")
def test_slurm_conforms(tmp_path: Path) -> None:
    """Lists of Slurm are never late, and it has no secrets."""
    cloud = ["--provider", "jupyter_sky.clouds.slurm.driver:Slurm"]
    cloud += ["--world", "tests.clouds.slurm_world:SlurmWorld"]
    results = run_suite(tmp_path, *cloud)
    assert (results.failed, results.passed) == (set(), CHECKS - {"11", "17"}), results.text


@pytest.mark.parametrize(
    ("provider", "world", "real"),
    [
        ("hyperstack:Hyperstack", "HyperstackWorld", {"04", "16"}),
        ("nebius.driver:Nebius", "NebiusWorld", {"16"}),
        ("runpod:RunPod", "RunPodWorld", {"04", "16"}),
        ("vast:Vast", "VastWorld", {"16"}),
        ("verda:Verda", "VerdaWorld", {"16"}),
    ],
)
def test_gpu_cloud_conforms(provider: str, world: str, real: set[str], tmp_path: Path) -> None:
    """Boot machines for what is different on a cloud; the rest needs entries of the account."""
    left_out = NEED_MACHINES - real
    names = " and ".join(f"not test_{number}" for number in sorted(left_out)) or "test"
    cloud = ["--provider", f"jupyter_sky.clouds.{provider}"]
    cloud += ["--world", f"tests.clouds.neo_worlds:{world}", "-k", names]
    results = run_suite(tmp_path, *cloud)
    assert (results.failed, results.passed) == (set(), CHECKS - left_out), results.text


def test_containers_conform(tmp_path: Path) -> None:
    """Real ones: nobody takes them back, and podman lists them at once and without pages."""
    if why := podman.problem():
        pytest.skip(why)
    options = ["--provider", "jupyter_sky.clouds.container:Container"]
    options += ["--world", "tests.clouds.container_world:ContainerWorld"]
    results = run_suite(tmp_path, *options)
    assert (results.failed, results.passed) == (set(), CHECKS - LISTS - {"17"}), results.text


@needs_isolation
def test_kubernetes_conforms(tmp_path: Path) -> None:
    options = ["--provider", "jupyter_sky.clouds.kubernetes.driver:Kubernetes"]
    options += ["--world", "tests.clouds.kube_world:KubernetesWorld"]
    results = run_suite(tmp_path, *options)
    assert (results.failed, results.passed) == (set(), CHECKS), results.text


def test_this_machine_conforms(tmp_path: Path) -> None:
    """Its clusters begin with their controller: what launches them otherwise starts nothing."""
    checks = {"01", "03", "06", "12", "20"}
    local = ["--provider", "tests.clouds.on_premises:Local"]
    local += ["--world", "tests.clouds.on_premises_worlds:LocalWorld", "-k", " or ".join(checks)]
    results = run_suite(tmp_path, *local)
    assert (results.failed, results.passed) == (set(), checks), results.text
