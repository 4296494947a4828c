"""Engines: the processes on a cluster that run cells, and the connection to them.

On the head node one ``supervisor`` (a few MB, standard library only) owns everything else and
leaves nothing behind; one ``controller`` process is ipyparallel's controller, the journal and the
lease; one ``engine`` a node runs the cells. The notebook talks to them through a `ClusterConnection`.
"""
