"""Magics ``%%sky`` and ``%sky``, and their registration with IPython."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.requests.cell_options.conditions import (
    check_defaults,
)
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.schema import help_text
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.progress import show_in_notebook
from jupyter_sky.execution.sessions.background_reap import reap_in_background
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.interfaces.magics.completer import SessionSources, make_matcher
from jupyter_sky.interfaces.magics.search_cells import check_search

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.failures import RemoteFailure
    from jupyter_sky.execution.cells.request import CellPosition


_LONE_LINE = re.compile(r"\s*%%sky(\s|$)")


@magics_class
class SkyMagics(Magics):
    """The magics of one IPython shell."""

    @no_var_expand
    @line_cell_magic
    def sky(self, line: str, cell: str | None = None) -> Any:
        """Run a verb, or a cell on engines; its help is replaced by that of the options."""
        if cell is None:
            return _call_verb(line)
        if verbs.HELP_FLAGS & set(line.split()):
            print(help_text())
            return None
        from jupyter_sky.execution.cells.notebook_history import read_history
        from jupyter_sky.execution.cells.request import CellPosition, are_passing_magics, cell_id

        options = parse_cell_line(line, Sky.load().aliases)
        check_defaults(options)
        check_search(options)
        if not cell.strip():
            raise SkyUsageError(
                _("%%sky: the cell has no body"),
                hint=_("write below it what is to run on the cluster"),
            )
        number = self.shell.displayhook.prompt_count
        above = self._lines_above(cell)
        origin = CellPosition(
            number,
            line,
            above or [f"%%sky {line}".rstrip()],
            cell_id(self.shell),
            read_history(self.shell),
            are_passing_magics(above),
        )
        if options.dry_run:
            from jupyter_sky.interfaces.magics.dryrun import dry_run

            return dry_run(cell, options)
        if options.condition and not options.maps:
            from jupyter_sky.interfaces.magics.bag_cells import find_defaults

            if (defaults := find_defaults(options, self.shell.user_ns)) is not None:
                self.shell.user_ns.update(defaults)
                return None
        if options.search:
            return self._search(cell, options, line)
        return self._show(self._run(cell, options, origin), options)

    sky.__doc__ = help_text()

    def _search(self, cell: str, options: CellOptions, line: str) -> None:
        """Try a cell on several machines; what was found is shown while it is found."""
        from jupyter_sky.interfaces.magics.search_cells import run_search

        found = run_search(cell, options, line, self.shell)
        if options.name:
            self.shell.user_ns[options.name] = found
        self.shell.displayhook.update_user_ns(found)

    def _run(self, cell: str, options: CellOptions, origin: CellPosition) -> Any:
        """Run a cell; raise its errors without the frames of this package."""
        from jupyter_sky.execution.sessions import session as sessions
        from jupyter_sky.interfaces.widgets.cell_display import for_cell

        session = sessions.current()
        try:
            if not options.sql and session.will_spend(
                options
            ):  # else the engine finds it as soon, at no cost
                self._check_syntax(origin.number_lines(cell), origin.number)
        except SyntaxError as error:
            raise _hide_package_frames(self.shell, error) from None
        try:
            if options.ranges:
                from jupyter_sky.interfaces.magics.bag_cells import run_bag

                return run_bag(self.shell.transform_cell(cell), options, self.shell.user_ns)
            if options.maps:
                from jupyter_sky.interfaces.magics.bag_cells import run_sweep

                return run_sweep(
                    options,
                    self.shell.user_ns,
                    lambda swept, values: session.run(
                        cell, swept, for_cell(self.shell), origin, values
                    ),
                )
            return session.run(cell, options, for_cell(self.shell), origin)
        except BaseException as error:
            failure = _presentable(self.shell, error)
        raise failure  # here: IPython also looks for groups among the contexts of an exception

    def _show(self, value: Any, options: CellOptions) -> Any:
        """Return the handle of a background cell; of others the value has been shown already."""
        if options.background:
            if options.name:
                self.shell.user_ns[options.name] = value
            return None if options.name else value
        if value is not None:  # shown by the engine's own repr
            self.shell.displayhook.update_user_ns(value)
        return None

    def _lines_above(self, body: str) -> list[str]:
        """Return the notebook cell's lines above the body, so that line numbers agree with it.

        There are none where the body is in no cell, but in the code of one.
        """
        history = self.shell.history_manager
        raw = history.input_hist_raw[-1] if history and history.input_hist_raw else ""
        above, found, __ = raw.rpartition(body.rstrip("\n"))
        return above.rstrip("\n").split("\n") if found and "%%sky" in above else []

    def _check_syntax(self, cell: str, number: int) -> None:
        """Raise a SyntaxError here and now, before any machine is up."""
        import ast

        code = self.shell.transform_cell(cell)
        name = self.shell.compile.cache(code, number, raw_code=cell)
        flags = self.shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        compile(code, name, "exec", flags)


def _call_verb(line: str) -> Any:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SkyUsageError(
            _("%sky {line}: {error}").format(line=line, error=str(error).lower()),
            hint=_("every quote needs its closing quote"),
        ) from None
    return verbs.call_verb(words)


def _presentable(shell: Any, error: BaseException) -> BaseException:
    """Return the error that IPython is to receive for the error of a cell."""
    from jupyter_sky.execution.cells.failures import RemoteFailure

    if isinstance(error, RemoteFailure) and error.is_shown:
        return skip_once(shell, ShownError.of(error))
    if isinstance(error, SyntaxError | BaseExceptionGroup):
        return _hide_package_frames(shell, error)
    return _clean_interrupt(error) if isinstance(error, KeyboardInterrupt) else error


def _clean_interrupt(error: KeyboardInterrupt) -> KeyboardInterrupt:
    """Return the interrupt without frames of this package, which it may have been caught in."""
    if hasattr(error, "remote_traceback"):
        return error
    lines = [_("KeyboardInterrupt: interrupted before the cell ran")]
    shown = {"_render_traceback_": lambda self: lines}
    return type("KeyboardInterrupt", (KeyboardInterrupt,), shown)(*error.args)


def _hide_package_frames(shell: Any, error: BaseException) -> Exception:
    """Return an error of the same name that is shown without the frames of this package.

    IPython formats SyntaxError and ExceptionGroup itself and asks neither how it wants to be
    shown.
    """
    lines = getattr(error, "remote_traceback", None)
    if lines is None:
        lines = shell.SyntaxTB.structured_traceback(type(error), error, [])
    shown = {"_render_traceback_": lambda self: lines, "__module__": type(error).__module__}
    return type(type(error).__name__, (SkyError,), shown)(str(error))


_MATCHERS: dict[int, Any] = {}


def load(shell: Any) -> None:
    """Register the magics, the completion and the settings with a shell."""
    settings = Sky.load(shell)
    if settings.notice:
        print(_("jupyter_sky: {notice}").format(notice=settings.notice))
    if settings not in shell.configurables:
        shell.configurables.append(settings)
    shell.register_magics(SkyMagics(shell))
    if keep_lone_line not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.insert(0, keep_lone_line)
    show_in_notebook(_progress_card)
    _show_plans(shell)
    reap_in_background(settings)
    if id(shell) not in _MATCHERS and getattr(shell, "Completer", None) is not None:
        _MATCHERS[id(shell)] = make_matcher(SessionSources(shell))
        shell.Completer.custom_matchers.append(_MATCHERS[id(shell)])


def keep_lone_line(lines: list[str]) -> list[str]:
    r"""Add an empty body to a cell of a ``%%sky`` line alone, such as ``%%sky --help``.

    IPython refuses a cell magic without a body before the magic is called.

    Examples
    --------
    >>> keep_lone_line(["%%sky --help\n"]), keep_lone_line(["%%sky?\n"])
    (['%%sky --help\n', '\n'], ['%%sky?\n'])
    """
    code = [line for line in lines if line.strip()]
    return [*lines, "\n"] if len(code) == 1 and _LONE_LINE.match(code[0]) else lines


def _progress_card(shell: Any) -> Any:
    """Return a card with the progress of calls, in the outputs of the cell that runs."""
    from jupyter_sky.interfaces.widgets.progress import ProgressCard

    return ProgressCard(shell)


def _show_plans(shell: Any) -> None:
    """Draw plans also where no verb has made them, such as those read from a file."""

    def draw(plan: Any) -> str:
        from jupyter_sky.interfaces.widgets.plan import to_html

        return to_html(plan)

    def write(plan: Any, printer: Any, cycle: bool) -> None:
        from jupyter_sky.interfaces.widgets.plan import to_text

        printer.text(to_text(plan))

    for kind, show in (("text/html", draw), ("text/plain", write)):
        formatter = shell.display_formatter.formatters[kind]
        formatter.for_type_by_name("jupyter_sky.decisions.optimizer.plan", "Plan", show)


def unload(shell: Any) -> None:
    """Unregister the magics and the completion; clusters go on until their lease ends."""
    from jupyter_sky.execution.sessions import session as sessions

    matcher = _MATCHERS.pop(id(shell), None)
    if matcher is not None:
        shell.Completer.custom_matchers.remove(matcher)
    if keep_lone_line in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(keep_lone_line)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("sky", None)
    sessions.close()


# -- Errors of cells that stand among the outputs already, and that IPython shows no more ---------


class ShownError(Exception):
    """Error of a cell that stands among its outputs already.

    It has the name and the text that the engine has given it. It derives from no other class:
    IPython shows some classes in ways of their own, and nothing is left that could catch it.
    """

    def __init__(self, text: str, lines: list[str]) -> None:
        super().__init__(text)
        self._lines = lines

    def _render_traceback_(self) -> list[str]:
        return self._lines

    @classmethod
    def of(cls, error: RemoteFailure) -> ShownError:
        """Return an error of an engine under its own name."""
        kind = type(type(error).__name__, (cls,), {"__module__": type(error).__module__})
        return kind(error.remote_text, error._render_traceback_())


def skip_once(shell: Any, skipped: ShownError) -> ShownError:
    """Keep a shell from showing an error the next time, when its cell raises it; return it."""

    def show(kind: type[BaseException], error: Any, lines: list[str]) -> None:
        vars(shell).pop("_showtraceback", None)
        if error is skipped:
            shell._last_traceback = lines  # the reply of the cell has them, too
        else:
            shell._showtraceback(kind, error, lines)

    # subclasses are to override this method; the class of the shell is not ours to choose
    shell._showtraceback = show
    return skipped


# -- Cells with ``--if`` that are run by hand -----------------------------------------------------
