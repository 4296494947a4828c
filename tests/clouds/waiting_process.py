"""Process of a cluster that does nothing but wait for its end."""

import time

time.sleep(600)
