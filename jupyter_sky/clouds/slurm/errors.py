"""Meaning of what Slurm refuses: messages of its commands, and reasons for which a job waits."""

from __future__ import annotations

from jupyter_sky.clouds.provider.classification import Refinement, group_codes

PENDING = "PENDING"
"""Code of a refusal by which a job waits, with Slurm's reason in the message."""
LOGIN_FIX = "set providers.slurm.login to user@host, or run this on a login node of the cluster"
_ACCOUNT_FIX = (
    "sacctmgr show assoc user=$USER lists what may be used; name it by the setting "
    "providers.slurm.options, such as --account=physics --qos=normal"
)
_QUOTA_FIX = "wait until other jobs of the account have ended, or use another one: " + _ACCOUNT_FIX
_SIZE_FIX = "ask for less or for another partition (--region), or for a shorter lease (Sky.lease)"
_COMMANDS = "sbatch squeue sinfo scancel"

ERRORS = group_codes(
    ("capacity", "region", "", PENDING),
    ("invalid", "region", _SIZE_FIX, "sbatch"),
    ("unknown", "region", "", "squeue sinfo scancel tail ls rm"),
)
"""Meaning by command, where its message says no more; a job that waits is waited for."""
REFINEMENTS = (
    Refinement(
        f"{PENDING} {_COMMANDS}",
        r"\b(QOS|Assoc)\w*(Max|Grp|Limit)|MaxJobsPer|MaxSubmit|accounting/QOS policy",
        cause="quota",
        fix=_QUOTA_FIX,
    ),
    Refinement(
        f"{PENDING} {_COMMANDS}",
        r"(?i)invalid ?account|InvalidQOS|invalid qos|NotAllowed|not permitted|JobHeldAdmin|"
        r"permission denied|authentication|munge",
        cause="permission",
        fix=_ACCOUNT_FIX,
    ),
    Refinement(
        PENDING,
        r"Partition(Time|Node)Limit|BadConstraints|DeadLine|JobHeldUser",
        cause="invalid",
        fix=_SIZE_FIX,
    ),
    Refinement(
        _COMMANDS,
        r"(?i)temporarily un(able|available)|rate limit",
        cause="throttled",
        fix="",
    ),
    Refinement(
        _COMMANDS,
        r"(?i)unable to contact|timed out|standby mode|zero bytes|communication|connection refused",
        cause="transient",
        fix="",
    ),
    Refinement(
        "sbatch",
        r"(?i)not available now|down, drained or reserved",
        cause="capacity",
        fix="",
    ),
    Refinement(
        _COMMANDS,
        r"(?i)not found|no such file|configuration source",
        cause="invalid",
        fix=LOGIN_FIX,
    ),
)
