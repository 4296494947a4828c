"""Files of the controller's process on the head node, and of the tunnel server beside it."""
