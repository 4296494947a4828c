"""Interrupts that wait for what must be whole."""

from __future__ import annotations

import signal
import threading
import time
from itertools import count

import pytest

from jupyter_sky.machines.provisioner.interrupts import (
    AllowedInterrupts,
    HeldInterrupts,
    uninterruptible,
)
from tests.provisioner.interrupting import interrupt_at

SOURCE = uninterruptible.__code__.co_filename


def test_no_step_lets_an_interrupt_through_while_the_work_goes_on() -> None:
    before = signal.getsignal(signal.SIGINT)
    for step in count():
        begun, done = threading.Event(), threading.Event()

        def work(begun: threading.Event = begun, done: threading.Event = done) -> None:
            begun.set()
            time.sleep(0.02)
            done.set()

        try:
            with interrupt_at(step, lambda frame: frame.f_code.co_filename == SOURCE):
                uninterruptible(work)
        except KeyboardInterrupt:
            time.sleep(0.01)  # a thread that was started has begun
            assert done.is_set() or not begun.is_set(), step
        else:
            break  # there are not so many steps
        finally:
            assert signal.getsignal(signal.SIGINT) is before
    assert step > 20


def test_work_fails_with_its_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        uninterruptible(lambda: 1 / 0)


def test_work_that_looks_at_it_learns_of_the_interrupt() -> None:
    stop = threading.Event()

    def work() -> None:
        signal.raise_signal(signal.SIGINT)  # to the main thread, which waits
        learned.append(stop.wait(30))

    learned: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        uninterruptible(work, stop=stop)
    assert learned == [True]


def test_error_of_the_meanwhile_stops_the_work_and_is_raised() -> None:
    stop = threading.Event()

    def refuse() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        uninterruptible(lambda: stop.wait(30), refuse, stop)


def test_held_interrupt_comes_at_the_end_or_where_it_is_allowed() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupts() as outer:
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("inner")
        assert outer.is_pending
        with pytest.raises(KeyboardInterrupt), AllowedInterrupts():
            steps.append("never")
        assert not outer.is_pending
        with pytest.raises(KeyboardInterrupt), AllowedInterrupts():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        steps.append("outer")
    assert steps == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handler_that_was_set_meanwhile_is_kept() -> None:
    counted = []
    with HeldInterrupts(), AllowedInterrupts():
        before = signal.signal(signal.SIGINT, lambda *_: counted.append(1))
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            assert counted == []
        assert counted == [1]
        signal.signal(signal.SIGINT, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_get_no_interrupts() -> None:
    def hold() -> None:
        with HeldInterrupts() as held, AllowedInterrupts():
            pending.append(held.is_pending)

    pending: list[bool] = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupts() as held:
        signal.raise_signal(signal.SIGINT)
        thread = threading.Thread(target=hold)
        thread.start()
        thread.join()
        assert held.is_pending, "the thread has not taken it"
    assert pending == [False]
