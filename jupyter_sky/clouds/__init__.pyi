"""Names of `jupyter_sky.clouds`, each imported at its first use."""

from jupyter_sky.clouds.launchers import check as check
from jupyter_sky.clouds.launchers import external_offers as external_offers
from jupyter_sky.clouds.launchers import get as get
from jupyter_sky.clouds.launchers import get_launcher as get_launcher
from jupyter_sky.clouds.launchers import is_ready as is_ready
from jupyter_sky.clouds.launchers import launcher_names as launcher_names
from jupyter_sky.clouds.launchers import on_premises_cloud as on_premises_cloud
from jupyter_sky.clouds.launchers import reachable_names as reachable_names
from jupyter_sky.clouds.launchers import recorded_names as recorded_names
from jupyter_sky.clouds.launches.base import Cloud as Cloud
from jupyter_sky.clouds.launches.base import Credentials as Credentials
from jupyter_sky.clouds.launches.launch_support import ON_PREMISES as ON_PREMISES
from jupyter_sky.clouds.launches.launch_support import connects_nodes as connects_nodes
from jupyter_sky.clouds.launches.launch_support import is_rented as is_rented
from jupyter_sky.clouds.launches.launch_support import (
    is_service_launchable as is_service_launchable,
)
from jupyter_sky.clouds.launches.launch_support import launch_obstacle as launch_obstacle
from jupyter_sky.clouds.launches.launch_support import launchable as launchable
from jupyter_sky.clouds.launches.launch_support import launcher_name as launcher_name
from jupyter_sky.clouds.launches.launch_support import permanent_obstacle as permanent_obstacle
from jupyter_sky.clouds.launches.launch_support import power_off_note as power_off_note
from jupyter_sky.clouds.launches.launch_support import provider_names as provider_names
from jupyter_sky.clouds.launches.launch_support import runs_here as runs_here
from jupyter_sky.clouds.launches.launch_support import stop_obstacle as stop_obstacle
from jupyter_sky.clouds.provider.values import LaunchRequest as LaunchRequest
from jupyter_sky.clouds.provider.values import Machine as Machine
