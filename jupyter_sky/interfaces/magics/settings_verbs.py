"""Verbs for settings, short names of options, the catalog, and examples."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import split_names
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, parse_path, rest, word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, SHELL, verb


@verb(
    "alias",
    "alias big --cpus 8+",
    word("[NAME]", "Short name; all are listed unless given.", "alias"),
    rest("[OPTIONS]", "Options that it stands for."),
    only=NOTEBOOK,
)
def alias(name: str | None, options: Sequence[str]) -> Any:
    """Give options of %%sky a short name."""
    from jupyter_sky.interfaces.api import settings

    return settings.alias(name, shlex.join(options)) if name else settings.alias()


@verb(
    "config",
    "config idle=20m",
    word("[SETTING[=VALUE]]", "Setting; all are listed unless given.", "setting"),
)
def config(setting: str | None) -> Any:
    """Show the settings, or set one for this session."""
    from jupyter_sky.interfaces.api import settings

    if setting is None:
        return settings.config()
    key, equals, value = setting.partition("=")
    return settings.config(key.strip(), value.strip() if equals else None)


# -- Verb for the example notebooks and the guide -------------------------------------------------


@verb(
    "examples",
    "examples",
    word("[FOLDER]", "Folder to copy them to; sky-examples unless given.", "path"),
    option("--copy", "", "Copy and list them only."),
    option("--guide", "", "Open the first page of the guide in place of the first example."),
    only=SHELL,
    needs_session=False,
)
def examples(folder: str | None, copy: bool, guide: bool) -> Any:
    """Copy the example notebooks and the guide to a folder, and open them in JupyterLab."""
    from jupyter_sky.interfaces.api import examples as gallery

    table = gallery.examples(folder or gallery.FOLDER)
    if copy:
        return table
    paths = [Path(str(row[0])) for row in table.rows]
    first = next(path for path in paths if not guide or path.parent.name == gallery.GUIDE)
    if importlib.util.find_spec("jupyterlab") is None:
        print(table)
        return _('To open them: pip install "jupyter_sky[lab]", then jupyter lab {path}').format(
            path=first
        )
    print(table, flush=True)
    subprocess.run([sys.executable, "-m", "jupyterlab", str(first)], check=False)
    return None


# -- Verb ``catalog``: where prices come from, and how to renew, check and build them -------------


@verb("catalog", "catalog")
def show_catalog() -> Any:
    """Show the age and origin of prices for each cloud."""
    from jupyter_sky.clouds.prices import show

    return show()


@verb("catalog renewal", "catalog renewal")
def show_renewal() -> Any:
    """Show what is read from clouds in the background, and when."""
    from jupyter_sky.machines.renewal.report import renewal_table

    return renewal_table()


@verb(
    "catalog refresh",
    "catalog refresh aws",
    word("[CLOUD ...]", "Clouds; all that can be read unless given.", "price-source"),
    option("--dry-run", "", "Compare only."),
    option("--force", "", "Accept far fewer offers or very different prices."),
)
def refresh_prices(clouds: Sequence[str], dry_run: bool, force: bool) -> Any:
    """Fetch prices from the clouds' own interfaces."""
    from jupyter_sky.clouds.prices import refresh_and_report

    return refresh_and_report(split_names(",".join(clouds)), dry_run=dry_run, force=force)


@verb(
    "catalog check",
    "catalog check offers.csv",
    word("[FILE]", "File of offers; those of the settings unless given.", "path", parse_path),
)
def check_offers(file: Path | None) -> None:
    """Check your own offers and discounts."""
    from jupyter_sky.knowledge.catalog.loader import user_offer_files
    from jupyter_sky.knowledge.catalog.user_offers import check_file

    paths = [file] if file else user_offer_files()
    if not paths:
        print(_("there is no file of your own: see Sky.offers in %sky config"))
    for path in paths:
        checked = check_file(path)
        print(
            _("{path} is in order; offers: {rows_count}, discounts: {discounts_count}").format(
                path=path, rows_count=len(checked.rows), discounts_count=len(checked.discounts)
            )
        )


@verb(
    "catalog build",
    "catalog build facts/",
    word("[SOURCE_DIR]", "Directory of CSV files; the current unless given.", "path", parse_path),
    option("-o --output", "DIR", "Directory to write.", "-o data/", "path", parse_path),
)
def build_catalog(source_dir: Path | None, output: Path | None) -> None:
    """Build the catalog that ships from CSV files."""
    from jupyter_sky.knowledge.catalog.loader import shipped_directory

    source, target = source_dir or Path.cwd(), output or shipped_directory()
    if not source.is_dir():
        raise SkyUsageError(_("catalog build: {source} is not a directory").format(source=source))
    try:
        from jupyter_sky.knowledge.catalog.builder import build

        print(build(source, target))
    except ImportError as error:
        raise SkyUsageError(
            _("catalog build: {name} is missing").format(name=error.name),
            hint=_("pip install pandas"),
        ) from None
    print(_("written to {target}").format(target=target))
