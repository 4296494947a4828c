"""The registry of accelerators: one canonical name each, however people and clouds write it.

Each model is also a factory: ``accelerators.A100(count=8)``, ``accelerators.A100(memory="80GB")``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.accelerators._table import (
    FORM_FACTORS,
    PCIE_SERIES,
    TABLE,
    TPU_HOSTS,
    TPUS,
    VARIANTS,
)
from jupyter_sky.base.translation import _

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
    form_factor : str
        ``SXM``, ``PCIe``, ``NVL`` or ``OAM``; empty where it is not known, or any will do.

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
    form_factor: str = ""

    @property
    def metadata(self) -> dict[str, Any]:
        """Vendor, memory (GiB), CUDA capability, form factor, chips, peak rates (TFLOPS), by name.

        Examples
        --------
        >>> accelerator("H100").metadata["cuda"], accelerator("H100").metadata["form_factor"]
        ('9.0', 'SXM')
        """
        names = ("vendor", "memory", "cuda", "form_factor", "chips")
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
        several = len(form_factors(self.name)) > 1
        form = f"-{self.form_factor}" if several and self.form_factor else ""
        return f"{self.name}{form}:{self.count:g}"


@dataclass(frozen=True, slots=True)
class TpuHosts:
    """VMs of a TPU slice.

    Attributes
    ----------
    count : int
        How many there are.
    vcpus, memory : float
        Of each; memory in GiB.
    """

    count: int
    vcpus: float
    memory: float


def tpu_hosts(name: str) -> TpuHosts | None:
    """Return the VMs of a TPU slice; None where they are not known, or it is none.

    Examples
    --------
    >>> tpu_hosts("tpu-v3-8"), tpu_hosts("tpu-v5litepod-16")
    (TpuHosts(count=1, vcpus=96, memory=334), TpuHosts(count=4, vcpus=112, memory=192))
    """
    if not name.startswith("tpu-"):
        return None
    try:
        found = accelerator(name)
    except SkyUsageError:
        return None
    sizes = {size[0]: size for size in TPU_HOSTS[found.name.split("-")[1]]}
    chips, vcpus, memory = sizes.get(found.chips) or sizes[4]
    return TpuHosts(max(1, found.chips // chips), vcpus, memory)


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


def form_factors(name: str) -> tuple[str, ...]:
    """Return the form factors in which an accelerator is sold under its canonical name.

    Examples
    --------
    >>> form_factors("A100"), form_factors("H100"), form_factors("tpu-v3-8")
    (('SXM', 'PCIe'), ('SXM',), ())
    """
    if name.startswith(PCIE_SERIES):
        return ("PCIe",)
    return tuple(form for form, models in FORM_FACTORS.items() if name in models.split())


def _sole_form(name: str) -> str:
    forms = form_factors(name)
    return forms[0] if len(forms) == 1 else ""


def named_form(text: str) -> str:
    """Return the form factor in a spelling, or in the name of an instance type; empty without one.

    Examples
    --------
    >>> named_form("a100-sxm4-80gb"), named_form("1x-A100_80GB_PCIe"), named_form("A100")
    ('SXM', 'PCIe', '')
    """
    found = re.search(r"sxm|pcie", text.lower())
    return {"sxm": "SXM", "pcie": "PCIe"}[found[0]] if found else ""


def _registry() -> tuple[dict[str, Accelerator], dict[str, str]]:
    known = {
        name: (
            Accelerator(name, memory, 1, vendor, 1, cuda, _peak(peak), _sole_form(name)),
            aliases,
        )
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
    >>> accelerator("a100-80gb").memory, str(accelerator("a100-sxm4-80gb", 8))
    (80, 'A100-80GB-SXM:8')
    """
    found = _BY_NAME[canonical(name)]
    form = found.form_factor or named_form(name)
    return replace(found, count=count, form_factor=form)


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


