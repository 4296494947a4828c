"""The registry of accelerators: one canonical name each, however people and clouds write it.

Each model is also a factory: ``accelerators.A100(count=8)``, ``accelerators.A100(memory="80GB")``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jupyter_sky.accelerators._table import TABLE, TPUS, VARIANTS
from jupyter_sky.errors import SkyUsageError, suggest

from ..translation import _

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
_MEMORY = r"(?i:(\d+(?:\.\d+)?)\s*(?:gi?b?)?)"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of accelerator, and how many of it.

    Attributes
    ----------
    name : str
        Canonical name, as in ``--gpus V100:1``.
    memory : float
        Memory of one accelerator, in GiB. For a TPU slice, of the slice.
    count : float
        How many a node has; below 1 for a shared one.
    vendor : str
        Who makes it.
    chips : int
        Chips that one accelerator consists of; more than 1 only for a TPU slice.
    cuda : str
        CUDA compute capability; empty where CUDA does not run.
    peak : tuple of (str, float)
        Peak rates by precision, see `tflops`.

    Examples
    --------
    >>> str(Accelerator("A100", 40, 8, "NVIDIA"))
    'A100:8'
    """

    name: str
    memory: float
    count: float = 1
    vendor: str = ""
    chips: int = 1
    cuda: str = ""
    peak: tuple[tuple[str, float], ...] = ()

    @property
    def metadata(self) -> dict[str, Any]:
        """Vendor, memory (GiB), CUDA compute capability, chips and peak rates (TFLOPS), by name.

        Examples
        --------
        >>> accelerator("A100").metadata["cuda"]
        '8.0'
        """
        names = ("vendor", "memory", "cuda", "chips")
        return {name: getattr(self, name) for name in names} | {"tflops": dict(self.peak)}

    def tflops(self, precision: str = "fp32") -> float | None:
        """Peak rate of one accelerator in TFLOPS (TOPS for int8), dense; None when not known.

        Examples
        --------
        >>> accelerator("A100").tflops("bf16"), accelerator("K80").tflops("fp8")
        (312.0, None)
        """
        if precision not in PRECISIONS:
            raise SkyUsageError(
                _("{precision!r} is not a precision").format(precision=precision),
                hint=suggest(precision, PRECISIONS),
            )
        return dict(self.peak).get(precision)

    def __str__(self) -> str:
        return f"{self.name}:{self.count:g}"


def _peak(text: str, chips: int = 1) -> tuple[tuple[str, float], ...]:
    written = {"fp16": ("fp16", "bf16"), "half": ("fp16",)}
    pairs = (word.split("=") for word in text.split())
    return tuple(
        (precision, float(rate) * chips)
        for name, rate in pairs
        for precision in written.get(name, (name,))
    )


