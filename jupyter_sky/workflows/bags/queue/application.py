"""Applications of bags: a function, a shell command or a cell, called with a job's parameters.

They travel to machines as they are, and run there by `call`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.lazy_calls import Function

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")
"""Name of a parameter in a command: ``{lr}``, and not ``${HOME}``."""
_KILL_SECONDS = 5.0
"""Time for a command to end after it was asked to."""


@dataclass(frozen=True, slots=True)
class FunctionApp:
    """Function that is called with the parameters of a job by their names."""

    function: Callable[..., Any]
    kind: ClassVar[str] = "function"

    @property
    def name(self) -> str:
        """Its name."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Return its value."""
        return self.function(**parameters)


class CommandFailed(RuntimeError):
    """A command has ended with another code than 0."""


@dataclass(frozen=True, slots=True)
class CommandApp:
    """Shell command: a job's parameters stand in for ``{name}``, quoted, and are variables.

    Examples
    --------
    >>> CommandApp("simulate --lr {lr} --out {name}").fill({"lr": 0.1, "name": "a b"})
    "simulate --lr 0.1 --out 'a b'"
    """

    command: str
    kind: ClassVar[str] = "command"

    @property
    def name(self) -> str:
        """The command."""
        return self.command

    def fill(self, parameters: Mapping[str, Any]) -> str:
        """Return the command of a job."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return shlex.quote(_as_text(parameters[name])) if name in parameters else match[0]

        return PLACEHOLDER.sub(value, self.command)

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Run it; return the JSON of the last line that it prints, if that is some, else nothing.

        Raises
        ------
        CommandFailed
            It has ended with another code than 0.
        """
        variables = {name: _as_text(value) for name, value in parameters.items()}
        process = subprocess.Popen(
            ["/bin/sh", "-c", self.fill(parameters)],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # it is stopped together with what it has started
            # the line to the process manager of an MPI program that this is a rank of
            pass_fds=[int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else (),
        )
        last = ""
        try:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.write(line)
                last = line.strip() or last
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        if code:
            text = _("the command ended with code {code}").format(code=code)
            raise CommandFailed(f"{text}: {last}" if last else text)
        return _read_value(last)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read_value(line: str) -> Any:
    """Return the value in the last line of a command; None where it is no JSON."""
    with suppress(ValueError):
        return json.loads(line)
    return None


def _stop(process: subprocess.Popen[str]) -> None:
    """End a command and what it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
            return


@dataclass(frozen=True, slots=True)
class CellApp:
    r"""Code of a cell, executed with a job's parameters as variables.

    Attributes
    ----------
    code
        Of the cell.
    outputs
        Variables that a job brings back; without any, the value of the last expression.
    inputs
        Variables of the notebook that all jobs read.

    Examples
    --------
    >>> CellApp("x = n * base\nx + 1", inputs={"base": 10}).call({"n": 2})
    21
    >>> CellApp("x = n * 2\ny = 0", ("x",)).call({"n": 2})
    {'x': 4}
    """

    code: str
    outputs: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "cell"

    @property
    def name(self) -> str:
        """The first line of the cell."""
        return self.code.strip().partition("\n")[0]

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Execute it; return a dict of its outputs, or the value of its last expression."""
        import ast

        tree = ast.parse(self.code)
        last = None
        if not self.outputs and tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        names: dict[str, Any] = {"__name__": "__main__", **self.inputs, **parameters}
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            return eval(compile(last, "<cell>", "eval"), names)
        return {name: names[name] for name in self.outputs} or None


App = FunctionApp | CommandApp | CellApp


def make_app(app: Any) -> App:
    """Return the application of a function, a lazy function or a command.

    Raises
    ------
    SkyUsageError
        It is none of these, or the command is empty.

    Examples
    --------
    >>> make_app("ls {folder}").name
    'ls {folder}'
    """
    if isinstance(app, FunctionApp | CommandApp | CellApp):
        return app
    if isinstance(app, str):
        if not app.strip():
            raise SkyUsageError(
                _("a bag with an empty command"), hint=_('such as "simulate --seed {seed}"')
            )
        return CommandApp(app.strip())
    if isinstance(app, Function):
        return FunctionApp(app.local)
    if not callable(app):
        raise SkyUsageError(
            _("a {kind} cannot be run by a bag").format(kind=type(app).__name__),
            hint=_("a function, or a shell command as text"),
        )
    return FunctionApp(app)


def pickle_app(app: App, around: Mapping[str, Any]) -> bytes:
    """Return an application and what belongs to its machines as bytes.

    Raises
    ------
    SkyUsageError
        It cannot be pickled.
    """
    import cloudpickle

    try:
        return cloudpickle.dumps((app, dict(around)))
    except Exception as error:
        raise SkyUsageError(
            _("{app} cannot be sent: {error}").format(app=app.name, error=error),
            hint=_("make what it reads inside it, or pass it as a parameter"),
        ) from error