def _make(
    model: str,
    count: float = 1,
    memory: str | float | None = None,
    form_factor: str | None = None,
) -> Accelerator:
    """Return the accelerator of a factory, in the requested memory and form factor."""
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count < 1e6:
        raise SkyUsageError(
            _("{model}(count={count!r}): not a count").format(model=model, count=count),
            hint=_("such as {model}(count=4)").format(model=identifier(model)),
        )
    made = [_BY_NAME[name] for name in VARIANTS.get(model, (model,))]
    if memory is not None:
        match = re.fullmatch(_MEMORY, str(memory).strip())
        fitting = [each for each in made if match and float(match[1]) == each.memory]
        if not fitting:
            raise _no_such_memory(model, memory, made)
        made = fitting
    if form_factor is None:
        return replace(made[0], count=count)
    wanted = str(form_factor).strip().lower()
    for each in made:
        for form in form_factors(each.name):
            if form.lower() == wanted:
                return replace(each, count=count, form_factor=form)
    raise _no_such_form(model, form_factor, made)


def _no_such_memory(model: str, memory: object, made: list[Accelerator]) -> SkyUsageError:
    sizes = dict.fromkeys(f"{each.memory:g}GB" for each in made)
    return SkyUsageError(
        _("{model}(memory={memory!r}): there is no such {model}").format(
            model=model, memory=memory
        ),
        hint=_('it is made with {made}: {model}(memory="{memory:g}GB")').format(
            made=" or ".join(sizes), model=identifier(model), memory=made[0].memory
        ),
    )


def _no_such_form(model: str, form: object, made: list[Accelerator]) -> SkyUsageError:
    known = dict.fromkeys(form for each in made for form in form_factors(each.name))
    hint = _("its form factor is not known: leave form_factor out")
    if known:
        hint = _("it is made as {forms}").format(forms=" or ".join(known))
    return SkyUsageError(
        _("{model}(form_factor={form!r}): there is no such {model}").format(model=model, form=form),
        hint=hint,
    )


def Custom(
    name: str,
    memory: str | float | None = None,
    count: float = 1,
    cuda_min: str | None = None,
    cuda_max: str | None = None,
    form_factor: str | None = None,
) -> Accelerator:
    """Return the accelerator of any of its names, with a memory that it is made with.

    Parameters
    ----------
    memory
        GiB of one accelerator, such as ``"80GB"``; None for the model's own.
    form_factor
        ``SXM``, ``PCIe``, ``NVL`` or ``OAM``: what it is plugged into; None for any.
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
    form = form_factor or (named_form(name) if len(form_factors(canonical(name))) > 1 else None)
    return _make(canonical(name), count, memory, form or None)


def __getattr__(name: str) -> Any:
    if name in _FACTORIES:
        factory: Callable[..., Accelerator] = partial(_make, _FACTORIES[name])
        factory.__doc__ = (  # type: ignore[attr-defined]
            f"{_FACTORIES[name]}, as many as `count`, with `memory` and `form_factor` where it is "
            "made with several."
        )
        globals()[name] = factory  # the next look-up is the module's own
        return factory
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(
        f"module {__name__!r} has no accelerator {name!r}: {suggest(name, _FACTORIES)}"
    )


def __dir__() -> list[str]:
    public = (
        "Accelerator Custom PRECISIONS accelerator canonical form_factors identifier named_form "
        "names variant"
    ).split()
    return sorted([*public, *_FACTORIES])


def stub() -> str:
    """Text of ``__init__.pyi``, from which editors complete the factories.

    Its head is written by hand; form factors and factories are those of the registry.

    Examples
    --------
    >>> "A100: _Factory" in stub()
    True
    """
    from pathlib import Path

    lines = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines(keepends=True)
    head = "".join(line for line in lines if not line.endswith(": _Factory\n"))
    forms = ", ".join(f'"{form}"' for form in FORM_FACTORS)
    head = re.sub(r"Literal\[.*\]", f"Literal[{forms}]", head)
    return head + "".join(f"{factory}: _Factory\n" for factory in sorted(_FACTORIES))
