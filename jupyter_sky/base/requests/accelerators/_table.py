"""Facts about accelerators, from their makers' data sheets.

Peak rates are those without structured sparsity, for one accelerator: for a card with two
processors, for one processor. fp64 and fp32 are of the ordinary units, the lower precisions of
tensor units where there are any (with sums in fp32 where the maker tells these apart). A figure
that the maker does not publish, or that we have not found, is absent.
"""

from __future__ import annotations

# vendor -> canonical name -> (GiB, CUDA compute capability or "", peak rates, other names).
# Rates are TFLOPS (TOPS for int8); "fp16" is the rate of bf16 as well, "half" of fp16 alone. What
# look-up strips or ignores anyhow (the vendor, dashes, a socket's name) no alias repeats.
TABLE: dict[str, dict[str, tuple[float, str, str, str]]] = {
    "NVIDIA": {
        "K520": (4, "3.0", "fp32=2.45", "grid-k520"),
        "K80": (12, "3.7", "fp64=1.46 fp32=4.37", ""),
        "M60": (8, "5.2", "fp32=4.82", ""),
        "P4": (8, "6.1", "fp32=5.5 int8=22", ""),
        "P100": (16, "6.0", "fp64=4.7 fp32=9.3 half=18.7", "p100-16gb p100-pcie-16gb"),
        "V100": (
            16,
            "7.0",
            "fp64=7.8 fp32=15.7 half=125",
            "v100-16gb v100-sxm2 v100-sxm2-16gb v100-pcie-16gb",
        ),
        "V100-32GB": (32, "7.0", "fp64=7.8 fp32=15.7 half=125", "v100-sxm2-32gb v100-sxm3-32gb"),
        "T4": (16, "7.5", "fp32=8.1 half=65 int8=130", "t4-16gb"),
        "T4g": (16, "7.5", "fp32=8.1 half=65 int8=130", ""),
        "RTX6000": (24, "7.5", "fp32=16.3 half=130.5", "rtx-6000 quadro-rtx-6000 quadro-rtx6000"),
        "M40": (24, "5.2", "fp32=6.8", "m40-24gb"),
        "P40": (24, "6.1", "fp32=11.8 int8=47", "p40-24gb"),
        "V100S": (32, "7.0", "fp64=8.2 fp32=16.4 half=130", "v100s-32gb"),
        "GTX1060": (6, "6.1", "fp32=4.4", ""),
        "GTX1070": (8, "6.1", "fp32=6.5", ""),
        "GTX1080": (8, "6.1", "fp32=8.9", ""),
        "GTX1080Ti": (11, "6.1", "fp32=11.3", ""),
        "GTX1660": (6, "7.5", "fp32=5", ""),
        "TitanXp": (12, "6.1", "fp32=12.1", ""),
        "TitanV": (12, "7.0", "fp64=6.9 fp32=13.8 half=110", ""),
        "TitanRTX": (24, "7.5", "fp32=16.3 half=130.5", ""),
        "RTX2060": (6, "7.5", "fp32=6.5", ""),
        "RTX2070": (8, "7.5", "fp32=7.5", ""),
        "RTX2080": (8, "7.5", "fp32=10.1", ""),
        "RTX2080Ti": (11, "7.5", "fp32=13.4", ""),
        "RTX4000": (8, "7.5", "fp32=7.1", "quadro-rtx-4000"),
        "RTX5000": (16, "7.5", "fp32=11.2", "quadro-rtx-5000"),
        "RTX8000": (48, "7.5", "fp32=16.3 half=130.5", "quadro-rtx-8000"),
        "A2": (16, "8.6", "fp32=4.5 tf32=9 fp16=18 int8=36", ""),
        "A16": (16, "8.6", "fp32=4.5 tf32=9 fp16=17.9 int8=35.9", ""),
        "A2000": (12, "8.6", "fp32=8", "rtx-a2000"),
        "A4000": (16, "8.6", "fp32=19.2", "rtx-a4000"),
        "A4500": (20, "8.6", "fp32=23.7", "rtx-a4500"),
        "A5000": (24, "8.6", "fp32=27.8", "rtx-a5000"),
        "A5500": (24, "8.6", "fp32=34.1", "rtx-a5500"),
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
        "A800": (80, "8.0", "fp64=9.7 fp32=19.5 tf32=156 fp16=312 int8=624", "a800-80gb"),
        "L4": (24, "8.9", "fp32=30.3 tf32=60 fp16=121 fp8=242.5 int8=242.5", "l4-24gb"),
        "L40": (48, "8.9", "fp32=90.5 tf32=90.5 fp16=181 fp8=362 int8=362", "l40-48gb"),
        "L40S": (48, "8.9", "fp32=91.6 tf32=183 fp16=362 fp8=733 int8=733", "l40s-48gb"),
        "RTX3060": (12, "8.6", "fp32=12.7", ""),
        "RTX3060Ti": (8, "8.6", "fp32=16.2", ""),
        "RTX3070": (8, "8.6", "fp32=20.3", ""),
        "RTX3070Ti": (8, "8.6", "fp32=21.7", ""),
        "RTX3080": (10, "8.6", "fp32=29.8", ""),
        "RTX3080Ti": (12, "8.6", "fp32=34.1", ""),
        "RTX3090": (24, "8.6", "fp32=35.6 tf32=35.6 fp16=71 int8=284", "rtx-3090"),
        "RTX3090Ti": (24, "8.6", "fp32=40", ""),
        "RTX4060": (8, "8.9", "fp32=15.1", ""),
        "RTX4060Ti": (8, "8.9", "fp32=22.1", ""),
        "RTX4070": (12, "8.9", "fp32=29.1", ""),
        "RTX4070S": (12, "8.9", "fp32=35.5", "rtx4070super"),
        "RTX4070Ti": (12, "8.9", "fp32=40.1", ""),
        "RTX4070TiS": (16, "8.9", "fp32=44.1", "rtx4070tisuper"),
        "RTX4080": (16, "8.9", "fp32=48.7", ""),
        "RTX4080S": (16, "8.9", "fp32=52.2", "rtx4080super"),
        "RTX4090": (24, "8.9", "fp32=82.6 tf32=82.6 fp16=165.2 int8=660.6", "rtx-4090"),
        "RTX5060": (8, "12.0", "fp32=19.2", ""),
        "RTX5060Ti": (16, "12.0", "fp32=23.7", ""),
        "RTX5070": (12, "12.0", "fp32=30.9", ""),
        "RTX5070Ti": (16, "12.0", "fp32=43.9", ""),
        "RTX5080": (16, "12.0", "fp32=56.3", ""),
        "RTX5090": (32, "12.0", "fp32=104.8 tf32=104.8 fp16=209.5 int8=838", "rtx-5090"),
        "RTX-2000-Ada": (16, "8.9", "fp32=12", ""),
        "RTX-4000-Ada": (20, "8.9", "fp32=26.7", ""),
        "RTX-4500-Ada": (24, "8.9", "fp32=39.6", ""),
        "RTX-5000-Ada": (32, "8.9", "fp32=65.3", ""),
        "RTX-6000-Ada": (48, "8.9", "fp32=91.1", "rtx6000-ada rtx6000ada rtx-6000ada-generation"),
        "RTX-PRO-4000": (24, "12.0", "", "rtx-pro-4000-blackwell"),
        "RTX-PRO-4500": (32, "12.0", "", "rtxpro4500 rtx-pro-4500-blackwell"),
        "RTX-PRO-5000": (48, "12.0", "", "rtx-pro-5000-blackwell"),
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
        "H200-NVL": (
            141,
            "9.0",
            "fp64=30 fp32=60 tf32=417.5 fp16=835.5 fp8=1670.5 int8=1670.5",
            "h200-nvl-141gb",
        ),
        "H800": (
            80,
            "9.0",
            "fp64=1 fp32=67 tf32=494.7 fp16=989.4 fp8=1978.9 int8=1978.9",
            "h800-80gb",
        ),
        "H20": (96, "9.0", "fp64=1 fp32=44 tf32=74 fp16=148 fp8=296 int8=296", "h20-96gb"),
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
        "MI25": (16, "", "fp64=0.77 fp32=12.3 half=24.6", "radeon-instinct-mi25"),
        "MI50": (16, "", "fp64=6.6 fp32=13.3 half=26.5", ""),
        "MI60": (32, "", "fp64=7.4 fp32=14.7 half=29.5", ""),
        "MI100": (32, "", "fp64=11.5 fp32=23.1 half=184.6 bf16=92.3 int8=184.6", ""),
        "MI210": (64, "", "fp64=22.6 fp32=22.6 fp16=181 int8=181", ""),
        "MI250": (128, "", "fp64=45.3 fp32=45.3 fp16=362.1 int8=362.1", ""),
        "MI250X": (128, "", "fp64=47.9 fp32=47.9 fp16=383 int8=383", ""),
        "MI300X": (
            192,
            "",
            "fp64=81.7 fp32=163.4 tf32=653.7 fp16=1307.4 fp8=2614.9 int8=2614.9",
            "mi300x-192gb mi300",
        ),
        "MI300A": (
            128,
            "",
            "fp64=61.3 fp32=122.6 tf32=490.3 fp16=980.6 fp8=1961.2 int8=1961.2",
            "",
        ),
        "MI325X": (
            256,
            "",
            "fp64=81.7 fp32=163.4 tf32=653.7 fp16=1307.4 fp8=2614.9 int8=2614.9",
            "mi325x-256gb mi325",
        ),
        "MI350X": (288, "", "fp64=72.1 fp32=144.2", "mi350x-288gb mi350"),
        "MI355X": (288, "", "fp64=78.6 fp32=157.3 fp16=2516.6 fp8=5033.2", "mi355x-288gb mi355"),
        "Radeon-Pro-V520": (8, "", "fp32=7.4", "pro-v520 v520"),
        "V620": (32, "", "fp32=20.3 half=40.6", "pro-v620"),
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
            "trainium1 trn1 trn1n neuron-trainium",
        ),
        "Trainium2": (96, "", "fp32=181 tf32=667 fp16=667 fp8=1299", "trn2 trn2u"),
        "Trainium3": (144, "", "fp32=183 tf32=671 fp16=671 fp8=2517", "trn3"),
        "Inferentia": (8, "", "fp16=64 int8=128", "inferentia1 inf1"),
        "Inferentia2": (32, "", "fp32=47.5 tf32=190 fp16=190 int8=380", "inf2"),
    },
    "Intel": {
        "Gaudi": (32, "", "", "gaudi1 gaudi-hl-205 hl-205"),
        "Gaudi2": (96, "", "fp16=432 fp8=865", "gaudi-hl-225 hl-225"),
        "Gaudi3": (128, "", "fp16=1835 fp8=1835", "gaudi-hl-325 hl-325"),
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
    "v4": (32, 2, "fp16=275 int8=275", "8 16 32 64 128 256 512 1024 2048 4096", "v4-podslice"),
    "v5e": (
        16,
        1,
        "fp16=197 int8=394",
        "1 4 8 16 32 64 128 256",
        "v5litepod v5-lite v5lite v5-lite-podslice v5-lite-device",
    ),
    "v5p": (95, 2, "fp16=459 int8=918", "8 16 32 64 128 256 512 1024 2048 4096", "v5p-slice"),
    "v6e": (
        32,
        1,
        "fp16=918 int8=1836",
        "1 4 8 16 32 64 128 256",
        "v6-lite v6e-slice v6e-device trillium",
    ),
}

