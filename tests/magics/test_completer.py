from __future__ import annotations

import time

import pytest
from IPython.core.completer import CompletionContext, provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from jupyter_sky.base.clouds.register import known_names
from jupyter_sky.base.requests.accelerators import names
from jupyter_sky.base.requests.cell_options.schema import BY_FLAG
from jupyter_sky.interfaces.magics.completer import make_matcher
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK
from jupyter_sky.interfaces.magics.verbs import list_verbs


class Sources:
    def clusters(self):
        return ["train", "test"]

    def local_names(self):
        return ["data", "df", "_private"]

    def remote_names(self):
        return ["model", "metrics"]

    def remote_paths(self, fragment):
        return ["out/model.pt"] if fragment else []

    def aliases(self):
        return ["big", "small"]

    def places(self, kind):
        known = {
            "region": ["us-east-1", "us-west-2"],
            "instance-type": ["m5.large", "p4d.24xlarge"],
        }
        return known.get(kind, [])

    def runs(self):
        return ["sweep"]

    def tasks(self):
        return ["prepare", "fit"]

    def graph_runs(self):
        return ["nightly"]

    def bags(self):
        return ["ions"]


@pytest.fixture
def complete():
    """Function of a cell to the texts that IPython offers at its end, or at an offset."""
    shell = InteractiveShell.instance()
    matcher = make_matcher(Sources())
    shell.Completer.custom_matchers.append(matcher)
    shell.user_ns["decoy_data"] = 1

    def complete(cell: str, offset: int | None = None) -> list[str]:
        offset = len(cell) if offset is None else offset
        with provisionalcompleter():
            return [found.text for found in shell.Completer.completions(cell, offset)]

    yield complete
    shell.Completer.custom_matchers.remove(matcher)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%%sky --g", ["--gpus"]),
        ("%%sky --gpu", ["--gpus"]),
        ("%%sky --gpu-", ["--gpu-memory"]),
        ("%%sky --cp", ["--cpus"]),
        ("%%sky --cpus 4 --me", ["--memory"]),
        ("%%sky --max", ["--max-hourly-cost", "--max-cost"]),
        ("%%sky b", ["big"]),
        ("%%sky --cloud ", list(known_names())),
        ("%%sky --cloud aws,g", ["gcp"]),
        ("%%sky --cloud=a", ["aws", "azure"]),
        ("%%sky --gpus ", list(names())),
        ("%%sky --gpus v1", ["V100", "V100-32GB", "V100S"]),
        ("%%sky --gpus V100:", ["V100:1", "V100:2", "V100:4", "V100:8"]),
        ("%%sky --region us-w", ["us-west-2"]),
        ("%%sky --instance-type p", ["p4d.24xlarge"]),
        ("%%sky --arch ", ["x86_64", "arm64"]),
        ("%%sky --cpu-vendor a", ["AMD", "AWS", "Ampere", "Apple"]),
        ("%%sky --service e", ["emr", "emr-serverless"]),
        ("%sky offers V1", ["V100", "V100-32GB", "V100S"]),
        ("%sky offers V100:1 --sp", ["--spot"]),
        ("%sky offers V100:1 --idl", []),
        ("%sky offers V100:1 --region us-w", ["us-west-2"]),
        ("%%sky -c t", ["train", "test"]),
        ("%%sky --cluster=tr", ["train"]),
        ("%%sky -i ", ["data", "df"]),
        ("%%sky -i _", ["_private"]),
        ("%%sky -i df,da", ["data"]),
        ("%%sky -i df, da", ["data"]),
        ("%%sky -i 'df", ["df"]),
        ("%%sky --spot -o mo", ["model"]),
        ("%%sky --env SKY_TEST_VAR", ["SKY_TEST_VARIABLE"]),
        ("%%sky --task fit --after p", ["prepare"]),
        ("%%sky --after=prepare,f", ["fit"]),
        ("\n\n%%sky --g", ["--gpus"]),
        ("%sky d", ["doctor", "down"]),
        ("%sky down ", ["train", "test", "all", "--all", "--yes"]),
        ("%sky down train --", ["--all", "--yes"]),
        ("%sky down --yes ", ["train", "test", "all", "--all"]),
        ("%sky logs ", ["sweep", "-f", "--follow", "--provision", "--spark"]),
        ("%sky pipeline st", ["status"]),
        ("%sky pipeline status n", ["nightly"]),
        ("%sky pipeline status --f", ["--follow"]),
        ("%sky pipeline logs nightly f", ["fit"]),
        ("%sky pipeline export ni", ["nightly"]),
        ("%sky bag status i", ["ions"]),
        ("%sky bag logs i", ["ions"]),
        ("%sky vars te", ["test"]),
        ("%sky put d", ["data", "df"]),
        (
            "%sky get ",
            ["model", "metrics", "-c", "--cluster", "--to", "--force", "--on"],
        ),
        ("%sky get ou", ["out/model.pt"]),
        ("x = 1\ny = %sky get me", ["metrics"]),
        ("%sky up --cloud lo", ["local"]),
        ("%sky alias s", ["small"]),
        ("%sky alias huge --me", ["--memory"]),
        ("%sky config id", ["idle="]),
        ("%sky plan --minimize ti", ["time", "time_then_cost"]),
        ("%sky plan dat", ["data"]),
        ("%sky plan data --bu", ["--budget"]),
        ("%sky plan --cloud lo", ["local"]),
        ("%sky catalog ref", ["refresh"]),
        ("%sky catalog refresh a", ["aws", "azure"]),
        ("%sky catalog refresh aws --d", ["--dry-run"]),
        ("%sky tracker c", ["clear"]),
        ("%sky tracker --cloud aws,g", ["gcp"]),
        ("%sky cost --by c", ["cell", "cluster", "cloud"]),
        ("%sky cost --by=d", ["day"]),
        ("%sky cost --by day --", ["--since", "--csv"]),
        ("%sky put data d", ["data", "df"]),
        ("%sky put -c t", ["train", "test"]),
        ("%sky help lo", ["logs"]),
        ("%sky help sky.redi", ["sky.redirect_output"]),
        ("%sky r", ["reap"]),
        ("%sky ", [verb.name for verb in list_verbs(NOTEBOOK) if " " not in verb.name]),
    ],
)
def test_completions(complete, monkeypatch, cell, expected):
    monkeypatch.setenv("SKY_TEST_VARIABLE", "1")
    assert complete(cell) == expected


