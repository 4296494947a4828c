"""``jupyter sky`` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from jupyter_sky.cli import main
from tests.conftest import clean, processes_of, wait_until


@pytest.fixture
def sky(tmp_path: Path, sky_env: dict[str, str]):
    """Run one command; returns the completed process."""
    data = tmp_path / "data"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **sky_env, "SKY_DATA_DIR": str(data)}
        env.pop("JPY_SESSION_NAME", None)
        return subprocess.run(
            [sys.executable, "-m", "jupyter_sky.cli", *words],
            capture_output=True,
            text=True,
            env=env,
            cwd=tmp_path,
            timeout=120,
        )

    run.data = data  # type: ignore[attr-defined]
    yield run
    clean(data)


def notebook(path: Path, *sources: str) -> Path:
    cells = [new_code_cell(source) for source in sources]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_help_lists_what_works_outside_a_notebook(sky) -> None:
    answer = sky()
    assert answer.returncode == 0
    for word in ("status", "up", "down", "cost", "logs", "check", "run NOTEBOOK"):
        assert word in answer.stdout
    assert "wait [CELL]" not in answer.stdout
    assert "example: jupyter sky logs 7" in sky("help", "logs").stdout
    assert sky("logs", "--help").stdout == sky("help", "logs").stdout
    offers = sky("offers", "--help").stdout
    assert "--gpu-memory GiB[+]" in offers and "E.g. --cloud aws,gcp" in offers
    assert "refresh [CLOUD ...]" in sky("catalog", "refresh", "--help").stdout


def test_messages_name_the_commands_of_a_shell(sky) -> None:
    assert "or jupyter sky up" in sky("status").stdout
    answers = {
        ("vars",): "run a %%sky cell, or jupyter sky up",
        ("plan", "wine"): "jupyter sky pipeline plan FILE",
        ("plan",): "jupyter sky plan --gpus A100:8",
        ("help", "nothing-like-it"): "jupyter sky help lists all verbs",
    }
    for words, hint in answers.items():
        refused = sky(*words)
        assert refused.returncode in (1, 2) and hint in refused.stderr, refused.stderr
        assert " %sky" not in refused.stderr
    assert "jupyter sky help your-own-cloud" in sky("check").stdout
    assert "Verb of this name: jupyter sky help plan" in sky("help", "sky.plan").stdout
    # in the guide they are those of a notebook, as its cells have them
    assert "    %sky doctor" in sky("help", "1").stdout


def test_wide_usage_does_not_move_the_help_of_a_verb(sky) -> None:
    lines = sky("--help").stdout.splitlines()
    column = next(line.index("Show what is wrong") for line in lines if "doctor" in line)
    at = next(
        number for number, line in enumerate(lines) if line.startswith("  bench --candidates")
    )
    assert len(lines[at]) > column and not lines[at].endswith(".")
    assert lines[at + 1].index("Run one command") == column


def test_status_imports_nothing_heavy(sky, tmp_path: Path, sky_env: dict[str, str]) -> None:
    heavy = {"IPython", "ipyparallel", "jupyter_client", "numpy", "zmq", "yaml", "requests"}
    heavy |= {"http.client", "importlib.metadata", "jupyter_sky.clouds.aws.provider"}
    code = (
        "import sys; from jupyter_sky.cli import main; code = main(['status']);"
        f"print(code, sorted({heavy!r} & set(sys.modules)))"
    )
    env = {**os.environ, **sky_env, "SKY_DATA_DIR": str(sky.data)}
    words = [sys.executable, "-c", code]
    shown = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)
    assert shown.stdout.endswith("0 []\n"), shown.stdout + shown.stderr


@pytest.mark.slow
def test_pipelines_of_notebooks(sky, tmp_path: Path) -> None:
    fit = "%%sky --task fit --map lr=[1,2] -o score\nscore = lr\nprint('lr', lr)"
    notebook(tmp_path / "a.ipynb", fit, "print(score)")
    shown = sky("pipeline", "show", "a.ipynb", "-p", "lr=[3,4]")
    assert "fit[lr=4]" in shown.stdout and "Tasks of a.ipynb" in shown.stdout, shown.stderr
    empty = sky("pipeline", "run", "a.ipynb", "-p", "lr=[]")
    assert empty.returncode == 2 and "lr=[] is empty" in empty.stderr
    none = sky("pipeline", "status")
    assert none.returncode == 2 and "no graph has been run" in none.stderr
    ran = sky("pipeline", "run", "a.ipynb", "-p", "lr=[3,4]", "--name", "one")
    assert ran.returncode == 0 and "fit[lr=4]: succeeded" in ran.stdout, ran.stderr
    assert "Run one: 3 of 3 tasks have ended" in ran.stdout, "its summary"
    late = sky("pipeline", "run", "a.ipynb", "--deadline", "1s")
    assert late.returncode == 3 and "fastest" in late.stderr, late.stderr
    assert "Run one: 3 of 3 tasks have ended" in sky("pipeline", "status").stdout
    assert sky("pipeline", "logs", "one", "fit[lr=4]").stdout == "lr 4\n"
    assert sky("pipeline", "export", "one", "out.ipynb").returncode == 0
    executed = nbformat.read(tmp_path / "out.ipynb", 4)
    assert executed.cells[1].outputs[0].text == "[3, 4]\n"


@pytest.mark.slow
def test_a_detached_pipeline_outlives_its_command(sky, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiting = (
        "%%sky --task fit -o score\nimport pathlib, time\nprint('begun', flush=True)\n"
        f"while not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.1)\nscore = 7"
    )
    notebook(tmp_path / "a.ipynb", waiting, "print('score', score)")
    refused = sky("pipeline", "run", "a.ipynb", "--detach", "-o", "out.ipynb")
    assert refused.returncode == 2 and "pipeline export" in refused.stderr
    begun = sky("pipeline", "run", "a.ipynb", "--name", "one", "--detach")
    assert begun.returncode == 0 and "run one goes on by itself" in begun.stdout, begun.stderr
    wait_until(lambda: "running" in sky("pipeline", "status", "one").stdout)
    gate.touch()
    wait_until(lambda: "2 of 2 tasks have ended" in sky("pipeline", "status", "one").stdout)
    assert sky("pipeline", "logs", "one", "cell2").stdout == "score 7\n"
    log = sky.data / "run-logs" / "one.log"
    assert "fit: succeeded" in log.read_text() and log.stat().st_mode & 0o77 == 0


TASK = """\
workdir: src
resources: {cpus: 1+, disk_tier: best}
envs: {EPOCHS: 3}
setup: echo ready
run: |
  echo "epochs $EPOCHS, node $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES"
  cp data.txt $OUTPUT[0]/
