"""Outputs of ``%sky`` verbs in a kernel, also after a cluster was killed."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Notebook, Ran, part, processes_of, wait_until

pytestmark = pytest.mark.slow


def text(ran: Ran) -> str:
    """All that a verb has shown."""
    shown = [*ran.of("display_data"), *ran.of("execute_result")]
    return ran.stdout + "".join(c["data"].get("text/plain", "") for c in shown)


def test_verbs_over_the_life_of_a_cluster(fresh) -> None:
    book: Notebook = fresh()
    assert "no cluster is up" in text(book.run("%sky status"))
    assert "no cluster is up" in text(book.run("%sky"))
    assert "no cluster is up" in text(book.run("%sky down all"))
    assert "nothing has run yet" in text(book.run("%sky cost"))
    up = text(book.run("%sky up -c train --cpus 1 --idle 5m"))
    assert re.search(r"train .*this machine", up) and "5:00" in up and "$0.00/h" in up
    assert text(book.run("%sky up -c train")).count("train") == 1, "up twice is up once"
    assert len(part(fresh.data, "controller")) == 1

    assert book.run("%%sky -c train --name step\nprint('π', end='')\nx = 1").stdout == "π"
    assert book.run("%%sky -c train\nprint('second')\n1 / 0").ename == "ZeroDivisionError"
    number = int(book.run("print(In.__len__() - 1)").stdout) - 1
    assert text(book.run("%sky logs step")) == "π"
    last = text(book.run(f"%sky logs {number}"))
    assert last.startswith("second\n") and "ZeroDivisionError" in last
    assert text(book.run("%sky logs")) == last
    vars_ = text(book.run("%sky vars"))
    assert re.search(r"\bx\b.*int.*\b1\b", vars_)
    cost = text(book.run("%sky cost"))
    assert "analysis.ipynb [step]" in cost and "$0.00" in cost and "(running" not in cost
    assert re.search(
        r"train .*\$0\.00 \(running, est\.\)", text(book.run("%sky cost --by cluster"))
    )

    assert "ended: train" in text(book.run("%sky down train"))
    assert processes_of(fresh.data) == []
    # the journal and the account remain
    assert text(book.run("%sky logs step")) == "π"
    assert text(book.run("%sky logs")) == last
    assert "(running, est.)" not in text(book.run("%sky cost --by cluster"))
    for verb in ("cell", "notebook", "cluster", "cloud", "day"):
        assert "$0.00" in text(book.run(f"%sky cost --by {verb} --since 1h")), verb
    assert "nothing has run yet" in text(book.run("%sky cost --since 2100-01-01"))
    file = fresh.data / "costs.csv"
    assert "1 lines are in" in book.run(f"%sky cost --by cluster --csv {file}").stdout
    assert file.read_text().startswith("cluster,started,") and "train," in file.read_text()
    again = book.run("%sky down train")
    assert again.ename == "SkyUsageError" and "no cluster 'train' is up" in again.evalue


def test_verbs_after_a_cluster_was_killed(fresh) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky -c train\nprint('kept')\nx = 1").status == "ok"
    part(fresh.data, "supervisor")[0].kill()
    wait_until(lambda: not processes_of(fresh.data))
    assert "no cluster is up" in text(book.run("%sky status"))
    assert "(running, est.)" not in text(book.run("%sky cost --by cluster"))
    assert text(book.run("%sky logs")) == "kept\n"
    gone = book.run("%sky vars train")
    assert gone.ename == "SkyUsageError" and "no cluster 'train' is up" in gone.evalue


def test_verbs_that_need_no_cluster(fresh) -> None:
    book: Notebook = fresh()
    assert re.search(r"local .*yes.*this machine: \d+ vCPUs", text(book.run("%sky check")))
    config = text(book.run("%sky config"))
    assert re.search(r"idle +'10m'", config) and "data_dir" in config
    assert book.run("%sky config idle=20m").status == "ok"
    assert "20m" in text(book.run("%sky config idle"))
    assert "none: %sky alias" in text(book.run("%sky alias"))
    assert book.run("%sky alias big --cpus 8+ --memory 32+").status == "ok"
    assert re.search(r"big +--cpus 8\+ --memory 32\+", text(book.run("%sky alias big")))
    helped = text(book.run("%sky help"))
    assert all(verb in helped for verb in ("status", "up", "down", "cost", "logs", "--gpus"))
    assert "example: %sky logs 7" in text(book.run("%sky help logs"))
    assert processes_of(fresh.data) == []


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("statsu", ["no such verb", "did you mean status or start?", "%%sky above a cell"]),
        ("1 + 1", ["no such verb"]),
        ("down nothing", ["no cluster 'nothing' is up (up now: none)"]),
        ("down a b", ["'b' is not understood", "usage: %sky down [CLUSTER]"]),
        ("extend", ["TIME is missing", "%sky extend train 1h"]),
        ("extend a b c", ["'c' is not understood"]),
        ("extend 1h", ["no cluster is up"]),
        ("extend nothing 1h", ["no cluster 'nothing' is up"]),
        ("cost --by moon", ["--by moon", "notebook"]),
        ("cost --since yesterdayish", ["--since"]),
        ("cost --from 1h", ["unknown option --from"]),
        ("logs 99", ["no cell '99' has run"]),
        ("logs", ["no cell has run yet"]),
        ("vars", ["no cluster is up"]),
        ("get", ["NAME ... is missing", "%sky get out/model.pt"]),
        ("put absent", ["no cluster is up"]),
        ("cancel", ["CELL is missing", "%sky cancel train"]),
        ("wait absent", ["no cell 'absent' has run"]),
        ("config idel", ["did you mean idle?"]),
        ("config idle=soon", ["idle=soon"]),
        ("alias two-words --cpus 1", ["alias 'two-words'"]),
        ("help logz", ["did you mean logs?"]),
        ("up --cpus many", ["--cpus", "many"]),
        ("up --cpus 2 --timeout 2h", ["--timeout is for cells", "%%sky --timeout 2h"]),
        ("logs 'unclosed", ["quot"]),
    ],
)
def test_invalid_lines(notebook: Notebook, line: str, pieces: list[str]) -> None:
    ran = notebook.run(f"%sky {line}")
    assert ran.status == "error" and ran.ename.startswith("Sky"), (ran.ename, ran.evalue)
    for piece in pieces:
        assert piece in ran.evalue, ran.evalue
    assert "jupyter_sky/" not in ran.traceback
