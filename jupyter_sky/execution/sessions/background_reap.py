"""Start of the process that reaps machines without a cluster, when a notebook opens."""

from __future__ import annotations

from jupyter_sky.base.settings.settings import Sky


def reap_in_background(settings: Sky) -> None:
    """Reap in a process of its own where the record of a launch is unfinished."""
    from pathlib import Path

    records = Path(settings.data_dir) / "machines"
    if not records.is_dir():
        return
    from jupyter_sky.base.settings.background_process import start_background_process
    from jupyter_sky.clouds.launches.launch_records import LaunchRecords

    if any(LaunchRecords(records).list_unfinished()):
        start_background_process(["-P", "-m", "jupyter_sky.cli", "reap", "--here"], settings)
