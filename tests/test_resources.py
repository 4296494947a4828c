from __future__ import annotations

import itertools

import pytest

from jupyter_sky import accelerators
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import (
    Amount,
    Resources,
    format_duration,
    format_option,
    parse_amount,
    parse_duration,
    parse_usd,
)

SPOT_V100 = Offer(
    "aws", "us-east-1", "p3.2xlarge", 8, 61, zone="us-east-1a", gpu="V100", gpu_count=1, spot=True,
    price=0.918,
)  # fmt: skip


def unmet_options(request: Resources, offer: Offer) -> list[str]:
    """Return the options of a request that an offer does not meet, as they are written."""
    texts = request.labels()
    return [format_option(key, texts[key]) for key in request.unmet_labels(offer)]


@pytest.mark.parametrize(
    ("text", "value", "at_least", "written"),
    [
        ("4", 4, False, "4"),
        ("4+", 4, True, "4+"),
        ("1.5", 1.5, False, "1.5"),
        (".5+", 0.5, True, "0.5+"),
        ("16GB", 16, False, "16"),
        ("16 GiB+", 16, True, "16+"),
        ("512mb", 0.5, False, "0.5"),
        ("1T", 1024, False, "1024"),
    ],
)
def test_amounts(text, value, at_least, written):
    amount = parse_amount(text, "--memory")
    assert (amount, str(amount)) == (Amount(value, at_least), written)
    assert parse_amount(str(amount), "--memory") == amount


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "four",
        "4++",
        "+4",
        "-4",
        "0",
        "0+",
        "1,5",
        "4-8",
        "inf",
        "nan",
        "16 bananas",
        "9" * 400,
    ],
)
def test_invalid_amount_error_has_an_example(text):
    with pytest.raises(SkyUsageError) as caught:
        parse_amount(text, "--memory")
    assert f"--memory {text}" in caught.value.message
    assert "--memory 4+" in (caught.value.hint or "")


def test_processors_have_no_unit():
    with pytest.raises(SkyUsageError, match="--cpus 4GB"):
        Resources.parse(cpus="4GB")


def test_amounts_admit():
    assert [Amount(4, True).admits(x) for x in (2, 4, 8)] == [False, True, True]
    assert [Amount(4, False).admits(x) for x in (2, 4, 8)] == [False, True, False]
    assert Amount(7.663, False).admits(7.66341)  # as printed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d 2h", 93600),
        ("0", 0),
        ("1.5H", 5400),
        ("20 minutes", 1200),
        ("2 hours", 7200),
        ("1 Hour 30 mins", 5400),
        ("1 day", 86400),
        ("90 sec", 90),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text, "--timeout") == seconds


@pytest.mark.parametrize("text", ["", "45", "m", "20 moments", "-5m", "30m1h", "1:30", "0.5"])
def test_bad_durations_show_units(text):
    with pytest.raises(SkyUsageError, match=r"90s.*20m.*2h"):
        parse_duration(text, "--timeout")


@pytest.mark.parametrize(
    ("seconds", "clock"),
    [
        (0, "0:00"),
        (41.9, "0:41"),
        (725, "12:05"),
        (3753, "1:02:33"),
        (90061, "25:01:01"),
        (-3, "0:00"),
    ],
)
def test_clock(seconds, clock):
    assert format_duration(seconds) == clock


def test_usd():
    assert [parse_usd(text, "--max-cost") for text in ("2.5", "$2.5", "0", "$.05")] == [
        2.5,
        2.5,
        0,
        0.05,
    ]


@pytest.mark.parametrize("text", ["", "$", "-1", "50c", "2,5", "nan", "1e9", "2.5 EUR"])
def test_bad_usd(text):
    with pytest.raises(SkyUsageError, match=r"--max-cost 2\.5"):
        parse_usd(text, "--max-cost")


LABELS = {
    "cpus": ("4+", 2),
    "memory": ("16GB", "0.5+"),
    "gpus": ("v100", "nvidia-a100-80gb:8"),
    "nodes": ("1", 3),
    "disk": ("100", "1T+"),
    "cloud": ("aws,GCP", "local"),
    "market": ("spot", "on_demand"),
    "max_hourly_cost": ("$2.50", "0.1"),
}


@pytest.mark.parametrize("pair", list(itertools.combinations(LABELS, 2)), ids="-".join)
def test_labels_round_trip(pair):
    for values in itertools.product(*(LABELS[key] for key in pair)):
        given = dict(zip(pair, values, strict=True))
        market = given.pop("market", None)
        request = Resources.parse(**given, **({market: True} if market else {}))
        assert Resources.parse(**request.labels()) == request
        assert Resources.parse(region="us-east-1", **request.labels()).region == "us-east-1"


