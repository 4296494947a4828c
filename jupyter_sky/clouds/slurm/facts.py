"""Facts of a Slurm cluster."""

from __future__ import annotations

from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class SlurmFacts(CloudFacts):
    """Facts of a Slurm cluster."""

    provider = "jupyter_sky.clouds.slurm.provider:Slurm"
    name, title, note = "slurm", "Slurm", "nodes of your Slurm"
    account = N_("a login on a cluster with Slurm 20.11 or later")
    permissions = N_("to submit jobs to a partition")
    launchable = on_premises = has_live_offers = True
    settings: ClassVar = {
        "login": "Login node, as user@host or by its name in hosts.toml; without one, this machine "
        "where it has sbatch.",
        "options": "Further options of sbatch, such as --account=physics --qos=normal.",
        "price": "USD/h of a node, and by partition, such as '0.1, gpu=2.5'; else nodes are free.",
        "queue": "Time that a job may wait for nodes before another place is asked; 10m.",
    }
