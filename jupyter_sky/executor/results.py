"""From the engines' replies to the notebook: outputs bound, errors raised, the result returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..cell_options.values import CellOutput
from ..errors import SkyCancelled, SkyError, SkyTransferError, SkyUsageError
from . import transfer
from .failures import mending_line, rebuild_exception
from .transfer import RemoteValue
from .transfer_progress import announce_transfer, progress_callback

if TYPE_CHECKING:
    from .run import SkyRun

Reply = Mapping[str, Any]


def collect_results(run: SkyRun, replies: Sequence[Reply]) -> Any:
    """Bind ``-o`` names and return the last expression's value; a list by rank for several.

    Raises
    ------
    Exception
        What the cell raised, of its own class.
    SkyCancelled
        The cell was taken back before it ran.
    SkyTransferError, SkyUsageError
        A value could not come; the others are bound.
    """
    for rank, reply in zip(run.ranks, replies, strict=True):
        if reply["status"] in ("aborted", "killed"):
            raise SkyCancelled(f"{run.label} was cancelled")
        if reply["status"] != "ok":
            raise _rank_error(run, rank, reply)
    _bind_outputs(run, [reply["sky"] for reply in replies])
    values = [
        _rank_result(run, rank, reply["sky"].get("result"))
        for rank, reply in zip(run.ranks, replies, strict=True)
    ]
    if len(values) == 1:
        return values[0]
    return None if all(value is None for value in values) else values


def _rank_error(run: SkyRun, rank: int, reply: Reply) -> BaseException:
    described = reply.get("sky") or {}
    if "refused" in described:  # an input could not be opened on the engine
        return SkyTransferError(described["refused"])
    namespace = run.session.namespace
    hint = mending_line(described.get("error") or {}, namespace, run.origin.line)
    return rebuild_exception(reply, rank, namespace, hint)


def _bind_outputs(run: SkyRun, outcomes: Sequence[Reply]) -> None:
    """Bind every name that can be bound, then say which could not."""
    failed: list[SkyError] = []
    for output in run.options.outputs:
        values = []
        for rank, outcome in zip(run.ranks, outcomes, strict=True):
            try:
                values.append(_bind_output(run, rank, output, outcome))
            except SkyError as error:
                failed.append(error)
                break
        else:
            run.session.namespace[output.name] = values[0] if len(values) == 1 else values
    if failed:
        raise failed[0]


def _bind_output(run: SkyRun, rank: int, output: CellOutput, outcome: Reply) -> Any:
    assert run.cluster is not None
    name, described = output.name, outcome["outputs"][output.name]
    if described.get("missing"):
        raise SkyUsageError(
            f"-o {name}: the cell has not made a variable {name!r}",
            hint="what else it made is still on the cluster: %sky vars",
        )
    if output.keep:
        return RemoteValue(run.cluster, rank, name, described, run.trusted)
    try:
        announce_transfer(run, name, transfer.wire_size(described), "from")
    except SkyTransferError:
        transfer.release_packed(run.cluster, rank, described)
        raise
    shown = progress_callback(run, name)
    return transfer.receive_value(run.cluster, rank, name, described, shown, run.trusted)


def _rank_result(run: SkyRun, rank: int, described: dict[str, Any] | None) -> Any:
    assert run.cluster is not None
    if described is None:
        return None
    what, trusted = "the result", run.trusted
    if "ref" in described:
        return RemoteValue(run.cluster, rank, what, described, trusted)
    try:
        return transfer.receive_value(run.cluster, rank, what, described, trusted=trusted)
    except SkyTransferError:  # it stays there, as values that are not sent at all do
        described = run.cluster.connection.ask_engine(rank, "result", cell=run.origin.number)
        return RemoteValue(run.cluster, rank, what, described, trusted)
