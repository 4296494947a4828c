"""Object stores, folders and SSH hosts behind one protocol."""
