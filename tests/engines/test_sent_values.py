"""Decisions of an engine between its own value of a name and one that is offered."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jupyter_sky.machines.engines.node.namespace import SentValues
from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput
from jupyter_sky.machines.engines.wire.values import Parcel

NEVER, MENTIONED, ASSIGNED = (False, False), (False, True), (True, True)


def decided(sent: Any, there: Any, here: Any, later: tuple[bool, bool]) -> str:
    """Return the decision where `sent` was sent, and `there` and `here` are the values now."""
    namespace: dict[str, Any] = {"x": sent}
    values = SentValues(namespace)
    values.record("x", Parcel.of(sent).digest())
    namespace["x"] = there
    return values.decide("x", AutoInput(Parcel.of(here).digest(), *later))


@pytest.mark.parametrize(
    ("sent", "there", "here", "later", "decision"),
    [
        (0, 0, 0, NEVER, "same"),
        (0, 0, 0, ASSIGNED, "same"),
        (0, 0, 1, NEVER, "bind"),
        (0, 0, 1, ASSIGNED, "bind"),
        (0, 1, 0, NEVER, "keep"),
        (0, 1, 0, MENTIONED, "keep"),
        (0, 1, 0, ASSIGNED, "replace"),
        (0, 1, 2, NEVER, "keep"),
        (0, 1, 2, MENTIONED, "replace"),
        (0, 1, 2, ASSIGNED, "replace"),
        (0, 1, 1, NEVER, "same"),
    ],
)
def test_the_newer_value_is_used(
    sent: Any, there: Any, here: Any, later: tuple[bool, bool], decision: str
) -> None:
    assert decided(sent, there, here, later) == decision
    # the same for values that are changed in place
    assert decided([sent], [there], [here], later) == decision


def test_a_value_that_was_never_sent() -> None:
    namespace: dict[str, Any] = {}
    values = SentValues(namespace)
    digest = Parcel.of(1).digest()
    assert values.decide("x", AutoInput(digest)) == "bind"
    namespace["x"] = 2
    assert values.decide("x", AutoInput(digest, *MENTIONED)) == "keep"
    assert values.decide("x", AutoInput(digest, *ASSIGNED)) == "replace"
    namespace["x"] = 1
    assert values.decide("x", AutoInput(digest, *NEVER)) == "same"


def test_a_value_that_cannot_be_pickled_changes_when_it_is_another() -> None:
    namespace: dict[str, Any] = {"x": threading.Lock()}
    values = SentValues(namespace)
    values.record("x", "one")
    assert values.decide("x", AutoInput("one", *NEVER)) == "same"
    assert values.has("x", "one") and not values.has("x", "another")
    namespace["x"] = threading.Lock()
    assert values.decide("x", AutoInput("one", *NEVER)) == "keep"
    assert not values.has("x", "one")


def test_a_value_whose_module_has_been_edited_is_sent_again() -> None:
    namespace: dict[str, Any] = {"x": [1]}
    values = SentValues(namespace)
    digest = Parcel.of([1]).digest()
    values.record("x", digest, modules="one")
    assert values.decide("x", AutoInput(digest, *NEVER, "one")) == "same"
    assert values.decide("x", AutoInput(digest, *NEVER)) == "same"
    assert values.decide("x", AutoInput(digest, *NEVER, "edited")) == "bind"
    namespace["x"].append(2)
    assert values.decide("x", AutoInput(digest, *NEVER, "edited")) == "keep"
    assert values.decide("x", AutoInput(digest, *MENTIONED, "edited")) == "replace"


def test_a_value_of_the_engine_that_the_notebook_has_a_handle_of() -> None:
    value = [1]
    namespace: dict[str, Any] = {}
    values = SentValues(namespace)
    assert values.decide_reference("x", value, AutoInput("")) == "bind"
    namespace["x"] = value
    assert values.decide_reference("x", value, AutoInput("")) == "same"
    namespace["x"] = [1]
    assert values.decide_reference("x", value, AutoInput("", *MENTIONED)) == "keep"
    assert values.decide_reference("x", value, AutoInput("", *ASSIGNED)) == "replace"
