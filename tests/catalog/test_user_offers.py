from __future__ import annotations

from textwrap import dedent

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.catalog import loader
from jupyter_sky.knowledge.catalog.user_offers import check_file, read_user_offers

pytestmark = pytest.mark.usefixtures("small")

CSV = """\
cloud,region,instance_type,vcpus,memory,gpu,gpu_count,price,country,date,factor
ssh,basement,dgx,80,512,nvidia-tesla-v100,8,1.5,de,2026-11-01,
aws,,c6i.*,,,,,,,,0.9
"""

TOML = """\
[[offers]]
cloud = "ssh"
region = "basement"
instance_type = "dgx"
vcpus = 80
memory = 512
gpu = "V100"
gpu_count = 8
price = 1.5
country = "DE"
date = "2026-11-01"

[[discounts]]
cloud = "aws"
instance_type = "c6i.*"
factor = 0.9
"""


@pytest.mark.parametrize(("name", "text"), [("offers.csv", CSV), ("offers.toml", TOML)])
def test_offers_and_discounts_are_merged_and_show_as_theirs(data_dir, name, text):
    listed = (
        loader.load()
        .filter(instance_type="c6i.4xlarge", zone="us-east-1a", on_demand=True)
        .offers()
    )
    (data_dir / name).write_text(text)
    catalog = loader.load()
    assert catalog.problems == ()
    (mine,) = catalog.filter(cloud="ssh").offers()
    assert (mine.gpu, mine.gpu_count, mine.gpu_memory, mine.price) == ("V100", 8, 16, 1.5)
    assert (mine.source, mine.date, mine.jurisdiction) == ("yours", "2026-11-01", "EU")
    assert mine in catalog.filter(gpus="V100:8", region="eu").offers()
    (cheaper,) = catalog.filter(
        instance_type="c6i.4xlarge", zone="us-east-1a", on_demand=True
    ).offers()
    assert cheaper.price == pytest.approx(0.9 * listed[0].price)
    assert cheaper.source == f"yours: 0.9 of {listed[0].source}"
    assert catalog.filter(instance_type="c6a.4xlarge").offers(1)[0].source[:5] != "yours"


def test_private_price_replaces_the_list_price(data_dir):
    (data_dir / "offers.csv").write_text(
        "cloud,region,zone,instance_type,vcpus,memory,price\n"
        "aws,us-east-1,us-east-1a,m5.large,2,8,0.01\n"
    )
    found = loader.load().filter(instance_type="m5.large", zone="us-east-1a").offers()
    assert [(o.price, o.spot, o.source) for o in found] == [(0.01, False, "yours")]


def test_the_first_discount_that_matches_counts(data_dir):
    (data_dir / "offers.csv").write_text(
        "cloud,instance_type,factor,market\ngcp,n2-standard-16,0.5,both\ngcp,n2-*,0.1,\n"
    )
    catalog, zone = loader.load(), {"zone": "us-central1-a"}
    (data_dir / "offers.csv").unlink()
    listed = loader.load()
    for name, on_demand, spot in (("n2-standard-16", 0.5, 0.5), ("n2-standard-8", 0.1, 1)):
        for market, factor in (("on_demand", on_demand), ("spot", spot)):
            ours, theirs = (
                one.filter(instance_type=name, flagged=True, **zone, **{market: True}).offers()
                for one in (catalog, listed)
            )
            assert ours[0].price == pytest.approx(factor * theirs[0].price)
    # a discount on demand can leave the spot price above: then it is flagged anew
    assert len(catalog.filter(instance_type="n2-standard-8", spot=True, **zone)) == 0


MISTAKES = [
    ("offers.csv", "cloud,instance_type\nawz,m\n", 2, ["'awz'", "did you mean aws"]),
    ("offers.csv", "cloud,instance_type\n\nssh,\n", 3, ["instance_type is missing"]),
    ("offers.csv", "cloud,kind\nssh,m\n", 1, ["no column 'kind'"]),
    ("offers.csv", "cloud,instance_type,price\nssh,m,-1\n", 2, ["price = -1"]),
    ("offers.csv", "cloud,instance_type,price\nssh,m,cheap\n", 2, ["price = cheap"]),
    ("offers.csv", "cloud,instance_type,gpu\nssh,m,V1000\n", 2, ["V1000", "V100"]),
    ("offers.csv", "cloud,instance_type\nssh,m,1,2\n", 2, ["more fields than columns"]),
    ("offers.csv", "cloud,factor\naws,0\n", 2, ["factor = 0", "ten percent"]),
    ("offers.csv", "cloud,factor,market\naws,0.9,night\n", 2, ["'night'"]),
    ("offers.csv", "cloud,factor,price\naws,0.9,1\n", 2, ["'price' is not known here"]),
    ("offers.csv", "cloud,instance_type,country\nssh,m,Germany\n", 2, ["such as DE"]),
    ("offers.csv", "cloud,instance_type,date\nssh,m,yesterday\n", 2, ["yesterday"]),
    ("offers.toml", "[[offers]]\ncloud = ssh\n", 2, ["Invalid value"]),
    ("offers.toml", '\n[[offers]]\ncloud = "ssh"\n', 2, ["instance_type is missing"]),
    ("offers.toml", '[[discounts]]\ncloud = "aws"\nfacter = 0.9\n', 1, ["did you mean factor"]),
]


@pytest.mark.parametrize(("name", "text", "line", "pieces"), MISTAKES)
def test_mistake_names_file_and_line_and_keeps_other_offers(data_dir, name, text, line, pieces):
    before = len(loader.load().filter())
    path = data_dir / name
    path.write_text(text)
    with pytest.raises(SkyUsageError) as caught:
        check_file(path)
    for piece in (f"{path}, line {line}", *pieces):
        assert piece in str(caught.value)
    catalog = loader.load()
    assert [line.split(":")[0] for line in catalog.problems] == [f"{path}, line {line}"]
    assert len(catalog.filter()) == before


def test_the_other_lines_of_a_file_with_a_mistake_are_in_use(data_dir):
    (data_dir / "offers.csv").write_text(CSV + "awz,,m,,,,,,,,\n")
    catalog = loader.load()
    assert len(catalog.problems) == 1 and len(catalog.filter(cloud="ssh")) == 1
    # told again by the decoded copy
    loader._LOADED.clear()
    assert loader.load().problems == catalog.problems


def test_wrong_tables_and_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(dedent("[offer]\ncloud = 1\n"))
    assert "did you mean offers" in read_user_offers(path).problems[0]
    assert "neither .csv nor .toml" in read_user_offers(_touch(tmp_path / "mine.xlsx")).problems[0]
    assert "mine.csv" in read_user_offers(tmp_path / "mine.csv").problems[0]


def _touch(path):
    path.write_text("")
    return path


def test_binary_file_is_reported_and_skipped(data_dir):
    (data_dir / "offers.csv").write_bytes(b"\xff\xfe\x00")
    (problem,) = loader.load().problems
    assert "offers.csv" in problem


def test_user_country_keeps_known_facts_of_a_region(data_dir):
    known = loader.load().region("aws", "us-east-1")
    (data_dir / "offers.csv").write_text(
        "cloud,region,instance_type,country\naws,us-east-1,mine,US\nssh,b,x,DE\nssh,b,y,FR\n"
    )
    catalog = loader.load()
    assert catalog.region("aws", "us-east-1") == known and known.carbon
    assert catalog.region("ssh", "b").country == "DE"
