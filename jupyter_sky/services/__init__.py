"""Data services on rented machines: Spark, Dask and Ray behind one endpoint in a cell."""
