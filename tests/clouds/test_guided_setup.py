"""Walk of a new user through the setup of a cloud, against an emulated account."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyCancelled
from jupyter_sky.base.settings import paths
from jupyter_sky.clouds.account_setup import setup_names
from jupyter_sky.interfaces.api.guided_setup import GuidedSetup, policy_text
from jupyter_sky.knowledge.tracker.quotas import read_quotas
from tests.clouds.aws_cases import account_fixture, ec2_fixture, use
from tests.conftest import clean
from tests.emulators.ec2 import Ec2
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

__all__ = ["account_fixture", "ec2_fixture"]


class User:
    """A user who answers in turn, and does something before some of the answers."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.heard = list(answers), list[str]()

    def ask(self, question: str) -> str | None:
        self.heard.append(question)
        answer = self.answers.pop(0)
        return answer() if callable(answer) else answer

    def say(self, text: str) -> None:
        self.heard.append(text)

    @property
    def text(self) -> str:
        return "\n".join(self.heard)


@pytest.fixture(autouse=True)
def fresh_clouds(own_data: None) -> Iterator[None]:
    clouds.get.cache_clear()
    yield
    clouds.get.cache_clear()


def test_new_user_is_shown_each_step(ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"})

    def log_in() -> str:
        use(monkeypatch, ec2.env())
        return ""

    for limits in ec2.account.quotas.values():
        limits["Running On-Demand G and VT instances"] = 0.0
    user = User("", "", "", log_in, "n")
    GuidedSetup("aws", user.ask, user.say).run()
    steps = ["1. account:", '"Sid": "ChangeOwn"', "2. rights:", "3. log in:", "aws configure"]
    places = [user.text.index(step) for step in steps]
    assert places == sorted(places), user.text
    assert "credentials: environment variable" in user.text
    assert "G and VT instances in " in user.text and "is 0 vCPUs; more: https://" in user.text
    assert "Launch aws " in user.text and "nothing was launched" in user.text
    assert not ec2.machines() and not user.answers
    kept = read_quotas(paths.data_dir(), time.time())
    assert "us-east-1" in {quota.region for quota in kept.quotas}, "they limit plans"


def test_wrong_key_is_told_and_asked_for_again(ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ec2.wrong_env("wrong"))
    user = User("", "", "", "q")
    with pytest.raises(SkyCancelled, match="jupyter sky setup aws goes on"):
        GuidedSetup("aws", user.ask, user.say).run()
    assert user.text.count("log in: aws: ") == 2 and "SignatureDoesNotMatch" in user.text


def test_rights_can_be_printed_of_clouds_that_have_any() -> None:
    with_rights = {name for name in setup_names() if policy_text(name)}
    assert with_rights == {"aws", "azure", "gcp"}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws", minute=1.0) as opened:
        yield opened


WALK = """
import json, sys
from jupyter_sky.interfaces.api.guided_setup import GuidedSetup
from jupyter_sky.execution.sessions import session
session.open_session({}, "setup", lasting=True, everywhere=True)
try:
    GuidedSetup("aws", lambda question: print(question) or "y", print).run()
finally:
    session.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_first_machine_proves_the_account_and_ends(
    cloud: Loopback, tmp_path: Path, sky_env: dict[str, str]
) -> None:
    env = {**os.environ, **sky_env, **cloud.env, "SKY_DATA_DIR": str(tmp_path / "data")}

    def walk() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", WALK]
        return subprocess.run(words, capture_output=True, text=True, env=env, timeout=170)

    done = walk()
    assert "it works: a cell ran on aws " in done.stdout, done.stdout + done.stderr
    assert "about $0.0" in done.stdout and not cloud.machines()
    cloud.api.refuse("UnauthorizedOperation", times=99)
    failed = walk()
    assert "the first machine has failed" in failed.stderr, failed.stdout + failed.stderr
    assert "not authorized" in failed.stderr and not cloud.machines()
    cloud.api.scripts.clear()
    clean(tmp_path / "data")
