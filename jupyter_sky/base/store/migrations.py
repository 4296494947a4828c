"""The schema of the store: one script for each version, applied one after the other.

``PRAGMA user_version`` of a file says how many it has had. A script that has been released is never
changed: the next version is a script of its own.
"""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE clusters (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, cloud TEXT NOT NULL,
        region TEXT NOT NULL, instance_type TEXT NOT NULL, spot INTEGER NOT NULL, price REAL,
        nodes INTEGER NOT NULL, resources TEXT NOT NULL, offer TEXT NOT NULL,
        machines TEXT NOT NULL, connection TEXT NOT NULL, notebook TEXT NOT NULL,
        created REAL NOT NULL, idle REAL NOT NULL, price_source TEXT NOT NULL,
        price_date TEXT NOT NULL, ended REAL, UNIQUE (name, created));
    CREATE UNIQUE INDEX clusters_live ON clusters (name) WHERE state = 'up';
    CREATE TABLE intervals (
        id INTEGER PRIMARY KEY, cluster_id INTEGER NOT NULL REFERENCES clusters, price REAL,
        started REAL NOT NULL, last_beat REAL NOT NULL, ended REAL);
    CREATE INDEX intervals_cluster ON intervals (cluster_id);
    CREATE UNIQUE INDEX intervals_open ON intervals (cluster_id) WHERE ended IS NULL;
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, notebook TEXT NOT NULL, session TEXT NOT NULL,
        cell INTEGER NOT NULL, name TEXT, cluster TEXT NOT NULL, code TEXT NOT NULL, price REAL,
        nodes INTEGER NOT NULL, started REAL NOT NULL, ended REAL, last_beat REAL NOT NULL,
        status TEXT NOT NULL, shown INTEGER NOT NULL, owner_pid INTEGER NOT NULL);
    CREATE INDEX runs_cell ON runs (notebook, cell);
    CREATE INDEX runs_started ON runs (started);
    CREATE TABLE spend (
        id INTEGER PRIMARY KEY, cluster_id INTEGER NOT NULL REFERENCES clusters,
        what TEXT NOT NULL, usd REAL, at REAL NOT NULL)
    """,
    # what the tracker sees; spot_prices keeps one row for each place and time
    """
    CREATE TABLE observations (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, cause TEXT NOT NULL, cloud TEXT NOT NULL,
        region TEXT NOT NULL, zone TEXT NOT NULL, instance_type TEXT NOT NULL,
        spot INTEGER NOT NULL, at REAL NOT NULL, seconds REAL, weight REAL NOT NULL,
        events INTEGER NOT NULL, why TEXT NOT NULL);
    CREATE INDEX observations_at ON observations (at);
    CREATE TABLE spot_prices (
        cloud TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
        instance_type TEXT NOT NULL, at REAL NOT NULL, usd REAL NOT NULL,
        PRIMARY KEY (cloud, region, instance_type, zone, at)) WITHOUT ROWID;
    CREATE TABLE tracker_state (compacted REAL NOT NULL);
    INSERT INTO tracker_state VALUES (0)
    """,
    # a cluster is written down before its machines are launched, and its name is taken from then on
    """
    DROP INDEX clusters_live;
    CREATE UNIQUE INDEX clusters_live ON clusters (name) WHERE state IN ('starting', 'up')
    """,
    # what the panel shows: of a run which cell it is, how far it has come, who wants it to stop, of
    # a cluster why it ended and until when it is kept; settings that processes of a user share
    """
    ALTER TABLE runs ADD COLUMN cell_id TEXT;
    ALTER TABLE runs ADD COLUMN stage TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN stop TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN allowed REAL;
    UPDATE runs SET stage = CASE status WHEN 'ok' THEN 'done' WHEN 'error' THEN 'failed'
        ELSE status END;
    ALTER TABLE clusters ADD COLUMN note TEXT NOT NULL DEFAULT '';
    ALTER TABLE clusters ADD COLUMN kept REAL NOT NULL DEFAULT 0;
    CREATE INDEX runs_open ON runs (started) WHERE ended IS NULL;
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
    """,
    # who launches a cluster, and who watches a run, is told across machines and boots: by the
    # identity of a process and its last sign of life; an end that nobody saw is an upper bound
    """
    ALTER TABLE clusters ADD COLUMN renewed REAL NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE intervals ADD COLUMN bounded INTEGER NOT NULL DEFAULT 0;
    UPDATE intervals SET ended = last_beat WHERE ended IS NULL AND cluster_id IN
        (SELECT id FROM clusters WHERE state NOT IN ('starting', 'up'))
    """,
    # start and end of a cluster are looked up for each of its intervals
    """
    DROP INDEX intervals_cluster;
    CREATE INDEX intervals_cluster ON intervals (cluster_id, started)
    """,
    # values and files of a run that its notebook was to have, and that have not been brought
    """
    ALTER TABLE runs ADD COLUMN outputs TEXT NOT NULL DEFAULT ''
    """,
    # how long a run has waited until it was sent, how often it was asked to stop, and why it does
    # not
    """
    ALTER TABLE runs ADD COLUMN waited REAL NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN stops INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN warning TEXT NOT NULL DEFAULT ''
    """,
    # transfers between stores cost something without a cluster: each has one row, by its name
    """
    ALTER TABLE spend RENAME TO earlier_spend;
    CREATE TABLE spend (
        id INTEGER PRIMARY KEY, cluster_id INTEGER REFERENCES clusters, what TEXT NOT NULL,
        usd REAL, at REAL NOT NULL, transfer TEXT UNIQUE, notebook TEXT, cloud TEXT);
    INSERT INTO spend (id, cluster_id, what, usd, at)
        SELECT id, cluster_id, what, usd, at FROM earlier_spend;
    DROP TABLE earlier_spend
    """,
    # how fast transfers between stores and machines were, by which later ones are estimated
    """
    CREATE TABLE transfer_rates (
        id INTEGER PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL,
        part_size INTEGER NOT NULL, machines INTEGER NOT NULL, nbytes INTEGER NOT NULL,
        seconds REAL NOT NULL, at REAL NOT NULL)
    """,
    # a cluster that is stopped has machines, whose disks cost, and keeps its name
    """
    DROP INDEX clusters_live;
    CREATE UNIQUE INDEX clusters_live ON clusters (name)
        WHERE state IN ('starting', 'up', 'stopped')
    """,
    # by which runs of the same code are known, however long it is; '' of earlier ones
    """
    ALTER TABLE runs ADD COLUMN code_digest TEXT NOT NULL DEFAULT ''
    """,
    # changes with each write of spot prices, so that no reader has to look at all of them; it
    # begins anywhere, as another file may take the place of this one
    """
    ALTER TABLE tracker_state ADD COLUMN prices INTEGER NOT NULL DEFAULT 0;
    UPDATE tracker_state SET prices = random() / 2
    """,
)
