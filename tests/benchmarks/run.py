"""python tests/benchmarks/run.py NAME [--quick] [--instances DIR]

Runs `main` of the benchmark NAME beside this file. Progress goes to stderr; the last line of
stdout is {"name": NAME, "figures": {...}}. --quick takes small numbers: a smoke test, no figure.
--instances names a folder of instances for the benchmarks that read such.
"""

import argparse
import contextlib
import importlib
import json
import sys


def run(name: str, quick: bool = False, instances: str | None = None) -> dict:
    # Whatever a benchmark prints is progress: stdout is for the figures alone.
    with contextlib.redirect_stdout(sys.stderr):
        more = {"instances": instances} if instances else {}
        figures = importlib.import_module(name).main(quick=quick, **more)
    return {"name": name, "figures": {key: round(value, 4) for key, value in figures.items()}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure one benchmark of this folder.")
    parser.add_argument("name", help="a module beside this file, such as cells")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it runs")
    parser.add_argument("--instances", help="a folder, where the benchmark reads instances")
    options = parser.parse_args()
    print(json.dumps(run(options.name, options.quick, options.instances)), flush=True)
