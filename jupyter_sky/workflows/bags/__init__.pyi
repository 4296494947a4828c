"""Names of `jupyter_sky.bags`, each imported at its first use."""

from jupyter_sky.workflows.bags.decisions import fleet_size as fleet_size
from jupyter_sky.workflows.bags.decisions import job_forecast as job_forecast
from jupyter_sky.workflows.bags.decisions import reuse as reuse
from jupyter_sky.workflows.bags.decisions.backlog import Backlog as Backlog
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind as MachineKind
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes as RunTimes
from jupyter_sky.workflows.bags.queue import exploration as exploration
from jupyter_sky.workflows.bags.queue.parameters import make_sweep as make_sweep
from jupyter_sky.workflows.bags.queue.parameters import read_file as read_file
