"""Messages: their forms on the wire, their handlers, and errors of unknown ones."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.base.messages import Buffers, Message, Receiver, Request, handles
from jupyter_sky.execution.functions.node.messages import Feed, Ready, process_report
from jupyter_sky.machines.engines.controller.controller import ClusterController
from jupyter_sky.machines.engines.node.namespace import EngineNamespace


@dataclass(frozen=True, slots=True)
class Reply(Message):
    text: str
    buffers: Buffers = ()


@dataclass(frozen=True, slots=True)
class Ask(Request[Reply], op="ask"):
    name: str
    times: int = 1


class Answerer(Receiver):
    @handles(Ask)
    def _answer(self, request: Ask, more: str) -> Reply:
        return Reply(request.name * request.times + more, (b"data",))


class Tally(Receiver):
    @handles(Feed)
    def _feed(self, command: Feed) -> list[object]:
        return [*command.items]


def test_defaults_are_left_out_and_unknown_fields_ignored() -> None:
    assert Ask("a").encode() == {"op": "ask", "name": "a"}
    assert Ask("a", 2).encode() == {"op": "ask", "name": "a", "times": 2}
    assert Ask.decode({"op": "ask", "name": "a", "later": 1}) == Ask("a")
    assert Ask.reply_type is Reply


def test_message_reaches_its_handler_by_type() -> None:
    request = Answerer.decode({"op": "ask", "name": "ab", "times": 2})
    reply = Answerer().dispatch(request, "!")
    assert reply.encode() == {"text": "abab!"} and reply.attached == (b"data",)
    assert Ask.reply_type.decode({"text": "x"}, [b"y"]).buffers == [b"y"]


def test_unknown_message_gives_one_clear_error() -> None:
    for receiver in (Answerer, ClusterController, EngineNamespace):
        with pytest.raises(SkyVersionError, match=f"{receiver.__name__} does not know .*'never'"):
            receiver.decode({"op": "never"})
    with pytest.raises(SkyVersionError, match="'feed'"):
        Answerer().dispatch(Feed("b", 1, 0, []))
    with pytest.raises(SkyVersionError, match="message ask has no name"):
        Ask.decode({"op": "ask"})


def test_tuples_are_those_of_the_version_before() -> None:
    assert Feed("b", 1, 0, []).to_tuple() == ("feed", "b", 1, 0, [])
    assert Ready().to_tuple() == ("ready",) and process_report(("ready",)) == Ready()
    assert Tally().handle_tuple(pickle.loads(pickle.dumps(("feed", "b", 1, 0, [2])))) == [2]
    with pytest.raises(SkyVersionError, match="Tally does not know the message 'never'"):
        Tally().handle_tuple(("never", 1))
