"""One trial: a rank is killed inside the collectives, and the others have to say so at once.

Shared by test_faults.py (a few trials) and kill-trials (a thousand). A trial starts
`lockstep run --on-death leave -- loop SEED 0 OPERATION`, kills one rank with SIGKILL at a moment
drawn from the seed, and compares the time of the kill with the times in the failures that the other
ranks report: all on CLOCK_MONOTONIC. Operations take turns to be every other round of a trial. For
how long a hypervisor kept a core from us meanwhile is reported, and excuses nothing.
"""

import collections
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
OPERATIONS = (
    "allreduce",
    "reduce",
    "reduce_scatter",
    "allgather",
    "allgatherv",
    "broadcast",
    "gather",
    "scatter",
    "alltoall",
    "alltoallv",
    "barrier",
    "send/recv",
)
OPERATION = re.compile(rf"^({'|'.join(OPERATIONS)})\(")
ENOUGH = 500  # trials in which each operation is hit, unless something is wrong


def program(name):
    return str(BUILD / "tests" / "programs" / name)


def json_lines(text):
    """Returns the lines of a text that are JSON objects."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def names_victim(text, victim):
    """Does this error say that the victim, and nobody else, is gone?"""
    ways = ("rank {} died: ", "has lost rank {}: ", "cannot reach the memory of rank {}: ")
    return any(way.format(victim) in text for way in ways)


def stolen_s():
    """Returns, for each core, the seconds in which the hypervisor let others run on it."""
    with open("/proc/stat", encoding="ascii") as f:
        rows = [line.split() for line in f if re.match(r"cpu\d", line)]
    return [int(row[8]) / os.sysconf("SC_CLK_TCK") for row in rows]


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
        self.operation = OPERATIONS[number // 2 % len(OPERATIONS)]  # over both transports
        self.latency_ms = []  # of each survivor, from the kill to its report
        self.stolen_ms = 0.0  # of the core that was kept longest, from the kill to the end
        self.problems = []  # that are no matter of time
        self.hung = False
        self.texts = []

    def run(self, starter, lockstep):
        env = {"LOCKSTEP_TRANSPORT": self.transport}
        words = ["run", "-n", self.ranks, "--on-death", "leave", "--"]
        loop = [program("loop"), self.loop_seed, 0, self.operation]
        launcher = starter.start(lockstep, *words, *loop, env=env)
        started = {}
        while len(started) < self.ranks and (line := launcher.stdout.readline()):
            fact = json.loads(line)
            started[fact["rank"]] = fact.get("pid")
        if len(started) < self.ranks or None in started.values():
            self.problems.append(f"did not start: {started}")
            launcher.kill()
            return self.look_at(starter.finish(launcher), 0)
        time.sleep(self.delay_s)
        stolen = stolen_s()
        killed = time.monotonic()
        try:
            os.kill(started[self.victim], signal.SIGKILL)
        except ProcessLookupError:
            self.problems.append("the victim was gone before it was killed")
        try:
            done = starter.finish(launcher, HANG_S)
        except subprocess.TimeoutExpired:
            self.hung = True
            launcher.kill()
            done = starter.finish(launcher)
        self.stolen_ms = max(1e3 * (now - then) for now, then in zip(stolen_s(), stolen))
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

    def operations(self):
        """Returns the operations that the survivors were in."""
        return {found[1] for text in self.texts if (found := OPERATION.match(text))}


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


def summary(trials, limit_ms=LIMIT_MS):
    """Returns the table that kill-trials prints, and in how many trials each operation was hit."""
    lines = [
        "transport  trials  hangs  wrong  median ms  99 % ms  slowest ms"
        + f"over {limit_ms:g} ms".rjust(14)
    ]
    for transport in ("shm", "tcp"):
        mine = [t for t in trials if t.transport == transport]
        times = sorted(ms for t in mine for ms in t.latency_ms) or [0.0]
        lines.append(
            f"{transport:9}  {len(mine):6}  {sum(t.hung for t in mine):5}  "
            f"{sum(bool(t.problems) for t in mine):5}  {statistics.median(times):9.2f}  "
            f"{times[int(len(times) * 0.99)]:7.2f}  {times[-1]:10.2f}  "
            f"{sum(t.slowest_ms() > limit_ms for t in mine):12}"
        )
    hit = collections.Counter(name for t in trials for name in t.operations())
    lines.append("trials that ended in: " + ", ".join(f"{n} {hit[n]}" for n in OPERATIONS))
    stolen = [t.stolen_ms for t in trials if t.stolen_ms]
    if stolen:
        lines.append(
            f"in {len(stolen)} trials the hypervisor kept a core from us, for {max(stolen):.0f} ms "
            f"at the most; {sum(t.slowest_ms() > limit_ms for t in trials if t.stolen_ms)} of them "
            f"took longer than {limit_ms:g} ms"
        )
    return "\n".join(lines)


def verdict(trials, limit_ms=LIMIT_MS):
    """Returns what is wrong with the trials as a whole, a line each."""
    lines = [f"{t.name}: {p}" for t in trials for p in t.problems + ["hung"] * t.hung]
    late = sorted((t for t in trials if t.slowest_ms() > limit_ms), key=Trial.slowest_ms)
    if late:
        slowest = late[-1]
        lines.append(
            f"{len(late)} of {len(trials)} trials took longer than {limit_ms:g} ms, the slowest "
            f"{slowest.slowest_ms():.1f} ms: {slowest.name}, {slowest.ranks} ranks"
        )
    missed = set(OPERATIONS) - {name for t in trials for name in t.operations()}
    if missed and len(trials) >= ENOUGH:
        lines.append(f"no rank was killed in: {', '.join(sorted(missed))}")
    return lines
