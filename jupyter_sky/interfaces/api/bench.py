"""Benchmarks as ``jupyter sky bench`` runs them: candidates read, planned, run and compared."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.clouds.register import known_names
from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line, written_options
from jupyter_sky.base.requests.resources import Resources, format_duration, format_run_time
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.request import apply_settings
from jupyter_sky.execution.clusters.cluster import place_of_machine
from jupyter_sky.execution.files.data_estimate import transfers_usd
from jupyter_sky.execution.files.dataset_listing import list_data
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import format_rate, format_usd, sum_usd
from jupyter_sky.workflows.trials.bench import (
    Candidate,
    CandidateResult,
    cost_limit,
    plan_candidate,
    run_candidates,
    share_budget,
)
from jupyter_sky.workflows.trials.workload import Step, Workload, find_effects

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.values import CellOptions
    from jupyter_sky.execution.files.dataset_listing import CellDataset
    from jupyter_sky.interfaces.api.launches import Command

_SHOWN = 160  # characters of a reason
EXAMPLE = '--candidates T4,L4,"--cpus 8"'


@dataclass(frozen=True, slots=True)
class Bench:
    """A command and the candidates on which it is to run.

    Attributes
    ----------
    command
        The command, as a cell.
    candidates
        Its candidates, each with its place.
    budget
        Most USD of all of them; None without a limit.
    """

    command: Command
    candidates: tuple[Candidate, ...]
    budget: float | None = None

    @property
    def launchable(self) -> tuple[Candidate, ...]:
        """The candidates that can be launched."""
        return tuple(each for each in self.candidates if each.offer is not None)

    @property
    def usd(self) -> float | None:
        """Most USD that it may cost; None where that is not limited."""
        return cost_limit(self.launchable, self.command.options.timeout, self.budget)

    @property
    def unknown_transfers(self) -> tuple[str, ...]:
        """Options whose transfers have a cost that nobody knows before."""
        if all(each.transfers is not None for each in self.launchable):
            return ()
        options = self.command.options
        given = {"--out": options.uploads, "--mount": options.mounts, "--data": options.data}
        return tuple(flag for flag, value in given.items() if value)

    @property
    def effects(self) -> tuple[str, ...]:
        """Changes outside the machines, which each candidate repeats."""
        return find_effects(self.command.code, self.command.options)

    def workload(self) -> Workload:
        """Return the command as the one step of a workload."""
        from jupyter_sky.workflows.pipelines.model.task_body import TaskCell

        cell = TaskCell(self.command.code, self.command.options, self.command.values)
        return Workload((Step("", lambda load: cell),), self.command.code, self.effects)

    def table(self) -> Table:
        """Return where each candidate would run, and what that may cost."""
        rows = [
            (each.text, each.place, _rate(each), _clip(each.obstacle)) for each in self.candidates
        ]
        columns = (_("candidate"), _("where"), _("price"), _("obstacle"))
        note = "; ".join([_describe_limit(self), *self.effects])
        return Table(
            _("Benchmark of {title}").format(title=self.command.title), columns, tuple(rows), note
        )


# -- candidates ------------------------------------------------------------------------------


def split_candidates(text: str) -> list[str]:
    """Return the candidates of a list, with commas, or semicolons where options have commas.

    Examples
    --------
    >>> split_candidates("T4,L4,--cpus 8"), split_candidates("T4; --cpus 8 --cloud aws,gcp")
    (['T4', 'L4', '--cpus 8'], ['T4', '--cpus 8 --cloud aws,gcp'])
    """
    return [part.strip() for part in text.split(";" if ";" in text else ",") if part.strip()]


def read_candidate(
    text: str, base: Resources, aliases: Mapping[str, str] = MappingProxyType({})
) -> Resources:
    """Return the request of a candidate: its own words above what the command asks for.

    Parameters
    ----------
    text
        Accelerator, instance type, cloud or alias, and options of resources.
    base
        Request of the command.

    Raises
    ------
    SkyUsageError
        It is none of these, or has options of other kinds.

    Examples
    --------
    >>> read_candidate("T4 --spot", Resources.parse(cpus="4+")).command_line()
    '--cpus 4+ --gpus T4:1 --spot'
    """
    from jupyter_sky.interfaces.api.offer_search import build_request
    from jupyter_sky.knowledge.catalog import load

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SkyUsageError(
            _("candidate {text}: {error}").format(text=text, error=str(error).lower()),
            hint=_("every quote needs its closing quote"),
        ) from None
    if not any(words):
        raise SkyUsageError(
            _("bench: there are no candidates"), hint=_("such as {words}").format(words=EXAMPLE)
        )
    name = words.pop(0) if not words[0].startswith("-") and words[0] not in aliases else ""
    options = parse_cell_line(shlex.join(words), aliases)
    for use in written_options(words if name or words[0].startswith("-") else words[1:]):
        if use.option.group != "Resources":
            raise SkyUsageError(
                _("candidate {text}: {flag} describes no machine").format(text=text, flag=use.flag),
                hint=_("give it once, for all candidates"),
            )
    labels: dict[str, Any] = dict(options.resources.labels())
    if name in known_names():
        given = Resources.parse(**{"cloud": name, **labels})
    else:
        given = build_request(load(), name or None, labels)
    return base.override(given)


def plan_bench(
    command: Command,
    texts: Sequence[str],
    budget: float | None = None,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Bench:
    """Return a benchmark with the place of each candidate; nothing is launched.

    Parameters
    ----------
    command
        The command, as `jupyter_sky.interfaces.api.launches.read_command` returns it.
    texts
        Candidates as they were written.
    budget
        Most USD of all of them.

    Raises
    ------
    SkyUsageError
        There is no candidate, one is invalid or given twice, or an option of the command is for
        one cluster.
    """
    _check_options(command)
    if not texts:
        raise SkyUsageError(
            _("bench: there are no candidates"), hint=_("such as {words}").format(words=EXAMPLE)
        )
    twice = next((text for text in texts if list(texts).count(text) > 1), None)
    if twice is not None:
        raise SkyUsageError(
            _("bench: candidate {text} is given twice").format(text=twice), hint=_("give it once")
        )
    base = command.options.resources
    needs = [apply_settings(read_candidate(text, base, aliases), Sky.load()) for text in texts]
    data = command.options.data
    listed = list_data(data, _sessions.current().folder, base) if data else []
    planned = [plan_candidate(text, need) for text, need in zip(texts, needs, strict=True)]
    priced = tuple(_price_transfers(each, listed, command.options) for each in planned)
    return Bench(command, priced, budget)


def _price_transfers(
    candidate: Candidate, listed: Sequence[CellDataset], options: CellOptions
) -> Candidate:
    """Return a candidate with the cost of the command's data at its place."""
    from jupyter_sky.knowledge.catalog import load

    offer = candidate.offer
    if offer is None:
        return candidate
    place = place_of_machine(offer.cloud, offer.region)
    usd = transfers_usd(listed, options, place, load(), candidate.need.nodes)
    return replace(candidate, transfers=usd)


