"""Interfaces: Python functions, magics, forms, widgets and the Jupyter server extension."""
