"""python tests/benchmarks/run.py NAME [--quick] [--instances DIR] [--data DIR] [--reading WHICH]
                                    [--launches N] [--seed N] [--without PART] [--traces PATH]
                                    [--calls N] [--losses N] [--starts N] [--prefect PYTHON]
                                    [--minutes N]

Runs `main` of the benchmark NAME beside this file. Progress goes to stderr; the last line of
stdout is {"name": NAME, "figures": {...}}. --quick takes small numbers: a smoke test, no figure.
The other options are passed to the benchmarks that have them.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys


def run(name: str, **options: object) -> dict:
    # Whatever a benchmark prints is progress: stdout is for the figures alone.
    with contextlib.redirect_stdout(sys.stderr):
        figures = importlib.import_module(name).main(**options)
    return {"name": name, "figures": {key: round(value, 4) for key, value in figures.items()}}


if __name__ == "__main__":
    os.environ.setdefault("SKY_RENEW", "false")  # emulated accounts have no price lists
    parser = argparse.ArgumentParser(description="Measure one benchmark of this folder.")
    parser.add_argument("name", help="a module beside this file, such as cells")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it runs")
    parser.add_argument("--instances", metavar="DIR", help="solve the instances of this folder")
    parser.add_argument("--data", metavar="DIR", help="judge on the data files of this folder")
    parser.add_argument("--reading", choices=["paper", "strict"], help="whether a failure counts")
    parser.add_argument("--traces", metavar="PATH", help="replay this recorded availability")
    parser.add_argument("--launches", type=int, metavar="N", help="of the chaos, 300 unless given")
    parser.add_argument("--calls", type=int, metavar="N", help="of a round, 20,000 unless given")
    parser.add_argument("--losses", type=int, metavar="N", help="of machines, 10 unless given")
    parser.add_argument("--starts", type=int, metavar="N", help="of pools, 50 unless given")
    parser.add_argument("--minutes", type=float, metavar="N", help="go on with a data file so long")
    prefect = "interpreter that has Prefect, else it is installed for the comparison"
    parser.add_argument("--prefect", metavar="PYTHON", help=prefect)
    parser.add_argument("--seed", type=int, metavar="N", help="of what is drawn, 1 unless given")
    parser.add_argument("--without", metavar="PART", help="leave a part of the solver out")
    options = {key: value for key, value in vars(parser.parse_args()).items() if value is not None}
    print(json.dumps(run(**options)), flush=True)
