from __future__ import annotations

import copy
import pickle

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_sky.base import errors
from jupyter_sky.base.errors import SkyError, SkyTimeout, SkyUsageError, suggest

FAMILY = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SkyError)
]


def test_message_and_hint_on_lines_of_their_own():
    assert str(SkyError("no cluster", hint="see %sky status")) == "no cluster\nsee %sky status"
    assert str(SkyError("no cluster")) == "no cluster"


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_every_error_renders_its_own_name_and_survives_copies(kind):
    error = kind("what happened", hint="what to do")
    name, hint, *pointer = error._render_traceback_()
    assert (name, hint) == (f"\x1b[31m{kind.__name__}\x1b[0m: what happened", "what to do")
    assert pointer == [f"guide: %sky help {kind.guide_page}"] * bool(kind.guide_page)
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is kind
        assert (twin.message, twin.hint) == ("what happened", "what to do")
        assert str(twin) == str(error)


def test_the_family_has_the_members_that_others_rely_on():
    assert {kind.__name__ for kind in FAMILY} >= {
        *("SkyUsageError", "SkyNoOffer", "SkyNoCapacity", "SkyBudget", "SkyTimeout"),
        *("SkyPreempted", "SkyEngineLost", "SkyClusterLost", "SkyTransferError"),
        *("SkyVersionError", "SkyStoreError", "SkyNameTaken", "SkyRefreshError"),
    }


@pytest.mark.parametrize(
    ("kind", "builtin"), [(SkyUsageError, ValueError), (SkyTimeout, TimeoutError)]
)
def test_builtin_kin_catches(kind, builtin):
    with pytest.raises(builtin, match="late"):
        raise kind("late", hint="wait")


def test_ipython_shows_no_traceback(capsys):
    shell = InteractiveShell.instance()
    shell.user_ns["SkyError"] = SkyError
    shell.run_cell("raise SkyError('no cluster', hint='see %sky status')")
    shown = "".join(capsys.readouterr())
    assert "no cluster\nsee %sky status" in shown
    assert "Traceback" not in shown and "raise" not in shown


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("--cpu", ["--cpus", "--memory"], "did you mean --cpus?"),
        ("v10", ["V100", "K80"], "did you mean V100?"),
        ("moon", ["aws", "gcp"], "known: aws, gcp"),
        ("moon", [], "none is known"),
    ],
)
def test_suggest(word, known, hint):
    assert suggest(word, known) == hint
