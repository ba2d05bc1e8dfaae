"""Ctrl-C and SIGTERM."""

import os
import signal
import threading

import pytest

from rims_rl.common.signals import stop_at_signal


def test_the_first_signal_is_told_and_the_second_acts_as_before():
    told, before = [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_at_signal(told.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert told == [signal.SIGINT]
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()  # never reached
    assert signal.getsignal(signal.SIGINT) is before and told == [signal.SIGINT]


def test_another_thread_leaves_signals_alone():
    before, inside = signal.getsignal(signal.SIGTERM), []

    def work():
        with stop_at_signal(inside.append):
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]
