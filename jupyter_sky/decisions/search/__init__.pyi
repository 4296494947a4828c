"""Names of `jupyter_sky.decisions.search`, each imported at its first use."""

from jupyter_sky.decisions.search.api import METHODS as METHODS
from jupyter_sky.decisions.search.api import make_method
from jupyter_sky.decisions.search.bandit import CloudBandit as CloudBandit
from jupyter_sky.decisions.search.bandit import first_budget as first_budget
from jupyter_sky.decisions.search.bandit import round_arms as round_arms
from jupyter_sky.decisions.search.bandit import round_budgets as round_budgets
from jupyter_sky.decisions.search.bandit import total_budget as total_budget
from jupyter_sky.decisions.search.baselines import Independent as Independent
from jupyter_sky.decisions.search.baselines import RisingBandits as RisingBandits
from jupyter_sky.decisions.search.baselines import SuccessiveHalving as SuccessiveHalving
from jupyter_sky.decisions.search.components import COMPONENTS as COMPONENTS
from jupyter_sky.decisions.search.components import RBF as RBF
from jupyter_sky.decisions.search.components import TPE as TPE
from jupyter_sky.decisions.search.components import BayesianForest as BayesianForest
from jupyter_sky.decisions.search.components import BayesianGP as BayesianGP
from jupyter_sky.decisions.search.components import Cheapest as Cheapest
from jupyter_sky.decisions.search.components import Exhaustive as Exhaustive
from jupyter_sky.decisions.search.components import RandomSearch as RandomSearch
from jupyter_sky.decisions.search.components import RandomWithRepeats as RandomWithRepeats
from jupyter_sky.decisions.search.components import RBFOpt as RBFOpt
from jupyter_sky.decisions.search.components import component as component
from jupyter_sky.decisions.search.gaussian_process import FlatGP as FlatGP
from jupyter_sky.decisions.search.measurement import Measurement as Measurement
from jupyter_sky.decisions.search.offers import on_sale as on_sale
from jupyter_sky.decisions.search.optimizer import STATISTICS as STATISTICS
from jupyter_sky.decisions.search.optimizer import Optimizer as Optimizer
from jupyter_sky.decisions.search.optimizer import Remembering as Remembering
from jupyter_sky.decisions.search.result import SearchResult as SearchResult
from jupyter_sky.decisions.search.result import Try as Try
from jupyter_sky.decisions.search.runner import Search as Search
from jupyter_sky.decisions.search.runner import Stop as Stop
from jupyter_sky.decisions.search.smac import SMAC as SMAC
from jupyter_sky.decisions.search.space import Point as Point
from jupyter_sky.decisions.search.space import Space as Space
from jupyter_sky.decisions.search.transfer import Transfer as Transfer

method = make_method