def _tpus() -> dict[str, tuple[Accelerator, str]]:
    """Slices, each with its other names."""
    found = {}
    for generation, (memory, units, peak, sizes, others) in TPUS.items():
        for position, size in enumerate(map(int, sizes.split())):
            chips = max(1, size // units)
            name = f"tpu-{generation}-{size}"
            slice_ = Accelerator(name, memory * chips, 1, "Google", chips, "", _peak(peak, chips))
            spelled = [f"{word}-{size}" for word in (generation, *others.split())]
            # a generation alone is its smallest slice
            spelled += [generation, *others.split()] if position == 0 else []
            found[name] = slice_, " ".join([*spelled, *(f"tpu-{word}" for word in spelled)])
    return found


def _registry() -> tuple[dict[str, Accelerator], dict[str, str]]:
    known = {
        name: (Accelerator(name, memory, 1, vendor, 1, cuda, _peak(peak)), aliases)
        for vendor, models in TABLE.items()
        for name, (memory, cuda, peak, aliases) in models.items()
    } | _tpus()
    spelled = {
        alias.lower(): name
        for name, (__, aliases) in known.items()
        for alias in (*aliases.split(), name)
    }
    # without dashes too: rtx-4090 and rtx4090, a100-80gb and a10080gb
    joined = {alias.replace("-", ""): name for alias, name in spelled.items()}
    return {name: model for name, (model, __) in known.items()}, joined | spelled


_BY_NAME, _CANONICAL = _registry()
_VENDOR = (
    r"^(?:(?:nvidia|tesla|geforce|grid|amd|xilinx|radeon|instinct|aws|google|cloud|intel|habana"
    r"|qualcomm)-)+"
)


def names() -> tuple[str, ...]:
    """Canonical names of all known accelerators."""
    return tuple(_BY_NAME)


def canonical(name: str) -> str:
    """Canonical name of an accelerator, however it is written.

    Raises
    ------
    SkyUsageError
        When the name is not known; the hint gives the nearest ones.

    Examples
    --------
    >>> canonical("nvidia-tesla-v100"), canonical("tpu-v5litepod-8")
    ('V100', 'tpu-v5e-8')
    """
    key = re.sub(r"[\s_]+", "-", name.strip().lower())
    found = next((_CANONICAL[form] for form in _forms(key) if form in _CANONICAL), None)
    if found is None:
        raise SkyUsageError(
            _("{name!r} is not a known accelerator").format(name=name), hint=_nearest(key)
        )
    return found


def _forms(key: str) -> Iterator[str]:
    """Spellings of a name, each plainer than the one before."""
    bare = re.sub(_VENDOR, "", key)
    # the kind of memory, a virtual workstation
    plain = re.sub(r"-(?:hbm\d?e?|gddr\d|vws|gpu)$", "", bare)
    # what it is plugged into: a model for which that matters has it in its name
    loose = re.sub(r"-(?:sxm\d?|pcie)(?=-|$)", "", plain)
    for form in (key, bare, plain, loose):
        yield form
        yield form.replace("-", "")


def accelerator(name: str, count: float = 1) -> Accelerator:
    """Accelerator of any of its names.

    Examples
    --------
    >>> accelerator("a100-80gb").memory
    80
    """
    found = _BY_NAME[canonical(name)]
    return found if count == 1 else replace(found, count=count)


def variant(name: str, admits: Callable[[float], bool]) -> str:
    """Return the variant of a model with an admitted memory; `name` itself if there is none.

    Examples
    --------
    >>> variant("A100", lambda memory: memory >= 80)
    'A100-80GB'
    """
    made = (name, *VARIANTS.get(name, ()))
    return next((one for one in made if admits(_BY_NAME[one].memory)), name)


def _nearest(key: str) -> str:
    stripped = re.sub(_VENDOR, "", key)
    slices = [name for name in _BY_NAME if name.startswith((f"tpu-{stripped}-", f"{stripped}-"))]
    if key and slices:  # a generation without a size, a model without its variant
        return f"did you mean {' or '.join(slices[:3])}?"
    hint = suggest(stripped, names())
    # all eighty names would hide what they are meant to show
    return hint if hint.startswith("did") else "such as A100, H100, L4, T4 or tpu-v5e-8"


# -- factories -----------------------------------------------------------------------------


def identifier(name: str) -> str:
    """Name of an accelerator's factory.

    Examples
    --------
    >>> identifier("RTX-PRO-6000"), identifier("tpu-v3-8")
    ('RTX_PRO_6000', 'tpu_v3_8')
    """
    return name.replace("-", "_")


_FACTORIES = {identifier(name): name for name in _BY_NAME}


def _make(model: str, count: float = 1, memory: str | float | None = None) -> Accelerator:
    """Return the accelerator of a factory, in the requested memory."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count < 1e6:
        raise SkyUsageError(
            _("{model}(count={count!r}): not a count").format(model=model, count=count),
            hint=_("such as {model}(count=4)").format(model=identifier(model)),
        )
    if memory is None:
        return accelerator(model, count)
    match = re.fullmatch(_MEMORY, str(memory).strip())
    variants = [_BY_NAME[name] for name in VARIANTS.get(model, (model,))]
    for variant in variants:
        if match and float(match[1]) == variant.memory:
            return accelerator(variant.name, count)
    made = " or ".join(f"{variant.memory:g}GB" for variant in variants)
    raise SkyUsageError(
        _("{model}(memory={memory!r}): there is no such {model}").format(
            model=model, memory=memory
        ),
        hint=_('it is made with {made}: {model}(memory="{memory:g}GB")').format(
            made=made, model=identifier(model), memory=variants[0].memory
        ),
    )


def Custom(
    name: str,
    memory: str | float | None = None,
    count: float = 1,
    cuda_min: str | None = None,
    cuda_max: str | None = None,
) -> Accelerator:
    """Return the accelerator of any of its names, with a memory that it is made with.

    Parameters
    ----------
    memory
        GiB of one accelerator, such as ``"80GB"``; None for the model's own.
    cuda_min, cuda_max
        Refused: machines say the compute capability of their accelerators, no version of CUDA.

    Raises
    ------
    SkyUsageError
        No cloud of the catalog has an accelerator of that name, or none with that memory.

    Examples
    --------
    >>> str(Custom("nvidia-a100", memory="80GB", count=2))
    'A100-80GB:2'
    """
    if cuda_min is not None or cuda_max is not None:
        raise SkyUsageError(
            _("Custom({name!r}): offers do not say which version of CUDA a machine has").format(
                name=name
            ),
            hint=_("leave out cuda_min and cuda_max"),
        )
    return _make(canonical(name), count, memory)


def __getattr__(name: str) -> Any:
    if name in _FACTORIES:
        factory: Callable[..., Accelerator] = partial(_make, _FACTORIES[name])
        factory.__doc__ = (  # type: ignore[attr-defined]
            f"{_FACTORIES[name]}, as many as `count`, with `memory` where it is made with several."
        )
        globals()[name] = factory  # the next look-up is the module's own
        return factory
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(
        f"module {__name__!r} has no accelerator {name!r}: {suggest(name, _FACTORIES)}"
    )


def __dir__() -> list[str]:
    public = "Accelerator Custom PRECISIONS accelerator canonical identifier names variant".split()
    return sorted([*public, *_FACTORIES])


def stub() -> str:
    """Text of ``__init__.pyi``, from which editors complete the factories.

    Examples
    --------
    >>> "def A100(" in stub()
    True
    """
    lines = [
        '"""Written by jupyter_sky.accelerators.stub(); a test holds it to the registry."""',
        "",
        "from collections.abc import Callable",
        "from dataclasses import dataclass",
        "",
        "PRECISIONS: tuple[str, ...]",
        "",
        "@dataclass(frozen=True, slots=True)",
        "class Accelerator:",
        "    name: str",
        "    memory: float",
        "    count: float = 1",
        '    vendor: str = ""',
        "    chips: int = 1",
        '    cuda: str = ""',
        "    peak: tuple[tuple[str, float], ...] = ()",
        "    def tflops(self, precision: str = ...) -> float | None: ...",
        "",
        "def names() -> tuple[str, ...]: ...",
        "def canonical(name: str) -> str: ...",
        "def accelerator(name: str, count: float = 1) -> Accelerator: ...",
        "def variant(name: str, admits: Callable[[float], bool]) -> str: ...",
        "def identifier(name: str) -> str: ...",
        "def stub() -> str: ...",
        "def Custom(",
        "    name: str,",
        "    memory: str | float | None = None,",
        "    count: float = 1,",
        "    cuda_min: str | None = None,",
        "    cuda_max: str | None = None,",
        ") -> Accelerator: ...",
    ]
    for factory in sorted(_FACTORIES):
        arguments = "count: float = 1, memory: str | float | None = None"
        lines.append(f"def {factory}({arguments}) -> Accelerator: ...")
    return "\n".join(lines) + "\n"