def test_the_cursor_may_be_inside_the_line(complete):
    cell = "%%sky --g --spot\nprint(1)"
    assert complete(cell, len("%%sky --g")) == ["--gpus"]


def test_first_word_is_an_alias_or_an_option_and_used_options_come_last(complete):
    first = complete("%%sky ")
    assert first[:2] == ["big", "small"] and set(first[2:]) == set(BY_FLAG)
    later = complete("%%sky --cpus 4 -i x ")
    assert "big" not in later
    assert set(later[-3:]) == {"--cpus", "--input", "-i"}


def test_paths(complete, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("src/deep", "some", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a.py").touch()
    assert complete("%%sky --sync ") == ["some/", "src/", "a.py"]
    assert complete("%%sky --sync src/") == ["src/deep/"]
    assert complete("%%sky --sync some,sr") == ["src/"]
    assert complete("%%sky --sync .") == [".hidden/"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert complete("%%sky --sync ~/s") == ["~/some/", "~/src/"]


@pytest.mark.parametrize(
    "cell",
    [
        "%%sky --gpus V100:1\ndecoy_d",
        "decoy_d",
        "%%skyline --g",
        "x = '%%sky'\n%%sky --g",
        "%%sky\n%sky d",
        "%%bash\n%sky d",
        "%%sky",
        "print(%sky d",
    ],
)
def test_other_lines_are_left_alone(cell):
    assert _match(cell) == {"completions": []}


def test_the_body_still_completes_as_python(complete):
    assert "decoy_data" in complete("%%sky --gpus V100:1\ndecoy_d")


@pytest.mark.parametrize("cell", ["%%sky ", "%%sky --gpus V", "%%sky -i ", "%sky ", "x = 1"])
def test_answers_at_once(cell):
    _match(cell)
    start = time.perf_counter()
    for _ in range(20):
        _match(cell)
    assert (time.perf_counter() - start) / 20 < 0.005


def _match(cell: str):
    line = cell.count("\n")
    column = len(cell) - cell.rfind("\n") - 1
    context = CompletionContext("", cell, cursor_position=column, cursor_line=line, limit=None)
    return make_matcher(Sources())(context)


def test_addresses_of_data_are_completed_as_paths_and_schemes(complete, tmp_path, own_data):
    (tmp_path / "set").mkdir()
    assert complete(f"%%sky --data {tmp_path}/s") == [f"{tmp_path}/set/"]
    assert complete(f"%sky storage ls file:{tmp_path}/s") == [f"file:{tmp_path}/set/"]
    assert complete("%%sky --mount g") == ["gs://"]
