"""Form of a cell's options as a widget: ``sky.form()``."""

from __future__ import annotations

from html import escape
from typing import Any

from jupyter_sky.base.tables import NO_MATHJAX_CLASSES
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.forms.cell_line import Fields, read
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.forms.matching import match, summary
from jupyter_sky.interfaces.forms.rpc import make_handlers
from jupyter_sky.interfaces.widgets.view import View

_CODE = "font-family: var(--jp-code-font-family, monospace)"


class SkyForm(View):
    """Form of a cell's options, with the offers that match.

    Parameters
    ----------
    line : str
        Options to begin with, as after ``%%sky``.

    Examples
    --------
    >>> form = sky.form("--gpus V100:1")  # doctest: +SKIP
    >>> form.line  # doctest: +SKIP
    '--gpus V100:1'
    """

    def __init__(self, line: str = "") -> None:
        asked = dict(make_handlers(_completion_context))
        super().__init__("form", asked, self._static_html, {"line": line})
        self._answers["match"] = self._matched(asked["match"])

    @property
    def line(self) -> str:
        """Options of the form as a command line."""
        return str(self.state["line"])

    def cell(self, body: str = "") -> None:
        """Put a new cell with the line below the one that runs now."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if shell is not None:
            shell.set_next_input(f"%%sky {self.line}".rstrip() + f"\n{body}")

    def _matched(self, answer: Any) -> Any:
        """Return a handler that also stores the line, which the page reports in no other way."""

        def matched(asked: dict[str, Any]) -> dict[str, Any]:
            found = answer(asked)
            if isinstance(found.get("line"), str):
                self.state = {**self.state, "line": found["line"]}
            return found

        return matched

    def _static_html(self) -> tuple[str, str]:
        """Return HTML and text of the line and its offers, for saved notebooks."""
        line = f"%%sky {self.line}".rstrip()
        said = summary(match(read(line).fields))
        html = (
            f'<div class="{NO_MATHJAX_CLASSES}"><code style="{_CODE}">{escape(line)}</code>'
            f"<div>{escape(said)}</div></div>"
        )
        return html, f"{line}\n{said}"


def form(line: str = "", labels: dict[str, Any] | None = None) -> SkyForm:
    """Return the form of a line, or of labels as ``sky.run`` takes them."""
    from jupyter_sky.base.requests.resources import Resources

    asked = Resources.parse(**labels).labels() if labels else {}
    values = {key: True if text == "true" else text for key, text in asked.items()}
    return SkyForm(" ".join(filter(None, [line.strip(), Fields(values).line()])))


def _completion_context(_asked: dict[str, Any]) -> CompletionContext:
    """Return the names and clusters that this kernel can complete."""
    from IPython.core.getipython import get_ipython

    shell, session = get_ipython(), sessions.current()
    hidden = shell.user_ns_hidden if shell is not None else {}
    names = shell.user_ns if shell is not None else {}
    local = tuple(name for name in names if not name.startswith("_") and name not in hidden)
    up = tuple(session.store.clusters())
    remote = tuple(sorted(session.variables.remote_names()))
    return CompletionContext(up, session.notebook, local, remote, session.store)
