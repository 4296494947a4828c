"""Setup of a cloud in a terminal: account, rights, login, quotas, and a first machine.

Each step is looked at before the next one; the last one launches the cheapest machine, runs a cell
there and ends it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial

from jupyter_sky import clouds
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyCancelled, SkyError, SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.values import CellOptions
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings import paths
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import format_rate, format_usd
from jupyter_sky.machines.renewal.subjects import read_and_keep_quotas
from jupyter_sky.workflows.trials.bench import Candidate, plan_candidate, run_candidates

PROOF_SECONDS = 120.0
"""Time from the boot of the first machine to its end, for its price beforehand."""
_SMALLEST = {"cpus": "2+", "memory": "2+", "on_demand": True}
_PROOF = "import platform\nprint(platform.platform())"

Ask = Callable[[str], str | None]
"""Shows a question; returns the answer, None where no user can answer."""
Say = Callable[[str], object]


class GuidedSetup:
    """Walk of a user through the setup of one cloud.

    Parameters
    ----------
    cloud
        Name of a cloud whose machines are rented.
    ask, say
        Dialogue with the user.
    """

    def __init__(self, cloud: str, ask: Ask, say: Say) -> None:
        self.cloud, self._ask, self._say = cloud, ask, say
        self._facts = find_facts(cloud)
        self._number = 0

    def run(self) -> None:
        """Walk through all steps.

        Raises
        ------
        SkyCancelled
            The user has stopped.
        """
        self._say(_("Setup of {title}").format(title=self._facts.title))
        if not self._is_usable():
            self._step(_("account: {text}").format(text=_(self._facts.account)))
            self._show_rights()
            self._install()
            self._log_in()
        self._say(_("credentials: {found}").format(found=clouds.check(self.cloud).found))
        self._prove()

    # -- steps ---------------------------------------------------------------------------------

    def _is_usable(self) -> bool:
        return self._is_installed() and clouds.check(self.cloud).usable

    def _is_installed(self) -> bool:
        importlib.invalidate_caches()  # it may have been installed a moment ago
        return all(importlib.util.find_spec(package) for package in self._facts.packages)

    def _step(self, text: str) -> None:
        self._number += 1
        self._say(f"\n{self._number}. {text}")
        self._wait()

    def _show_rights(self) -> None:
        text = policy_text(self.cloud)
        if not text:
            self._step(_("rights: {text}").format(text=_(self._facts.permissions)))
            return
        use = _(clouds.get_launcher(self.cloud).provider.policy_use)
        self._say(f"\n{text}")
        self._step(_("rights: paste this: {use}").format(use=use))

    def _install(self) -> None:
        while not self._is_installed():
            self._step(_("install: {command}").format(command=self._facts.install))

    def _log_in(self) -> None:
        while not (found := clouds.check(self.cloud)).usable:
            told = "; ".join(filter(None, (found.found, found.fix)))
            self._step(_("log in: {told}").format(told=told))

    def _wait(self) -> None:
        answer = self._ask(
            _("Enter goes on, q stops (variables that are set elsewhere need a new shell): ")
        )
        if answer is None or answer.strip().lower() in ("q", "quit"):
            raise SkyCancelled(
                _("the setup was stopped"),
                hint=_("jupyter sky setup {cloud} goes on").format(cloud=self.cloud),
            )

    def _show_quotas(self, region: str) -> None:
        """Tell what the account may have at once in a region; 0 is where to ask for more."""
        if not clouds.get_launcher(self.cloud).has_quotas():
            return
        try:
            kept = read_and_keep_quotas(self.cloud, paths.data_dir())
            quotas = [each for each in kept if each.region in ("", region)]
        except SkyError as error:
            self._say(_("quotas were not read: {error}").format(error=error.message))
            return
        self._say("\n" + _("quotas:"))
        for quota in sorted(quotas, key=lambda each: (each.limit == 0, each.name)):
            more = _("; more: {page}").format(page=quota.page) if quota.limit == 0 else ""
            self._say(f"  {quota.describe()}{more}")

    # -- the first machine ---------------------------------------------------------------------

    def _prove(self) -> None:
        """Launch the cheapest machine, run a cell there and end it, if the user agrees."""
        from jupyter_sky.interfaces.api.confirmation import agrees

        need = Resources.parse(cloud=self.cloud, **_SMALLEST)
        candidate = plan_candidate(self.cloud, need)
        if candidate.offer is None:
            candidate = plan_candidate(self.cloud, Resources.parse(cloud=self.cloud))
        if candidate.offer is None:
            raise SkyUsageError(candidate.obstacle, hint=_("jupyter sky doctor says more"))
        self._show_quotas(candidate.offer.region)
        question = _(
            "Launch {place} for a moment ({price}, about {usd}), to prove it? [y/N] "
        ).format(
            place=candidate.place,
            price=format_rate(candidate.price),
            usd=format_usd(candidate.usd(PROOF_SECONDS)),
        )
        answer = self._ask(f"\n{question}")
        if answer is None or not agrees(answer):
            self._say(_("nothing was launched; cells can rent there: %%sky --cloud NAME"))
            return
        self._launch(candidate)

    def _launch(self, candidate: Candidate) -> None:
        from jupyter_sky.interfaces.api.launches import free_name
        from jupyter_sky.workflows.pipelines.model.task_body import TaskCell
        from jupyter_sky.workflows.trials.workload import Step, Workload

        cell = TaskCell(_PROOF, CellOptions(timeout=PROOF_SECONDS), {})
        work = Workload((Step("", lambda load: cell),), _PROOF)
        stages: list[str] = []

        def watch(_candidate: Candidate, stage: str, detail: str) -> None:
            if stage not in stages:
                stages.append(stage)
                self._say(f"☁ {stage} {detail}".rstrip())

        [result] = run_candidates(
            _sessions.current(), work, [candidate], [free_name("first_machine")], watch=watch
        )
        if not result.run.ok:
            raise SkyError(
                _("the first machine has failed, and is ended: {error}").format(
                    error=result.run.error
                ),
                hint=_("jupyter sky doctor says more; then jupyter sky setup {cloud}").format(
                    cloud=self.cloud
                ),
            )
        told = _("it works: a cell ran on {place}, which has ended; it has cost {usd}")
        self._say(told.format(place=result.place, usd=format_usd(result.run.billed)))


def policy_text(cloud: str) -> str:
    """Return the least rights of a user of a cloud, to be pasted; empty where there are none.

    Examples
    --------
    >>> "RunInstances" in policy_text("aws")
    True
    """
    if not clouds.is_rented(cloud):
        return ""
    return clouds.get_launcher(cloud).provider.policy()


def setup(cloud: str | None = None) -> Table:
    """List the steps after which cells can rent machines of a cloud.

    Parameters
    ----------
    cloud
        Its name; all that can launch machines unless given.

    Returns
    -------
    Table
        A row for each step, and whether it is done; the credentials are proved by one request.

    Raises
    ------
    SkyUsageError
        Nothing can be launched in a cloud of that name.

    Examples
    --------
    >>> sky.setup("aws")  # doctest: +SKIP
    """
    from jupyter_sky.base.concurrency import run_parallel
    from jupyter_sky.clouds.account_setup import DONE, setup_names, setup_steps

    check_setup_name(cloud)
    names = [cloud] if cloud else setup_names()
    found = run_parallel([partial(setup_steps, name) for name in names])
    rows = tuple((one.cloud, _(one.state), _(one.text)) for steps in found for one in steps)
    is_all_done = all(one.state == DONE for steps in found for one in steps)
    note = _("cells can rent there: %%sky --cloud NAME") if is_all_done else _("then: %sky check")
    return Table(_("Setup of clouds"), ("cloud", _("state"), _("step")), rows, note)


def check_setup_name(cloud: str | None) -> None:
    """Raise SkyUsageError for a cloud that has no setup, with the nearest as hint."""
    from jupyter_sky.clouds.account_setup import setup_names

    if cloud and cloud not in (names := setup_names()):
        raise SkyUsageError(
            _("setup: machines of {cloud} cannot be launched").format(cloud=cloud),
            hint=suggest(cloud, names),
        )
