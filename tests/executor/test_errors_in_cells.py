"""Errors of cells: their own names, their own lines, red cells, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Notebook, processes_of

pytestmark = pytest.mark.slow


def test_mistakes_are_found_before_anything_is_launched(notebook: Notebook, data_dir: Path) -> None:
    """First: no cluster may be up."""
    notebook.run("here = 1; import threading; tangled = {'deep': [threading.Lock()]}")
    for line, body, name, words in (
        ("--spto", "1", "SkyUsageError", "did you mean --spot"),
        ("--spot --on-demand", "1", "SkyUsageError", "exclude each other"),
        ("--cpus many", "1", "SkyUsageError", "many"),
        ("--timeout soon", "1", "SkyUsageError", "soon"),
        ("-i 2+->x", "1", "SkyUsageError", "not an expression"),
        ("-i heer", "1", "SkyUsageError", "did you mean here?"),
        ("-i here.nothing->x", "1", "SkyUsageError", "AttributeError"),
        ("-i tangled", "print('ran')", "SkyTransferError", "tangled['deep'][0] is a lock"),
        ("--env NOT_SET_HERE", "1", "SkyUsageError", "NOT_SET_HERE"),
        ("", "   ", "SkyUsageError", "no body"),
        ("", "x = = 1", "SyntaxError", "invalid syntax"),
    ):
        ran = notebook.run(f"%%sky {line}\n{body}")
        assert (ran.status, ran.ename) == ("error", name), (line, ran)
        assert words in ran.evalue + ran.traceback, (line, ran.evalue)
        assert not ran.stdout, line
        assert "jupyter_sky/" not in ran.traceback, line
    assert not processes_of(data_dir)


def test_a_syntax_error_shows_the_line(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\na = 1\nb = (2\nc = 3")
    assert ran.ename == "SyntaxError"
    assert "line 3" in ran.traceback and "b = (2" in ran.traceback


def test_the_cell_is_red_with_its_own_number_and_lines(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\ndef inner():\n    return 1 / 0\n\ninner()")
    assert (ran.status, ran.ename, ran.evalue) == ("error", "ZeroDivisionError", "division by zero")
    number = next(
        m["content"]["execution_count"]
        for m in ran.messages
        if m["header"]["msg_type"] == "execute_input"
    )
    assert f"Cell In[{number}], line 5" in ran.traceback
    assert f"Cell In[{number}], line 3, in inner()" in ran.traceback
    assert "jupyter_sky" not in ran.traceback
    assert ran.traceback.count("ZeroDivisionError") <= 2  # shown once, not as a chain
    assert ran.status_line.startswith("☁ failed")
    assert notebook.run("%%sky\n'alive'").result == "'alive'"


def test_lines_count_from_the_top_of_the_cell(notebook: Notebook) -> None:
    ran = notebook.run("%%time\n%%sky\n# a comment\n\nundefined_name")
    assert "line 5" in ran.traceback, ran.traceback
    ran = notebook.run("\n\n%%sky\n\n1/0")
    assert "line 5" in ran.traceback, ran.traceback


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        ("int('x')", "ValueError"),
        ("{}['k']", "KeyError"),
        ("open('/no/such/file')", "FileNotFoundError"),
        ("import json; json.loads('{')", "json.JSONDecodeError"),
        ("raise ValueError", "ValueError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("raise Notebooks('own')", "Notebooks"),
        ("b'\\xff'.decode()", "UnicodeDecodeError"),
    ],
)
def test_local_except_clauses_work(notebook: Notebook, raised: str, caught: str) -> None:
    notebook.run("import json\nclass Notebooks(Exception): pass")
    ran = notebook.run(
        f"body = {raised!r}\n"
        "if 'Notebooks' in body: body = 'class Notebooks(Exception): pass\\n' + body\n"
        "try:\n    get_ipython().run_cell_magic('sky', '', body)\n"
        f"except {caught} as error:\n    print('caught', type(error).__name__, '|', error)"
    )
    assert ran.status == "ok", ran.traceback
    assert ran.stdout.startswith(f"caught {caught.rpartition('.')[2]} |")


def test_errors_keep_what_they_carry(notebook: Notebook) -> None:
    def carried(body: str, expression: str) -> str:
        ran = notebook.run(
            f"try:\n    get_ipython().run_cell_magic('sky', '', {body!r})\n"
            f"except BaseException as error:\n    print({expression})"
        )
        assert ran.status == "ok", ran.traceback
        return ran.stdout.splitlines()[-1]

    assert carried("{}['k']", "error.args") == "('k',)"
    assert carried("{}[1, 2]", "error.args") == "((1, 2),)"
    assert carried("open('/no/x')", "(error.errno, error.filename)") == "(2, '/no/x')"
    assert carried("import sys; sys.exit(3)", "error.code") == "3"
    assert carried("nothing_here", "error.name") == "nothing_here"
    assert carried("raise ValueError", "error.args") == "()"
    text = "import subprocess\nsubprocess.run(['false'], check=True)"
    assert carried(text, "(error.returncode, error.cmd)") == "(1, ['false'])"


def test_unknown_classes_keep_their_names(notebook: Notebook) -> None:
    body = "class Remote(LookupError):\n    def __init__(self, a, b): super().__init__(a, b)\n"
    ran = notebook.run(f"%%sky\n{body}raise Remote(1, 2)")
    assert (ran.ename, ran.evalue) == ("Remote", "(1, 2)")
    ran = notebook.run(
        f"try:\n    get_ipython().run_cell_magic('sky', '', {body + 'raise Remote(1, 2)'!r})\n"
        "except LookupError as error:\n    print(type(error).__name__, error.args)"
    )
    assert "Remote (1, 2)" in ran.stdout


def test_ipythons_own_errors_keep_name_and_lines(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nexec('a = = 1')")
    assert ran.ename == "SyntaxError" and "jupyter_sky" not in ran.traceback
    body = "raise ExceptionGroup('both', [ValueError(1), KeyError(2)])"
    ran = notebook.run(f"%%sky\n{body}")
    assert (ran.ename, ran.evalue) == ("ExceptionGroup", "both (2 sub-exceptions)")
    assert "KeyError: 2" in ran.traceback and "jupyter_sky" not in ran.traceback
    ran = notebook.run(
        f"import jupyter_sky as sky\ntry:\n    sky.run({body!r})\n"
        "except* ValueError as group:\n    print('caught', group.exceptions)\n"
        "except* KeyError:\n    pass"
    )
    assert "caught (ValueError(1),)" in ran.stdout, ran.traceback


def test_leaving_the_interpreter_leaves_the_engine(notebook: Notebook) -> None:
    notebook.run("%%sky\nstays = 1")
    for code in ("raise SystemExit", "exit()", "quit()"):
        ran = notebook.run(f"%%sky\n{code}")
        assert (ran.status, ran.ename) == ("error", "SystemExit")
    assert notebook.run("%%sky\nimport time; time.sleep(0.3); stays").result == "1"


def test_a_chain_is_shown(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\ntry:\n    {}['key']\nexcept KeyError as error:\n"
        "    raise RuntimeError('outer') from error"
    )
    assert ran.ename == "RuntimeError"
    assert "direct cause" in ran.traceback and "KeyError" in ran.traceback


def test_error_names_its_fix(notebook: Notebook, folder: Path) -> None:
    notebook.run("local_only = 1")
    ran = notebook.run("%%sky --cpus 1+\nprint(local_only)")
    assert "local_only is a local variable: add -i local_only" in ran.traceback
    assert "%%sky --cpus 1+ -i local_only" in ran.traceback
    ran = notebook.run("%%sky\nprint(nowhere_at_all)")
    assert "-i" not in ran.traceback
    ran = notebook.run("%%sky\nimport surely_not_installed.sub")
    assert ran.ename == "ModuleNotFoundError"
    assert "add --pip surely_not_installed" in ran.traceback
    (folder / "mine.py").write_text("x = 1\n")
    (folder / "data.csv").write_text("a,b\n")
    assert "--sync mine.py" in notebook.run("%%sky\nimport mine").traceback
    assert "--sync data.csv" in notebook.run("%%sky\nopen('data.csv')").traceback
    assert "--sync" not in notebook.run("%%sky\nopen('absent.csv')").traceback


def test_input_says_that_nobody_can_answer(notebook: Notebook) -> None:
    ran = notebook.run("%%sky\nname = input('who? ')")
    assert ran.status == "error" and "input" in ran.evalue
    assert "-i" in ran.traceback


# -- values that do not travel -------------------------------------------------------------------


def test_an_output_that_cannot_be_pickled_stays_on_the_cluster(notebook: Notebook) -> None:
    ran = notebook.run("%%sky -o lock,fine\nimport threading\nlock = threading.Lock(); fine = 1")
    assert ran.ename == "SkyTransferError"
    assert "lock" in ran.evalue and "-o lock!" in ran.evalue
    assert notebook.run("fine").result == "1"
    assert "unlocked" in notebook.run("%%sky\nlock").result


def test_an_input_that_names_its_culprit(notebook: Notebook) -> None:
    notebook.run(
        "import threading\nclass Job:\n    def __init__(self): self.guard = threading.Lock()\n"
        "job = Job()\nguard = threading.Lock()\ndef guarded(): return guard\n"
        "opened = open('/dev/null')"
    )
    for name, words in (
        ("job", "job.guard is a lock"),
        ("guarded", "guarded.<guard> is a lock"),
        ("opened", "an open file stays on the machine that opened it"),
    ):
        ran = notebook.run(f"%%sky -i {name}\nprint('ran')")
        assert ran.ename == "SkyTransferError" and words in ran.evalue, ran.evalue
        assert not ran.stdout


def test_values_of_a_module_that_only_the_engine_has(notebook: Notebook, folder: Path) -> None:
    module = folder / "onlythere.py"
    module.write_text(
        "class Gadget:\n    def __repr__(self): return 'a thing'\nclass Oops(ValueError): pass\n"
    )
    assert notebook.run("%%sky --sync onlythere.py\nimport onlythere").status == "ok"
    module.unlink()
    ran = notebook.run("%%sky -o thing\nthing = onlythere.Gadget()")
    assert ran.ename == "SkyTransferError"
    assert "onlythere" in ran.evalue and "-o thing!" in ran.evalue
    ran = notebook.run("%%sky\nthing")
    assert (ran.status, ran.result) == ("ok", "a thing")
    assert notebook.run("_").result == "a thing"
    ran = notebook.run("%%sky\n[thing]")
    assert (ran.status, ran.result) == ("ok", "[a thing]")
    assert notebook.run("_").result == "[a thing]"
    ran = notebook.run("%%sky\nraise onlythere.Oops('its own')")
    assert (ran.ename, ran.evalue) == ("Oops", "its own")


def test_an_input_of_a_module_that_only_the_notebook_has(notebook: Notebook, folder: Path) -> None:
    (folder / "onlyhere.py").write_text("class Gadget: pass\n")
    notebook.run("import onlyhere; mine = onlyhere.Gadget(); several = [mine] * 70_000")
    for name in ("mine", "several"):
        ran = notebook.run(f"%%sky -i {name}\nprint('ran')")
        assert ran.stdout == "ran\n", ran.traceback  # its file has come along
