"""Names and spellings of Skyward: those that are here, and the reasons why others are not."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTimeout, SkyUsageError
from jupyter_sky.execution.functions import plugins
from jupyter_sky.execution.functions.calls import absent_names
from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunctionGroup
from jupyter_sky.execution.functions.images.image_packages import image_packages
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.functions.shared import collections
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing

PRESENT = """
__version__ Compute sky function gather PendingFunction PendingFunctionGroup InstanceInfo
instance_info shard stdout stderr silent is_head CallbackWriter redirect_output AWS Container GCP
Hyperstack RunPod VastAI Verda Image Options PipIndex DEFAULT_IMAGE AllocationStrategy InstanceType
Offer SelectionStrategy Spec Volume Worker WorkerExecutor dict set counter queue barrier lock
accelerators offers Nodes NodeSpec plugins Consistency Pool
"""

ABSENT = """
App Session JarvisLabs Novita Scaleway TensorDock Vultr PoolSpec SpecKwargs
RequestId ClusterId InstanceId NodeId ProviderName NodeInstance ClusterRequested InstanceRequested
ShutdownCompleted ShutdownRequested ClusterProvisioned InstanceProvisioned InstanceBootstrapped
InstancePreempted InstanceReplaced InstanceDestroyed ClusterReady ClusterDestroyed TaskStarted
TaskCompleted Metric Log Error Request Fact Event metrics LogConfig OfferRepository main Cluster
Instance ProviderConfig HealthChecker
"""

OTHERS = """
ComputePool InstanceMetadata PendingCompute PendingComputeGroup compute integrations pool
Accelerator Executor Group Lost MassedCompute Pending Provider Salad Streaming
TaskFailedError emit registry stream
"""
"""Names of versions before and after the one that the tables above list."""


@pytest.mark.parametrize("name", PRESENT.split())
def test_public_name_exists(name: str) -> None:
    assert getattr(sky, name) is not None
    assert name in dir(sky)


@pytest.mark.parametrize("name", ABSENT.split() + OTHERS.split())
def test_absent_name_says_why(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"sky\.{name} ") as error:
        getattr(sky, name)
    assert isinstance(error.value, SkyUsageError)
    assert error.value.hint == absent_names.REASONS[name]
    assert not hasattr(sky, name) and name not in dir(sky)


def test_reasons_name_what_exists() -> None:
    assert {*absent_names.REASONS} == {*ABSENT.split(), *OTHERS.split()}
    for reason in absent_names.REASONS.values():
        for word in reason.replace("jupyter_sky.", "").split("sky.")[1:]:
            name = "".join(c if c.isalnum() or c == "_" else " " for c in word).split()[0]
            assert hasattr(sky, name), reason


def test_unknown_name_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = sky.Nothing  # type: ignore[attr-defined]


# -- parameters ------------------------------------------------------------------------------------

PARAMETERS: list[tuple[Any, str]] = [
    (
        sky.Compute,
        "provider nodes accelerator vcpus memory_gb disk_gb architecture allocation image region "
        "max_hourly_cost ttl worker plugins volumes options selection name",
    ),
    (
        sky.Spec,
        "provider accelerator nodes vcpus memory_gb disk_gb architecture allocation image region "
        "max_hourly_cost ttl volumes plugins",
    ),
    (
        sky.Image,
        "python pip pip_indexes apt env shell_vars includes excludes skyward_source metrics "
        "bootstrap_timeout volumes",
    ),
    (sky.Nodes, "min desired max"),
    (sky.Worker, "concurrency executor"),
    (sky.Options, "cluster console worker provision_timeout"),
    (sky.Volume, "bucket mount prefix read_only"),
    (sky.PipIndex, "url packages"),
    (sky.shard, "shuffle seed drop_last node total_nodes"),
    (sky.gather, "stream ordered"),
    (sky.stdout, "only"),
    (sky.redirect_output, "callback"),
    (sky.accelerators.Custom, "name memory count cuda_min cuda_max"),
    (collections.Dict, "name consistency"),
    (collections.Set, "name consistency"),
    (collections.Counter, "name consistency"),
    (collections.Queue, "name"),
    (collections.Barrier, "name n"),
    (collections.Lock, "name timeout"),
    (plugins.torch, "backend version cuda vision audio"),
    (plugins.jax, "cuda"),
    (plugins.keras, "backend"),
    (plugins.huggingface, "models token"),
    (plugins.accelerate, "config"),
    (plugins.cuml, "cuda"),
    (plugins.joblib, "version"),
    (plugins.sklearn, "version"),
    (plugins.mig, "profile"),
    (plugins.mps, "active_thread_percentage pinned_memory_limit"),
]


@pytest.mark.parametrize(("callable_", "names"), PARAMETERS)
def test_parameters_are_known(callable_: Callable[..., Any], names: str) -> None:
    assert {*names.split()} <= {*inspect.signature(callable_).parameters}


def test_methods_are_known() -> None:
    methods = {
        Pool: "run run_async broadcast run_parallel map current_nodes resize concurrency is_active",
        sky.PendingFunction: "with_timeout local",
        PendingFunctionGroup: "__len__ __iter__",
        collections.Dict: "get update pop",
        collections.Set: "add discard",
        collections.Counter: "value increment decrement reset",
        collections.Queue: "put get empty",
        collections.Barrier: "wait reset",
        collections.Lock: "acquire release",
    }
    for kind, names in methods.items():
        assert all(hasattr(kind, name) for name in names.split()), kind
    coroutines = {
        "dict": "get set update pop",
        "set": "add discard contains",
        "counter": "value increment decrement reset",
        "queue": "put get",
        "barrier": "wait",
        "lock": "acquire release",
    }
    for kind, names in coroutines.items():
        shared = getattr(sky, kind)("spelled")
        assert all(hasattr(shared, f"{name}_async") for name in names.split()), kind
        with pytest.raises(AttributeError, match="nothing_async"):
            _ = shared.nothing_async


# -- values ----------------------------------------------------------------------------------------


def test_groups_are_groups() -> None:
    @sky.function
    def one() -> int:
        return 1

    for group in (one() & one(), sky.gather(one(), one()), sky.gather(one(), one(), stream=True)):
        assert isinstance(group, sky.PendingFunctionGroup) and len(group) == 2
        assert [call.local() for call in group] == [1, 1]
        with pytest.raises(TypeError, match="true nor false"):
            bool(group)


def test_shard_of_another_place() -> None:
    parts = [sky.shard([*range(5)], node=node, total_nodes=2) for node in range(2)]
    assert parts == [[0, 2, 4], [1, 3]]
    assert sky.shard([*range(5)], node=1, total_nodes=2, drop_last=True) == [2, 3]
    for node, total_nodes in ((2, 2), (-1, None), (1, None)):
        with pytest.raises(SkyUsageError, match="no such node"):
            sky.shard([1, 2], node=node, total_nodes=total_nodes)


def test_options() -> None:
    worker = sky.Worker(concurrency=3)
    assert sky.Compute(options=sky.Options(worker=worker)).worker is worker
    own = sky.Worker(concurrency=2)
    assert sky.Compute(worker=own, options=sky.Options(worker=worker)).worker is own
    shown = {console: sky.Options(console=console).shows_progress for console in (True, "rich")}
    assert all(shown.values())
    assert not any(sky.Options(console=console).shows_progress for console in (False, "silent"))
    for wrong in ({"console": "loud"}, {"worker": 2}, {"provision_timeout": 0}):
        with pytest.raises(SkyUsageError):
            sky.Options(**wrong)  # type: ignore[arg-type]


def test_volumes_that_cannot_be_are_refused_before_machines_are_paid_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    volume = sky.Volume("my-data", mount="/data", prefix="raw/")
    assert str(volume.uri) == "s3://my-data/raw/"
    assert str(sky.Volume("gs://mine/x", "./d").uri) == "gs://mine/x"
    for make in (sky.Compute, sky.Spec, sky.Image):
        assert make(volumes=[volume]).volumes == (volume,)
        with pytest.raises(SkyUsageError, match="is not a volume"):
            make(volumes=["my-data"])
        with pytest.raises(SkyUsageError, match="would both be at /data"):
            make(volumes=[volume, sky.Volume("other", "/data")])
    for mount in ("", ".", "/", "/tmp", "/data/../etc", "../up"):
        with pytest.raises(SkyUsageError, match="mount="):
            sky.Volume("my-data", mount=mount)
    with pytest.raises(SkyUsageError, match="cannot write there") as error:
        sky.Volume("my-data", "/data", read_only=False)
    assert "s3://my-data" in (error.value.hint or "")
    with pytest.raises(SkyUsageError, match="absolute path on a machine of local"):
        sky.Compute(cloud="local", volumes=[sky.Volume(str(tmp_path), "/sky-data")]).check()
    with pytest.raises(SkyObjectMissing):
        sky.Compute(image=sky.Image(volumes=[sky.Volume(f"{tmp_path}/none/", "d")])).check()


def test_spec_has_an_image_and_plugins_of_its_own() -> None:
    first = sky.Spec(image=sky.Image(env={"A": "1"}), plugins=[plugins.keras("torch")])
    compute = sky.Compute(first, sky.Spec(), image=sky.Image(env={"B": "2"}))
    images = [compute._image(spec) for spec in compute.specs]
    assert dict(images[0].env) == {"A": "1", "KERAS_BACKEND": "torch"}
    assert dict(images[1].env) == {"B": "2"}


def test_image_parameters() -> None:
    index = sky.PipIndex("https://pypi.nvidia.com", packages=["cuml-cu12"])
    image = sky.Image(pip_indexes=[index], shell_vars={"CORES": "nproc"})
    assert image.pip_indexes == (index,) and image.shell_vars == {"CORES": "nproc"}
    others = [sky.DEFAULT_IMAGE, sky.Image(pip_indexes=[index]), sky.Image(shell_vars={"A": "b"})]
    assert len({each.digest for each in (image, *others)}) == 4
    for wrong in (
        {"metrics": ["cpu"]},
        {"skyward_source": "pypi"},
        {"shell_vars": {"a b": "c"}},
        {"pip_indexes": ["https://pypi.nvidia.com"]},
    ):
        with pytest.raises(SkyUsageError, match=next(iter(wrong))):
            sky.Image(**wrong)  # type: ignore[arg-type]
    for wrong in ("pypi.nvidia.com", "file:///index", 3):
        with pytest.raises(SkyUsageError, match="PipIndex"):
            sky.PipIndex(wrong)  # type: ignore[arg-type]


def test_indexes_are_asked_first_for_what_they_are_meant_for() -> None:
    index = sky.PipIndex("https://index.acme.com/simple", packages=["Acme_Gpu"])
    meant = image_packages(["acme-gpu==1.0"], [index]).request
    assert meant.settings["UV_INDEX"].split()[0] == index.url
    other = image_packages(["acme-cpu==1.0"], [index]).request
    assert index.url not in other.settings.get("UV_INDEX", "")


def test_custom_accelerator() -> None:
    assert sky.accelerators.Custom("A100", memory="80GB", count=2) == sky.accelerators.A100(
        memory="80GB", count=2
    )
    for wrong in ({"name": "Z900"}, {"name": "T4", "memory": 3}, {"name": "T4", "cuda_min": "12"}):
        with pytest.raises(SkyUsageError):
            sky.accelerators.Custom(**wrong)  # type: ignore[arg-type]


def test_output_is_given_to_a_function() -> None:
    texts: list[str] = []
    with sky.redirect_output(texts.append) as (out, err):
        print("loss", 0.3)
    assert "".join(texts) == "loss 0.3\n" == out.getvalue() and err.getvalue() == ""


# -- plug-ins --------------------------------------------------------------------------------------


def test_gpus_are_not_cut_into_parts() -> None:
    for make in (lambda: plugins.mig("3g.40gb"), plugins.mps):
        with pytest.raises(SkyUsageError, match=r"GPU|Multi-Process") as error:
            make()
        assert "Worker(" in (error.value.hint or "")


def test_settings_of_accelerate() -> None:
    config = {
        "mixed_precision": "bf16",
        "num_machines": 4,
        "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": False},
        "deepspeed_config": {"zero_stage": 3, "gradient_clipping": 1.0},
    }
    assert plugins.accelerate(config, backend="gloo").variables == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
        "FSDP_OFFLOAD_PARAMS": "false",
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_GRADIENT_CLIPPING": "1.0",
    }
    assert plugins.accelerate({"backend": "gloo"}).backend == "gloo"
    with pytest.raises(SkyUsageError, match="mixed_precison"):
        plugins.accelerate({"mixed_precison": "bf16"})


def test_packages_of_plugins() -> None:
    image = plugins.cuml("cu12").image(None)
    assert image.pip == ("cuml-cu12",) and image.pip_indexes[0].url == "https://pypi.nvidia.com"
    torch = plugins.torch(version="2.8.0", cuda="cu128", vision="0.23.0").image(None)
    assert torch is not None and torch.pip == ("torch==2.8.0", "torchvision==0.23.0")
    assert torch.pip_indexes[0].url == "https://download.pytorch.org/whl/cu128"
    assert plugins.torch().image(None) is plugins.jax().image(None) is None
    for plugin, package in (
        (plugins.torch(cuda="cu126"), "torch"),
        (plugins.jax(cuda="cu124"), "jax[cuda12]"),
        (plugins.joblib(version="1.5"), "joblib==1.5"),
        (plugins.sklearn(version="1.7"), "scikit-learn==1.7"),
    ):
        image = plugin.image(sky.Image(pip=["numpy"]))
        assert image is not None and image.pip == ("numpy", package)
    assert plugins.keras("torch", version="3.5").image(None).pip == ("keras==3.5",)
    with pytest.raises(SkyUsageError, match="backend"):
        plugins.keras("theano")
    with pytest.raises(SkyUsageError, match="models"):
        plugins.huggingface("gpt2")
    assert "hf_secret" not in repr(plugins.huggingface(token="hf_secret"))


@pytest.mark.parametrize("count", [0, 0.5, 1, 8])
def test_torch_says_that_it_uses_one_gpu_of_a_node(count: float) -> None:
    row = SimpleNamespace(offer={"gpu_count": count})
    pool: Any = SimpleNamespace(worker=sky.Worker(), clusters=[SimpleNamespace(row=row)])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        plugins.torch().setup(pool)
    assert ["first of 8 GPUs" in str(each.message) for each in found] == [True] * (count > 1)


# -- on nodes --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_current_pool_takes_calls(compute: Pool) -> None:
    @sky.function
    def double(x: int) -> int:
        return 2 * x

    assert double(2) >> sky.sky == 4
    assert double(2) @ sky.sky == [4, 4]
    assert (double(2) > sky.sky).result() == 4
    assert (double(1) & double(2)) >> sky.sky == (2, 4)
    assert compute.run_async(double(3)).result() == 6
    assert compute.run_parallel(sky.gather(double(1), double(2))) == (2, 4)
    assert compute.current_nodes() == 2 and compute.name in repr(sky.sky)


@pytest.mark.slow
def test_coroutines_of_collections(compute: Pool) -> None:
    @sky.function
    async def work() -> list[Any]:
        import asyncio

        jobs, best, seen = sky.queue("async-jobs"), sky.dict("async-best"), sky.set("async-seen")
        done = sky.counter("async-done")
        waiting = asyncio.ensure_future(jobs.get_async())
        await asyncio.sleep(0.05)
        await jobs.put_async(7)
        async with sky.lock("async-lock") as lock:
            held = lock.locked()
            await done.increment_async(2)
        await lock.acquire_async()
        await lock.release_async()
        await best.set_async("loss", 0.5)
        await seen.add_async(3)
        found = await asyncio.gather(
            waiting, done.value_async(), best.get_async("loss"), seen.contains_async(3)
        )
        return [held, *found, await jobs.get_async(timeout=0.01), lock.locked()]

    assert work() >> compute == [True, 7, 2, 0.5, True, None, False]


@pytest.mark.slow
def test_spellings_of_collections(compute: Pool) -> None:
    @sky.function
    def meet() -> Any:
        sky.barrier("spelled", n=2).wait(timeout=20)
        return sky.dict("spelled", consistency="eventual").setdefault("a", 1)

    assert meet() @ compute == [1, 1]
    with sky.lock("taken"):
        future = _take() > compute
        with pytest.raises(SkyTimeout, match="taken"):
            future.result(timeout=20)
    assert _take() >> compute == "taken"
    for wrong in (lambda: sky.dict("a", consistency="weak"), lambda: sky.barrier("b", 2, n=2)):
        with pytest.raises(SkyUsageError):
            wrong()


@sky.function
def _take() -> str:
    with sky.lock("taken", timeout=0.2) as lock:
        return lock.name
