import os
from tests.conftest import Notebook
def test_trial(notebook: Notebook, data_dir) -> None:
    for code in open("/tmp/cells.txt").read().split("#----\n"):
        ran = notebook.run(code, 200)
        print("=====", code, "\n-->", ran.status, ran.result, "\nOUT", ran.stdout, "\nERR", ran.stderr, "\nTB", ran.traceback, "\n", ran.seconds)
    os.system(f"cat {data_dir}/clusters/*/*/node-*/*.log; ls -R {data_dir} | grep -v blob | head -60")
