"""Index of the built-in clouds: one line for each, all else in its module in `jupyter_sky.clouds`.

Names are known from here alone; the facts of a cloud are imported at their first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.lazy_names import load_class

AWS, GCP, VAST, LOCAL = "aws", "gcp", "vast", "local"

VENDORS = {
    AWS: "jupyter_sky.clouds.aws.facts:AwsFacts",
    GCP: "jupyter_sky.clouds.gcp.facts:GcpFacts",
    "azure": "jupyter_sky.clouds.azure.facts:AzureFacts",
    "hyperstack": "jupyter_sky.clouds.hyperstack:Hyperstack",
    "lambda": "jupyter_sky.clouds.lambdalabs:Lambda",
    "nebius": "jupyter_sky.clouds.nebius.provider:Nebius",
    "runpod": "jupyter_sky.clouds.runpod:RunPod",
    VAST: "jupyter_sky.clouds.vast:Vast",
    "verda": "jupyter_sky.clouds.verda:Verda",
}
"""Module and class of the facts of each vendor of machines."""
ON_PREMISES = {
    LOCAL: "jupyter_sky.clouds.local:LocalFacts",
    "ssh": "jupyter_sky.clouds.ssh:SshFacts",
    "slurm": "jupyter_sky.clouds.slurm.provider:Slurm",
    "container": "jupyter_sky.clouds.container:Container",
    "kubernetes": "jupyter_sky.clouds.kubernetes.provider:Kubernetes",
}
"""Module and class of the facts of each cloud of own machines."""
SERVICES = {
    "emr-serverless": "jupyter_sky.clouds.aws.facts:EmrServerlessFacts",
    "emr": "jupyter_sky.clouds.aws.facts:EmrFacts",
    "dataproc-serverless": "jupyter_sky.clouds.gcp.facts:DataprocServerlessFacts",
}
"""Module and class of the facts of each managed service, launched as clouds are."""


class FactsIndex(Mapping[str, type[CloudFacts]]):
    """Facts by name, imported at their first use; iteration imports nothing."""

    def __init__(self, *indexes: Mapping[str, str]) -> None:
        self._indexes = indexes

    def __getitem__(self, name: str) -> type[CloudFacts]:
        for index in self._indexes:
            if name in index:
                return load_class(index[name])
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(name in index for index in self._indexes)

    def __iter__(self) -> Iterator[str]:
        for index in self._indexes:
            yield from index

    def __len__(self) -> int:
        return sum(map(len, self._indexes))


BUILT_IN = FactsIndex(VENDORS, ON_PREMISES)
"""Facts of the clouds of this package, by name."""
MANAGED = FactsIndex(SERVICES)
"""Facts of managed services that can be launched, by name."""
