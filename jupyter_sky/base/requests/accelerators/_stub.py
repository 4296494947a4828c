"""Types of the accelerators' factories, which are made as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_sky.base.requests.accelerators._table import FORM_FACTORS

_HEAD = '''\
"""Written by accelerators.stub(); a test holds it to the registry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

PRECISIONS: tuple[str, ...]

@dataclass(frozen=True, slots=True)
class Accelerator:
    name: str
    memory: float
    count: float = 1
    vendor: str = ""
    chips: int = 1
    cuda: str = ""
    peak: tuple[tuple[str, float], ...] = ()
    form_factor: str = ""
    @property
    def metadata(self) -> dict[str, Any]: ...
    def tflops(self, precision: str = ...) -> float | None: ...

@dataclass(frozen=True, slots=True)
class TpuHosts:
    count: int
    vcpus: float
    memory: float

def tpu_hosts(name: str) -> TpuHosts | None: ...
def names() -> tuple[str, ...]: ...
def canonical(name: str) -> str: ...
def accelerator(name: str, count: float = 1) -> Accelerator: ...
def variant(name: str, admits: Callable[[float], bool]) -> str: ...
def identifier(name: str) -> str: ...
def form_factors(name: str) -> tuple[str, ...]: ...
def named_form(text: str) -> str: ...
def stub() -> str: ...
def Custom(
    name: str,
    memory: str | float | None = None,
    count: float = 1,
    cuda_min: str | None = None,
    cuda_max: str | None = None,
    form_factor: str | None = None,
) -> Accelerator: ...

class _Factory(Protocol):
    def __call__(
        self,
        count: float = 1,
        memory: str | float | None = None,
        form_factor: Literal[{forms}] | None = None,
    ) -> Accelerator: ...

'''


def write_stub(factories: Iterable[str]) -> str:
    """Return the text of ``__init__.pyi`` with some factories."""
    forms = ", ".join(f'"{form}"' for form in FORM_FACTORS)
    text = _HEAD.replace("{forms}", forms)
    return text + "".join(f"{factory}: _Factory\n" for factory in sorted(factories))
