"""Worker of functions in another Python than the engine's: a script of the standard library alone.

    python python_worker.py FD

Requests and answers are pickles behind their lengths. A function comes as its source and the data
that it uses, for byte code differs between minor versions and plain pickles do not.
"""

import asyncio
import inspect
import io
import linecache
import pickle
import socket
import struct
import sys
import traceback

LENGTH = struct.Struct(">Q")
PROTOCOL = 5


def send(line: "socket.socket", message: tuple) -> None:
    """Send a message."""
    data = pickle.dumps(message, PROTOCOL)
    line.sendall(LENGTH.pack(len(data)) + data)


def receive(line: "socket.socket") -> tuple:
    """Return the next message; raises EOFError at the end."""
    (size,) = LENGTH.unpack(_read(line, LENGTH.size))
    return pickle.loads(_read(line, size))


def _read(line: "socket.socket", size: int) -> bytes:
    parts = []
    while size:
        part = line.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Stream(io.TextIOBase):
    """Standard stream whose text goes to the engine."""

    def __init__(self, line: "socket.socket", name: str) -> None:
        self._line, self._name = line, name

    def write(self, text: str) -> int:
        """Send a text."""
        if text:
            send(self._line, ("text", self._name, text))
        return len(text)


def define(name: str, source: str, data: bytes) -> object:
    """Return a function made from its source and the values of its globals."""
    place = "<function " + name + ">"
    linecache.cache[place] = (len(source), None, source.splitlines(True), place)
    space = {"__name__": "__main__", **pickle.loads(data)}
    sys.modules["__main__"].__dict__.update(space)  # where its own classes are looked up
    exec(compile(source, place, "exec"), sys.modules["__main__"].__dict__)
    return sys.modules["__main__"].__dict__[name]


def run(line: "socket.socket", function: object, arguments: bytes) -> None:
    """Run a call; send its result, or its items."""
    args, kwargs = pickle.loads(arguments)
    result = function(*args, **kwargs)  # type: ignore[operator]
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if inspect.isgenerator(result):
        for item in result:
            send(line, ("item", pickle.dumps(item, PROTOCOL)))
            receive(line)  # the next one is wanted
        result = None
    send(line, ("value", pickle.dumps(result, PROTOCOL)))


def describe(error: BaseException) -> tuple:
    """Return the message of an error."""
    try:
        data = pickle.dumps(error, PROTOCOL)
        pickle.loads(data)
    except Exception:
        data = b""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return ("error", type(error).__name__, str(error), text, data)


def main() -> None:
    """Serve the engine until it closes the line."""
    line = socket.socket(fileno=int(sys.argv[1]))
    sys.stdout, sys.stderr = Stream(line, "stdout"), Stream(line, "stderr")
    functions = {}
    send(line, ("ready",))
    while True:
        try:
            key, definition, arguments = receive(line)
        except EOFError:
            return
        try:
            if key not in functions:
                functions[key] = define(*definition)
            run(line, functions[key], arguments)
        except BaseException as error:
            send(line, describe(error))


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, whose modules are the engine's
    main()
