"""``sky.offers`` and ``%sky offers``: what is shown, and why there is none."""

from __future__ import annotations

import re
import sys
from datetime import date

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.hyperstack import Hyperstack
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.knowledge.catalog import load, regions

pytestmark = pytest.mark.usefixtures("shared_data_dir")


def test_offers_of_europe():
    found = sky.offers("A100:8", spot=True, region="eu")
    assert len(found) == 11 and all(isinstance(offer, Offer) for offer in found)
    assert [o.gpu_price for o in found] == sorted(o.gpu_price for o in found)
    assert found[0].price == 3.88927 and found[-1] == list(found)[-1]
    assert [o.place for o in found[:2]] == [o.place for o in found.head(2)]
    with pytest.raises(IndexError):
        found[11]
    frame = found.to_pandas()
    assert len(frame) == 11 and frame["usd_h_per_gpu"].iloc[0] == pytest.approx(3.88927 / 8)
    assert set(frame["jurisdiction"]) == {"EU"} and set(frame["accelerator"]) == {"A100"}


def test_text_of_a_terminal():
    text = str(sky.offers("A100:8", spot=True, region="eu"))
    head, columns, _, first, *rest = text.splitlines()
    assert head == "8 offers for --gpus A100:8 --region eu --spot"
    assert (
        columns.split()
        == (
            "cloud region instance type USD/h USD/h per GPU market price from days old GPUs vCPUs "
            "GiB zones country"
        ).split()
    )
    assert "Standard_ND96asr_v4" in first and "3.8893" in first and "0.4862" in first
    assert "Azure, 9 Aug 2024" in first
    zones = next(line for line in rest if "eu-central-1 " in line)
    assert " a, b, c " in zones  # the region stands beside them
    assert re.search(r"prices go back to 9 Aug 2024; newer ones: jupyter sky catalog refresh", text)


def test_age_is_told_past_seven_days_only(monkeypatch):
    class Frozen(date):
        @classmethod
        def today(cls):
            return cls.day_of_test

    monkeypatch.setattr(regions, "date", Frozen)
    for day, told in ((date(2026, 8, 6), False), (date(2026, 8, 7), True)):
        Frozen.day_of_test = day
        text = str(sky.offers("A100:8", cloud="gcp"))
        assert ("prices go back to 30 Jul 2026" in text) is told


def test_only_some_are_shown_and_the_rest_is_counted():
    found = sky.offers(cpus="8", cloud="gcp", limit=5)
    lines = str(found).splitlines()
    assert sum(line.startswith("gcp ") for line in lines) == 5
    assert lines[0] == f"5 of {found.line_count:,} offers for --cpus 8 --cloud gcp"
    more = next(line for line in lines if "more offers" in line)
    assert int(re.sub(r"\D", "", more)) == found.line_count - len(found.lines()) > 0


def test_clouds_whose_machines_cannot_be_launched_are_named_below_the_table(monkeypatch):
    monkeypatch.setattr(Hyperstack, "launchable", False)
    text = str(sky.offers("H100-PCIe"))
    assert "cannot be launched from here yet: hyperstack" in text
    assert "cannot be launched" not in str(sky.offers("A100", cloud="gcp"))


def test_constant_columns_are_left_out():
    text = str(sky.offers("c6i.4xlarge", region="us-east-1"))
    assert "GPU" not in text and "service" not in text and "on-demand" in text
    single = str(sky.offers("T4:1", cloud="aws"))
    assert "USD/h" in single and "USD/h per GPU" not in single  # the same number
    assert "emr==" in str(sky.offers("m5.xlarge", service="emr", region="us-east-1"))


def test_a_notebook_s_table_is_escaped_and_sorts_by_numbers(data_dir):
    (data_dir / "offers.csv").write_text(
        'cloud,region,instance_type,vcpus,price\nssh,"<b>here","<script>alert(1)</script>",2,0.5\n'
        "ssh,x,plain,2,\nawz,,,,\n"
    )
    html = sky.offers(cloud="ssh")._repr_html_()
    assert "<script>alert" not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;b&gt;here" in html
    assert 'data-value="0.5"' in html and "unknown" in html
    assert html.count("<script>") == html.count("</script>") == 1
    assert "offers.csv, line 4" in html  # a mistake in one's own file is told here
    assert "var(--jp-ui-font-color1" in html and "http" not in html
    assert "color:" not in html.replace("background-color:", "").replace(
        "color: var(--jp-ui-font-color1", ""
    )


def test_flagged_offers_are_counted_and_shown_when_asked():
    quiet = sky.offers("L4:0.5", spot=True)
    assert "cost more than on-demand are left out" in str(quiet)
    loud = sky.offers("L4:0.5", spot=True, flagged=True, limit=500)
    assert len(loud) > len(quiet) and "spot price above on-demand" in str(loud)


def test_an_accelerator_may_be_given_as_a_value():
    found = sky.offers(sky.accelerators.A100(memory="80GB", count=4), region="us")
    assert len(found) and {o.gpu for o in found} == {"A100-80GB"}
    assert len(sky.offers("A100:4+")) > len(sky.offers("A100:4"))