def _check_options(command: Command) -> None:
    options = command.options
    given = {
        "--cluster": options.cluster,
        "--output": options.files,
        "--recover": options.recover is not None,
        "--retry-until-up": options.retry_until_up,
        "--burst": options.burst is not None,
    }
    for flag, value in given.items():
        if value:
            raise SkyUsageError(
                _("bench {flag}: each candidate has machines of its own, which end").format(
                    flag=flag
                ),
                hint=_("leave {flag} out").format(flag=flag),
            )


def check_limits(bench: Bench) -> None:
    """Raise an error for a benchmark that cannot begin, or whose cost nothing limits."""
    if not bench.launchable:
        reasons = "".join(f"\n  {each.text}: {each.obstacle}" for each in bench.candidates)
        raise SkyNoOffer(
            _("no candidate can be launched:{reasons}").format(reasons=reasons),
            hint=_("jupyter sky check says which clouds can be used, and what is missing"),
        )
    share_budget(bench.launchable, bench.budget)
    if bench.usd is None and bench.unknown_transfers:
        raise SkyUsageError(
            _("bench: nothing limits what it costs: of {flags} nobody knows the bytes").format(
                flags=", ".join(bench.unknown_transfers)
            ),
            hint=_("--budget 2 (USD of all candidates) stops what costs more"),
        )
    if bench.usd is None:
        raise SkyUsageError(
            _("bench: nothing limits what it costs"),
            hint=_("--budget 2 (USD of all candidates), or --timeout 30m (of each run)"),
        )


