"""Confirmation before something costs money, or clusters end that others started or use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.termination import EndResult, end_clusters
from jupyter_sky.execution.sessions import session as sessions

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.termination import EndCandidate


def end_with_confirmation(name: str | None, everything: bool, yes: bool, how: str) -> EndResult:
    """End clusters, after asking where others started or use them.

    Parameters
    ----------
    name
        Cluster to end; None for those of this notebook.
    everything
        End all clusters.
    yes
        Do not ask.
    how
        Command that does not ask, for messages where no user can answer.
    """
    session = sessions.current()
    if name is None and not everything and session.everywhere:
        names = [row.name for row in session.store.live_clusters()]
        if names:
            raise SkyUsageError(
                _("which cluster? Up now: {names}").format(names=", ".join(names)),
                hint=_("jupyter sky down NAME, or jupyter sky down --all"),
            )

    def confirm_others(others: list[EndCandidate]) -> None:
        listed = "\n".join(f"  {one}" for one in others)
        confirm(
            _("Not yours alone:\n{listed}\nEnd all clusters, these too? [y/N] ").format(
                listed=listed
            ),
            SkyUsageError(
                _("these clusters are not this notebook's alone:\n{listed}").format(listed=listed),
                hint=_("end your own: %sky down; or all of them: {how}").format(how=how),
            ),
            _("no cluster was ended"),
        )

    return end_clusters(
        session.clusters, name, everything, (lambda others: None) if yes else confirm_others
    )


def confirm(question: str, unasked: SkyError, cancelled: str) -> None:
    """Ask before something costs money or is lost.

    Parameters
    ----------
    question
        Question to be answered with y or n.
    unasked
        Raised where no user can answer.
    cancelled
        Message of a refusal.

    Raises
    ------
    SkyError
        No user can answer: `unasked`.
    SkyCancelled
        The answer was not yes.
    """
    answer = ask(question)
    if answer is None:
        raise unasked
    if not agrees(answer):
        raise SkyCancelled(cancelled)


def agrees(answer: str) -> bool:
    """Return whether an answer to a question that ends with ``[y/N]`` is yes.

    Examples
    --------
    >>> agrees(" Yes"), agrees("")
    (True, False)
    """
    return answer.strip().lower() in ("y", "yes")


def ask(question: str) -> str | None:
    """Return the user's answer; None where no user can answer."""
    from IPython import get_ipython  # type: ignore[attr-defined]
    from IPython.core.error import StdinNotImplementedError

    shell = get_ipython()
    if getattr(shell, "kernel", None) is None and not (sys.stdin and sys.stdin.isatty()):
        return None
    try:
        return input(question)
    except (StdinNotImplementedError, EOFError):
        return None