def test_command_line_is_canonical():
    request = Resources.parse(
        cpus="4+",
        gpus="nvidia-tesla-v100",
        cloud="aws,gcp,aws",
        nodes=2,
        spot=True,
        on_demand=False,
        instance_type="p3.2xlarge",
        max_hourly_cost=3.0,
        zone=None,
    )
    assert request.command_line() == (
        "--cpus 4+ --gpus V100:1 --nodes 2 --cloud aws,gcp --instance-type p3.2xlarge --spot "
        "--max-hourly-cost 3"
    )
    assert Resources().command_line() == "" and Resources.parse() == Resources()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"spot": True, "on_demand": True}, "--spot and --on-demand"),
        ({"nodes": "0"}, "--nodes 0"),
        ({"nodes": "2+"}, "--nodes 2"),
        ({"nodes": 1.5}, "--nodes 1.5"),
        ({"cpus": "-1"}, "--cpus -1"),
        ({"disk": 0}, "--disk 0"),
        ({"cloud": "awz"}, "did you mean aws"),
        ({"cloud": "aws,moon"}, "--cloud moon"),
        ({"cloud": ","}, "--cloud needs"),
        ({"gpus": "V100:0"}, "'0' is not a count"),
        ({"gpus": "V100:"}, "'' is not a count"),
        ({"gpus": "2"}, "--gpus V100:1"),
        ({"gpus": "V1000:1"}, "V100"),
        ({"region": "us east"}, "--region us east"),
        ({"max_hourly_cost": "cheap"}, "--max-hourly-cost cheap"),
        ({"cpu": "4"}, "did you mean cpus"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(SkyUsageError, match=message.replace("+", r"\+")):
        Resources.parse(**labels)


@pytest.mark.parametrize(
    ("labels", "unmet"),
    [
        ({}, []),
        ({"cpus": "8", "memory": "60+", "gpus": "V100:1", "spot": True, "disk": "4000"}, []),
        ({"cpus": "4+", "cloud": "aws,gcp", "zone": "us-east-1a", "max_hourly_cost": "0.92"}, []),
        ({"cpus": "4"}, ["--cpus 4"]),
        ({"cpus": "16+", "memory": "64+"}, ["--cpus 16+", "--memory 64+"]),
        ({"gpus": "V100:2"}, ["--gpus V100:2"]),
        ({"gpus": "T4"}, ["--gpus T4:1"]),
        ({"cloud": "gcp,local"}, ["--cloud gcp,local"]),
        ({"region": "us-west-2"}, ["--region us-west-2"]),
        ({"instance_type": "p3.8xlarge"}, ["--instance-type p3.8xlarge"]),
        ({"on_demand": True}, ["--on-demand"]),
        ({"nodes": 2, "max_hourly_cost": "1.8"}, ["--max-hourly-cost 1.8"]),
        ({"nodes": 2, "max_hourly_cost": "1.84"}, []),
    ],
)
def test_unmet_labels_of_an_offer(labels, unmet):
    request = Resources.parse(**labels)
    assert unmet_options(request, SPOT_V100) == unmet
    assert request.satisfied_by(SPOT_V100) is (not unmet)


def test_fixed_disk_and_unknown_price():
    here = Offer("local", "this-machine", "", 2, 8, disk=37.5)
    assert Resources.parse(disk="30").satisfied_by(here)
    assert unmet_options(Resources.parse(disk="40"), here) == ["--disk 40"]
    too_dear = unmet_options(Resources.parse(max_hourly_cost="100"), here)
    assert too_dear == ["--max-hourly-cost 100"]


@pytest.mark.parametrize(
    ("offer", "place"),
    [
        (SPOT_V100, "aws us-east-1a p3.2xlarge spot"),
        (Offer("azure", "eastus", "D2s", 2, 8, zone="1"), "azure eastus 1 D2s"),
        (Offer("local", "this-machine", "x86_64", 2, 8), "this machine"),
    ],
)
def test_place(offer, place):
    assert offer.place == place


NEW_LABELS = {
    "gpus": ("A100:4+", "L4:0.5"),
    "gpu_memory": ("40+", "16GB"),
    "arch": ("amd64", "arm"),
    "cpu_vendor": ("intel", "graviton"),
    "country": ("de", "uk"),
    "jurisdiction": ("eu", "us-gov"),
    "image": ("python:3.12", "docker:ghcr.io/a/b@sha256:0f"),
    "intel_sgx": (True, "true"),
    "service": ("emr,spark==3.5.*", "spark>=3.4,<3.6"),
    "region": ("eu", "us-east-1"),
}


@pytest.mark.parametrize("pair", list(itertools.combinations(NEW_LABELS, 2)), ids="-".join)
def test_labels_of_offers_round_trip(pair):
    for values in itertools.product(*(NEW_LABELS[key] for key in pair)):
        request = Resources.parse(**dict(zip(pair, values, strict=True)))
        assert Resources.parse(**request.labels()) == request
        assert request.labels().keys() == set(pair)


def test_the_command_line_can_be_pasted():
    request = Resources.parse(service="emr,spark==3.5.*", gpus="l4:.5", arch="x64", intel_sgx=True)
    assert request.command_line() == (
        '--gpus L4:0.5 --arch x86_64 --intel-sgx --service "emr,spark==3.5.*"'
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"arch": "mips"}, "--arch mips: not an architecture"),
        ({"cpu_vendor": "intle"}, "did you mean Intel"),
        ({"country": "germny"}, "did you mean germany"),
        ({"country": "middle earth"}, "write two letters"),
        ({"jurisdiction": "e"}, "write two letters"),
        ({"gpus": "A100:4-"}, "'4-' is not a count"),
        ({"gpus": "A100:80GB"}, "such as --gpus A100-80GB:1"),
        ({"spot": "perhaps"}, "neither true nor false"),
        ({"cpus": True}, "--cpus needs a value"),
        ({"service": "sparc"}, "did you mean spark"),
        ({"gpu_memory": "lots"}, "--gpu-memory lots"),
        ({"image": "--privileged"}, "not the name of an image"),
    ],
)
def test_bad_labels_of_offers(labels, message):
    with pytest.raises(SkyUsageError, match=message):
        Resources.parse(**labels)


