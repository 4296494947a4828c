"""Lifetimes of spot machines, and decisions that follow from them.

Lifetimes that were observed become a model; a model says what a job will take and cost, on which
machines to run it and when to save its state::

    seen = preemption.google_2019()
    model = preemption.fit("floor-hyperbolic", seen)
    model.expected_lifetime(), model.survival(4.0)
    preemption.turnaround(model, work=4.0, nodes=2).hours
    preemption.next_checkpoint(remaining=3.2, age=5.0, cost=1 / 60, model=model)
    print(preemption.select_server(offers, 64, run_hours=1.5))

All times are hours, all prices USD. Everything is a pure function of its inputs and a seed, but
`current`, which reads the tracker and the catalog. The starting point is the paper *SciSpot:
Scientific Computing On Transient Cloud Servers*; where its formulas do not hold, both its form and
the right one are here.
"""

from jupyter_sky.base.lazy_names import attach

__getattr__, __dir__ = attach(__name__, __file__)
