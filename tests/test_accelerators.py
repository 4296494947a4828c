from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky import accelerators
from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.accelerators import Accelerator, accelerator, canonical, names
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.knowledge.catalog import load


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("nvidia-tesla-v100", "V100"),
        ("V100-16GB", "V100"),
        ("v100_32gb", "V100-32GB"),
        ("nvidia-a100", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("a100-80gb", "A100-80GB"),
        ("nvidia-h100-80gb", "H100"),
        ("Tesla T4", "T4"),
        ("aws-inferentia", "Inferentia"),
        ("trainium2", "Trainium2"),
        ("tpu-v5litepod-8", "tpu-v5e-8"),
        (" l40s ", "L40S"),
        ("A100-SXM-80GB", "A100-80GB"),
        ("a10080gb", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("H100-80GB-PCIe", "H100-PCIe"),
        ("H100NVL", "H100-NVL"),
        ("V100-PCIE-32GB", "V100-32GB"),
        ("nvidia-tesla-t4-vws", "T4"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX2080Ti"),
        ("rtx-4090", "RTX4090"),
        ("RTX4070 SUPER", "RTX4070S"),
        ("RTX5000Ada", "RTX-5000-Ada"),
        ("RTX-A5000", "A5000"),
        ("Quadro RTX 8000", "RTX8000"),
        ("Titan-V", "TitanV"),
        ("mi300", "MI300X"),
        ("AMD Instinct MI325X", "MI325X"),
        ("habana-gaudi2", "Gaudi2"),
        ("HL-325", "Gaudi3"),
        ("trn3", "Trainium3"),
        ("trillium", "tpu-v6e-1"),
        ("tpu-v5-lite-podslice", "tpu-v5e-1"),
    ],
)
def test_spellings_of_people_and_clouds(written, name):
    assert canonical(written) == name


def test_canonical_names_stand_for_themselves():
    assert len(set(names())) == len(names()) > 20
    assert [canonical(name) for name in names()] == list(names())
    assert [canonical(name.lower()) for name in names()] == list(names())


def test_accelerator_carries_vendor_and_gib():
    k80 = accelerator("nvidia-tesla-k80")
    assert k80 == Accelerator(
        "K80", 12, 1, "NVIDIA", 1, "3.7", (("fp64", 1.46), ("fp32", 4.37)), "PCIe"
    )
    assert all(accelerator(name).memory > 0 for name in names())


@pytest.mark.parametrize(
    ("written", "near"), [("V1000", "V100"), ("h10", "H100"), ("A100-90GB", "A100-80GB")]
)
def test_unknown_name_suggests_the_nearest(written, near):
    with pytest.raises(SkyUsageError, match=written) as caught:
        canonical(written)
    assert near in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("H100-MEGA", "H100"),
        ("A100-80GB-SXM", "A100-80GB"),
        ("Gaudi HL-205", "Gaudi"),
        ("Qualcomm AI100", "AI100"),
        ("AMD Radeon Pro V520", "Radeon-Pro-V520"),
        ("aws-trainium", "Trainium"),
        ("Inferentia", "Inferentia"),
        ("tpu-v3-8", "tpu-v3-8"),
        ("tpu-v5e", "tpu-v5e-1"),
        ("google-tpu-v2", "tpu-v2-8"),
    ],
)
def test_names_of_the_catalog(written, name):
    assert canonical(written) == name


def test_a_slice_of_tpus_is_one_accelerator():
    slice_ = accelerator("tpu-v3-8")
    assert (slice_.chips, slice_.memory, slice_.vendor) == (4, 128, "Google")
    assert slice_.tflops("bf16") == 4 * 123
    assert accelerator("v5litepod-8").chips == 8


def test_peak_rates_by_precision():
    a100, h100 = accelerator("A100"), accelerator("H100")
    assert (a100.tflops("fp64"), a100.tflops("tf32"), a100.tflops("bf16")) == (9.7, 156, 312)
    assert a100.tflops("fp8") is None and h100.tflops("fp8") == 1978.9
    assert (a100.cuda, accelerator("MI300X").cuda) == ("8.0", "")
    for name in names():
        model = accelerator(name)
        rates = [model.tflops(p) or 0 for p in ("fp32", "tf32", "fp16", "fp8")]
        known = [rate for rate in rates if rate]
        assert known == sorted(known), f"{name}: a lower precision is slower"
    with pytest.raises(SkyUsageError, match="fp12") as caught:
        a100.tflops("fp12")
    assert "fp16" in str(caught.value)


