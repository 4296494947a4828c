"""``jupyter sky``: the verbs of ``%sky`` outside a notebook, and notebooks run headless."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import (
    SHELL_COMMAND,
    SkyCancelled,
    SkyError,
    SkyNoOffer,
    SkyNoPlan,
    SkyUsageError,
)
from jupyter_sky.base.translation import _

_NOTEBOOK_VERB = re.compile(r"(?<![%\w])%sky(?= [a-z])")
_EXIT_CODES = {SkyUsageError: 2, SkyNoOffer: 3, SkyNoPlan: 3, SkyCancelled: 4}


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; return the exit code.

    Parameters
    ----------
    argv
        The words after ``jupyter sky``.

    Returns
    -------
    int
        0, 1 for a failure, 2 for a command that is not understood, 3 where nothing on sale or no
        plan is possible, 4 for what was cancelled, 130 when interrupted; that of the command
        after ``launch`` and ``exec``.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _run(words)
        sys.stdout.flush()
    except SkyError as error:
        text = _name_commands(str(error))
        print(
            text if text.startswith("jupyter sky") else _("jupyter sky: {text}").format(text=text),
            file=sys.stderr,
        )
        if pointer := error.guide_pointer(SHELL_COMMAND):
            print(pointer, file=sys.stderr)
        return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 1)
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:  # of a command that has run on a cluster
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _run(words: list[str]) -> None:
    from jupyter_sky.interfaces.magics.declaration import SHELL
    from jupyter_sky.interfaces.magics.verbs import read_call

    if words == ["--version"]:
        from jupyter_sky._version import __version__

        print(__version__)
        return
    if not words or words[0] in ("-h", "--help"):
        words = ["help", *words[1:]]
    call = read_call(words, SHELL)
    if not call.verb.needs_session:
        _print(call.run())
        return

    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.execution.sessions import session as sessions

    name = str(Path.cwd() / _("command line"))
    session = sessions.open_session({}, name, lasting=True, everywhere=True)
    session.clusters.records.end_initiator = _("with `jupyter sky {words}`").format(words=words[0])
    if notice := Sky.load().notice:
        print(_name_commands(_("jupyter sky: {notice}").format(notice=notice)), file=sys.stderr)
    try:
        answer = call.run()
    finally:
        sessions.close()
    _print(answer)


def _print(answer: Any) -> None:
    from jupyter_sky.base.tables import Table

    if answer is not None:
        print(_name_commands(str(answer)) if isinstance(answer, Table) else answer)


def _name_commands(text: str) -> str:
    """Return a message with the verbs that it names as commands of a shell."""
    return _NOTEBOOK_VERB.sub(SHELL_COMMAND, text)


if __name__ == "__main__":
    sys.exit(main())
