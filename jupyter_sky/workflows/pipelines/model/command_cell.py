"""Code of the cells that run shell commands, with what their machine has before."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.values import CellData, CellOptions
from jupyter_sky.base.requests.dag.dag import TaskEnvironment
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.workflows.pipelines.model.identity import digest_of

REFERENCE = re.compile(r"\$?\b(INPUT|OUTPUT)S?\[(\d+)\]")
"""Path of an input or output in a command, as the SkyPilot paper and its task files write it."""
FOLDER = "./sky-tasks"
"""Folder of the machine in which tasks find their inputs and leave their outputs."""
_INTERPRETERS = {".py": "python", ".sh": "bash"}
# Each node runs this: SkyPilot's names for what `jupyter_sky.instance_info()` says.
_RUN = """
def _sky_run(marker, links, setup, command, variables, workdir):
    import os, pathlib, signal, subprocess
    from jupyter_sky.machines.engines.node.instance import instance_info
    info, here, marker = instance_info(), os.getcwd(), pathlib.Path(marker)
    environment = {
        **os.environ,
        "SKYPILOT_NODE_RANK": str(info.node),
        "SKYPILOT_NUM_NODES": str(info.total_nodes),
        "SKYPILOT_NODE_IPS": "\\n".join(peer.private_ip for peer in info.peers) or info.head_addr,
        **variables,
    }
    def run(text, folder=None):
        text = text.replace("./sky-tasks/", f"{here}/sky-tasks/")
        words = ["bash", "-ec", text]
        # the frames of this function tell nothing about the command
        def short(kind):
            return type(kind.__name__, (kind,), {"_render_traceback_": lambda self: [
                f"{kind.__name__}: {self}".rstrip(": ")]})
        # a group of its own: an interrupt ends also what the shell has started
        process = subprocess.Popen(words, env=environment, cwd=folder, start_new_session=True)
        try:
            code = process.wait()
        except BaseException as error:
            for each in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
                try:
                    os.killpg(process.pid, each)
                    process.wait(2)
                except subprocess.TimeoutExpired:
                    continue
                except ProcessLookupError:
                    pass
                break
            raise (short(KeyboardInterrupt)() if type(error) is KeyboardInterrupt else error)
        if code:
            raise short(subprocess.CalledProcessError)(code, words)
    if (links or setup) and not marker.exists():
        marker.parent.mkdir(parents=True, exist_ok=True)
        run(links)
        run(setup, workdir)
        marker.touch()
    run(command, workdir)
"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Options of a cell and shell commands that give it the environment of its task."""

    options: CellOptions
    links: str = ""


def surround(environment: TaskEnvironment, script: str = "") -> Surroundings:
    r"""Return the options and commands by which a machine gets what a task needs.

    Parameters
    ----------
    environment
        Of the task.
    script
        File of this machine that the task runs.

    Examples
    --------
    >>> surround(TaskEnvironment(workdir="src", secrets=("TOKEN",))).options.sync
    ('src',)
    >>> surround(TaskEnvironment(files={"~/conf": "conf.d"})).links
    'mkdir -p ~/ && ln -sfn ./sky-tasks/../conf.d ~/conf\n'
    """
    sync, data, links = [], [], []
    for path, source in environment.files.items():
        if not _is_store(source):
            sync.append(source)
            links.append(_link(f"{FOLDER}/../{PurePosixPath(source)}", path))
        elif path.startswith("~"):
            kept = f"{FOLDER}/files-{digest_of(path.encode())[:8]}"
            data.append(CellData(source, kept))
            links.append(_link(kept, path))
        else:
            data.append(CellData(source, str(PurePosixPath(path))))
    mounts = [CellData(uri, str(PurePosixPath(path))) for path, uri in environment.mounts.items()]
    sync += [each for each in (environment.workdir, script) if each]
    options = CellOptions(
        env=environment.secrets,
        sync=tuple(dict.fromkeys(sync)),
        data=tuple(data),
        mounts=tuple(mounts),
    )
    return Surroundings(options, "".join(links))


def _is_store(source: str) -> bool:
    return "://" in source or source.startswith("file:")


def _link(source: str, path: str) -> str:
    """Return the command that makes a path lead to a copied one; ``~`` is the machine's."""
    home, below = ("~/", path[2:]) if path.startswith("~/") else ("", path)
    target = home + (shlex.quote(below) if below else "")
    parent, __, ___ = below.rpartition("/")
    folder = home + (shlex.quote(parent or "/") if parent or below.startswith("/") else "")
    made = f"mkdir -p {folder} && " if folder else ""
    return f"{made}ln -sfn {shlex.quote(source)} {target}\n"


def check_environment(task: str, environment: TaskEnvironment) -> None:
    """Refuse what cannot be brought to a machine, before one is launched.

    Raises
    ------
    SkyUsageError
        A path is missing or outside of the present folder, or a mounted path is in no store.
    """
    for name in environment.secrets:
        if name not in os.environ:
            raise SkyUsageError(
                _("{name} (task {task}) is not set here").format(name=name, task=task),
                hint=_("export {name}=... before").format(name=name),
            )
    here = Path.cwd().resolve()
    own = [source for source in environment.files.values() if not _is_store(source)]
    for source in [*own, *filter(None, [environment.workdir])]:
        path = (here / Path(source).expanduser()).resolve()
        if not path.exists():
            raise SkyUsageError(
                _("task {task}: there is no {path}").format(task=task, path=source),
                hint=_("paths are relative to {folder}").format(folder=here),
            )
        if not path.is_relative_to(here):
            raise SkyUsageError(
                _("task {task}: {path} is not below {folder}").format(
                    task=task, path=source, folder=here
                ),
                hint=_("run from a folder that holds it, or put it into a store"),
            )
    for source in (*environment.mounts.values(), *filter(_is_store, environment.files.values())):
        StorageUri.parse(source)


def find_script(run: str) -> str:
    """Return the file of this machine that is the whole of a command; empty where none is.

    Parameters
    ----------
    run
        Command of a task, without its arguments.
    """
    path = Path(run)
    is_one = run.strip() == run and len(run.split()) == 1 and path.suffix in _INTERPRETERS
    return run if is_one and not path.is_absolute() and path.is_file() else ""


def script_command(script: str, arguments: str) -> str:
    """Return the command that runs a file.

    Examples
    --------
    >>> script_command("train.py", "--epochs=3")
    'python train.py --epochs=3'
    """
    words = [_INTERPRETERS[Path(script).suffix], shlex.quote(script), arguments]
    return " ".join(filter(None, words))


def command_code(
    command: str, environment: TaskEnvironment, links: str, paths: Mapping[str, Sequence[str]]
) -> str:
    """Return the code of a cell that runs a command.

    Parameters
    ----------
    command
        In which ``$INPUT[0]`` and ``$OUTPUT[0]`` stand for paths.
    environment
        Of its task.
    links
        Commands that run before it.
    paths
        Those of inputs and outputs, by ``INPUT`` and ``OUTPUT``.
    """
    text = REFERENCE.sub(lambda found: paths[found[1]][int(found[2])], command)
    marker = f"{FOLDER}/.setup-{digest_of((links + environment.setup).encode())[:12]}"
    values = (marker, links, environment.setup, text, dict(environment.variables))
    return f"{_RUN}\n_sky_run(*{values!r}, {environment.workdir or None!r})"
