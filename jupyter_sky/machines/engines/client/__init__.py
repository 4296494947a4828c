"""Files of the notebook's process: the connection to a cluster, and the tunnel client below it."""
