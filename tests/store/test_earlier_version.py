"""What version 0.1.0 stored before its modules moved (`earlier_version.json`) can be read."""

from __future__ import annotations

import base64
import importlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.moved_modules import moved_modules
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.execution.checkpoints.save_format import read_state
from jupyter_sky.workflows.bags.queue.application import CommandApp

RECORDED = {
    name: base64.b64decode(text)
    for name, text in json.loads(
        Path(__file__).with_name("earlier_version.json").read_text(encoding="utf-8")
    ).items()
}


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - {"save"}))
def test_a_plain_reader_does_not_find_its_classes(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=" is now jupyter_sky"):
        pickle.loads(RECORDED[name])


def test_app_of_a_bag() -> None:
    assert open_pickle(RECORDED["app of a bag"]) == (CommandApp("python train.py {lr}"), {})


def test_class_of_a_divided_module() -> None:
    assert open_pickle(RECORDED["place"]) == Place("aws", "us-east-1", "us-east-1a")


def test_request() -> None:
    assert open_pickle(RECORDED["request"]) == sky.Resources(cpus=2, memory=4)


def test_offer() -> None:
    offer = open_pickle(RECORDED["offer"])
    assert isinstance(offer, Offer)
    assert (offer.cloud, offer.instance_type, offer.spot) == ("aws", "t3.nano", True)


def test_function_with_a_module_that_has_moved() -> None:
    assert open_pickle(RECORDED["function"])() is sky.SkyUsageError


def test_save_of_a_checkpoint() -> None:
    state = read_state(io.BytesIO(RECORDED["save"]), "a save")
    assert state.values == {"place": Place("aws", "us-east-1")}


def test_all_names_of_the_table_exist() -> None:
    for old, new in moved_modules().items():
        module: Any = importlib.import_module(f"jupyter_sky.{new}")
        name = old.rpartition(".")[2]
        assert not name[:1].isupper() or hasattr(module, name), (old, new)


@pytest.mark.parametrize(
    ("old", "advice"),
    [
        ("jupyter_sky.errors", "jupyter_sky.base.errors; import from jupyter_sky"),
        ("jupyter_sky.provider.facts", "jupyter_sky.base.clouds.index; import from jupyter_sky"),
        (
            "jupyter_sky.optimizer",
            "jupyter_sky.decisions.optimizer; import jupyter_sky, use jupyter_sky.optimizer",
        ),
    ],
)
def test_an_import_of_an_old_name_is_refused_with_the_new_one(old: str, advice: str) -> None:
    with pytest.raises(ImportError, match=f"{old} is now {advice}"):
        importlib.import_module(old)
