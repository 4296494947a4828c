"""SQL statements and conditions of the store."""

from __future__ import annotations

from dataclasses import fields

from jupyter_sky.base.store.rows import ClusterRow, RunRow

# Every write about a cluster names it by (name, created), and takes effect only while it is live:
# of two processes that say the same, the second does nothing.
IS_LIVE = "state IN ('starting', 'up', 'stopped')"
CLUSTER_CONDITION = "WHERE name = ifnull(?, name) AND notebook = ifnull(?, notebook)"
ID = "(SELECT id FROM clusters WHERE name = :name AND created = :created)"
LIVE_ID = f"(SELECT id FROM clusters WHERE name = :name AND created = :created AND {IS_LIVE})"
GUEST_CONDITION = (
    "NOT EXISTS (SELECT 1 FROM clusters "
    "WHERE clusters.name = runs.cluster AND clusters.notebook = runs.notebook)"
)
CLOSE = (
    "UPDATE intervals SET ended = MAX(started, :at), bounded = :bounded "
    f"WHERE ended IS NULL AND cluster_id = {LIVE_ID}"
)
OPEN = (
    "INSERT INTO intervals (id, cluster_id, price, started, last_beat) "
    f"SELECT :interval, id, :price, :at, :at FROM clusters WHERE id = {LIVE_ID}"
)
CORRECT = (
    "UPDATE intervals SET ended = MAX(started, :at), bounded = 0 WHERE id = (SELECT id FROM "
    f"intervals WHERE cluster_id = {ID} ORDER BY started DESC LIMIT 1) AND ended > :at"
)
SAME_PRICE = "SELECT {} FROM intervals AS other WHERE other.cluster_id = intervals.cluster_id"
BEGUN_CONDITION = f"({SAME_PRICE.format('min(started)')})"
IS_LAST = f"NOT EXISTS ({SAME_PRICE.format('1')} AND other.started > intervals.started)"
# of what a cluster was launched for: later prices, of fewer nodes, have the same share
SURCHARGE_SHARE = (
    "ifnull(json_extract(offer, '$.surcharge') * "
    "ifnull(json_extract(connection, '$.session_nodes'), nodes) / nullif(clusters.price, 0), 0)"
)
END_RUNS = (
    "UPDATE runs SET status = 'lost', stage = 'lost', ended = last_beat WHERE cluster = :name "
    "AND status = 'running' AND started >= :created AND session != :session "
    f"AND EXISTS {LIVE_ID}"
)
END = (
    "UPDATE clusters SET state = :state, ended = :at, note = :note "
    f"WHERE name = :name AND created = :created AND {IS_LIVE}"
)


def _columns(kind: type) -> str:
    return ", ".join(field.name for field in fields(kind))


def _values(kind: type) -> str:
    return ", ".join(f":{field.name}" for field in fields(kind))


CLUSTER_COLUMNS, RUN_COLUMNS = _columns(ClusterRow), _columns(RunRow)
PUT_CLUSTER = (
    f"INSERT INTO clusters ({CLUSTER_COLUMNS}) VALUES ({_values(ClusterRow)}) "
    "ON CONFLICT (name, created) DO UPDATE SET "
    + ", ".join(
        f"{f.name} = excluded.{f.name}"
        for f in fields(ClusterRow)
        if f.name not in ("kept", "renewed")
    )
    + f" WHERE clusters.{IS_LIVE}"
)
# the column owner_pid is what schema 4 knew of an owner; nothing reads it
BEGIN_RUN = f"INSERT INTO runs ({RUN_COLUMNS}, owner_pid) VALUES ({_values(RunRow)}, 0)"
CHANGED = "cluster price nodes started ended status stage allowed waited warning".split()
UPDATE_RUN = (
    f"UPDATE runs SET {', '.join(f'{name} = :{name}' for name in CHANGED)}, "
    "last_beat = MAX(last_beat, :last_beat) WHERE run_id = :run_id"
)
STAGES = {"ok": "done", "error": "failed"}  # of runs that have ended; others are called the same
