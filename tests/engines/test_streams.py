"""Output streams of an engine: a text that cannot be sent holds up nothing."""

from __future__ import annotations

import logging
import sys
import threading

import pytest
import zmq
from jupyter_client.session import Session

from jupyter_sky.machines.engines.node.streams import BoundedOutStream, OutputPublisher


def test_flush_of_a_text_that_cannot_be_encoded_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    logger = logging.getLogger("tornado.general")
    monkeypatch.setattr(logger, "exception", lambda *_: reported.append(sys.exc_info()[0]))
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        publisher = OutputPublisher(socket)
        publisher.start()
        stream = BoundedOutStream(Session(), publisher, "stdout", watchfd=False)
        try:
            stream.write("\ud800")
            flushing = threading.Thread(target=stream.flush, daemon=True)
            flushing.start()
            flushing.join(5)
            assert not flushing.is_alive()
            assert reported == [UnicodeEncodeError]
        finally:
            BoundedOutStream._all.remove(stream)
            publisher.schedule(lambda: None)  # also releases a flush that has not ended
            publisher.stop()
            publisher.close()
