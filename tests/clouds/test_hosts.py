"""The list of machines: what is read from it, and that errors name the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import get
from jupyter_sky.clouds.ssh import read_hosts

TWO = """
# machines of the lab
[big]
address = "ada@10.0.0.5:2222"
vcpus = 16
memory = 64
gpus = "A100:4"
price = 2
slots = 2
packages = ["numpy<3"]
env = {CUDA_HOME = "/opt/cuda"}

[small]
address = "box.example.org"
key = "~/.ssh/lab"
vcpus = 4
memory = 8
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    path = tmp_path / "hosts.toml"
    path.write_text(TWO)
    yield path
    Sky.clear_instance()


def test_written_hosts_are_read_back(pool: Path) -> None:
    hosts = read_hosts(pool)
    assert list(hosts) == ["big", "small"]
    big, small = hosts["big"], hosts["small"]
    assert (big.user, big.host, big.port) == ("ada", "10.0.0.5", 2222)
    assert (big.vcpus, big.memory, big.gpu, big.gpu_count, big.price) == (16, 64, "A100", 4, 2)
    assert big.packages == ("numpy<3",) and big.env == {"CUDA_HOME": "/opt/cuda"}
    assert small.port == 22 and small.user and small.key == str(Path.home() / ".ssh" / "lab")
    assert read_hosts(pool.with_name("none.toml")) == {}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[a]\naddress = "b\n', 2, "not TOML"),
        ('[a]\naddress = "b"\nvcpus = 1\nmemory = 1\ncpus = 3\n', 5, "'cpus'"),
        ("[a]\nvcpus = 1\nmemory = 1\n", 1, "has no address"),
        (
            '[b]\naddress="b"\nvcpus=1\nmemory=1\n\n[a]\naddress="a"\nvcpus=-1\nmemory=1',
            8,
            "positive",
        ),
        ('[a]\naddress = "a"\nvcpus = 1\nmemory = 1\nslots = 0\n', 5, "whole number"),
        ('[a]\naddress = "a"\nvcpus = 1\nmemory = 1\ngpus = "H9000:x"\n', 5, "not a count"),
        ('[a]\naddress = "-oProxyCommand=id"\nvcpus = 1\nmemory = 1\n', 2, "not an address"),
        ('[a]\naddress = "a:99999"\nvcpus = 1\nmemory = 1\n', 2, "not an address"),
        ('[a]\naddress = "a"\nvcpus = 1\nmemory = 1\nenv = {"A B" = "c"}\n', 5, "variable"),
        ("a = 3\n", 1, "not a table"),
    ],
)
def test_errors_name_the_file_and_the_line(pool: Path, text: str, line: int, words: str) -> None:
    pool.write_text(text)
    with pytest.raises(SkyUsageError) as raised:
        read_hosts(pool)
    assert str(pool) in raised.value.message and f"line {line}" in raised.value.message
    assert words in raised.value.message
    check = get("ssh").check()
    assert not check.usable and f"line {line}" in check.found


def test_slots_are_offers_by_size_or_by_name(pool: Path) -> None:
    big, small = sorted(get("ssh").offers(Resources()), key=lambda offer: -offer.vcpus)
    assert (big.vcpus, big.memory, big.gpu, big.gpu_count, big.price) == (8, 32, "A100", 2, 1)
    assert (small.instance_type, small.price, small.gpu) == ("small", 0, None)
    pool.write_text(TWO + TWO.replace("big", "twin").replace("small", "other"))
    kinds = {offer.instance_type for offer in get("ssh").offers(Resources())}
    assert kinds == {"8cpu-32gib-a100:2", "4cpu-8gib"}
    for labels, size in (({"cpus": "1"}, 1), ({"cpus": "64"}, 4), ({"cpus": "2+"}, 2)):
        found = get("ssh").offers(Resources.parse(instance_type="small", **labels))
        assert [offer.vcpus for offer in found] == [size], "a part of a slot, as large as asked"
    (named,) = get("ssh").offers(Resources.parse(instance_type="twin"))
    assert named.instance_type == "twin"


def test_without_a_list_nothing_is_offered_and_the_check_says_where_it_would_be(pool: Path) -> None:
    pool.unlink()
    assert get("ssh").offers(Resources()) == []
    check = get("ssh").check()
    assert not check.usable and str(pool) in check.found
