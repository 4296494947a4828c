"""Options of a ``%%sky`` line: schema, values and parser."""
