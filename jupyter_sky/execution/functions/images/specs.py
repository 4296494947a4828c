"""Specifications of pools: nodes, workers, alternatives and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.accelerators import Accelerator
from jupyter_sky.base.requests.accelerators import accelerator as known_accelerator
from jupyter_sky.base.requests.resources import Resources, parse_duration
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.volumes import Volume, checked_volumes

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.images.image import Image

Allocation = Literal["spot-if-available", "spot", "on-demand", "cheapest"]
ALLOCATIONS = ("spot-if-available", "spot", "on-demand", "cheapest")
Selection = Literal["cheapest", "first"]
SELECTIONS = ("cheapest", "first")
AllocationStrategy, SelectionStrategy = Allocation, Selection
WorkerExecutor = Literal["auto", "thread", "process"]
EXECUTORS = ("auto", "thread", "process")
CONSOLES = ("rich", "minimal", "log", "silent")
CANCEL_GRACE_SECONDS = 60.0
"""Time that a call may take to stop when another call of its group has failed."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Numbers of nodes of a pool.

    ``min`` and ``desired`` are taken either way round: the larger is how many are started, with
    the smaller the pool is ready; the others join as they come up.

    Attributes
    ----------
    min, desired : int
        One or both.
    max : int, optional
        The pool grows up to this many while calls wait, and shrinks again.

    Examples
    --------
    >>> Nodes(min=8, desired=4).ready, Nodes(min=4, desired=8).initial
    (4, 8)
    >>> Nodes(min=2, max=16).limit
    16
    """

    min: int | None = None
    desired: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        for name in ("min", "desired", "max"):
            value = getattr(self, name)
            wrong = isinstance(value, bool) or not isinstance(value, int) or value < 1
            if value is not None and wrong:
                raise SkyUsageError(
                    _("nodes: {name}={value!r} is not a number of nodes").format(
                        name=name, value=value
                    )
                )
        if self.max is not None and self.max < self.initial:
            raise SkyUsageError(
                _("nodes: at most {max}, and {initial} to start with").format(
                    max=self.max, initial=self.initial
                ),
                hint=_("the larger number last: nodes=(2, 4), sky.Nodes(min=2, max=4)"),
            )

    @classmethod
    def of(cls, value: Nodes | int | tuple[int, int]) -> Nodes:
        """Make it from a number, a pair of minimum and maximum, or `Nodes`.

        Raises
        ------
        SkyUsageError
            It is none of these, or the least is more than the most.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, tuple | list):
            if len(value) != 2:
                raise SkyUsageError(
                    _("nodes={value!r}: a pair is the least and the most").format(value=value)
                )
            low, high = value
            return cls(min=low, max=high)
        return cls(min=value)  # type: ignore[arg-type]

    @property
    def initial(self) -> int:
        """Number of nodes started at first."""
        return max(self.min or 1, self.desired or 1)

    @property
    def ready(self) -> int:
        """Number of nodes with which work can begin."""
        return min(self.min or self.desired or 1, self.desired or self.min or 1)

    @property
    def limit(self) -> int:
        """Maximum number of nodes."""
        return self.max or self.initial


NodeSpec = Nodes | int | tuple[int, int]
"""Values for ``nodes=``."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Execution of calls on a node.

    Attributes
    ----------
    concurrency : int
        How many at once.
    executor : str
        ``thread``: in the engine, sharing what it has imported and its interpreter; for waiting,
        and for libraries that let the interpreter go. ``process``: each in a process of its own.
        ``auto`` is ``thread``.

    Examples
    --------
    >>> Worker(concurrency=2, executor="process").executor
    'process'
    """

    concurrency: int = 1
    executor: WorkerExecutor = "auto"

    def __post_init__(self) -> None:
        wrong = isinstance(self.concurrency, bool) or not isinstance(self.concurrency, int)
        if wrong or self.concurrency < 1:
            raise SkyUsageError(
                _("concurrency={concurrency!r}: 1 or more calls at once").format(
                    concurrency=self.concurrency
                )
            )
        if self.executor not in EXECUTORS:
            raise SkyUsageError(
                _("executor={executor!r} is not known").format(executor=self.executor),
                hint=suggest(self.executor, EXECUTORS),
            )

    @property
    def executor_kind(self) -> str:
        """Kind of executor; a single thread is the main one, where signals arrive."""
        if self.executor == "process":
            return "process"
        return "main" if self.concurrency == 1 else "thread"


@dataclass(frozen=True, slots=True)
class Options:
    """Rarely changed settings of a pool.

    Attributes
    ----------
    timeout : float, optional
        Most seconds that a call may run which says nothing itself.
    scale_up_after, scale_down_after : float
        Seconds that calls must have waited, or nodes been idle, before an elastic pool changes.
    cluster : bool
        Whether nodes speak to each other. Without it every node is reached through a tunnel of
        its own, and may be in another region; what tasks share (``sky.dict``,
        ``sky.barrier``...) cannot be had: for places whose machines do not reach one another.
    cancel_grace : float
        Seconds that a running call may take to stop once another call of its gather, group or
        broadcast has failed. Code that cannot be interrupted, such as LAPACK, often ends by
        itself; otherwise its engine is restarted then, and a line says what was lost.
    worker : Worker, optional
        Concurrency and executor, where `Compute` is not given them.
    console : bool or str
        Whether the progress of calls is shown: False or ``"silent"`` for no. ``"rich"``,
        ``"minimal"`` and ``"log"`` are as True: a card in notebooks, a line in terminals.
    provision_timeout : float, optional
        Most seconds that machines may take to come up; then those that have are given back.

    Examples
    --------
    >>> Options(timeout=60.0).scale_down_after
    60.0
    >>> Options(console="silent").shows_progress
    False
    """

    timeout: float | None = None
    scale_up_after: float = 2.0
    scale_down_after: float = 60.0
    cluster: bool = True
    cancel_grace: float = CANCEL_GRACE_SECONDS
    worker: Worker | None = None
    console: bool | str = True
    provision_timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.console, bool) and self.console not in CONSOLES:
            raise SkyUsageError(
                _("console={console!r} is not known").format(console=self.console),
                hint=suggest(str(self.console), CONSOLES),
            )
        if self.worker is not None and not isinstance(self.worker, Worker):
            raise SkyUsageError(
                _("Options(worker={worker!r}): not a worker").format(worker=self.worker),
                hint="sky.Worker(concurrency=2)",
            )
        if not self.cancel_grace >= 0:
            raise SkyUsageError(
                _("cancel_grace={cancel_grace!r}: seconds, 0 or above").format(
                    cancel_grace=self.cancel_grace
                )
            )
        if self.provision_timeout is not None and not self.provision_timeout > 0:
            raise SkyUsageError(
                _("provision_timeout={provision_timeout!r}: seconds above 0").format(
                    provision_timeout=self.provision_timeout
                )
            )

    @property
    def shows_progress(self) -> bool:
        """Whether the progress of calls is shown."""
        return self.console not in (False, "silent")


