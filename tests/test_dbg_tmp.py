import time, pytest
from tests.conftest import *
def test_x(fresh):
  for k in range(14):
    book = fresh(f"n{k}.ipynb")
    a = book.run("%%sky\nkept = 41")
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    book.interrupt()
    ran = book.collect(sent, 20)
    a = book.run("%%sky\nkept + 1")
    sent = book.send("%%sky\nlost = 1\nimport time\nt0=time.time()\nprint('begun', flush=True)\nt1 = time.time()\nsum(range(10**9))\nprint(t0,t1,time.time())")
    t = time.time()
    try:
        book.wait_output("begun", 4)
    except AssertionError as e: 
        print("NOT BEGUN", t)
        from jupyter_sky.engines.link import Link
        l = Link("x", next(fresh.data.glob(f"local/n{k}*/security/client.json")))
        print([(r, l.head("journal", run=r, start=0)) for r in l.hello["running"]])
        ran = book.collect(sent, 20)
        print(ran.status, ran.ename, ran.seconds, ran.stdout, ran.status_line)
        print([m for m in ran.messages if m["header"]["msg_type"]=="stream"])
        break
    book.interrupt(); time.sleep(1); book.interrupt()
    ran = book.collect(sent, 20)
    book.run("%sky down all")
