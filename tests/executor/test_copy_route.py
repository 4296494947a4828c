"""Route of copies: never through this machine unless it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_sky.execution.sessions.copy_route import find_route, nearest_cluster
from jupyter_sky.machines.storage.datasets.data import Storage


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")


def test_a_folder_of_this_machine_and_one_store_need_no_machine() -> None:
    for pair in (
        ("/x/", "s3://bucket/"),
        ("ssh://h/x/", "/y/"),
        ("s3://bucket/x", "s3://bucket/y"),
    ):
        route = find_route(Storage(pair[0]), Storage(pair[1]), "")
        assert route is not None and route.title == ""


def test_a_host_moves_its_own_files() -> None:
    route = find_route(Storage("ssh://ada@h/x/"), Storage("s3://bucket/y/"), "")
    assert route is not None and route.title == "ada@h" and route.write_store is not None
    route = find_route(Storage("ssh://h/x/"), Storage("ssh://h/y/"), "")
    assert route is not None and route.title == "h"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("s3://bucket/x", "gs://other/y"),
        ("s3://bucket/x", "r2://account/bucket/y"),
        ("ssh://h/x", "ssh://other/y"),
    ],
)
def test_nothing_passes_through_here_unasked(source: str, target: str) -> None:
    assert find_route(Storage(source), Storage(target), "") is None
    route = find_route(Storage(source), Storage(target), "here")
    assert route is not None and (route.title, route.place) == ("this machine", "local")


def test_the_machine_at_the_destination_comes_first() -> None:
    rows = [("aws", "us-east-1"), ("gcp", "europe-west4"), ("local", "")]
    clusters = cast(Any, [SimpleNamespace(row=SimpleNamespace(cloud=c, region=r)) for c, r in rows])
    assert nearest_cluster(clusters, ["gcp/europe-west4", "aws/us-east-1"]) is clusters[1]
    assert nearest_cluster(clusters, ["gcp/us-central1", "aws/us-east-1"]) is clusters[0]
    assert nearest_cluster(clusters, ["", "aws"]) is None
