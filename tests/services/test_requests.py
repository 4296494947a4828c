"""What a notebook asks of a cluster's controller, and what it makes of the answers."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.wire.controller_requests import DataEngineReply, StartDataEngine
from jupyter_sky.machines.services.requests import (
    await_engine,
    check_client,
    client_packages,
    spark_version,
)


class Controller:
    """Controller whose answers are given, the last of them again and again."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.starts = list(answers), list[bool]()

    def ask(self, request: StartDataEngine) -> DataEngineReply:
        self.asked = request.engine, request.version
        self.starts.append(request.start)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        facts = {"version": request.version}
        return DataEngineReply(**{"detail": "", "hint": None, "facts": facts, **answer})


def test_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SkyError, match="needs pyspark-client") as caught:
        check_client("spark")
    assert caught.value.hint == 'pip install "jupyter_sky[spark]"'


def test_only_cells_with_spark_need_its_client_elsewhere() -> None:
    assert client_packages(None) == client_packages("ray") == ()
    assert client_packages("spark") == (f"pyspark-client=={spark_version()}",)


def test_wait_says_what_is_waited_for_and_starts_once() -> None:
    controller = Controller(
        {"state": "installing", "detail": "Java"}, {"state": "starting"}, {"state": "ready"}
    )
    said: list[str] = []
    await_engine(controller.ask, "spark", said.append)
    assert said == ["installing Java", "Spark starts"]
    assert controller.starts == [True, False, False]
    assert controller.asked == ("spark", spark_version())


def test_failure_is_raised_with_its_remedy() -> None:
    controller = Controller({"state": "failed", "detail": "no Java", "hint": "install it"})
    with pytest.raises(SkyError, match="no Java") as caught:
        await_engine(controller.ask, "spark", lambda detail: None)
    assert caught.value.hint == "install it"


def test_cluster_of_another_version_is_refused() -> None:
    controller = Controller({"state": "ready", "facts": {"version": "3.5.1"}})
    with pytest.raises(SkyError, match=r"runs Spark 3\.5\.1") as caught:
        await_engine(controller.ask, "spark", lambda detail: None)
    assert "pyspark-client==3.5.1" in str(caught.value.hint)


def test_version_of_ray_is_asked_for_and_checked() -> None:
    controller = Controller({"state": "ready", "facts": {"version": "2.60.0", "page": [0, ""]}})
    facts = await_engine(controller.ask, "ray==2.60.*", lambda detail: None)
    assert controller.asked == ("ray", "==2.60.*") and facts["version"] == "2.60.0"
    with pytest.raises(SkyError, match=r"runs Ray 2\.60\.0, and --engine names ray>=2\.61"):
        await_engine(controller.ask, "ray>=2.61", lambda detail: None)
    assert await_engine(controller.ask, "ray", lambda detail: None) == facts
