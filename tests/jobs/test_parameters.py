"""Parameters of the jobs of a bag."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.workflows.bags.queue.parameters import make_sweep, read_file, read_jobs


def test_grid_has_all_combinations_the_last_varying_first() -> None:
    jobs = make_sweep({"lr": [0.1, 0.01], "seed": range(2), "kind": "adam"}).jobs()
    assert jobs == [
        {"lr": 0.1, "seed": 0, "kind": "adam"},
        {"lr": 0.1, "seed": 1, "kind": "adam"},
        {"lr": 0.01, "seed": 0, "kind": "adam"},
        {"lr": 0.01, "seed": 1, "kind": "adam"},
    ]


def test_constraints_are_texts_or_functions() -> None:
    ranges = {"z": [1, 2, 3], "salt": np.linspace(0, 1, 3)}
    text = make_sweep(ranges, where="z * salt < 2 and z != 1").jobs()
    function = make_sweep(ranges, where=lambda p: p["z"] * p["salt"] < 2 and p["z"] != 1).jobs()
    assert (
        text
        == function
        == [
            {"z": 2, "salt": 0.0},
            {"z": 2, "salt": 0.5},
            {"z": 3, "salt": 0.0},
            {"z": 3, "salt": 0.5},
        ]
    )


@pytest.mark.parametrize("sampler", ["random", "sobol"])
def test_samples_are_seeded_and_more_of_them_begin_alike(sampler: str) -> None:
    ranges = {"salt": (0.1, 0.9), "z": [1, 2, 3]}
    sweep = make_sweep(ranges, where="z * salt < 2", n=50, seed=3, sampler=sampler)
    jobs = sweep.jobs()
    assert len(jobs) == 50
    assert sweep.jobs(80)[:50] == jobs
    assert all(0.1 <= job["salt"] < 0.9 and job["z"] * job["salt"] < 2 for job in jobs)
    assert {job["z"] for job in jobs} == {1, 2, 3}
    assert make_sweep(ranges, n=50, seed=4, sampler=sampler).jobs() != jobs


def test_jobs_of_tables_generators_and_numbers() -> None:
    table = pd.DataFrame({"lr": [0.1, 0.2], "seed": [1, 2]})
    assert read_jobs(table) == [{"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 2}]
    assert read_jobs({"n": np.int64(n)} for n in range(2)) == [{"n": 0}, {"n": 1}]
    assert read_jobs(np.arange(2), "seed") == [{"seed": 0}, {"seed": 1}]


def test_file_has_ranges_steps_and_constraints(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    path.write_text(
        json.dumps(
            {
                "parameters": {
                    "lr": {"min": 0, "max": 0.3, "step": 0.1},
                    "kind": {"values": ["a", "b"]},
                },
                "constraints": ["lr > 0"],
            }
        )
    )
    jobs = read_file(path).jobs()
    assert len(jobs) == 6
    assert jobs[-1] == {"lr": pytest.approx(0.3), "kind": "b"}


def _raises_at_two() -> Iterator[dict[str, int]]:
    yield {"n": 0}
    yield {"n": 1}
    raise ValueError("no more seeds")


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([], "a bag without jobs"),
        (0, "n=0: not a number of jobs"),
        ([{"x": object()}], "parameter x of job 0: a object is not a value of JSON"),
        ([{1: 2}], "job 0: 1 is no name of a parameter"),
        (_raises_at_two(), "has failed at job 2: ValueError: no more seeds"),
        ({"lr": [1, 2]}, "a bag takes a list of jobs"),
        (3.5, "a float is no list of jobs"),
        ("nowhere.json", "nowhere.json"),
    ],
)
def test_invalid_jobs(jobs: object, message: str) -> None:
    with pytest.raises(SkyUsageError, match=message):
        read_jobs(jobs)


@pytest.mark.parametrize(
    ("ranges", "more", "message"),
    [
        ({}, {}, "a sweep without parameters"),
        ({"x": []}, {}, "x has no values"),
        ({"x": (1, 0)}, {"n": 5}, r"x: \(1, 0\) is no interval"),
        ({"x": (0, 1)}, {}, "x is an interval"),
        ({"x": [1]}, {"n": -1}, "n=-1: not a number of jobs"),
        ({"x": [1]}, {"where": "y > 1"}, "there is no parameter y"),
        ({"x": [1]}, {"where": "open('f')"}, "is not allowed in a condition"),
        ({"x": [1]}, {"where": "x > 1"}, "no combination of the parameters"),
        ({"x": [1]}, {"sampler": "latin"}, "sampler='latin' is not known"),
        ({"x": (0, 1)}, {"n": 5, "where": "x > 2"}, "5 jobs are asked for, and the ranges give 0"),
        ({"x": range(2000), "y": range(2000)}, {}, "4,000,000 combinations"),
    ],
)
def test_invalid_sweeps(ranges: dict, more: dict, message: str) -> None:
    with pytest.raises(SkyUsageError, match=message):
        make_sweep(ranges, **more).jobs()
