"""Facts about accelerators, from their makers' data sheets.

Peak rates are those without structured sparsity, of tensor units where there are any, for one
accelerator: for a card with two processors, for one processor. A figure that the maker does not
publish, or that we have not found, is absent.
"""

from __future__ import annotations

# vendor -> canonical name -> (GiB, CUDA compute capability or "", peak rates, other names).
# Rates are TFLOPS (TOPS for int8); fp16 stands for bf16 as well where both exist. Vendors'
# prefixes are stripped before look-up, so no alias repeats them.
TABLE: dict[str, dict[str, tuple[float, str, str, str]]] = {
    "NVIDIA": {
        "K520": (4, "3.0", "fp32=2.45", "grid-k520"),
        "K80": (12, "3.7", "fp64=1.46 fp32=4.37", ""),
        "M60": (8, "5.2", "fp32=4.82", ""),
        "P4": (8, "6.1", "fp32=5.5 int8=22", ""),
        "P100": (16, "6.0", "fp64=4.7 fp32=9.3 fp16=18.7", "p100-16gb p100-pcie-16gb"),
        "V100": (
            16,
            "7.0",
            "fp64=7.8 fp32=15.7 fp16=125",
            "v100-16gb v100-sxm2 v100-sxm2-16gb v100-pcie-16gb",
        ),
        "V100-32GB": (32, "7.0", "fp64=7.8 fp32=15.7 fp16=125", "v100-sxm2-32gb v100-sxm3-32gb"),
        "T4": (16, "7.5", "fp32=8.1 fp16=65 int8=130", "t4-16gb"),
        "T4g": (16, "7.5", "fp32=8.1 fp16=65 int8=130", ""),
        "RTX6000": (24, "7.5", "fp32=16.3 fp16=130.5", "rtx-6000 quadro-rtx-6000 quadro-rtx6000"),
        "A10": (24, "8.6", "fp32=31.2 tf32=62.5 fp16=125 int8=250", "a10-24gb a10-pcie"),
        "A10G": (24, "8.6", "fp32=35 tf32=35 fp16=70 int8=140", "a10g-24gb"),
        "A30": (24, "8.0", "fp64=5.2 fp32=10.3 tf32=82 fp16=165 int8=330", "a30-24gb"),
        "A40": (48, "8.6", "fp32=37.4 tf32=74.8 fp16=149.7 int8=299.3", "a40-48gb"),
        "A6000": (48, "8.6", "fp32=38.7 tf32=77.4 fp16=154.8 int8=309.7", "rtx-a6000 rtxa6000"),
        "A100": (
            40,
            "8.0",
            "fp64=9.7 fp32=19.5 tf32=156 fp16=312 int8=624",
            "a100-40gb a100-sxm4 a100-sxm4-40gb a100-pcie-40gb a100-sxm a100-40g",
        ),
        "A100-80GB": (
            80,
            "8.0",
            "fp64=9.7 fp32=19.5 tf32=156 fp16=312 int8=624",
            "a100-sxm4-80gb a100-80g a100-80gb-sxm a100-80gb-sxm4 a100-pcie-80gb a100-80gb-pcie",
        ),
        "L4": (24, "8.9", "fp32=30.3 tf32=60 fp16=121 fp8=242.5 int8=242.5", "l4-24gb"),
        "L40": (48, "8.9", "fp32=90.5 tf32=90.5 fp16=181 fp8=362 int8=362", "l40-48gb"),
        "L40S": (48, "8.9", "fp32=91.6 tf32=183 fp16=362 fp8=733 int8=733", "l40s-48gb"),
        "RTX3090": (24, "8.6", "fp32=35.6 tf32=35.6 fp16=71 int8=284", "rtx-3090"),
        "RTX4090": (24, "8.9", "fp32=82.6 tf32=82.6 fp16=165.2 int8=660.6", "rtx-4090"),
        "RTX5090": (32, "12.0", "fp32=104.8 tf32=104.8 fp16=209.5 int8=838", "rtx-5090"),
        "RTX-6000-Ada": (48, "8.9", "fp32=91.1", "rtx6000-ada rtx6000ada rtx-6000ada-generation"),
        "RTX-PRO-4500": (32, "12.0", "", "rtxpro4500 rtx-pro-4500-blackwell"),
        "RTX-PRO-6000": (
            96,
            "12.0",
            "fp32=120",
            "rtxpro6000 rtx-pro-6000-blackwell rtx-pro-6000-blackwell-server-edition",
        ),
        "H100": (
            80,
            "9.0",
            "fp64=34 fp32=67 tf32=494.7 fp16=989.4 fp8=1978.9 int8=1978.9",
            "h100-80gb h100-sxm h100-sxm5 h100-80gb-sxm5 h100-sxm5-80gb h100-mega h100-mega-80gb",
        ),
        "H100-PCIe": (
            80,
            "9.0",
            "fp64=26 fp32=51 tf32=378 fp16=756 fp8=1513 int8=1513",
            "h100-80gb-pcie h100-pcie-80gb",
        ),
        "H100-NVL": (
            94,
            "9.0",
            "fp64=30 fp32=60 tf32=417.5 fp16=835.5 fp8=1670.5 int8=1670.5",
            "h100-94gb h100-nvl-94gb",
        ),
        "H200": (
            141,
            "9.0",
            "fp64=34 fp32=67 tf32=494.7 fp16=989.4 fp8=1978.9 int8=1978.9",
            "h200-141gb h200-sxm h200-sxm-141gb",
        ),
        "GH200": (
            96,
            "9.0",
            "fp64=34 fp32=67 tf32=494.7 fp16=989.4 fp8=1978.9 int8=1978.9",
            "gh200-96gb gh200-480gb",
        ),
        "B200": (
            180,
            "10.0",
            "fp64=37 fp32=75 tf32=1125 fp16=2250 fp8=4500 int8=4500",
            "b200-180gb b200-sxm",
        ),
        "B300": (262, "10.3", "fp64=1.2 fp32=75 tf32=1125 fp16=2250 fp8=4500", "b300-sxm"),
        "GB200": (186, "10.0", "fp64=40 fp32=80 tf32=1250 fp16=2500 fp8=5000 int8=5000", ""),
        "GB300": (279, "10.3", "fp32=80 tf32=1250 fp16=2500 fp8=5000", ""),
    },
    "AMD": {
        "MI25": (16, "", "fp64=0.77 fp32=12.3 fp16=24.6", "radeon-instinct-mi25"),
        "MI250": (128, "", "fp64=45.3 fp32=45.3 fp16=362.1 int8=362.1", ""),
        "MI250X": (128, "", "fp64=47.9 fp32=47.9 fp16=383 int8=383", ""),
        "MI300X": (
            192,
            "",
            "fp64=81.7 fp32=163.4 tf32=653.7 fp16=1307.4 fp8=2614.9 int8=2614.9",
            "mi300x-192gb",
        ),
        "Radeon-Pro-V520": (8, "", "fp32=7.4", "pro-v520 v520"),
        "V620": (32, "", "fp32=20.3 fp16=40.6", "pro-v620"),
        "V710": (24, "", "fp32=27.7 fp16=55.3", "pro-v710"),
        "Alveo-U250": (64, "", "", "u250"),
        "U30": (24, "", "", "alveo-u30"),
        "VU47P": (80, "", "", "virtex-vu47p"),
    },
    "AWS": {
        "Trainium": (
            32,
            "",
            "fp32=47.5 tf32=190 fp16=190 fp8=190 int8=380",
            "trainium1 trn1 neuron-trainium",
        ),
        "Trainium2": (96, "", "fp32=181 tf32=667 fp16=667 fp8=1299", "trn2"),
        "Inferentia": (8, "", "fp16=64 int8=128", "inferentia1 inf1"),
        "Inferentia2": (32, "", "fp32=47.5 tf32=190 fp16=190 int8=380", "inf2"),
    },
    "Intel": {
        "Gaudi": (32, "", "", "gaudi1 gaudi-hl-205 hl-205 habana-gaudi"),
    },
    "Qualcomm": {
        "AI100": (16, "", "", "cloud-ai-100 qualcomm-ai100 ai-100"),
    },
}

# TPU generation -> (GiB a chip, units of the slice's name a chip, peak rates a chip, sizes, other
# spellings of the generation). Sizes count cores up to v5p and chips for the e series.
TPUS: dict[str, tuple[float, int, str, str, str]] = {
    "v2": (16, 2, "fp16=45", "8 32 128 256 512", ""),
    "v3": (32, 2, "fp16=123", "8 32 64 128 256 512 1024 2048", ""),
    "v4": (32, 2, "fp16=275 int8=275", "8 16 32 64 128 256 512 1024 2048 4096", ""),
    "v5e": (16, 1, "fp16=197 int8=394", "1 4 8 16 32 64 128 256", "v5litepod v5-lite v5lite"),
    "v5p": (95, 2, "fp16=459 int8=918", "8 16 32 64 128 256 512 1024 2048 4096", ""),
    "v6e": (32, 1, "fp16=918 int8=1836", "1 4 8 16 32 64 128 256", "v6-lite"),
}

# Models whose factory takes a memory: model -> canonical names, the default first.
VARIANTS: dict[str, tuple[str, ...]] = {
    "A100": ("A100", "A100-80GB"),
    "V100": ("V100", "V100-32GB"),
    "H100": ("H100", "H100-NVL"),
}
