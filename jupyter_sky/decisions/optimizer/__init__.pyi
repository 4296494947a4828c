"""Names of `jupyter_sky.optimizer`, each imported at its first use."""

from jupyter_sky.decisions.optimizer.constraints import Residency as Residency
from jupyter_sky.decisions.optimizer.estimators import amdahl as amdahl
from jupyter_sky.decisions.optimizer.estimators import table as table
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate as evaluate