def test_areas_by_the_names_that_people_use():
    in_europe = sky.offers("A100", region="europe")
    assert len(in_europe) and {offer.jurisdiction for offer in in_europe} == {"EU"}
    assert len(in_europe) == len(sky.offers("A100", jurisdiction="Europe"))
    assert len(sky.offers("A100", region="USA")) == len(sky.offers("A100", region="us"))


@pytest.mark.parametrize(
    ("what", "labels", "pieces"),
    [
        ("A101:8", {}, ["A100"]),
        ("c6i.4xlarg", {}, ["neither an accelerator nor an instance type", "c6i.4xlarge"]),
        ("A100:8", {"gpus": "V100:1"}, ["asked for twice"]),
        ("A100:8", {"region": "eu-wst-1"}, ["eu-west-1"]),
        (None, {"regions": "eu"}, ["did you mean region"]),
        (None, {"region": "frankfurt"}, ["eu-central-1", "europe-west3", "germanywestcentral"]),
        (None, {"region": "germany"}, ["--country de"]),
        (None, {"cloud": "local"}, ["--cloud local: the catalog holds no offer", "offers.csv"]),
    ],
)
def test_names_that_nothing_bears(what, labels, pieces):
    with pytest.raises(SkyUsageError) as caught:
        sky.offers(what, **labels)
    for piece in pieces:
        assert piece in str(caught.value)


@pytest.mark.parametrize(
    ("what", "labels", "pieces"),
    [
        ("H100:16", {}, ["--gpus H100:16 cannot be met", "nearest: --gpus H100:8"]),
        (None, {"cpus": "5000+"}, ["the most that any offer has is", "nearest: --cpus"]),
        ("A100:8", {"max_hourly_cost": 0.5}, ["the cheapest offer meeting the rest is 2.9917"]),
        ("T4:1", {"arch": "arm64"}, ["T4g:1", "or else --arch arm64", "--arch x86_64"]),
        (None, {"intel_sgx": True, "cloud": "aws"}, ["--cloud azure", "enclaves of Intel SGX"]),
        (None, {"service": "dataproc", "cloud": "aws"}, ["have cloud gcp", "or else --service"]),
        (None, {"service": "spark==9.*"}, ["no managed service is known to bring that"]),
        ("A100:8", {"jurisdiction": "ch"}, ["--jurisdiction CH cannot be met"]),
        (None, {"gpu_memory": "900+"}, ["nearest: --gpu-memory 279"]),
    ],
)
def test_missing_offer_is_explained(what, labels, pieces):
    with pytest.raises(SkyNoOffer) as caught:
        sky.offers(what, **labels)
    for piece in pieces:
        assert piece in str(caught.value)


def test_the_line_magic_and_the_shell_take_the_same_words():
    found = verbs.call_verb("offers A100:8 --spot --cloud aws,gcp --limit 3".split())
    expected = Resources.parse(gpus="A100:8", spot=True, cloud="aws,gcp")
    assert found.asked == expected.command_line() and found.limit == 3
    assert {o.cloud for o in found} == {"aws", "gcp"} and all(o.spot for o in found)
    assert len(verbs.call_verb(["offers", "--cloud=runpod"])) == 6
    assert len(verbs.call_verb(["offers", "L4:0.5", "--spot", "--flagged"])) > len(
        verbs.call_verb(["offers", "L4:0.5", "--spot"])
    )


@pytest.mark.parametrize(
    ("line", "piece"),
    [
        ("offers A100:8 V100:1", "'V100:1' is not understood"),
        ("offers --idle 20m", "unknown option --idle"),
        ("offers --spto", "did you mean --spot"),
        ("offers --cpus", "--cpus needs a value"),
        ("offers --limit many", "--limit many: not a count"),
        ("offers --cpus 2 --cpus 4", "given twice"),
    ],
)
def test_invalid_lines_of_the_offers_verb(line, piece):
    with pytest.raises(SkyUsageError, match=re.escape(piece)):
        verbs.call_verb(line.split())


@pytest.mark.parametrize("limit", [0, -3, "many"])
def test_a_limit_that_is_none(limit):
    with pytest.raises(SkyUsageError, match="not a count"):
        sky.offers("T4", limit=limit)


def test_on_demand_is_what_is_not_spot():
    assert {o.spot for o in sky.offers("A100:8", spot=False)} == {False}
    assert {o.spot for o in sky.offers("A100:8")} == {False, True}


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SkyUsageError, match="pip install pandas"):
        sky.offers("A100:8").to_pandas()


def test_unknown_region_is_told_with_the_nearest_of_the_clouds_named() -> None:
    need = Resources.parse(cloud="azure", region="eastus9")
    with pytest.raises(SkyUsageError, match="no cloud has a region") as raised:
        load().check(need)
    assert "eastus" in (raised.value.hint or "") and "us-east" not in (raised.value.hint or "")
    with pytest.raises(SkyUsageError) as raised:
        load().check(Resources.parse(cloud="aws", region="moon-east-1"))
    assert "us-east-1" in (raised.value.hint or "")
