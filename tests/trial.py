"""One trial: a rank is killed inside the collectives, and the others have to say so at once.

Shared by test_faults.py (a few trials) and kill-trials (a thousand). A trial starts
`lockstep run --on-death leave -- loop SEED`, kills one rank with SIGKILL at a moment drawn from the
seed, and compares the time of the kill with the times in the failures that the other ranks report:
all on CLOCK_MONOTONIC.
"""

import concurrent.futures
import json
import os
import random
import re
import signal
import statistics
import subprocess
import time

from conftest import BUILD

LIMIT_MS = 200
HANG_S = 20  # what has not ended by then does not end
OPERATION = re.compile(
    r"^(allreduce|reduce|reduce_scatter|allgather|allgatherv|broadcast|alltoall|barrier|send/recv)"
    r"\("
)


def program(name):
    return str(BUILD / "tests" / "programs" / name)


def json_lines(text):
    """Returns the lines of a text that are JSON objects."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def names_victim(text, victim):
    """Does this error say that the victim, and nobody else, is gone?"""
    ways = ("rank {} died: ", "has lost rank {}: ", "cannot reach the memory of rank {}: ")
    return any(way.format(victim) in text for way in ways)


class Trial:
    """The plan of a trial, then what came of it."""

    def __init__(self, number, seed, transport):
        draw = random.Random(f"{seed}/{number}/{transport}")
        self.name = f"{transport} {number} (seed {seed})"
        self.transport = transport
        self.ranks = draw.randint(2, 5)
        self.victim = draw.randrange(self.ranks)
        self.delay_s = draw.uniform(0, 0.1)
        self.loop_seed = draw.randrange(1 << 30)
        self.latency_ms = []  # of each survivor, from the kill to its report
        self.problems = []  # that are no matter of time
        self.hung = False
        self.texts = []

    def run(self, starter, lockstep):
        env = {"LOCKSTEP_TRANSPORT": self.transport}
        words = ["run", "-n", self.ranks, "--on-death", "leave", "--"]
        launcher = starter.start(lockstep, *words, program("loop"), self.loop_seed, env=env)
        started = {}
        while len(started) < self.ranks and (line := launcher.stdout.readline()):
            fact = json.loads(line)
            started[fact["rank"]] = fact.get("pid")
        if len(started) < self.ranks:
            self.problems.append(f"did not start: {started}")
            launcher.kill()
            return self.look_at(starter.finish(launcher), 0)
        time.sleep(self.delay_s)
        killed = time.monotonic()
        os.kill(started[self.victim], signal.SIGKILL)
        try:
            done = starter.finish(launcher, HANG_S)
        except subprocess.TimeoutExpired:
            self.hung = True
            launcher.kill()
            done = starter.finish(launcher)
        return self.look_at(done, killed)

    def look_at(self, done, killed):
        said = json_lines(done.stdout)
        told = {fact["rank"]: fact for fact in said}
        if len(said) != len(told):
            self.problems.append("a rank spoke twice")
        for rank in set(range(self.ranks)) - {self.victim} - set(told):
            self.problems.append(f"rank {rank} said nothing")
        for rank, fact in told.items():
            text = fact.get("text", "")
            self.texts.append(text)
            if rank == self.victim:
                self.problems.append(f"the victim spoke: {fact}")
            elif fact.get("status") != "LS_ERR_PEER_DEAD":
                self.problems.append(f"rank {rank}: not LS_ERR_PEER_DEAD: {fact}")
            elif not names_victim(text, self.victim):
                self.problems.append(f"rank {rank}: rank {self.victim} is not named: {text}")
            elif not OPERATION.match(text):
                self.problems.append(f"rank {rank}: no operation is named: {text}")
            if "at" in fact:
                self.latency_ms.append((fact["at"] - killed) * 1e3)
        if not self.hung and done.returncode != 137:  # that of the victim, not of who noticed
            self.problems.append(f"status {done.returncode}, not 137: {done.stderr}")
        strange = [line for line in done.stderr.splitlines() if not line.startswith("lockstep")]
        if strange:  # a sanitizer, say
            self.problems.append("on standard error: " + " | ".join(strange[:20]))
        return self

    def slowest_ms(self):
        return max(self.latency_ms, default=0.0)


def run_trials(starter, lockstep, count, seed, parallel=2, progress=None):
    """Runs count trials, every other one over tcp, and returns them."""
    trials = [Trial(i, seed, "tcp" if i % 2 else "shm") for i in range(count)]
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        jobs = [pool.submit(trial.run, starter, lockstep) for trial in trials]
        for i, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            job.result()
            if progress:
                progress(i)
    return trials


def summary(trials):
    """Returns the table that kill-trials prints."""
    head = "transport  trials  hangs  wrong  median ms  99 % ms  slowest ms  over 200 ms"
    lines = [head]
    for transport in ("shm", "tcp"):
        mine = [t for t in trials if t.transport == transport]
        times = sorted(ms for t in mine for ms in t.latency_ms) or [0.0]
        lines.append(
            f"{transport:9}  {len(mine):6}  {sum(t.hung for t in mine):5}  "
            f"{sum(bool(t.problems) for t in mine):5}  {statistics.median(times):9.2f}  "
            f"{times[int(len(times) * 0.99)]:7.2f}  {times[-1]:10.2f}  "
            f"{sum(ms > LIMIT_MS for ms in times):11}"
        )
    return "\n".join(lines)
