"""Engines: the processes on a cluster that run cells, and the connection to them.

- ``controller/``: files of the controller's process on the head node (hub, journal, runs, activity,
  agent server), and of the tunnel server beside it;
- ``node/``: files of the processes on every node: the engine with its kernel, and the node agent of
  a node other than the head node;
- ``client/``: files of the notebook's process, or of the Jupyter server, and of the tunnel client;
- ``wire/``: formats that both ends read and write.

Above each of these processes stands a supervisor (`base.remote.supervisor`), which ends all
of their descendants with them.
"""
