"""Errors of a data engine as cells show them: without the frames of its client."""

from __future__ import annotations

from types import TracebackType


def hide_frames(error_class: type[BaseException], package: str) -> None:
    """Have IPython show errors of a class without the frames of a package.

    Parameters
    ----------
    package
        Top-level package of the client that raises them.
    """

    def render(error: BaseException) -> list[str]:
        from IPython import get_ipython  # type: ignore[attr-defined]

        trace = _frames_before(error.__traceback__, package)
        shell = get_ipython()
        return shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=1)

    # IPython asks an exception for its lines by this name
    error_class._render_traceback_ = render  # type: ignore[attr-defined]


def _frames_before(frame: TracebackType | None, package: str) -> TracebackType | None:
    """Return the frames up to the first one of a package."""
    frames = []
    while frame is not None and not _is_of(frame, package):
        frames.append(frame)
        frame = frame.tb_next
    trace: TracebackType | None = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace


def _is_of(frame: TracebackType, package: str) -> bool:
    return frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package
