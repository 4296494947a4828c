"""Names of `jupyter_sky.knowledge.catalog`, each imported at its first use."""

from jupyter_sky.knowledge.catalog.catalog import Catalog as Catalog
from jupyter_sky.knowledge.catalog.loader import load as load
from jupyter_sky.knowledge.catalog.regions import Band as Band
from jupyter_sky.knowledge.catalog.regions import Region as Region
from jupyter_sky.knowledge.catalog.selection import Selection as Selection
from jupyter_sky.knowledge.catalog.transfer import Duration as Duration
from jupyter_sky.knowledge.catalog.transfer import Egress as Egress
from jupyter_sky.knowledge.catalog.transfer import Location as Location
from jupyter_sky.knowledge.catalog.transfer import Storage as Storage