# TPU generation -> VMs of its slices: (chips, vCPUs, GiB) of a VM. A slice with the chips of one of
# them is that VM; a larger one consists of VMs with four chips. By Google's pages on TPU versions;
# those of v5p and the vCPUs of v6e with four and eight chips are from memory, not looked up.
TPU_HOSTS: dict[str, tuple[tuple[int, float, float], ...]] = {
    "v2": ((4, 96, 334),),
    "v3": ((4, 96, 334),),
    "v4": ((4, 240, 400),),
    "v5e": ((1, 24, 48), (4, 112, 192), (8, 224, 384)),
    "v5p": ((4, 208, 448),),
    "v6e": ((1, 44, 176), (4, 180, 720), (8, 180, 1440)),
}

# Models whose factory takes a memory or a form factor: model -> canonical names, the default first.
VARIANTS: dict[str, tuple[str, ...]] = {
    "A100": ("A100", "A100-80GB"),
    "V100": ("V100", "V100-32GB"),
    "H100": ("H100", "H100-NVL", "H100-PCIe"),
    "H200": ("H200", "H200-NVL"),
}

# Form factor -> canonical names. Those in two lines are sold in both under one name.
FORM_FACTORS: dict[str, str] = {
    "SXM": "P100 V100 V100-32GB A100 A100-80GB H100 H200 H20 B200 B300",
    "PCIe": (
        "P100 V100 V100-32GB A100 A100-80GB H100-PCIe K80 M40 M60 P4 P40 T4 V100S A2 A10 A10G A16 "
        "A30 A40 A2000 A4000 A4500 A5000 A5500 A6000 L4 L40 L40S MI25 MI50 MI60 MI100 MI210"
    ),
    "NVL": "H100-NVL H200-NVL",
    "OAM": "MI250 MI250X MI300X MI325X MI350X MI355X Gaudi Gaudi2",
}
PCIE_SERIES = ("GTX", "RTX", "Titan")
"""Beginnings of names of cards for workstations, which are all plugged into PCI Express."""
