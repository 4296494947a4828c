"""Messages between processes: frozen dataclasses with a name on the wire, and their handlers.

A request names the class of its reply, and a receiver registers a method for each class:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, slots=True)
... class Sum(Message):
...     value: int
>>> @dataclass(frozen=True, slots=True)
... class Add(Request[Sum], op="add"):
...     a: int
...     b: int = 1
>>> class Adder(Receiver):
...     @handles(Add)
...     def _add(self, request: Add) -> Sum:
...         return Sum(request.a + request.b)
>>> Add(2).encode()
{'op': 'add', 'a': 2}
>>> Adder().dispatch(Adder.decode({"op": "add", "a": 2, "b": 3}))
Sum(value=5)

JSON messages leave out fields that have their default value, so a field with a default may be added
without a change of version. Messages of calls of functions are tuples in a pickle, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import _

Buffers = Sequence[bytes | memoryview]
"""Bytes that travel beside the JSON of a message."""

ReplyT = TypeVar("ReplyT", bound="Message")
MessageT = TypeVar("MessageT", bound="Message")
ReceiverT = TypeVar("ReceiverT", bound="Receiver")
P = ParamSpec("P")
R = TypeVar("R")


class Message:
    """Base of messages, which are frozen dataclasses; a field ``buffers`` holds bytes beside JSON.

    Attributes
    ----------
    op : str
        Name on the wire; replies have none.
    op_key : str
        Key of the name in the JSON form.
    envelope : dict
        Constant items of the JSON form.
    """

    __slots__ = ()
    op: ClassVar[str] = ""
    op_key: ClassVar[str] = "op"
    envelope: ClassVar[Mapping[str, str | int]] = {}

    def __init_subclass__(cls, op: str = "") -> None:
        super().__init_subclass__()
        if op:  # a dataclass with slots is made twice, the second time without arguments
            cls.op = op

    def encode(self) -> JsonObject:
        """Return the JSON form: name, and fields that differ from their default."""
        content: JsonObject = {**self.envelope, self.op_key: self.op} if self.op else {}
        for name, default in _LAYOUTS[type(self)].defaults:
            value = getattr(self, name)
            if value is not default and (default is MISSING or value != default):
                content[name] = value
        return content

    @classmethod
    def decode(cls, content: Mapping[str, Any], buffers: Buffers = ()) -> Self:
        """Return the message of a JSON form; unknown items of a later version are ignored."""
        layout = _LAYOUTS[cls]
        values = {name: content[name] for name, __ in layout.defaults if name in content}
        if layout.has_buffers:
            values["buffers"] = buffers
        try:
            return cls(**values)
        except TypeError:
            missing = [
                name
                for name, default in layout.defaults
                if default is MISSING and name not in content
            ]
            raise SkyVersionError(
                _("message {name} has no {missing}: its sender runs another version").format(
                    name=cls.op or cls.__name__, missing=", ".join(missing)
                )
            ) from None

    @property
    def attached(self) -> Buffers:
        """Bytes beside the JSON form."""
        return getattr(self, "buffers", ())

    def to_tuple(self) -> tuple[Any, ...]:
        """Return name and fields, for a pickle."""
        return _LAYOUTS[type(self)].to_tuple(self)


@dataclass(frozen=True, slots=True)
class Done(Message):
    """Reply without fields."""


class Request(Message, Generic[ReplyT]):
    """Message with a reply.

    Attributes
    ----------
    reply_type : type
        Class of the reply.
    """

    __slots__ = ()
    reply_type: type[ReplyT]

    def __init_subclass__(cls, op: str = "") -> None:
        super().__init_subclass__(op)
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type):
                    cls.reply_type = argument


class _Layout:
    """Fields of a message class: names with defaults, whether it has buffers, and its tuple."""

    __slots__ = ("defaults", "has_buffers", "to_tuple")

    def __init__(self, kind: type[Message]) -> None:
        found: Iterable[Any] = fields(kind)  # type: ignore[arg-type]
        names = [each.name for each in found]
        self.defaults = tuple((f.name, f.default) for f in found if f.name != "buffers")
        self.has_buffers = "buffers" in names
        self.to_tuple: Callable[[Message], tuple[Any, ...]] = (
            attrgetter("op", *names) if names else lambda message: (message.op,)
        )


class _Layouts(dict[type[Message], _Layout]):
    """Layouts of classes, made at their first use: fields are not known when a class is made."""

    def __missing__(self, kind: type[Message]) -> _Layout:
        found = self[kind] = _Layout(kind)
        return found


_LAYOUTS = _Layouts()


_HANDLED = "_handled_message"
"""Attribute of a method that is registered for a message."""


def handles(
    kind: type[MessageT],
) -> Callable[
    [Callable[Concatenate[ReceiverT, MessageT, P], R]],
    Callable[Concatenate[ReceiverT, MessageT, P], R],
]:
    """Register a method of a `Receiver` for a class of messages."""

    def register(
        method: Callable[Concatenate[ReceiverT, MessageT, P], R],
    ) -> Callable[Concatenate[ReceiverT, MessageT, P], R]:
        setattr(method, _HANDLED, kind)
        return method

    return register


class Receiver:
    """Base of classes that handle messages by methods registered with `handles`."""

    _by_op: ClassVar[Mapping[str, tuple[type[Message], Callable[..., Any]]]] = {}
    _handlers: ClassVar[Mapping[type[Message], Callable[..., Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        found = {
            kind: method
            for method in vars(cls).values()
            if (kind := getattr(method, _HANDLED, None)) is not None
        }
        cls._handlers = {**cls._handlers, **found}
        cls._by_op = {kind.op: (kind, method) for kind, method in cls._handlers.items()}

    @classmethod
    def decode(
        cls, content: Mapping[str, Any], buffers: Buffers = (), op_key: str = "op"
    ) -> Message:
        """Return the message of a JSON form."""
        op = content.get(op_key)
        found = cls._by_op.get(str(op))
        if found is None:
            raise _unknown(cls, op)
        return found[0].decode(content, buffers)

    def handle_tuple(self, values: Sequence[Any], *context: Any) -> Any:
        """Dispatch the message of a tuple, as of `Message.to_tuple`."""
        found = self._by_op.get(values[0])
        if found is None:
            raise _unknown(type(self), values[0])
        kind, handler = found
        return handler(self, kind(*values[1:]), *context)

    def dispatch(self, message: Message, *context: Any) -> Any:
        """Call the method that handles a message; `context` are further arguments."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise _unknown(type(self), message.op or type(message).__name__)
        return handler(self, message, *context)


def _unknown(receiver: type[Receiver], op: object) -> SkyVersionError:
    return SkyVersionError(
        _("{receiver} does not know the message {op!r}").format(receiver=receiver.__name__, op=op),
        hint=_("its sender runs another version of jupyter_sky: use the same on both"),
    )
