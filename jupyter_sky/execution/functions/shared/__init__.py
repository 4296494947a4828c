"""Collections that the tasks of a pool share by name, their server and clients."""
