"""What a cloud sells: one machine, in one place, at one price."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine that can be had.

    Attributes
    ----------
    cloud, region, instance_type : str
        Where and what, in the cloud's own words.
    vcpus : float
        Virtual processors of one node.
    memory : float
        Memory of one node, in GiB.
    zone : str, optional
        Zone within the region; None when the offer holds for the region as a whole.
    gpu, gpu_count
        Canonical name of the accelerators and how many a node has.
    spot : bool
        Whether the cloud may take the machine back.
    price : float, optional
        USD/h for one node; None when unknown.
    source, date : str
        Where the price was read and the day it was, as YYYY-MM-DD.
    disk : float, optional
        Size in GiB of a disk that cannot grow; None when a disk of any size can be attached.

    Examples
    --------
    >>> Offer("aws", "us-east-1", "g5.xlarge", 4, 16, gpu="A10G", gpu_count=1, spot=True).place
    'aws us-east-1 g5.xlarge spot'
    """

    cloud: str
    region: str
    instance_type: str
    vcpus: float
    memory: float
    zone: str | None = None
    gpu: str | None = None
    gpu_count: int = 0
    spot: bool = False
    price: float | None = None
    source: str = ""
    date: str = ""
    disk: float | None = None

    @property
    def place(self) -> str:
        """The offer in a few words: cloud, zone or region, instance type, spot."""
        if self.zone and not self.zone.startswith(self.region):
            where = f"{self.region} {self.zone}"
        else:
            where = self.zone or self.region
        words = (self.cloud, where, self.instance_type, "spot" if self.spot else "")
        return " ".join(word for word in words if word)
