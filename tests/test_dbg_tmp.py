import time, pytest
from tests.conftest import *
def test_x(fresh):
    book = fresh()
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    book.interrupt()
    ran = book.collect(sent, 10)
    print(ran.status, ran.ename, ran.seconds)
    for warm in range(2):
        sent = book.send("%%sky\nimport time\nlost = 1\nprint('begun', flush=True)\nsum(range(10**9))")
        t=time.time(); 
        try:
            print(repr(book.wait_output("begun", 25)), time.time()-t)
        except AssertionError as e: print(e, time.time()-t)
        ran = book.collect(sent, 60); print(ran.status, ran.stdout, ran.seconds, ran.status_line)
    for f in fresh.data.glob("local/*/*.log"): print(f, f.read_text())