# -- running ---------------------------------------------------------------------------------


def run_bench(bench: Bench) -> list[CandidateResult]:
    """Run the command on all candidates that can be launched, and print what becomes of each."""
    from jupyter_sky.interfaces.api.launches import free_names

    session = _sessions.current()
    name = bench.command.options.name or bench.command.title
    stages: dict[str, str] = {}

    def watch(candidate: Candidate, stage: str, detail: str) -> None:
        if stages.get(candidate.text) != stage:
            stages[candidate.text] = stage
            print(f"☁ {candidate.text}: {stage} {detail}".rstrip(), flush=True)

    def done(result: CandidateResult) -> None:
        took = result.failure or format_run_time(result.run.seconds)
        print(f"☁ {result.candidate.text}: {took}", flush=True)

    names = free_names(name, len(bench.launchable))
    return run_candidates(
        session, bench.workload(), bench.launchable, names, bench.budget, watch, done
    )


def compare(bench: Bench, results: Sequence[CandidateResult]) -> Table:
    """Return the table of a benchmark, the cheapest run first; failures say why."""

    def rank(result: CandidateResult) -> tuple[bool, float, float]:
        run = result.run
        return not run.ok, run.usd if run.usd is not None else float("inf"), run.seconds

    rows = [_row(result) for result in sorted(results, key=rank)]
    rows += [
        (each.text, "", "", "", "", "", _clip(each.obstacle))
        for each in bench.candidates
        if each.offer is None
    ]
    columns = (
        _("candidate"),
        _("where"),
        _("price"),
        _("time"),
        _("cost of a run"),
        _("billed"),
        _("result"),
    )
    return Table(_title(bench), columns, tuple(rows), _summary(results))


def _title(bench: Bench) -> str:
    return _("Benchmark of {title}").format(title=bench.command.title)


def _row(result: CandidateResult) -> tuple[str, ...]:
    run = result.run
    took = format_run_time(run.seconds) if run.seconds else ""
    usd = format_usd(run.usd) if run.ok and run.usd is not None else ""
    billed = format_usd(run.billed) if run.billed is not None else _("unknown")
    told = _("ok") if run.ok else _clip(result.failure)
    return (result.candidate.text, result.place, _rate(result.candidate), took, usd, billed, told)


def _summary(results: Sequence[CandidateResult]) -> str:
    good = [each for each in results if each.run.ok]
    total = sum_usd(each.run.billed for each in results)
    parts = [_("{usd} in all; their machines have ended").format(usd=format_usd(total))]
    if len(good) > 1:
        fastest = min(good, key=lambda each: each.run.seconds)
        parts.append(_("fastest: {candidate}").format(candidate=fastest.candidate.text))
    return "; ".join([*parts, _("jupyter sky measurements keeps the times")])


def _rate(candidate: Candidate) -> str:
    return "" if candidate.offer is None else format_rate(candidate.rate)


def _clip(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _describe_limit(bench: Bench) -> str:
    usd, timeout = bench.usd, bench.command.options.timeout
    if not bench.launchable:
        return _("none can be launched")
    if usd is None and bench.unknown_transfers:
        return _("nothing limits the cost: give --budget")
    if usd is None:
        return _("nothing limits the cost: give --budget or --timeout")
    if usd == 0:
        return _("it costs nothing")
    if bench.budget is not None and usd == bench.budget:
        return _("at most {usd}: what costs more is stopped").format(usd=format_usd(usd))
    assert timeout is not None
    return _("about {usd} at most, if each takes {timeout}").format(
        usd=format_usd(usd), timeout=format_duration(timeout)
    )
