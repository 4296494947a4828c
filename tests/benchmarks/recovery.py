"""Figures of recovery on recorded availability: places to go on in, and deadlines.

    python tests/benchmarks/run.py recovery [--traces PATH] [--seed N] [--quick]
                                            [--calls N] [--losses N] [--starts N]

Jobs are replayed through recorded availability of spot machines (a CSV file or a folder of them,
see `preemption.availability.read_traces`), or, where no record is given, through availability
drawn from the rates that were fitted to one (`preemption.synthetic`). All strategies get the same
jobs. Figures:

index_over_eager
    Cost of the index strategy, which starts without knowledge, over SkyPilot's
    ``EAGER_NEXT_REGION``.
index_history_over_eager
    The same where it knows what machines in all places would have seen in the 72 hours before.
clairvoyant_over_eager
    The same of a strategy that knows the longest stay. It is no bound: it never waits, and waiting
    costs nothing here but time.
index_hours_over_eager, index_history_hours_over_eager
    Time from start to end, likewise.
deadline_over_uniform_progress, deadline_over_uniform_progress_long
    Cost of the deadline program over Uniform Progress: change-overs of 6.5 and of 20 minutes.
work_lost_over_dp
    Hours beyond the work of a job that saves its state, over those that the dynamic program of
    `preemption.checkpoints` forecasts; the job runs through the states that users have.
recover_gap_s
    Seconds from the end of a cluster to the first output of its cell on the next one, with
    ``%%sky --recover`` (not with ``--quick``).
late
    Jobs that ended after their deadline.
jobs
    Jobs with a deadline.

Figures of pools that lose machines are those of `pool_recovery`, whose sizes are the last three
options; ``--quick`` leaves them out, for machines take long to start.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pool_recovery
from recovery_cells import measure_gap
from recovery_saves import work_lost_over_forecast

from jupyter_sky.knowledge.lifetimes.availability import Availability, read_traces
from jupyter_sky.knowledge.lifetimes.deadlines import (
    DeadlineJob,
    DeadlinePolicy,
    DeadlineProgram,
    UniformProgress,
)
from jupyter_sky.knowledge.lifetimes.recovery import Broker, IndexStrategy, Situation, SpotPlace
from jupyter_sky.knowledge.lifetimes.replays import ReplayedJob, replay, replay_deadline, watch
from jupyter_sky.knowledge.lifetimes.synthetic import draw_places

SPOT, DEMAND = 0.91, 3.06
"""USD/h of one V100 in 2023: appendix A.2 of the SkyPilot paper."""
JOB = ReplayedJob(
    work=20.0, interval=2 / 3, save=0.5 / 60, boot=5 / 60, refusal=30 / 3600, egress=0.2
)
HISTORY = 72.0
"""Hours before a job that are known."""
ROOM = 60.0
"""Hours that a record goes on after a start."""
STRETCHES = (1.1, 1.25, 1.5, 2.0)
"""Deadlines over the work."""


def main(
    quick: bool = False, traces: str | None = None, seed: int = 1, **sizes: int
) -> dict[str, float]:
    records = list(read_traces(traces).values()) if traces else draw_records(seed)
    rng = np.random.default_rng(seed)
    jobs = 6 if quick else 150
    figures = compare_strategies([r for r in records if len(r) > 1] or records, rng, jobs)
    figures |= compare_deadlines(records, rng, 8 if quick else 1000)
    with contextlib.redirect_stdout(io.StringIO()):  # states tell from where they go on
        figures["work_lost_over_dp"] = work_lost_over_forecast(rng, 20 if quick else 2000)
    if quick:
        return figures
    return figures | {"recover_gap_s": measure_gap()} | pool_recovery.main(**sizes)


def compare_strategies(
    records: Sequence[Sequence[Availability]], rng: np.random.Generator, jobs: int
) -> dict[str, float]:
    """Return costs and times of the index over those of SkyPilot's strategy."""
    rows = []
    for number in range(jobs):
        record = records[number % len(records)]
        places = [SpotPlace(trace.place, trace.place.rstrip("abcdef"), SPOT) for trace in record]
        end = min(trace.end for trace in record)
        start = float(rng.uniform(HISTORY, max(HISTORY, end - ROOM)))
        known = watch(record, start - HISTORY, start)
        runs = (
            replay(JOB, places, record, Broker(), start),
            replay(JOB, places, record, IndexStrategy(), start),
            replay(JOB, places, record, IndexStrategy(), start, known),
            replay(JOB, places, record, Clairvoyant({t.place: t for t in record}), start),
        )
        rows.append([(run.usd, run.hours, run.preemptions) for run in runs])
    usd, hours, preemptions = np.array(rows).sum(axis=0).T
    print(f"mean USD {usd / jobs}, hours {hours / jobs}, preemptions {preemptions / jobs}")
    return {
        "index_over_eager": usd[1] / usd[0],
        "index_history_over_eager": usd[2] / usd[0],
        "clairvoyant_over_eager": usd[3] / usd[0],
        "index_hours_over_eager": hours[1] / hours[0],
        "index_history_hours_over_eager": hours[2] / hours[0],
    }


@dataclass(frozen=True)
class Clairvoyant:
    """Strategy that knows how long each place will keep a machine."""

    traces: Mapping[str, Availability]

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        now, traces = situation.now, self.traces
        up = [place for place in situation.spot() if traces[place.zone].is_up(now)]
        return sorted(up, key=lambda place: -traces[place.zone].until_change(now))


def compare_deadlines(
    records: Sequence[Sequence[Availability]], rng: np.random.Generator, jobs: int
) -> dict[str, float]:
    """Return costs of the deadline program over Uniform Progress, and jobs that were late."""
    places = [trace for record in records for trace in record]
    late, figures = 0, dict[str, float]()
    for name, change in (("", 6.5 / 60), ("_long", 20 / 60)):
        costs = np.zeros(2)
        for number in range(jobs // 2):
            stretch = STRETCHES[number % len(STRETCHES)]
            trace = places[number // len(STRETCHES) % len(places)]
            job = DeadlineJob(20.0, 20.0 * stretch, change, SPOT, DEMAND)
            start = float(rng.uniform(0, max(0.0, trace.end - job.deadline - 1)))
            policies: list[DeadlinePolicy] = [DeadlineProgram(), UniformProgress()]
            runs = [replay_deadline(job, trace, policy, start) for policy in policies]
            costs += [run.usd for run in runs]
            late += runs[0].is_late
        print(f"deadlines, change-over {60 * change:.1f} min: USD {costs / (jobs // 2)}")
        figures[f"deadline_over_uniform_progress{name}"] = costs[0] / costs[1]
    return figures | {"late": late, "jobs": jobs // 2 * 2}


def draw_records(seed: int, count: int = 3) -> list[tuple[Availability, ...]]:
    """Draw records of 45 days of the zones of the recording, with the rates fitted to it."""
    rng = np.random.default_rng(seed)
    return [draw_places(45 * 24.0, rng) for _ in range(count)]
