"""Base class of a cloud's provider: six operations; the rest is the same for every cloud."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Event
from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_
from jupyter_sky.clouds.provider.classification import (
    ErrorTable,
    Meaning,
    ProviderError,
    Refinement,
    classify,
    status_meaning,
)
from jupyter_sky.clouds.provider.values import CloudError, LaunchRequest, Machine, MachineConfig
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

TRANSIENT_CAUSES = ("throttled", "transient")
"""Causes that pass by themselves."""


def ignore_machines(token: str, machines: Sequence[Machine]) -> None:
    """Do nothing with machines that are reported."""


class Provider(CloudFacts, ABC):
    """A cloud whose machines are rented; another package adds one by an entry point.

    Subclass it, give the facts as class attributes, and override ``offers``, ``launch``,
    ``machines``, ``terminate`` and ``sweep``, and `errors` or ``explain``. Waiting, retries, launch
    records, keys, tunnels and leases are done for it. Import the SDK in the methods that need it.

    Attributes
    ----------
    login : str
        How credentials are obtained, with the command.
    unconfigured : str
        What is missing where `configured` finds nothing.
    power_off : str
        Last shell command of a machine that ends by itself: ``kill 1`` of a container whose first
        process is `MachineConfig.script`, ``scancel $SLURM_JOB_ID`` of a job.
    variables : tuple of str
        Environment variables that hold the credentials.
    policy_use : str
        Where the text of `policy` is put, with the command.
    errors : mapping
        What a refusal means, by the cloud's code or an HTTP status: cause, scope and fix, as in
        `CloudError`.
    refinements : sequence of Refinement
        What messages add to the meaning of codes.
    on_created : callable
        To be called by ``launch`` with the token of a request and machines that have come up and
        are removed because others were refused: they are billed for the moment all the same.

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
    unconfigured: ClassVar[str] = N_("no credentials")
    power_off: ClassVar[str] = "shutdown -P now"
    variables: ClassVar[tuple[str, ...]] = ()
    policy_use: ClassVar[str] = ""
    errors: ClassVar[ErrorTable] = {}
    refinements: ClassVar[Sequence[Refinement]] = ()
    on_created: Callable[[str, Sequence[Machine]], None] = staticmethod(ignore_machines)

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
            Set when the machines are no longer wanted: remove what is made and raise soon, or
            return the machines, which are then terminated.

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

    # -- errors -----------------------------------------------------------------------------

    def explain(self, error: Exception) -> CloudError | None:
        """Classify an error; None for one that is not the cloud's."""
        refusal = error if isinstance(error, ProviderError) else self.read_error(error)
        if refusal is not None:
            return self.explain_refusal(refusal)
        if isinstance(error, ConnectionError | TimeoutError):
            return CloudError("transient", type(error).__name__, str(error))
        return None

    def read_error(self, error: Exception) -> ProviderError | None:
        """Read code, HTTP status and message out of an SDK's error; None for any other error."""
        return None

    @classmethod
    def explain_refusal(cls, error: ProviderError) -> CloudError:
        """Classify a refusal by its code, else by its HTTP status."""
        return classify(error, cls.find_meaning(error.code, error.status), cls.refinements)

    @classmethod
    def find_meaning(cls, code: str, status: int) -> Meaning:
        """Return what a code means, else what an HTTP status means."""
        known = cls.errors.get(code) or cls.errors.get(status)
        return known or status_meaning(status, cls.login)

    def is_transient(self, error: Exception) -> bool:
        """Whether an error is the cloud's and passes by itself."""
        trouble = self.explain(error)
        return trouble is not None and trouble.cause in TRANSIENT_CAUSES

    # -- with defaults ----------------------------------------------------------------------

    def configured(self) -> str:
        """Return in words which credentials would be used, empty without any.

        It sends nothing: environment variables and files are enough.
        """
        if self.variables and all(os.environ.get(name) for name in self.variables):
            return f"environment variable {self.variables[0]}"
        return ""

    def identify(self) -> str:
        """Prove the credentials by one request; return the account."""
        self.machines(owner="nobody")
        return "the credentials are accepted"

    def policy(self) -> str:
        """Return the least rights of a user that launches machines, as the cloud takes them.

        Empty where credentials have no rights of their own.
        """
        return ""

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return the machines of these ids; those that the cloud no longer knows are left out."""
        return [machine for machine in self.machines() if machine.id in ids]

    def list_ended(self, token: str, region: str, sent: float) -> list[Machine] | None:
        """Return the ended machines of a launch request; None where the cloud cannot tell.

        Parameters
        ----------
        token
            Of the request.
        region
            Where it was sent.
        sent
            Unix seconds at which it was sent.
        """
        return None

    def stop(self, ids: Sequence[str]) -> None:
        """Ask machines to power off and to be kept; of clouds that say `can_stop` alone.

        One that is off already is no error. `Machine.stopped` tells when it is done.
        """
        raise NotImplementedError(f"{self.name}: machines cannot be stopped")

    def start(self, ids: Sequence[str]) -> None:
        """Ask for the start of machines that were stopped; one that runs is no error.

        Raises
        ------
        ProviderError
            The cloud refuses, for want of capacity say.
        """
        raise NotImplementedError(f"{self.name}: machines cannot be started")

    def quotas(self) -> list[AccountQuota]:
        """Return the quotas of the account that machines count against."""
        return []

    def console(self, id: str) -> str:
        """Return the end of a machine's console; empty if not known."""
        return ""

    def self_delete_script(self, request: LaunchRequest) -> str:
        """Return shell commands by which a machine deletes itself before it is powered off."""
        return ""
