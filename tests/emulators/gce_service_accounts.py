"""Service accounts of a project: who may give them to machines, and what they may do there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from .gce_validation import Refused, invalid
from .google_tokens import Holder, Tokens

NUMBER = "420000000001"
DELETE = "compute.instances.delete"
_SCOPES = frozenset(
    f"https://www.googleapis.com/auth/{name}" for name in ("cloud-platform", "compute")
)
"""With one of these a token may change what is in Compute Engine."""
_READ = _SCOPES | {"https://www.googleapis.com/auth/compute.readonly"}


@dataclass(frozen=True, slots=True)
class Account:
    """One service account.

    Attributes
    ----------
    may
        Permissions that it has in the project.
    lent
        Whether we may act as it, and so give it to machines.
    """

    email: str
    may: frozenset[str] = frozenset({DELETE})
    lent: bool = True


class Accounts:
    """Service accounts of one project.

    Parameters
    ----------
    project : str
    tokens
        Gives machines their tokens, and knows whose a token is.
    """

    def __init__(self, project: str, tokens: Tokens) -> None:
        self.project, self._tokens = project, tokens
        self.default = f"{NUMBER}-compute@developer.gserviceaccount.com"
        self.us = f"sky@{project}.iam.gserviceaccount.com"
        self._all = dict[str, Account]()
        self.add(self.default)

    def add(self, email: str, *, may: Collection[str] = (DELETE,), lent: bool = True) -> None:
        """Let there be an account, or change what there is of it."""
        self._all[email] = Account(email, frozenset(may), lent)

    def remove(self, email: str) -> None:
        """Let there be no such account."""
        del self._all[email]

    def check(self, asked: list[dict[str, Any]]) -> str:
        """Refuse what cannot be an account of a machine; return the code of a later failure."""
        if not asked:
            return ""
        if len(asked) > 1:
            raise Refused(400, "invalid", "At most one service account can be specified.")
        email = asked[0].get("email", "")
        if email != "default" and "@" not in email:
            why = "The service account is not an e-mail address."
            raise invalid("resource.serviceAccounts[0].email", email, why)
        if not asked[0].get("scopes"):
            why = "At least one scope must be specified."
            raise invalid("resource.serviceAccounts[0].scopes", "", why)
        account = self._all.get(self._email(email))
        if account is None:
            return "EXTERNAL_RESOURCE_NOT_FOUND"
        return "" if account.lent else "SERVICE_ACCOUNT_ACCESS_DENIED"

    def attached(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return accounts as a machine that has them is described."""
        return [{**each, "email": self._email(each["email"])} for each in asked]

    def _email(self, name: str) -> str:
        return self.default if name == "default" else name

    def identity(self, attached: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what a machine's metadata service tells of its accounts."""
        return {
            key: value
            for each in attached
            for key, value in {
                "identity_email": each["email"],
                "identity_scopes": each["scopes"],
                "identity_token": self._tokens.issue(each["email"], each["scopes"]),
            }.items()
        }

    def refusal(self, holder: Holder, method: str, permission: str) -> str:
        """Return the code with which a request is refused to whom it comes from; or nothing."""
        if not set(holder.scopes) & (_READ if method == "GET" else _SCOPES):
            return "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
        account = self._all.get(holder.email)
        allowed = holder.email == self.us or (account is not None and permission in account.may)
        return "" if allowed else "forbidden"
