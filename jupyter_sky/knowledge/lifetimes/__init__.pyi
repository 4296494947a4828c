"""Names of `jupyter_sky.knowledge.lifetimes`, each imported at its first use."""

from jupyter_sky.knowledge.lifetimes.availability import read_traces as read_traces
from jupyter_sky.knowledge.lifetimes.checkpoints import Schedule as Schedule
from jupyter_sky.knowledge.lifetimes.checkpoints import best_interval as best_interval
from jupyter_sky.knowledge.lifetimes.checkpoints import evaluate as evaluate
from jupyter_sky.knowledge.lifetimes.checkpoints import next_checkpoint as next_checkpoint
from jupyter_sky.knowledge.lifetimes.checkpoints import plan_checkpoints as plan_checkpoints
from jupyter_sky.knowledge.lifetimes.checkpoints import young_daly as young_daly
from jupyter_sky.knowledge.lifetimes.estimation import MODELS as MODELS
from jupyter_sky.knowledge.lifetimes.estimation import Interval as Interval
from jupyter_sky.knowledge.lifetimes.estimation import KaplanMeier as KaplanMeier
from jupyter_sky.knowledge.lifetimes.estimation import bootstrap as bootstrap
from jupyter_sky.knowledge.lifetimes.estimation import fit as fit
from jupyter_sky.knowledge.lifetimes.estimation import fit_least_squares as fit_least_squares
from jupyter_sky.knowledge.lifetimes.estimation import fit_proportional as fit_proportional
from jupyter_sky.knowledge.lifetimes.lifetimes import Lifetimes as Lifetimes
from jupyter_sky.knowledge.lifetimes.lifetimes import google_2019 as google_2019
from jupyter_sky.knowledge.lifetimes.mean_lifetime import expected_lifetime as expected_lifetime
from jupyter_sky.knowledge.lifetimes.models import Exponential as Exponential
from jupyter_sky.knowledge.lifetimes.models import FloorHyperbolic as FloorHyperbolic
from jupyter_sky.knowledge.lifetimes.models import Model as Model
from jupyter_sky.knowledge.lifetimes.models import Scaled as Scaled
from jupyter_sky.knowledge.lifetimes.models import Weibull as Weibull
from jupyter_sky.knowledge.lifetimes.observations import Happening as Happening
from jupyter_sky.knowledge.lifetimes.priors import Beliefs as Beliefs
from jupyter_sky.knowledge.lifetimes.priors import Posterior as Posterior
from jupyter_sky.knowledge.lifetimes.priors import current as current
from jupyter_sky.knowledge.lifetimes.priors import posterior as posterior
from jupyter_sky.knowledge.lifetimes.proportional_hazards import Proportional as Proportional
from jupyter_sky.knowledge.lifetimes.recomputation import Lives as Lives
from jupyter_sky.knowledge.lifetimes.recomputation import checkpointed as checkpointed
from jupyter_sky.knowledge.lifetimes.recomputation import expected_runs as expected_runs
from jupyter_sky.knowledge.lifetimes.recovery import Broker as Broker
from jupyter_sky.knowledge.lifetimes.recovery import IndexStrategy as IndexStrategy
from jupyter_sky.knowledge.lifetimes.recovery import OnDemand as OnDemand
from jupyter_sky.knowledge.lifetimes.recovery import SingleRegion as SingleRegion
from jupyter_sky.knowledge.lifetimes.recovery import SpotPlace as SpotPlace
from jupyter_sky.knowledge.lifetimes.reference_model import reference as reference
from jupyter_sky.knowledge.lifetimes.renewals import Turnaround as Turnaround
from jupyter_sky.knowledge.lifetimes.renewals import fresh_turnaround as fresh_turnaround
from jupyter_sky.knowledge.lifetimes.renewals import paper_turnaround as paper_turnaround
from jupyter_sky.knowledge.lifetimes.renewals import (
    preemption_chance_paper as preemption_chance_paper,
)
from jupyter_sky.knowledge.lifetimes.renewals import turnaround as turnaround
from jupyter_sky.knowledge.lifetimes.replays import ReplayedJob as ReplayedJob
from jupyter_sky.knowledge.lifetimes.replays import replay as replay
from jupyter_sky.knowledge.lifetimes.replays import replay_together as replay_together
from jupyter_sky.knowledge.lifetimes.scispot_model import Constrained as Constrained
from jupyter_sky.knowledge.lifetimes.scispot_model import (
    NormalisedConstrained as NormalisedConstrained,
)
from jupyter_sky.knowledge.lifetimes.servers import FORMULAS as FORMULAS
from jupyter_sky.knowledge.lifetimes.servers import Choice as Choice
from jupyter_sky.knowledge.lifetimes.servers import Expectation as Expectation
from jupyter_sky.knowledge.lifetimes.servers import Shape as Shape
from jupyter_sky.knowledge.lifetimes.servers import cluster_shapes as cluster_shapes
from jupyter_sky.knowledge.lifetimes.servers import expected_cost as expected_cost
from jupyter_sky.knowledge.lifetimes.servers import select_server as select_server
from jupyter_sky.knowledge.lifetimes.simulator import Bag as Bag
from jupyter_sky.knowledge.lifetimes.simulator import Event as Event
from jupyter_sky.knowledge.lifetimes.simulator import Fleet as Fleet
from jupyter_sky.knowledge.lifetimes.simulator import Outcome as Outcome
from jupyter_sky.knowledge.lifetimes.simulator import Policy as Policy
from jupyter_sky.knowledge.lifetimes.simulator import average as average
from jupyter_sky.knowledge.lifetimes.simulator import never as never
from jupyter_sky.knowledge.lifetimes.simulator import simulate as simulate
from jupyter_sky.knowledge.lifetimes.simulator import simulate_turnaround as simulate_turnaround
from jupyter_sky.knowledge.lifetimes.synthetic import MachineLives as MachineLives
from jupyter_sky.knowledge.lifetimes.synthetic import draw_places as draw_places