outputs: {"file:PLACE/": 0.1}
"""


@pytest.mark.slow
def test_task_files_of_skypilot(sky, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/data.txt").write_text("here")
    (tmp_path / "task.yaml").write_text(TASK.replace("PLACE", str(tmp_path / "out")))
    dry = sky("pipeline", "run", "task.yaml", "--dry-run")
    assert dry.returncode == 0 and "this machine" in dry.stdout, dry.stderr
    assert dry.stdout.count("line 2: resources.disk_tier is ignored") == 1
    assert not (tmp_path / "out").exists() and "no graph" in sky("pipeline", "status").stderr
    ran = sky("pipeline", "run", "task.yaml", "-p", "EPOCHS=5", "--name", "one")
    assert ran.returncode == 0 and "task: succeeded" in ran.stdout, ran.stderr
    assert sky("pipeline", "logs", "one", "task").stdout == "ready\nepochs 5, node 0 of 1\n"
    assert (tmp_path / "out/data.txt").read_text() == "here"
    assert "kept" in sky("pipeline", "show", "task.yaml", "-p", "EPOCHS=5").stdout
    (tmp_path / "task.yaml").write_text("run: exit 3")
    failed = sky("pipeline", "run", "task.yaml")
    assert failed.returncode == 1 and "task task has failed" in failed.stderr
    (tmp_path / "task.yaml").write_text("run: ls\nnode: 2\n")
    wrong = sky("pipeline", "run", "task.yaml")
    assert wrong.returncode == 2 and "task.yaml, line 2" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu"], "did you mean status"),
        (["put", "x"], "in a notebook only"),
        (["down", "nothing"], "no cluster 'nothing' is up"),
        (["up", "--cpus", "many"], "--cpus"),
        (["cost", "--by", "moon"], "notebook"),
        (["config", "idel"], "did you mean idle"),
        (["offers", "A1000"], "did you mean A100"),
        (["offers", "--regoin", "eu"], "did you mean --region"),
        (["catalog", "refersh"], "did you mean refresh"),
        (["catalog", "build", "absent"], "not a directory"),
        (["run"], "NOTEBOOK is missing"),
        (["run", "absent.ipynb"], "there is no notebook"),
        (["run", "a.ipynb", "-o"], "--output needs a value"),
        (["help", "logz"], "did you mean logs"),
    ],
)
def test_invalid_commands_print_one_message(
    own_data: None, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    answer = capsys.readouterr()
    assert said in answer.err and "Traceback" not in answer.err
    assert answer.out == ""


def test_errors_name_their_page_of_the_guide(
    own_data: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--cpus", "4", "--memory", "100000"]) == 3
    pointer = capsys.readouterr().err.splitlines()[-1]
    assert pointer == "guide: jupyter sky help 08-when-things-fail"
    assert main(pointer.removeprefix("guide: jupyter sky ").split()) == 0
    assert capsys.readouterr().out.startswith("When things fail\n")


def test_offers_and_the_user_offers_file(sky) -> None:
    answer = sky("offers", "A100:8", "--spot", "--region", "eu")
    assert answer.returncode == 0 and answer.stderr == ""
    assert answer.stdout.startswith("8 offers for --gpus A100:8 --region eu --spot\n")
    (sky.data / "offers.csv").write_text("cloud,instance_type,price\nssh,basement,1\nawz,m,1\n")
    told = sky("catalog", "check")
    assert told.returncode == 2 and "offers.csv, line 3: cloud 'awz'" in told.stderr
    mine = sky("offers", "--cloud", "ssh").stdout
    assert "basement" in mine and "yours" in mine and "offers.csv, line 3" in mine


def test_no_offer_is_an_error_with_the_nearest_request(sky) -> None:
    answer = sky("offers", "H100:16")
    assert answer.returncode == 3 and "nearest: --gpus H100:8" in answer.stderr


@pytest.mark.slow
def test_a_cluster_outlives_the_command_that_made_it(sky) -> None:
    assert "demo" in sky("up", "-c", "demo", "--cpus", "1", "--idle", "1m").stdout
    assert processes_of(sky.data)
    status = sky("status").stdout
    assert "demo" in status and "this machine" in status and "$0.00/h" in status
    assert "running, est." in sky("cost", "--by", "cluster").stdout
    assert "none yet" in sky("vars", "demo").stdout
    assert sky("down", "demo").stdout.startswith("ended: demo (this machine")
    assert processes_of(sky.data) == []
    assert "no cluster is up" in sky("status").stdout


@pytest.mark.slow
def test_commands_and_scripts_on_a_cluster(sky, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("ANSWER = 42\n")
    script = "import helper, sys\nprint(helper.ANSWER, sys.argv[1:])\nsys.exit(7)"
    (tmp_path / "fit.py").write_text(script)
    ran = sky("launch", "-c", "one", "--cpus", "1", "fit.py", "--", "--lr", "3")
    assert ran.returncode == 7 and ran.stdout == "42 ['--lr', '3']\n", ran.stderr
    assert "running" in ran.stderr and "Traceback" not in ran.stderr
    begun = sky("exec", "one", "--name", "long", "--detach", "--", "echo begun; sleep 600")
    assert begun.returncode == 0 and "jupyter sky logs long -f" in begun.stdout, begun.stderr
    wait_until(lambda: "begun" in sky("logs", "long").stdout)
    queue = sky("queue", "one").stdout
    assert "fit.py --lr 3" in queue and "failed" in queue and "running" in queue
    assert sky("cancel", "long").stdout == "long was cancelled\n"
    assert "cancelled" in sky("queue").stdout
    again = sky("cancel", "long")
    assert again.returncode == 2 and "has ended already: cancelled" in again.stderr
    assert "sleep" not in [process.name() for process in processes_of(sky.data)]
    none = sky("exec", "onee", "--", "ls")
    assert none.returncode == 2 and "did you mean one?" in none.stderr
    assert "fit" in sky("measurements").stdout


@pytest.mark.slow
def test_run_prints_what_cells_show_and_leaves_nothing(sky, tmp_path: Path) -> None:
    path = notebook(
        tmp_path / "a.ipynb",
        "%load_ext jupyter_sky",
        "%%sky --cpus 1\nprint('far')\n6 * 7",
        "%%sky --bg later\nimport time; time.sleep(1); print('late'); open('done', 'w').write('x')",
    )
    before = path.read_bytes()
    answer = sky("run", str(path), "-o", str(tmp_path / "out.ipynb"))
    assert answer.returncode == 0, answer.stderr
    shown = answer.stdout
    assert shown.index("☁ done") < shown.index("far\n") < shown.index("\n42")
    ending = shown[shown.index("In the end:") :]
    assert "☁ done" in ending and "late\n" in ending
    assert path.read_bytes() == before
    assert processes_of(sky.data) == []
    assert list(sky.data.glob("local/*/work/done")), "background cells are waited for"
    kept = json.loads((tmp_path / "out.ipynb").read_text())
    assert len(kept["cells"]) == 3 and kept["cells"][1]["outputs"]


@pytest.mark.slow
def test_run_stops_at_a_failing_cell(sky, tmp_path: Path) -> None:
    path = notebook(
        tmp_path / "a.ipynb", "%load_ext jupyter_sky", "%%sky\n1 / 0", "print('went on')"
    )
    answer = sky("run", str(path))
    assert answer.returncode == 1
    assert "ZeroDivisionError" in answer.stderr and "went on" not in answer.stdout
    assert processes_of(sky.data) == []


@pytest.mark.slow
def test_run_takes_a_notebook_that_does_not_load_the_extension(sky, tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", "import jupyter_sky as sky\nlen(sky.tracker.blocked())")
    answer = sky("run", str(path))
    assert answer.returncode == 0, answer.stderr
    assert "]: import jupyter_sky as sky" in answer.stdout and "\n0\n" in answer.stdout
