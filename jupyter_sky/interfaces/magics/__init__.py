"""The IPython face: ``%%sky`` above a cell, ``%sky`` verbs, and their completion."""