def test_factories():
    assert accelerators.A100() == accelerator("A100")
    assert str(accelerators.H100(count=4)) == "H100:4"
    assert accelerators.A100(memory="40GB").name == "A100"
    assert accelerators.A100(memory=80, count=8).name == "A100-80GB"
    assert accelerators.V100(memory="32 GiB").memory == 32
    assert accelerators.tpu_v3_8().name == "tpu-v3-8"
    assert accelerators.RTX_PRO_6000(count=0.5).count == 0.5
    with pytest.raises(AttributeError):
        accelerators.A100().count = 2  # a value
    with pytest.raises(AttributeError, match="did you mean A100"):
        _ = accelerators.A1000


@pytest.mark.parametrize(
    ("call", "pieces"),
    [
        (lambda: accelerators.A100(memory="60GB"), ["no such A100", "40GB or 80GB"]),
        (lambda: accelerators.T4(memory="big"), ["no such T4", 'T4(memory="16GB")']),
        (lambda: accelerators.T4(count=0), ["not a count", "T4(count=4)"]),
        (lambda: accelerators.T4(count=True), ["not a count"]),
        (lambda: accelerators.T4(count="4"), ["not a count"]),
    ],
)
def test_unsupported_combinations(call, pieces):
    with pytest.raises(SkyUsageError) as caught:
        call()
    for piece in pieces:
        assert piece in str(caught.value)


def test_editors_see_every_factory():
    import jedi

    found = {
        n.name for n in jedi.Script("from jupyter_sky import accelerators as a\na.").complete()
    }
    assert {accelerators.identifier(name) for name in names()} <= found
    assert set(dir(accelerators)) >= {"A100", "H100", "tpu_v3_8", "accelerator"}
    stub = Path(accelerators.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert stub == accelerators.stub()


def test_bf16_is_known_only_where_it_exists():
    for name in ("V100", "T4", "P100", "RTX8000", "MI25"):
        assert accelerator(name).tflops("fp16") and accelerator(name).tflops("bf16") is None
    for name in ("A100", "L4", "MI250X", "Trainium2", "tpu-v4-8", "Gaudi3"):
        assert accelerator(name).tflops("bf16") == accelerator(name).tflops("fp16") != None  # noqa: E711
    assert accelerator("MI100").tflops("bf16") == 92.3


def test_models_of_a_memory():
    large, any_ = (lambda memory: memory >= 80), (lambda memory: True)
    assert accelerators.variant("A100", large) == "A100-80GB"
    assert accelerators.variant("A100", any_) == "A100"
    assert accelerators.variant("T4", large) == "T4"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (accelerators.A100(count=8, form_factor="SXM"), "A100-SXM:8"),
        (accelerators.A100(memory="80GB", form_factor="pcie"), "A100-80GB-PCIe:1"),
        (accelerators.H100(form_factor="PCIe"), "H100-PCIe:1"),
        (accelerators.H100(form_factor="SXM"), "H100:1"),
        (accelerators.H200(form_factor="NVL"), "H200-NVL:1"),
        (accelerators.Custom("nvidia-tesla-v100-pcie-16gb"), "V100-PCIe:1"),
        (accelerators.T4(form_factor="PCIe"), "T4:1"),
    ],
)
def test_form_factor_is_part_of_an_accelerator(made: accelerators.Accelerator, text: str) -> None:
    assert str(made) == text
    assert made.metadata["form_factor"] == made.form_factor != ""
    asked = Resources.parse(gpus=made)
    assert asked == Resources.parse(gpus=text) == Resources.parse(**asked.labels())


def test_form_factors_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SkyUsageError, match="no such T4") as error:
        accelerators.T4(form_factor="SXM")
    assert error.value.hint == "it is made as PCIe"
    with pytest.raises(SkyUsageError) as error:
        accelerators.GB200(form_factor="SXM")
    assert "not known" in (error.value.hint or "")


@pytest.mark.parametrize(
    "text", ["A100-SXM:1+", "A100-80GB-PCIe:1+", "V100-PCIe:1+", "P100-PCIe:1"]
)
def test_offers_have_the_form_factor_that_is_asked_for(text: str) -> None:
    asked = Resources.parse(gpus=text)
    found = [*load().filter(asked)]
    any_form = [*load().filter(replace(asked, gpu_form=None))]
    assert {offer.form_factor for offer in found} == {asked.gpu_form}
    fitting = [offer for offer in any_form if asked.satisfied_by(offer)]
    assert found == fitting and (len(found) < len(any_form) or text.startswith("P100"))


def test_form_factor_that_nobody_sells_is_told() -> None:
    with pytest.raises(SkyNoOffer, match=r"A100-SXM:3 cannot be met.* has A100-SXM:[24] \("):
        sky.offers("A100-SXM:3")
    with pytest.raises(SkyNoOffer, match="P100-PCIe:1"):
        sky.offers("P100-SXM:1")
