"""The family of errors that jupyter_sky raises on purpose.

Each says what was asked, what was found and what to do next. IPython shows the message alone: a
traceback through our own code would tell a notebook's author nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_sky.base.translation import _

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_FAILURES, _OWN_CLOUD = "08-when-things-fail", "09-your-own-cloud"

SHELL_COMMAND = "jupyter sky"
"""Command by which a shell says what a notebook says with ``%sky``."""


class SkyError(Exception):
    """A failure of jupyter_sky itself, as opposed to an exception of the user's code.

    Parameters
    ----------
    message : str
        What was asked and what was found.
    hint : str, optional
        What to do next; shown on a line of its own.

    Examples
    --------
    >>> print(SkyError("no cluster named train", hint="see %sky status"))
    no cluster named train
    see %sky status
    """

    guide_page: str = ""
    """Page of the guide that treats such errors, in `notebooks/guide`; empty without one."""
    machines_came_up: bool = False
    """Whether a launch that failed had machines, which cost something although they are gone."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Lines that IPython shows in place of a traceback."""
        first, *more = str(self).splitlines() or [""]
        pointer = self.guide_pointer()
        lines = [*more, pointer] if pointer else more
        return [f"{_RED}{type(self).__name__}{_PLAIN}: {first}", *lines]

    def guide_pointer(self, command: str = "%sky") -> str:
        """Return the command that shows the page of the guide; empty without a page.

        Parameters
        ----------
        command
            The one that the reader uses: ``%sky`` or ``jupyter sky``.

        Examples
        --------
        >>> SkyBudget("used up").guide_pointer("jupyter sky")
        'guide: jupyter sky help 07-money'
        """
        page = self.guide_page
        return _("guide: {command} help {page}").format(command=command, page=page) if page else ""


class SkyUsageError(SkyError, ValueError):
    """Input of a user is invalid: an unknown option, a bad number."""


class SkyNoOffer(SkyError):
    """Nothing on sale can meet the request."""

    guide_page = _FAILURES


class SkyNoPlan(SkyNoOffer):
    """No plan keeps all of what was asked, though each task could run by itself."""

    guide_page = "07-money"


class SkyNoCapacity(SkyError):
    """Places that sell what was asked have none left now, or none for this account.

    Attributes
    ----------
    cause, scope : str
        Reason of the refusal, and what it holds for: see `clouds.provider.values.CloudError`.
    """

    guide_page = _FAILURES

    cause: str = "capacity"
    scope: str = "zone"


class SkyPermission(SkyError):
    """A cloud does not let us do what is needed: credentials, roles, regions not enabled."""

    guide_page = _OWN_CLOUD


class SkyBudget(SkyError):
    """The work would cost, or has cost, more than was allowed."""

    guide_page = "07-money"


class SkyTimeout(SkyError, TimeoutError):
    """The time allowed has passed."""

    guide_page = _FAILURES


class SkyCancelled(SkyError):
    """The work was cancelled before it ended."""


class SkyEngineLost(SkyError):
    """An engine died while it ran the cell."""

    guide_page = _FAILURES


class SkyNodeLost(SkyEngineLost):
    """A node of a cluster does not answer any more; the others go on.

    Attributes
    ----------
    is_abandoned : bool
        Whether it has been silent for so long that it is not waited for any more.
    """

    is_abandoned: bool = False


class SkyTaskLost(SkyError):
    """Nodes died while they ran a call, and it is not sent again.

    Attributes
    ----------
    is_at_fault : bool
        Whether the call was alone on an engine that died while its machine went on: it may be the
        cause.
    """

    is_at_fault: bool = False


class SkySharedLost(SkyError):
    """Changes of the shared state of a pool are lost with the process or machine that kept it."""


class SkySharedMoved(SkySharedLost):
    """The shared state of a pool has moved to another machine, where this task is to run."""


class SkyWorldChanged(SkyError):
    """Processes of a group such as MPI's cannot go on: one of them has been replaced."""


class SkyClusterLost(SkyError):
    """The whole cluster is gone or cannot be reached.

    Attributes
    ----------
    is_intended : bool
        Whether it was ended on purpose: by its user, its idle limit or the budget.
    """

    guide_page = _FAILURES

    is_intended = False


class SkyNotEnded(SkyError):
    """Some of the clusters that were to end could not be ended, and may go on costing money."""


class SkyPreempted(SkyClusterLost):
    """The cloud took a spot machine back."""


class SkyUnreachable(SkyError):
    """A machine does not answer, or not as the one that it should be."""

    guide_page = _OWN_CLOUD


class SkyBootstrapError(SkyError):
    """A machine answers and cannot be made ready for engines."""

    guide_page = _OWN_CLOUD


class SkyTransferError(SkyError):
    """A value cannot travel between the notebook and an engine."""

    guide_page = "03-moving-data"


class SkyVersionError(SkyError):
    """Versions on the two sides do not work together."""


class SkyStoreError(SkyError):
    """The file that holds the ledger and the journal cannot be used."""

    guide_page = "10-architecture"


class SkyRunTaken(SkyError):
    """Another controller carries a run out."""


class SkyBagFailed(SkyError):
    """Jobs of a bag have failed."""

    guide_page = "06-jobs"


class SkyNameTaken(SkyStoreError):
    """A cluster of the same name is up, or being launched."""

    guide_page = ""


class SkyCheckpointError(SkyError):
    """The state of long work cannot be saved, or a save cannot be read."""


class SkyRefreshError(SkyError):
    """Prices cannot be had from a cloud now; the catalog stays as it was."""


def suggest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Hint for a word that is not known: the nearest known ones, or all when none is near.

    Parameters
    ----------
    word, known
        What was written, and what could have been.
    otherwise
        Said in place of all known ones, where these are many.

    Examples
    --------
    >>> suggest("--cpu", ["--cpus", "--memory"])
    'did you mean --cpus?'
    >>> suggest("--cpsu", ["--cpus", "--input"])
    'did you mean --cpus?'
    >>> suggest("moon", ["aws", "gcp"])
    'known: aws, gcp'
    """
    from difflib import get_close_matches

    dashes = "--" if word.startswith("--") else ""  # two options are not alike by their dashes
    spelled = {name.lower().removeprefix(dashes): name for name in known}
    bare = word.lower().removeprefix(dashes)
    near = [spelled[match] for match in get_close_matches(bare, spelled, n=3, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    if otherwise:
        return otherwise
    return f"known: {', '.join(spelled.values())}" if spelled else "none is known"
