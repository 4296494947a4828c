"""Names of `sky.optimizer`, each imported at its first use."""

from jupyter_sky.decisions.optimizer.constraints import Avoid as Avoid
from jupyter_sky.decisions.optimizer.constraints import Colocation as Colocation
from jupyter_sky.decisions.optimizer.constraints import Custom as Custom
from jupyter_sky.decisions.optimizer.constraints import HourlyCeiling as HourlyCeiling
from jupyter_sky.decisions.optimizer.constraints import NodeCeiling as NodeCeiling
from jupyter_sky.decisions.optimizer.constraints import Only as Only
from jupyter_sky.decisions.optimizer.constraints import Quota as Quota
from jupyter_sky.decisions.optimizer.constraints import Reliable as Reliable
from jupyter_sky.decisions.optimizer.constraints import Residency as Residency
from jupyter_sky.decisions.optimizer.estimators import amdahl as amdahl
from jupyter_sky.decisions.optimizer.estimators import flops as flops
from jupyter_sky.decisions.optimizer.estimators import measured as measured
from jupyter_sky.decisions.optimizer.estimators import table as table
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate as evaluate
