"""Data engines on the machines of a cluster: Spark, Dask and Ray behind one variable of a cell."""
