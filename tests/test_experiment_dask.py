"""A Dask worker that dies in the middle of a block loses no row: the block is made by another worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter

import pandas as pd
import pytest
from experiment_parts import Copier, experiment

from ragbench.experiment import TIMING, load_rows


class Signed(Copier):
    """Signs every answer in a file with the process that makes it, so that a test knows who is at work."""

    def answer(self, question, context):
        made = Copier().answer(question, context)
        time.sleep(self.seconds)
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()}|{question}|{len(context)}\n")
        return made


@pytest.mark.slow
def test_a_dask_worker_killed_within_a_block_loses_no_row(tmp_path):
    from distributed import Client, LocalCluster

    grid = {"count": 120, "N": (0, 4, 20)}
    here = {"copier": Signed(str(tmp_path / "here"))}
    first = experiment(tmp_path / "threads", **grid, generator=here).run(progress=False)
    log = tmp_path / "calls"
    log.touch()
    killed = []

    def kill_whoever_is_at_work(until):
        while not until.wait(0.005):
            signed = Counter(line.split("|")[0] for line in log.read_text().splitlines())
            # A block is 50 questions of three answers: after five the worker is in the middle of its first.
            busy = [pid for pid, count in signed.items() if count >= 5]
            if busy:
                os.kill(int(busy[0]), signal.SIGKILL)
                killed.append((int(busy[0]), signed[busy[0]]))
                return

    over = threading.Event()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        workers = set(client.run(os.getpid).values())
        death = threading.Thread(target=kill_whoever_is_at_work, args=(over,))
        death.start()
        generator = {"copier": Signed(str(log), seconds=0.005)}
        rows = experiment(tmp_path / "dask", **grid, generator=generator).run(client.get_executor(), progress=False)
        over.set()
        death.join()
    (pid, answers), *_ = killed
    assert pid in workers
    assert answers < 150  # its block was not whole
    assert set(rows["status"]) == {"ok"}
    columns = [name for name in rows.columns if name not in TIMING]
    pd.testing.assert_frame_equal(first[columns], rows[columns])
    assert len(load_rows(tmp_path / "dask")) == len((tmp_path / "dask" / "rows.jsonl").read_text().splitlines()) == 360
    asked = Counter(line.split("|", 1)[1] for line in log.read_text().splitlines())
    again = Counter(asked) - Counter(dict.fromkeys(asked, 1))
    # What the dead worker had made of its block, and nothing else, was made a second time.
    dead = {line.split("|", 1)[1] for line in log.read_text().splitlines() if line.startswith(f"{pid}|")}
    assert set(again) == dead
    assert len(dead) >= answers
