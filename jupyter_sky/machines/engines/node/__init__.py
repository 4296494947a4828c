"""Files of the processes on every node: engine, kernel and node agent."""
