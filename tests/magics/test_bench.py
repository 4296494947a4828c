"""Words after ``jupyter sky bench``: candidates, limits, and what is said before money is spent."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyError, SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.cli import main
from jupyter_sky.execution.files.data_estimate import transfers_usd
from jupyter_sky.execution.files.dataset_listing import CellDataset
from jupyter_sky.interfaces.api.bench import Bench, check_limits, plan_bench, split_candidates
from jupyter_sky.interfaces.api.launches import read_command, read_command_line
from jupyter_sky.knowledge.catalog import load
from jupyter_sky.knowledge.ledger.billing import cluster_price
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.store import StoredObject
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.workflows.trials.bench import Candidate, _launch_request


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_data: None) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def command(*words: str):
    return read_command(read_command_line([*words, "train.py"], "jupyter sky bench"))


def rented(text: str, price: float | None) -> Candidate:
    return Candidate(text, Resources(), Offer("aws", "us-east-1", text, 2, 8, price=price))


def test_candidates_are_separated_by_commas_or_semicolons() -> None:
    assert split_candidates("T4, L4,--cpus 8") == ["T4", "L4", "--cpus 8"]
    assert split_candidates("--cloud aws,gcp;T4") == ["--cloud aws,gcp", "T4"]


def test_candidate_overrides_the_resources_of_the_command() -> None:
    planned = plan_bench(command("--cpus", "2+"), ["--cpus 1", "local", "t3.small --spot"])
    needs = [each.need.command_line() for each in planned.candidates]
    assert needs[:2] == ["--cpus 1", "--cpus 2+ --cloud local"]
    assert needs[2] == "--cpus 2+ --instance-type t3.small --spot"
    assert [each.offer is not None for each in planned.candidates] == [True, True, False]
    assert planned.usd == 0.0 and "it costs nothing" in str(planned.table())


@pytest.mark.parametrize(
    ("words", "candidates", "said"),
    [
        ([], [], "no candidates.*--candidates T4"),
        ([], ["T5"], "T5"),
        ([], ["m5.lagre"], "did you mean.*m5.large"),
        ([], ["T4", "T4"], "given twice"),
        ([], ["T4 --timeout 2h"], "--timeout describes no machine"),
        ([], ['T4 "x'], "closing quote"),
        ([], ["''"], "no candidates"),
        (["--burst", "spot"], ["T4"], "--burst"),
        (["-c", "one"], ["T4"], "--cluster.*machines of its own"),
        (["-o", "file:out/"], ["T4"], "--output"),
    ],
)
def test_invalid_benchmarks(words: list[str], candidates: list[str], said: str) -> None:
    with pytest.raises(SkyError) as raised:
        plan_bench(command(*words), candidates)
    assert re.search(said, str(raised.value), re.DOTALL), raised.value


def test_something_limits_the_cost_before_money_is_spent() -> None:
    planned = Bench(command(), (rented("m5.large", 1.0), rented("c5.large", 2.0)))
    with pytest.raises(SkyUsageError, match="nothing limits what it costs"):
        check_limits(planned)
    check_limits(Bench(planned.command, planned.candidates, 1.0))
    limited = Bench(command("--timeout", "58m"), planned.candidates)
    check_limits(limited)
    assert limited.usd == pytest.approx(3.0), "an hour with the boot, on each"
    with pytest.raises(SkyUsageError, match=r"a budget of \$0.01: a minute on each"):
        check_limits(Bench(planned.command, planned.candidates, 0.01))
    with pytest.raises(SkyUsageError, match="no known price"):
        check_limits(Bench(planned.command, (rented("odd", None),), 1.0))
    nothing = Candidate("T4", Resources(), None, "no account")
    with pytest.raises(SkyNoOffer, match="T4: no account"):
        check_limits(Bench(planned.command, (nothing,), 1.0))


def test_cost_limit_counts_disks_and_transfers() -> None:
    need = Resources.parse(disk="1000", nodes="2")
    big = replace(rented("m5.large", 1.0), need=need, transfers=3.0)
    hourly = cluster_price(1.0, "aws", 2, 1000.0)
    assert hourly is not None and hourly > 2.1
    limited = Bench(command("--timeout", "58m"), (big,))
    assert limited.usd == pytest.approx(hourly + 3.0), "an hour with the boot, and the data"
    assert limited.usd and f"about ${limited.usd:.2f} at most" in str(limited.table())
    assert f"{format_usd(hourly)}/h" in str(limited.table()), "the rate that the ledger bills"
    with pytest.raises(SkyUsageError, match=r"a budget of \$3: a minute on each"):
        check_limits(Bench(limited.command, limited.candidates, 3.0))
    check_limits(Bench(limited.command, limited.candidates, 4.0))


def test_uploads_of_unknown_size_need_a_budget() -> None:
    given = command("--timeout", "1h", "--out", "a.csv:s3://mine/a.csv")
    planned = Bench(given, (replace(rented("m5.large", 1.0), transfers=None),))
    with pytest.raises(SkyUsageError, match=r"of --out nobody knows the bytes[^$]*--budget"):
        check_limits(planned)
    assert "give --budget" in str(planned.table())
    check_limits(Bench(given, planned.candidates, 1.0))


def test_data_of_a_store_are_counted_for_each_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    uri = StorageUri.parse("s3://bucket/x/?place=aws/us-east-1")
    objects = (StoredObject("x/1", 10**11, "v"),)
    data = CellDataset("data/x", open_store(uri), Manifest(uri, objects, "x/"))
    options, prices = command().options, load()
    far = transfers_usd([data], options, "gcp/us-central1", prices, 1)
    near = transfers_usd([data], options, "aws/us-east-1", prices, 1)
    assert far is not None and near is not None and far > 5 > near > 0
    writing = command("--out", "a.csv:s3://mine/a.csv").options
    assert transfers_usd([], writing, "aws/us-east-1", prices, 1) is None
    assert transfers_usd([], writing, "local", prices, 1) == 0.0
    mounted = command("--mount", "s3://mine/x/:./x").options
    assert transfers_usd([], mounted, "aws/us-east-1", prices, 1) is None


def test_launch_costs_no_more_than_was_shown() -> None:
    need = Resources.parse(nodes="2", max_hourly_cost="5")
    shown = replace(rented("m5.large", 1.0), need=need)
    assert _launch_request(shown).max_hourly_cost == 2.0
    assert _launch_request(replace(shown, need=Resources())).max_hourly_cost == 1.0
    unknown = replace(rented("odd", None), need=need)
    assert _launch_request(unknown) == need


def test_changes_elsewhere_are_asked_for_though_they_cost_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--candidates", "local", "--out", "a.csv:s3://mine/a.csv", "train.py"]
    assert main(["bench", *words]) == 2
    said = capsys.readouterr().err
    assert "it writes s3://mine/a.csv" in said and "--yes" in said


def test_dry_run_launches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--candidates", "local,T4", "--dry-run", "train.py"]) == 0
    shown = capsys.readouterr().out
    assert "nothing was launched" in shown and "this machine" in shown
    assert re.search(r"T4 .*no account", shown)
