"""Data engines on the machines of a cluster: Spark behind one variable of a cell."""
