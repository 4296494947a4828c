"""Fields <-> the ``%%sky`` line of a cell."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.schema import BY_DEST, OPTIONS
from jupyter_sky.interfaces.forms.cell_line import Fields, check, read, write

ALIASES = {"big": "--cpus 16+ --spot -i data", "bigger": "big --memory 64+", "bad": "--cpus 'x"}

NAME = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(
    lambda text: text not in ("as", "if", "in", "is", "or", "def", "for", "not", "and", "del")
)
AMOUNT = st.sampled_from(["4", "4+", "16GB", "0.5+", ">=2"])
NAMES = st.lists(NAME, min_size=1, max_size=3, unique=True).map(", ".join)
# what a field of each option may hold, apart from where a name is as good as anything
VALUES: dict[str, st.SearchStrategy] = {
    "cpus": st.sampled_from(["4", "4+", ">= 2"]),
    "memory": AMOUNT,
    "gpus": st.sampled_from(["V100", "v100:2", "A100-80GB:8+", "tpu-v5e-8"]),
    "gpu_memory": AMOUNT,
    "disk": AMOUNT,
    "nodes": st.sampled_from(["1", "2", "16"]),
    "arch": st.sampled_from(["x86_64", "arm"]),
    "cpu_vendor": st.sampled_from(["amd", "Intel"]),
    "cloud": st.sampled_from(["aws", "aws,gcp", "local"]),
    "image": st.sampled_from(["python:3.12", "ghcr.io/a/b@sha256:0f"]),
    "country": st.sampled_from(["DE", "south korea"]),
    "jurisdiction": st.sampled_from(["eu", "US"]),
    "service": st.sampled_from(["emr", "spark==3.5.*"]),
    "engine": st.sampled_from(["spark", "ray==2.60.*"]),
    "max_hourly_cost": st.sampled_from(["2.5", "$3", "0"]),
    "max_cost": st.sampled_from(["2.5", "$3"]),
    "timeout": st.sampled_from(["2h", "1h30m", "90s"]),
    "idle": st.sampled_from(["20m", "0"]),
    "checkpoint": st.sampled_from(["10m", "auto"]),
    "burst": st.sampled_from(["spot<=2/h after 10m", "on-demand", "<= 5"]),
    "on": st.sampled_from(["all", "0", "0:4", "1,2"]),
    "input": st.sampled_from(
        ["x", "x, y", "df.test->test", "-x->y", "f(a, 'b c')->z", 'd["a, b"]->c, n', "it's->q"][:-1]
    ),
    "output": st.sampled_from(["m", "m!, score", "a,b,c"]),
    "pip": st.sampled_from(["torch>=2,<3", "numpy, pandas", "torch==2.*"]),
    "env": NAMES.map(str.upper),
    "map": st.sampled_from(["lr=[0.1, 0.01]", "q=range(3), kind=[a, b]"]),
    "allow_failures": st.sampled_from(["1", "20%"]),
    "sweep": st.sampled_from(["lr=0.1,0.01,n=0:5", "kind=adam"]),
    "seed": st.sampled_from(["0:5", "1,2"]),
    "if": st.sampled_from(["acc > .9", "'x' in rows and not done"]),
    "default": st.sampled_from(["m=None", "n=[1, a], k=2"]),
    "retry": st.sampled_from(["0", "3"]),
    "search": st.sampled_from(["cost", "time"]),
    "trials": st.sampled_from(["3", "40"]),
    "budget": st.sampled_from(["12", "$0.5"]),
    "deadline": st.sampled_from(["2h", "90s"]),
    "at_once": st.sampled_from(["1", "16"]),
    "sync": st.sampled_from(["src/", "my data/, src", "-dash/"]),
    "data": st.sampled_from(["s3://b/train", "gs://b/x:./data/y, file:/data"]),
    "mount": st.sampled_from(["s3://b/train:/data", "r2://account/b/x"]),
    "out": st.sampled_from(["model:s3://b/7/", "./a b:gs://b/x!, c:./d"]),
}


@st.composite
def fields(draw) -> Fields:
    keys = draw(st.lists(st.sampled_from([o.dest for o in OPTIONS]), unique=True, max_size=8))
    exclusive = (("spot", "on_demand"), ("auto", "no_auto"), ("bg", "name"))
    assume(not any(set(pair) <= set(keys) for pair in exclusive))
    assume("allow_failures" not in keys or "map" in keys)
    assume(not {"service", "engine"} <= set(keys))  # a service is Spark's, whatever is drawn
    values = {}
    for key in keys:
        kind = BY_DEST[key].kind
        if kind == "flag" or (kind == "optional" and draw(st.booleans())):
            values[key] = True
        else:
            values[key] = draw(VALUES.get(key, NAME))
    assume(not ("sql" in keys and values.get("engine", "spark") != "spark"))  # SQL is Spark's
    return Fields(values)


@st.composite
def lines(draw) -> tuple[str, Fields]:
    """A line as people write it: flags short or long, values attached or quoted, spaces."""
    asked = draw(fields())
    items = draw(st.permutations(list(asked.values.items())))
    words = []
    for key, value in items:
        flag = draw(st.sampled_from(BY_DEST[key].flags))
        if value is True:
            words.append(flag)
            continue
        quoted = shlex.quote(value) if draw(st.booleans()) else _double(value)
        attached = value.startswith("-") or draw(st.booleans())
        words.append(f"{flag}{'=' if attached else ' '}{quoted}")
    gap = st.sampled_from([" ", "  ", "\t"])
    return "".join(draw(gap) + word for word in words)[1:], asked


def _double(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


BODIES = st.sampled_from(["", "x = 1", "\nprint(x)\n", "%%bash\nls", "# %%sky --cpus 9\n1"])


def test_field_that_needs_another_is_checked_with_it() -> None:
    assert check(Fields({"map": "lr=[1,2]", "allow_failures": "1"})) == {}
    assert "no tasks of --map" in check(Fields({"allow_failures": "1"}))["allow_failures"][0]
    found = check(Fields({"map": "lr=[1,2]", "allow_failures": "many"}))
    assert list(found) == ["allow_failures"] and "not understood" in found["allow_failures"][0]


@given(fields(), BODIES)
@settings(max_examples=60)
def test_written_line_is_read_back(asked, body):
    source = write(body, asked)
    found = read(source)
    assert not found.errors
    assert found.fields == asked
    assert source.endswith(body) and source.startswith("%%sky")
    assert parse_cell_line(found.line) == parse_cell_line(asked.line())
    assert write(source, None) == body


@given(lines(), BODIES)
@settings(max_examples=60)
def test_a_line_that_says_the_same_is_not_touched(written, body):
    line, asked = written
    source = f"%%sky {line}\n{body}"
    found = read(source)
    assert found.fields.values == asked.values and found.line == line
    assert write(source, found.fields) == source


@given(lines(), fields())
@settings(max_examples=60)
def test_a_changed_line_means_what_the_fields_say_and_keeps_the_words_of_the_rest(written, asked):
    line, old = written
    changed = read(write(f"%%sky {line}\nbody", asked))
    assert changed.fields.values == asked.values
    assert parse_cell_line(changed.line) == parse_cell_line(asked.line())
    same = [key for key in old.values if old.values[key] == asked.values.get(key)]
    for key in same:  # with the spelling that the user has chosen
        spellings = [flag for flag in BY_DEST[key].flags if flag in line]
        assert any(flag in changed.line for flag in spellings)


@given(st.text(alphabet="-= \"'\\abcpusgiox,%\t", max_size=40))
@settings(max_examples=200)
def test_any_text_is_read_without_a_traceback_and_kept(text):
    source = f"%%sky {text}\nbody"
    found = read(source, ALIASES)
    try:
        parse_cell_line(text, ALIASES)
    except SkyUsageError:
        assert found.errors
    else:
        assert not found.errors
        assert write(source, found.fields) == source
    assert write(source, None) == "body"


def test_one_of_many_options_changes_and_the_others_stay_as_they_were():
    source = "  %%sky  big --cpus=4+   -i a -i 'b'  --pip \"torch>=2\" --spot  \nbody"
    found = read(source, ALIASES)
    assert found.fields.alias == "big" and found.alias["cpus"] == "16+"
    assert found.fields.values["input"] == "a, b"
    values = {**found.fields.values, "cpus": "8+", "input": "a, c", "timeout": "2h"}
    values.pop("spot")
    assert write(source, Fields(values, "big")) == (
        "  %%sky  big --cpus 8+   -i 'a, c'  --pip \"torch>=2\" --timeout 2h  \nbody"
    )
    assert write(source, Fields({}, "")) == "  %%sky  \nbody"
    assert write("%%sky --spot\nx", Fields({"spot": True}, "big")) == "%%sky big --spot\nx"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("%%sky", ""),
        ("%%sky --cpus 4", "--cpus 4"),
        ("\n\n  %%sky --cpus 4\nx", "--cpus 4"),
        ("%%time\n%%sky --spot\nx", "--spot"),
        ("%%sky --spot\r\nx", "--spot"),
        ("", None),
        ("%%skyline\nx", None),
        ("%%sky?", None),
        ("x = 1\n%%sky --spot", None),
        ("# note\n%%sky --spot", None),
    ],
)
def test_position_of_the_line(source, line):
    assert read(source).line == line
    if line is not None:
        assert write(source, read(source).fields) == source


def test_a_cell_without_a_line_gets_one_above_all_else():
    assert write("", Fields({"cpus": "4+"})) == "%%sky --cpus 4+\n"
    assert write("%%bash\nls", Fields()) == "%%sky\n%%bash\nls"
    assert write("x", Fields({"cpus": " ", "spot": False, "moon": "1"})) == "%%sky\nx"


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        ("--cpus many", "cpus", "not an amount"),
        ("--gpus V10O", "gpus", "not a known accelerator"),
        ("--spot --on-demand", "on_demand", "exclude each other"),
        ("--bg a --name b", "name", "one name"),
        ("--cpu 4", "", "not an option"),
        ("'' --spot", "", "not an option"),
        ("--cpus 4 --cpus 5", "", "twice"),
        ("--cpus", "", "needs a value"),
        ("-i 'x", "", "quotation"),
        ("huge --spot", "alias", "'huge'"),
        ("bad", "alias", "quotation"),
    ],
)
def test_error_names_the_field_it_stands_in(line, key, message):
    found = read(f"%%sky {line}\nx", ALIASES)
    assert list(found.errors) == [key]
    assert message in found.errors[key][0]
    assert found.line == line


def test_a_line_that_cannot_be_read_is_replaced_only_when_asked():
    source = "%%sky --cpus 'x\nbody"
    assert read(source).fields == Fields()
    assert write(source, Fields({"cpus": "4"})) == "%%sky --cpus 4\nbody"


def test_names_of_the_body():
    found = read("%%sky\nimport re\nscore = model.fit(data)\nprint(len(score), _x, re)")
    assert found.reads == ("data", "model") and found.makes == ("score",)
    assert read("%%sky\nx = (").reads == ()
    assert read("y = x").reads == ("x",)


def test_several_errors_at_once():
    assert set(check(Fields({"cpus": "x", "memory": "y", "spot": True}))) == {"cpus", "memory"}
