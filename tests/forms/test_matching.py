"""Offers that a form's fields match, from the catalog that ships."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_sky.base.requests.cell_options.schema import BY_DEST, OPTIONS
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.hyperstack import Hyperstack
from jupyter_sky.clouds.launches.launch_support import is_launchable
from jupyter_sky.clouds.local import machine_size
from jupyter_sky.interfaces.forms.cell_line import Fields, schema
from jupyter_sky.interfaces.forms.completion import CompletionContext, complete
from jupyter_sky.interfaces.forms.expected_place import placement_text
from jupyter_sky.interfaces.forms.matching import match, summary
from jupyter_sky.knowledge.catalog import load
from tests.store.rows import CLUSTER


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No files of this user, no accounts of clouds."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(
        "jupyter_sky.machines.provisioner.placement.usable_providers", lambda need: ()
    )
    Sky.clear_instance()
    yield
    Sky.clear_instance()


def test_every_option_is_a_field_or_a_choice_of_one():
    keys = [field.key for field in schema()]
    merged = {key for field in schema() for key, _ in field.choices if key}
    assert sorted({*keys, *merged} - {"market", "send"}) == sorted(o.dest for o in OPTIONS)
    assert len(keys) == len(set(keys)) and not merged & set(keys)
    assert [field.group for field in schema()][:12] == [""] * 12
    assert all(field.group for field in schema()[12:])
    assert {f.kind for f in schema()} == {"text", "list", "flag", "named", "choice"}
    assert all(f.example for f in schema() if f.kind in ("text", "list"))


def test_the_cheapest_come_first_with_price_place_date_and_source():
    answer = match(Fields({"gpus": "V100:1", "cloud": "aws", "nodes": "2", "timeout": "90m"}))
    sold = load().filter(Resources.parse(gpus="V100:1", cloud="aws", on_demand=True))
    assert answer.count == len(sold) > 3 and not answer.errors and not answer.suggestions
    first = answer.places[0]
    assert first.price == pytest.approx(2 * sold.offers(1)[0].price)
    assert (first.cloud, first.gpu, first.spot) == ("aws", "V100:1", False)
    assert first.origin == "AWS, 5 Jul 2026" and "price list" in first.origin_detail
    assert first.machine == "p3.2xlarge"
    assert first.estimate == pytest.approx(first.price * 1.5) and answer.seconds == 5400
    assert answer.line == "--gpus V100:1 --nodes 2 --cloud aws --timeout 90m"
    prices = [place.price for place in answer.places]
    assert prices == sorted(prices) and len(prices) <= 3
    assert answer.spot and answer.spot.spot and answer.spot.price < first.price
    assert "est. $" in summary(answer)


def test_what_cannot_be_launched_comes_last(monkeypatch):
    monkeypatch.setattr(Hyperstack, "launchable", False)
    asked = {"gpus": "H100:1", "cloud": "gcp,hyperstack", "on_demand": True}
    answer = match(Fields(asked))
    assert (
        is_launchable(answer.places[0].cloud) and "cannot be launched" not in answer.places[0].note
    )
    cheapest = load().filter(Resources.parse(**asked)).offers(1)[0]
    assert not is_launchable(cheapest.cloud), "else this test shows nothing"


def test_spot_is_counted_when_it_is_asked_for():
    answer = match(Fields({"gpus": "V100:1", "spot": True}))
    assert all(place.spot for place in answer.places) and answer.spot is None
    assert match(Fields({"gpus": "V100:1", "on_demand": True})).spot is None


def test_the_same_in_many_regions_is_one_place():
    answer = match(Fields({"gpus": "T4:1", "cloud": "azure"}))
    assert len({(p.machine, p.price) for p in answer.places}) == len(answer.places)
    assert answer.places[0].more >= 1


def test_this_machine_counts_and_is_free():
    answer = match(Fields({"timeout": "1h"}))
    assert answer.places[0].cloud == "local"
    assert answer.places[0].price == 0 and answer.places[0].estimate == 0
    assert placement_text(Fields()).startswith("would run on this machine")
    assert match(Fields({"region": "this-machine"})).count == 1


def test_without_an_account_it_says_so():
    assert "no account of a cloud" in placement_text(Fields({"gpus": "V100:1"}))
    assert "no account of aws" in placement_text(Fields({"cloud": "aws"}))
    assert placement_text(Fields({"cpus": "many"})) == ""


def test_with_an_account_it_is_where_a_launch_would_go(monkeypatch):
    monkeypatch.setattr(
        "jupyter_sky.machines.provisioner.placement.usable_providers", lambda need: ("aws",)
    )
    words = placement_text(Fields({"gpus": "V100:1"}))
    assert (
        words.startswith("would run on aws ") and "p3.2xlarge, $" in words and " spot" not in words
    )


@pytest.mark.parametrize(
    ("values", "key", "change"),
    [
        ({"gpus": "V100:7"}, "gpus", {"gpus": "V100:8"}),
        ({"cpus": "6400+", "cloud": "aws"}, "cpus", None),
        ({"gpus": "A100:8", "max_hourly_cost": "0.5", "cloud": "aws"}, "max_hourly_cost", None),
        ({"gpus": "H100:8", "cloud": "aws", "region": "eu-central-2"}, "region", None),
        ({"gpus": "tpu-v5e-8", "cloud": "aws"}, "cloud", {"cloud": "gcp"}),
    ],
)
def test_nothing_possible_names_the_field_and_what_it_would_take(values, key, change):
    answer = match(Fields(values))
    assert answer.count == 0 and not answer.places
    way = next(way for way in answer.suggestions if way.keys == (key,))
    assert way.words
    if change:
        assert way.values == change
    again = {k: v for k, v in {**values, **way.values}.items() if v is not False}
    assert match(Fields(again)).count > 0


def test_this_machine_is_a_way_out_too():
    cpus, _ = machine_size()
    answer = match(Fields({"cpus": "6400", "cloud": "local"}))
    assert {"cpus": str(cpus)} in [way.values for way in answer.suggestions]


def test_only_spot_is_on_sale_below_the_limit():
    both = match(Fields({"gpus": "V100:1", "cloud": "aws"}))
    limit = (both.places[0].price + both.spot.price) / 2
    answer = match(Fields({"gpus": "V100:1", "cloud": "aws", "max_hourly_cost": f"{limit:.4f}"}))
    assert answer.count == 0 and answer.suggestions[0].values == {"spot": True}
    assert match(Fields({"gpus": "V100:1", "cloud": "aws", "spot": True})).count > 0


@pytest.mark.parametrize(
    ("values", "key", "hint"),
    [
        ({"region": "us-eest-1"}, "region", "us-east-1"),
        ({"instance_type": "p3.2xlarg"}, "instance_type", "p3.2xlarge"),
        ({"cpus": "many"}, "cpus", "--cpus 4"),
    ],
)
def test_unknown_value_is_an_error_of_its_field(values, key, hint):
    answer = match(Fields(values))
    assert list(answer.errors) == [key] and hint in answer.errors[key][1]
    assert answer.count == 0 and not answer.suggestions


def test_budget_gives_a_duration():
    answer = match(Fields({"gpus": "V100:1", "max_cost": "5", "cloud": "aws"}))
    assert answer.seconds_to_limit == pytest.approx(5 / answer.places[0].price * 3600)
    assert match(Fields({"max_cost": "5"})).seconds_to_limit is None  # free


def test_the_settings_count(monkeypatch):
    Sky.load().cloud = "gcp"
    Sky.load().max_hourly_cost = 1.0
    answer = match(Fields({"cpus": "2+"}))
    assert {place.cloud for place in answer.places} == {"gcp"}
    assert len([note for note in answer.notes if "settings" in note]) == 2


def test_an_alias_counts_and_one_of_another_kernel_is_told():
    assert match(Fields({}, "big"), {"big": "--gpus T4:1 --cloud aws"}).places[0].gpu == "T4:1"
    answer = match(Fields({"cloud": "aws"}, "huge"), {})
    assert answer.count > 0 and any("huge" in note for note in answer.notes)
    assert answer.line == "huge --cloud aws"


# -- completion --------------------------------------------------------------------------------


def values_of(*args, **kwargs):
    return [choice.value for choice in complete(*args, **kwargs)]


def test_gpus_complete_by_any_spelling_with_memory_and_price():
    found = complete("gpus", "a100")
    assert [choice.value for choice in found][:2] == ["A100", "A100-80GB"]
    assert "40 GiB, from $" in found[0].note
    assert "RTX4090" in values_of("gpus", "rtx-40")
    assert values_of("gpus", "V100:", Fields({"cloud": "aws"})) == ["V100:1", "V100:4", "V100:8"]
    assert complete("gpus", "A10G", Fields({"cloud": "gcp"}))[0].note.endswith("not on sale")


def test_regions_are_those_of_the_clouds():
    assert "us-east-1" in values_of("region", "us")
    found = values_of("region", "us", Fields({"cloud": "gcp"}))
    assert "us-central1" in found and "us-east-1" not in found
    assert "europe-west3" in values_of("region", "europe-west")


def test_machine_types_are_those_that_meet_the_rest():
    found = values_of("instance_type", "", Fields({"gpus": "V100:1", "cloud": "aws"}))
    assert found == ["p3.2xlarge"]
    assert all("p4d" in name for name in values_of("instance_type", "p4d"))
    assert values_of("zone", "", Fields({"region": "us-east-1"}))


def test_completed_values_of_options():
    known = CompletionContext((CLUSTER,), "", ("data",), ("model",))
    assert values_of("cluster", "", known=known) == [CLUSTER.name]
    assert values_of("input", "", known=known) == ["data"]
    assert values_of("output", "", known=known) == ["model"]
    assert values_of("max_cost", "") == values_of("nothing", "x") == []
    assert {"local", "ssh", "aws"} <= set(values_of("cloud", ""))
    for option in OPTIONS:  # none of them fails
        assert isinstance(complete(BY_DEST[option.dest].dest, "x"), list)


# -- clusters that are up ----------------------------------------------------------------------

OFFER = {
    **{"cloud": "aws", "region": "us-east-1", "instance_type": "p3.2xlarge", "gpu": "V100"},
    **{"vcpus": 8, "memory": 61, "gpu_count": 1, "price": 3.06},
}
UP = replace(CLUSTER, name="train", offer=OFFER, price=3.06, nodes=1, notebook="a.ipynb")
MINE = replace(UP, connection={**CLUSTER.connection, "named": False})
NAMED = replace(UP, connection={**CLUSTER.connection, "named": True})


def test_a_cluster_that_is_up_and_fits_comes_before_anything_new():
    words = "would run on cluster train, which is up: aws us-east-1 p3.2xlarge, $3.06/h"
    v100 = Fields({"gpus": "V100:1"})
    assert placement_text(v100, {}, CompletionContext((MINE,), "a.ipynb")) == words
    assert "no account" in placement_text(
        v100, {}, CompletionContext((MINE,), "b.ipynb")
    )  # of another notebook
    assert "no account" in placement_text(v100, {}, CompletionContext((NAMED,), "a.ipynb"))
    assert (
        placement_text(Fields({"cluster": "train"}), {}, CompletionContext((NAMED,), "b.ipynb"))
        == words
    )
    other = placement_text(Fields({"gpus": "T4"}), {}, CompletionContext((MINE,), "a.ipynb"))
    assert "no account" in other and "second cluster" not in other, "nothing is started"
    two = placement_text(Fields({"nodes": "2"}), {}, CompletionContext((MINE,), "a.ipynb"))
    assert two.startswith("would run on this machine")
    assert "; starts a second cluster of 2 nodes beside train, because train has 1 node" in two


def test_of_two_clusters_that_fit_the_form_names_the_one_that_a_cell_takes():
    younger = replace(MINE, name="later", created=MINE.created + 60)
    known = CompletionContext((MINE, younger), "a.ipynb")
    assert "on cluster train," in placement_text(Fields({"gpus": "V100:1"}), {}, known)


def test_a_named_cluster_that_lacks_something_is_said_to():
    asked = Fields({"cluster": "train", "gpus": "V100:4", "nodes": "2"})
    assert placement_text(asked, {}, CompletionContext((NAMED,))) == (
        "cannot run on cluster train, which is up without --gpus V100:4 and --nodes 2"
    )
