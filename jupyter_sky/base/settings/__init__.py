"""Settings of the user, the project and the environment."""