@dataclass(frozen=True, slots=True)
class Spec:
    """Alternative for the machines of a pool.

    Attributes
    ----------
    provider : str
        A cloud; empty for any.
    accelerator : str or Accelerator, optional
        ``"A100:4"`` or ``sky.accelerators.A100(count=4)``: so many or more.
    vcpus, memory_gb, disk_gb : float, optional
        Least of each node: vCPUs, GiB, GiB.
    architecture : str, optional
        ``x86_64`` or ``arm64``.
    allocation : str, optional
        ``spot-if-available``, ``spot``, ``on-demand`` or ``cheapest``; see `Compute`.
    max_hourly_cost : float, optional
        Most USD/h for all nodes together, those that join later included.
    image : Image, optional
        Environment of its nodes, in place of that of `Compute`.
    plugins : sequence
        Plug-ins of its nodes, in place of those of `Compute`.
    volumes : sequence of Volume
        Data of its nodes, in place of those of `Compute`.

    Examples
    --------
    >>> Spec(accelerator="A100:4", vcpus=8).resources(2).command_line()
    '--cpus 8+ --gpus A100:4+ --nodes 2'
    """

    provider: Any = None
    accelerator: str | Accelerator | None = None
    nodes: Any = None
    vcpus: float | None = None
    memory_gb: float | None = None
    disk_gb: float | None = None
    architecture: str | None = None
    allocation: str | None = None
    region: str | None = None
    max_hourly_cost: float | None = None
    ttl: float | str | None = None
    image: Image | None = None
    plugins: Sequence[Any] = ()
    volumes: Sequence[Volume] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "volumes", checked_volumes(self.volumes, "Spec"))
        _check_provider(self.provider)
        if self.market is not None and self.market not in ALLOCATIONS:
            raise SkyUsageError(
                _("allocation={allocation!r} is not known").format(allocation=self.allocation),
                hint=suggest(self.market, ALLOCATIONS),
            )
        if isinstance(self.accelerator, str):
            known_accelerator(self.accelerator.partition(":")[0])
        self.resources(1)
        if self.ttl is not None and not (self.lease or 0) > 0:
            raise SkyUsageError(
                _("ttl={ttl!r}: seconds above 0, or like '10m'").format(ttl=self.ttl)
            )

    @property
    def market(self) -> str | None:
        """Allocation of spot machines, one of `ALLOCATIONS`; None if not given."""
        return None if self.allocation is None else self.allocation.replace("_", "-")

    @property
    def cloud(self) -> str | None:
        """Name of its cloud."""
        if self.provider is None or isinstance(self.provider, str):
            return self.provider or None
        return str(getattr(self.provider, "name", self.provider))

    def resources(self, nodes: int, spot: bool | None = None) -> Resources:
        """Return the resource request for a number of nodes, with that many accelerators or more.

        Clouds sell some accelerators by the eight only.
        """
        request = Resources.parse(
            cloud=self.cloud,
            gpus=self.accelerator,
            cpus=_least(self.vcpus),
            memory=_least(self.memory_gb),
            disk=_least(self.disk_gb),
            arch=self.architecture,
            region=self.region or getattr(self.provider, "region", None),
            image=getattr(self.provider, "image", None),
            max_hourly_cost=None if self.max_hourly_cost is None else str(self.max_hourly_cost),
            nodes=str(nodes),
            spot=spot,
        )
        return replace(request, gpu_at_least=request.gpu is not None)

    @property
    def lease(self) -> float | None:
        """Seconds after which machines without contact end by themselves."""
        return parse_duration(self.ttl, "ttl") if isinstance(self.ttl, str) else self.ttl


def _check_provider(provider: Any) -> None:
    """Raise SkyUsageError for a driver, or its class, of a cloud that is not installed."""
    from jupyter_sky.base.clouds.register import GROUP, is_known
    from jupyter_sky.clouds.provider.protocol import Provider

    kind = provider if isinstance(provider, type) else type(provider)
    if issubclass(kind, Provider) and not is_known(kind.name):
        raise SkyUsageError(
            _("{name}: no installed package has this cloud, only this notebook").format(
                name=kind.name
            ),
            hint=_(
                "other processes end its machines, so its class has to be found by them: name it "
                'in a package, pip install -e is enough: [project.entry-points."{group}"] '
                '{name} = "my_module:{kind}"'
            ).format(group=GROUP, name=kind.name, kind=kind.__name__),
        )


def _least(value: float | None) -> str | None:
    return None if value is None else f"{value:g}+"
