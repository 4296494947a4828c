"""The form of a cell: fields that follow from the options of ``%%sky``, read, written, answered.

Everything here is a function of what is given: a cell's text, the catalog, the settings. The views
in JupyterLab and in ``sky.form()`` ask it and add nothing of their own.
"""
