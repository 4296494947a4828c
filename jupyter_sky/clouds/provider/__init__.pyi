"""Names of `jupyter_sky.clouds.provider`, each imported at its first use."""

from jupyter_sky.base.clouds.cloud_facts import CloudFacts as CloudFacts
from jupyter_sky.clouds.provider.classification import ProviderError as ProviderError
from jupyter_sky.clouds.provider.classification import Refinement as Refinement
from jupyter_sky.clouds.provider.protocol import Provider as Provider
from jupyter_sky.clouds.provider.values import CloudError as CloudError
from jupyter_sky.clouds.provider.values import LaunchRequest as LaunchRequest
from jupyter_sky.clouds.provider.values import Machine as Machine
from jupyter_sky.clouds.provider.values import MachineConfig as MachineConfig
from jupyter_sky.knowledge.tracker.quotas import AccountQuota as AccountQuota
