"""Base class of a cloud's driver: six operations; the rest is the same for every cloud."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Event
from typing import ClassVar

from ..offers import Offer
from .facts import CloudFacts
from .values import CloudError, ErrorCause, LaunchRequest, Machine, MachineConfig, RefusalScope

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

    Examples
    --------
    >>> ProviderError("no more machines", code="no_capacity", status=400).code
    'no_capacity'
    """

    def __init__(self, message: str, *, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.message, self.code, self.status = message, code, status


class Provider(CloudFacts, ABC):
    """A cloud that another package adds, found by an entry point ``jupyter_sky.providers``.

    Subclass it, give the facts as class attributes, and override ``configured``, ``offers``,
    ``launch``, ``machines``, ``terminate`` and ``sweep``. Waiting, retries, launch records, keys,
    tunnels and leases are done for it. Import the SDK in the methods that need it.

    Attributes
    ----------
    login : str
        How credentials are obtained, with the command.
    power_off : str
        Last shell command of a machine that ends by itself: ``kill 1`` of a container whose first
        process is `MachineConfig.script`, ``scancel $SLURM_JOB_ID`` of a job.
    errors : mapping
        What a refusal means, by the cloud's code or an HTTP status: cause, scope and fix, as in
        `CloudError`.

    Examples
    --------
    >>> class Nimbus(Provider):
    ...     name, title = "nimbus", "Nimbus Cloud"
    ...     errors = {"no_capacity": ("capacity", "region", "")}
    >>> Nimbus.explain_refusal(ProviderError("sold out", code="no_capacity")).cause
    'capacity'
    """

    launchable = True
    login: ClassVar[str] = ""
    power_off: ClassVar[str] = "shutdown -P now"
    errors: ClassVar[Mapping[str | int, tuple[ErrorCause, RefusalScope, str]]] = {}

    @abstractmethod
    def configured(self) -> str:
        """Return in words which credentials would be used, empty without any.

        It sends nothing: environment variables and files are enough.
        """

    @abstractmethod
    def offers(self) -> Iterable[Offer]:
        """Return what can be launched, with prices in USD/h.

        Raises
        ------
        ProviderError
            The cloud refuses; see `errors`.
        """

    @abstractmethod
    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Launch all machines of a request in one place, or none.

        Parameters
        ----------
        request
            What to launch; the same one again, recognized by its token, gives the same machines.
        config
            User data, keys and tags of the machines.
        stop
            Set when the machines are no longer wanted: return or raise soon.

        Returns
        -------
        list of Machine
            By rank, as soon as the cloud has accepted them all.

        Raises
        ------
        ProviderError
            The cloud refuses; see `errors`.
        """

    @abstractmethod
    def machines(
        self, *, owner: str = "", token: str = "", regions: Collection[str] | None = None
    ) -> list[Machine]:
        """List machines that still cost, also stopped ones, by the account and not by memory.

        Parameters
        ----------
        owner, token
            Only machines with these tags; empty for any.
        regions
            Only machines there; None for everywhere.
        """

    @abstractmethod
    def terminate(self, ids: Sequence[str]) -> None:
        """Ask for the end of machines; an unknown one is no error and saves no other."""

    @abstractmethod
    def sweep(
        self, owner: str, alive: Collection[str], regions: Collection[str] | None = None
    ) -> list[str]:
        """Delete what costs without a machine: disks, addresses, keys; return what it was.

        Parameters
        ----------
        owner
            Of what is deleted.
        alive
            Tokens of launch requests whose belongings stay.
        regions
            Only there; None for everywhere.
        """

    def explain(self, error: Exception) -> CloudError | None:
        """Classify an error; None for one that is not the cloud's."""
        if isinstance(error, ProviderError):
            return self.explain_refusal(error)
        if isinstance(error, ConnectionError | TimeoutError):
            return CloudError("transient", type(error).__name__, str(error))
        return None

    @classmethod
    def explain_refusal(cls, error: ProviderError) -> CloudError:
        """Classify a refusal by its code, else by its HTTP status."""
        code = error.code or str(error.status)
        known = cls.errors.get(error.code) or cls.errors.get(error.status)
        if known is not None:
            cause, scope, fix = known
            return CloudError(cause, code, error.message, scope, fix)
        by_status: ErrorCause = "transient" if error.status >= 500 else "unknown"
        cause = _STATUS_CAUSES.get(error.status, by_status)
        fix = cls.login if cause == "permission" else ""
        return CloudError(cause, code, error.message, "region", fix)

    # -- with defaults ----------------------------------------------------------------------

    def identify(self) -> str:
        """Prove the credentials by one request; return the account."""
        self.machines(owner="nobody")
        return "the credentials are accepted"

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return the machines of these ids; those that the cloud no longer knows are left out."""
        return [machine for machine in self.machines() if machine.id in ids]

    def console(self, id: str) -> str:
        """Return the end of a machine's console; empty if not known."""
        return ""

    def self_delete_script(self, request: LaunchRequest) -> str:
        """Return shell commands by which a machine deletes itself before it is powered off."""
        return ""