FINNISH = Offer(
    "gcp",
    "europe-north1",
    "a2-highgpu-4g",
    48,
    340,
    gpu="A100",
    gpu_count=4,
    gpu_memory=40,
    arch="x86_64",
    cpu_vendor="Intel",
    country="FI",
    jurisdiction="EU",
)


@pytest.mark.parametrize(
    ("labels", "unmet"),
    [
        ({"gpus": "A100:4", "gpu_memory": "40", "arch": "x86", "cpu_vendor": "intel"}, []),
        ({"gpus": "A100:2+", "region": "eu", "country": "fi", "jurisdiction": "eu"}, []),
        ({"region": "EEA", "jurisdiction": "eea", "country": "eu"}, []),
        ({"gpus": "A100:8+"}, ["--gpus A100:8+"]),
        ({"gpu_memory": "80+"}, ["--gpu-memory 80+"]),
        ({"arch": "arm64", "cpu_vendor": "amd"}, ["--arch arm64", "--cpu-vendor AMD"]),
        ({"region": "us"}, ["--region us"]),
        ({"country": "de", "jurisdiction": "us"}, ["--country DE", "--jurisdiction US"]),
        ({"intel_sgx": True}, ["--intel-sgx"]),
        ({"image": "python:3.12"}, ["--image python:3.12"]),
        ({"service": "emr"}, ["--service emr"]),
    ],
)
def test_unmet_labels_of_offers(labels, unmet):
    assert unmet_options(Resources.parse(**labels), FINNISH) == unmet


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ({"cpus": ">=4", "memory": ">= 16 GB"}, {"cpus": "4+", "memory": "16+"}),
        ({"gpus": "A100:>=4"}, {"gpus": "A100:4+"}),
        ({"gpus": "A10:1/6"}, {"gpus": "A10:0.167"}),
        ({"gpus": "A100:8", "gpu_memory": "80+"}, {"gpus": "A100-80GB:8", "gpu_memory": "80+"}),
        ({"gpus": "A100:8", "gpu_memory": "40"}, {"gpus": "A100:8", "gpu_memory": "40"}),
        ({"country": "Germany"}, {"country": "DE"}),
        ({"country": "south-korea"}, {"country": "KR"}),
        ({"country": "Viet_Nam"}, {"country": "VN"}),
        ({"country": "kenya"}, {"country": "KE"}),
        ({"country": "Turkey"}, {"country": "TR"}),
        ({"country": "bra"}, {"country": "BR"}),
        ({"spot": False}, {"on_demand": "true"}),
        ({"spot": 0}, {"on_demand": "true"}),
        ({"spot": "yes"}, {"spot": "true"}),
        ({"on_demand": False, "intel_sgx": "no"}, {}),
        ({"cpus": (4,)}, {"cpus": "4"}),
        ({"service": "emr-7.0.0"}, {"service": "emr==7.0.0"}),
    ],
)
def test_other_ways_to_write_a_label(written, canonical):
    assert Resources.parse(**written).labels() == canonical


def test_a_share_of_a_gpu_is_met_by_its_rounded_figure():
    assert Resources.parse(gpus=accelerators.A10(count=1 / 6)).gpus.admits(0.167)
    assert not Resources.parse(gpus="A10:1/6").gpus.admits(0.17)
