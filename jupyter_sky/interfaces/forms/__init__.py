"""The form of a cell: fields that follow from the options of ``%%sky``, read, written, answered.

Everything here is a function of what is given: a cell's text, the catalog, the settings. The views
in JupyterLab and in ``sky.form()`` ask it and add nothing of their own.
"""

from jupyter_sky.interfaces.forms.cell_line import Fields, ParsedCell, check, read, write
from jupyter_sky.interfaces.forms.expected_place import placement_text
from jupyter_sky.interfaces.forms.fields import Field, schema
from jupyter_sky.interfaces.forms.matching import MatchResult, match

__all__ = [
    "Field",
    "Fields",
    "MatchResult",
    "ParsedCell",
    "check",
    "match",
    "placement_text",
    "read",
    "schema",
    "write",
]
