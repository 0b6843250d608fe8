"""Receives of messages that several ask for; called by test_pod_messages.py."""

from __future__ import annotations

import signal
import threading
import time

import torch.distributed as dist
from pod_messages import messages, of


def waited_for_by_threads(rank):
    """Threads wait for one receive, and ask for it, at the same time."""
    wrong = []
    for turn in range(8):
        with messages():
            if rank == 0:
                dist.isend(of(turn), 1)
                continue
            y = of(-1)
            work = dist.irecv(y, 0)
        begin = threading.Barrier(3)

        def wait(asks, work=work, begin=begin):
            begin.wait()
            try:
                while asks and not work.is_completed():
                    time.sleep(0.001)
                work.wait()
            except Exception as error:
                wrong.append(str(error))

        threads = [threading.Thread(target=wait, args=(n == 0,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if y.tolist() != [turn] * 3:
            wrong.append(y.tolist())
    dist.barrier()
    return wrong


def asked_by_a_signal(rank):
    """A handler asks for the receive that its thread waits for, and waits for it as well."""
    asked = 0
    works = []

    def ask(*_):
        nonlocal asked
        asked += 1
        if works:
            works[-1].is_completed()
        try:
            for work in works[-1:]:
                work.wait()
        except ValueError as error:
            if "waits for the receive already" not in str(error):
                raise

    received = []
    before = signal.signal(signal.SIGALRM, ask)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for turn in range(40):
            with messages():
                if rank == 0:
                    dist.isend(of(turn), 1)
                    continue
                y = of(-1)
                works.append(dist.irecv(y, 0))
                works[-1].wait()
                received.append(y)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    dist.barrier()
    return [y[0].item() for y in received], asked
