"""Classification of a cloud's refusals by a table of its codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_sky.clouds.provider.values import CloudError, ErrorCause, RefusalScope

Meaning = tuple[ErrorCause, RefusalScope, str]
"""Cause, scope and fix of a refusal, as in `CloudError`."""
ErrorTable = Mapping[str | int, Meaning]
"""Meanings by a cloud's code or an HTTP status."""
MAX_MESSAGE_CHARS = 400
_STATUS_CAUSES: dict[int, ErrorCause] = {401: "permission", 403: "permission", 429: "throttled"}


class ProviderError(Exception):
    """Refusal of a cloud, in its own words.

    Parameters
    ----------
    message
        In the cloud's own words.
    code
        Its own code; `Provider.errors` says what it means.
    status
        HTTP status; 0 where no answer has come.
    retry_after
        Header ``Retry-After`` of the answer: seconds or a date; empty where there is none.

    Examples
    --------
    >>> ProviderError("no more machines", code="no_capacity", status=400).code
    'no_capacity'
    """

    def __init__(
        self, message: str, *, code: str = "", status: int = 0, retry_after: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.status = message, code, status
        self.retry_after = parse_retry_after(retry_after or "")


@dataclass(frozen=True, slots=True)
class Refinement:
    """Change of what a code means where its message says more.

    Attributes
    ----------
    codes : str
        Codes that it applies to, separated by blanks.
    pattern : str
        Regular expression that is searched for in the message.
    cause, scope, fix : str, optional
        Replacements in the meaning; ``fix`` may refer to groups of the match.
    """

    codes: str
    pattern: str
    cause: ErrorCause | None = None
    scope: RefusalScope | None = None
    fix: str | None = None


def group_codes(*rows: tuple[ErrorCause, RefusalScope, str, str]) -> ErrorTable:
    """Return a table of errors by code.

    Parameters
    ----------
    *rows
        Cause, scope, fix, and the codes that mean it, separated by blanks.

    Examples
    --------
    >>> group_codes(("capacity", "zone", "", "SoldOut NoHost"))["NoHost"]
    ('capacity', 'zone', '')
    """
    return {
        code: (cause, scope, fix) for cause, scope, fix, codes in rows for code in codes.split()
    }


def status_meaning(status: int, login: str = "") -> Meaning:
    """Return what an HTTP status says where nothing else is known.

    Parameters
    ----------
    login
        Fix of a missing permission.
    """
    cause = _STATUS_CAUSES.get(status, "transient" if status >= 500 else "unknown")
    return cause, "region", login if cause == "permission" else ""


def classify(
    error: ProviderError,
    meaning: Meaning,
    refinements: Sequence[Refinement] = (),
) -> CloudError:
    """Return a refusal with its meaning, refined by the first rule that its message matches."""
    code = error.code or str(error.status)
    cause, scope, fix = meaning
    for rule in refinements:
        if code in rule.codes.split() and (match := re.search(rule.pattern, error.message)):
            cause, scope = rule.cause or cause, rule.scope or scope
            fix = fix if rule.fix is None else match.expand(rule.fix)
            break
    return CloudError(cause, code, one_line(error.message), scope, fix, error.retry_after)


def parse_retry_after(text: str) -> float:
    """Return the seconds of a header ``Retry-After``; 0 for one that says nothing.

    Examples
    --------
    >>> parse_retry_after("3"), parse_retry_after("soon")
    (3.0, 0.0)
    """
    from urllib3.exceptions import InvalidHeader
    from urllib3.util import Retry

    try:
        return float(Retry().parse_retry_after(text)) if text else 0.0
    except InvalidHeader:
        return 0.0


def first_known(found: Iterable[tuple[str, str]], errors: ErrorTable) -> tuple[str, str]:
    """Return the first code with its message that a table has, else the first, else two blanks."""
    every = list(found)
    return next((each for each in every if each[0] in errors), (every or [("", "")])[0])


def one_line(message: str) -> str:
    """Return a message as one line of at most `MAX_MESSAGE_CHARS` characters.

    Examples
    --------
    >>> one_line("no    more ")
    'no more'
    """
    words = " ".join(message.split())
    return words if len(words) <= MAX_MESSAGE_CHARS else f"{words[: MAX_MESSAGE_CHARS - 1]}…"


def is_html(text: str) -> bool:
    """Whether an answer is a page, as a proxy sends it, and not a cloud's JSON or XML."""
    return bool(re.match(r"\s*<(?:!doctype|html|head|body|\?xml)", text, re.IGNORECASE))
