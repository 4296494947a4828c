"""Factories and form factors are written by accelerators.stub(); a test holds them to it."""

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
        form_factor: Literal["SXM", "PCIe", "NVL", "OAM"] | None = None,
    ) -> Accelerator: ...

A10: _Factory
A100: _Factory
A100_80GB: _Factory
A10G: _Factory
A16: _Factory
A2: _Factory
A2000: _Factory
A30: _Factory
A40: _Factory
A4000: _Factory
A4500: _Factory
A5000: _Factory
A5500: _Factory
A6000: _Factory
A800: _Factory
AI100: _Factory
Alveo_U250: _Factory
B200: _Factory
B300: _Factory
GB200: _Factory
GB300: _Factory
GH200: _Factory
GTX1060: _Factory
GTX1070: _Factory
GTX1080: _Factory
GTX1080Ti: _Factory
GTX1660: _Factory
Gaudi: _Factory
Gaudi2: _Factory
Gaudi3: _Factory
H100: _Factory
H100_NVL: _Factory
H100_PCIe: _Factory
H20: _Factory
H200: _Factory
H200_NVL: _Factory
H800: _Factory
Inferentia: _Factory
Inferentia2: _Factory
K520: _Factory
K80: _Factory
L4: _Factory
L40: _Factory
L40S: _Factory
M40: _Factory
M60: _Factory
MI100: _Factory
MI210: _Factory
MI25: _Factory
MI250: _Factory
MI250X: _Factory
MI300A: _Factory
MI300X: _Factory
MI325X: _Factory
MI350X: _Factory
MI355X: _Factory
MI50: _Factory
MI60: _Factory
P100: _Factory
P4: _Factory
P40: _Factory
RTX2060: _Factory
RTX2070: _Factory
RTX2080: _Factory
RTX2080Ti: _Factory
RTX3060: _Factory
RTX3060Ti: _Factory
RTX3070: _Factory
RTX3070Ti: _Factory
RTX3080: _Factory
RTX3080Ti: _Factory
RTX3090: _Factory
RTX3090Ti: _Factory
RTX4000: _Factory
RTX4060: _Factory
RTX4060Ti: _Factory
RTX4070: _Factory
RTX4070S: _Factory
RTX4070Ti: _Factory
RTX4070TiS: _Factory
RTX4080: _Factory
RTX4080S: _Factory
RTX4090: _Factory
RTX5000: _Factory
RTX5060: _Factory
RTX5060Ti: _Factory
RTX5070: _Factory
RTX5070Ti: _Factory
RTX5080: _Factory
RTX5090: _Factory
RTX6000: _Factory
RTX8000: _Factory
RTX_2000_Ada: _Factory
RTX_4000_Ada: _Factory
RTX_4500_Ada: _Factory
RTX_5000_Ada: _Factory
RTX_6000_Ada: _Factory
RTX_PRO_4000: _Factory
RTX_PRO_4500: _Factory
RTX_PRO_5000: _Factory
RTX_PRO_6000: _Factory
Radeon_Pro_V520: _Factory
T4: _Factory
T4g: _Factory
TitanRTX: _Factory
TitanV: _Factory
TitanXp: _Factory
Trainium: _Factory
Trainium2: _Factory
Trainium3: _Factory
U30: _Factory
V100: _Factory
V100S: _Factory
V100_32GB: _Factory
V620: _Factory
V710: _Factory
VU47P: _Factory
tpu_v2_128: _Factory
tpu_v2_256: _Factory
tpu_v2_32: _Factory
tpu_v2_512: _Factory
tpu_v2_8: _Factory
tpu_v3_1024: _Factory
tpu_v3_128: _Factory
tpu_v3_2048: _Factory
tpu_v3_256: _Factory
tpu_v3_32: _Factory
tpu_v3_512: _Factory
tpu_v3_64: _Factory
tpu_v3_8: _Factory
tpu_v4_1024: _Factory
tpu_v4_128: _Factory
tpu_v4_16: _Factory
tpu_v4_2048: _Factory
tpu_v4_256: _Factory
tpu_v4_32: _Factory
tpu_v4_4096: _Factory
tpu_v4_512: _Factory
tpu_v4_64: _Factory
tpu_v4_8: _Factory
tpu_v5e_1: _Factory
tpu_v5e_128: _Factory
tpu_v5e_16: _Factory
tpu_v5e_256: _Factory
tpu_v5e_32: _Factory
tpu_v5e_4: _Factory
tpu_v5e_64: _Factory
tpu_v5e_8: _Factory
tpu_v5p_1024: _Factory
tpu_v5p_128: _Factory
tpu_v5p_16: _Factory
tpu_v5p_2048: _Factory
tpu_v5p_256: _Factory
tpu_v5p_32: _Factory
tpu_v5p_4096: _Factory
tpu_v5p_512: _Factory
tpu_v5p_64: _Factory
tpu_v5p_8: _Factory
tpu_v6e_1: _Factory
tpu_v6e_128: _Factory
tpu_v6e_16: _Factory
tpu_v6e_256: _Factory
tpu_v6e_32: _Factory
tpu_v6e_4: _Factory
tpu_v6e_64: _Factory
tpu_v6e_8: _Factory
