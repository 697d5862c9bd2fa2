"""Ranks that die, stop, leave or call the wrong thing: the others say who and what, none hangs.

The programs are in programs/, the kills at a random moment in trial.py; tests/kill-trials repeats
those a thousand times.
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

import pytest
from conftest import BUILD, ROOT, SANITIZED, SLOWER, read_proc
from trial import (
    LIMIT_MS,
    OPERATION,
    OPERATIONS,
    Trial,
    json_lines,
    names_victim,
    program,
    run_trials,
    summary,
    verdict,
)

TRANSPORTS = ["shm", "tcp"]
QUICK = {"LOCKSTEP_TIMEOUT": "2", "LOCKSTEP_WARN_AFTER": "0.5"}


@pytest.fixture
def group(lockstep, leftovers):
    """A Group; after the test nothing that it started may be left."""
    made = Group(lockstep, leftovers)
    yield made
    assert not made.listening(), "a port is still open"


class Group:
    """Starts ranks under `lockstep run --on-death leave`, and reads what they say."""

    def __init__(self, lockstep, starter):
        self.lockstep = lockstep
        self.starter = starter
        self.before = self.ports()

    def start(self, n, *words, env=None, on_death="leave"):
        return self.starter.start(
            self.lockstep, "run", "-n", n, "--on-death", on_death, "--", *words, env=env
        )

    def run(self, n, *words, **options):
        return self.starter.finish(self.start(n, *words, **options))

    def read(self, launcher, count):
        """Returns the next `count` facts of standard output."""
        return [json.loads(launcher.stdout.readline()) for _ in range(count)]

    @staticmethod
    def ports():
        """Returns the inodes of all listening TCP sockets."""
        with open("/proc/net/tcp", encoding="ascii") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        return {row[9] for row in rows if row[3] == "0A"}

    def listening(self):
        """Which sockets of processes with our marker listen?"""
        mine = set()
        for pid in self.starter.alive():
            for fd in os.listdir(f"/proc/{pid}/fd"):
                mine.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        return {inode for inode in self.ports() - self.before if f"socket:[{inode}]" in mine}


def together(function, cases):
    """Runs function(*case) of all cases at the same time: they mostly wait for deadlines."""
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(lambda case: function(*case), cases))


def named(text):
    """Returns the ranks that an error or a warning gives as missing."""
    missing = text.partition(" s: ")[2]
    ranks = re.match(r"rank ([\d, ]+) ha(?:s|ve) ", missing)
    return [int(r) for r in ranks[1].split(",")] if ranks else []


# Killed


@pytest.mark.alone
def test_killed_at_any_moment(lockstep, leftovers):
    """40 trials of trial.py. On a busy machine a few may be late: only where ranks share cores."""
    trials = run_trials(leftovers, lockstep, 40, seed=int(os.environ.get("LOCKSTEP_SEED", "1")))
    print(summary(trials))
    for trial in trials:
        assert not trial.hung, trial.name
        assert not trial.problems, f"{trial.name}: {trial.problems}"
    assert statistics.median(ms for t in trials for ms in t.latency_ms) < LIMIT_MS * SLOWER
    late = [t for t in trials if t.slowest_ms() > LIMIT_MS * SLOWER]
    assert len(late) <= 2, [(t.name, t.ranks, t.slowest_ms()) for t in late]
    for trial in late:
        assert trial.ranks > os.cpu_count() and trial.slowest_ms() < 1000 * SLOWER, trial.latency_ms


def test_kill_trials_refuses(leftovers):
    """A trial that takes longer than the limit fails the command, which says so."""
    env = {"LOCKSTEP_BUILD": str(BUILD)}
    command = [ROOT / "tests" / "kill-trials", "--trials", 6]
    done = leftovers.run(*command, "--limit", 0.001, env=env)
    first, head, shm, tcp, hit, *_ = done.stdout.splitlines()
    assert re.match(r"6 of 6 trials took longer than 0\.001 ms, the slowest \d+\.\d ms: ", first)
    assert head.startswith("transport  trials  hangs") and head.endswith("over 0.001 ms")
    assert shm.split()[:2] == ["shm", "3"] and tcp.split()[:2] == ["tcp", "3"]
    assert [int(row.split()[-1]) for row in (shm, tcp)] == [3, 3]
    assert all(f" {name} " in hit for name in OPERATIONS), hit
    assert done.returncode == 1
    assert leftovers.run(*command, "--limit", 60000, env=env).returncode == 0


def test_verdict_on_trials():
    """What is late, wrong or was never tried is said; what is well is not."""
    trials = [Trial(i, 1, "shm") for i in range(500)]
    for trial in trials:
        trial.latency_ms = [LIMIT_MS]
        trial.texts = [f"{trial.operation}(10 elements): rank 1 died: "]
    assert verdict(trials) == []
    trials[3].latency_ms.append(LIMIT_MS + 1)
    trials[4].latency_ms.append(LIMIT_MS + 2)
    trials[4].stolen_ms = 60.0
    trials[5].hung = True
    trials[6].problems.append("rank 0 said nothing")
    hung, silent, late = verdict(trials)
    assert (hung, silent) == (f"{trials[5].name}: hung", f"{trials[6].name}: rank 0 said nothing")
    assert late.startswith("2 of 500 trials took longer than 200 ms, the slowest 202.0 ms: shm 4 ")
    *_, stolen = summary(trials).splitlines()
    assert "a core from us, for 60 ms at the most; 1 of them took longer than 200 ms" in stolen
    for trial in trials:
        trial.texts = [text.replace("alltoallv", "alltoall") for text in trial.texts]
    assert verdict(trials)[3:] == ["no rank was killed in: alltoallv"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_killed_while_starting(group, transport):
    """At any moment of ls_init, and before: an error that names it, long before the deadline."""
    script = "[ $LOCKSTEP_RANK = 1 ] && { (sleep $1; kill -9 $$) & }; exec $0 1 5"

    def trial(delay):
        begin = time.monotonic()
        env = {"LOCKSTEP_TRANSPORT": transport}
        done = group.run(3, "sh", "-c", script, program("loop"), f"{delay:.4f}", env=env)
        return done, time.monotonic() - begin

    delays = [0] + [0.003 * 1.25**i for i in range(11)]
    for done, seconds in [trial(d) for d in delays]:
        failures = [f for f in json_lines(done.stdout) if "status" in f]
        assert seconds < 3 * SLOWER, done
        assert done.returncode == 137, done
        assert len(failures) == 2, done
        for failure in failures:
            assert failure["status"] == "LS_ERR_PEER_DEAD", failure
            assert names_victim(failure["text"], 1), failure


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("action, cause", [("kill", "SIGKILL"), ("exit", "without ls_finalize")])
def test_gone_between_operations(group, transport, action, cause):
    """Killed, or exit(0) without ls_finalize."""
    one_way = ("broadcast", "gather", "reduce")  # who sends little is done, whoever is gone
    for collective in (*OPERATIONS[:-1], "send", "started"):
        count = 1000000 if collective in one_way else 1000
        words = [program("act"), 1, action, collective, "auto", count]
        done = group.run(3, *words, env={"LOCKSTEP_TRANSPORT": transport})
        acted, *failures = sorted(json_lines(done.stdout), key=lambda f: "text" in f)
        assert len(failures) == 2, done
        for failure in failures:
            assert failure["status"] == "LS_ERR_PEER_DEAD"
            assert names_victim(failure["text"], 1), failure
            assert cause in failure["text"] or "connection" in failure["text"], failure
            assert OPERATION.match(failure["text"]), failure
            assert failure["at"] - acted["at"] < SLOWER
        assert done.returncode == (137 if action == "kill" else 1)


def test_all_others_killed(group):
    launcher = group.start(4, program("loop"))
    pids = {f["rank"]: f["pid"] for f in group.read(launcher, 4)}
    for rank in (3, 1, 2):
        os.kill(pids[rank], signal.SIGKILL)
    (failure,) = json_lines(group.starter.finish(launcher).stdout)
    assert failure["rank"] == 0
    assert any(names_victim(failure["text"], r) for r in (1, 2, 3))


def test_killed_launcher(group):
    launcher = group.start(3, program("loop"))
    group.read(launcher, 3)
    launcher.kill()
    launcher.wait()
    end = time.monotonic() + 2
    while group.starter.alive():
        assert time.monotonic() < end, group.starter.alive()
        time.sleep(0.01)


# Stopped


def stop_one(group, transport, collective, algorithm, n=4, actor=2):
    """Returns (what the others said on stdout, on stderr) of a rank that stops before a call."""
    env = {"LOCKSTEP_TRANSPORT": transport, **QUICK}
    launcher = group.start(n, program("act"), actor, "stop", collective, algorithm, env=env)
    acted, *failures = group.read(launcher, n)
    asked = f"{actor} stop {collective}"
    ranks = [p for p, words in group.starter.alive().items() if asked in words]
    for pid in ranks:  # of all groups of this test; the stopped ones have no more to say
        if state_of(pid) == ("T", launcher.pid):
            os.kill(pid, signal.SIGKILL)
    done = group.starter.finish(launcher)
    return acted, failures, done.stderr


def state_of(pid):
    """Returns the state letter and the parent of a process; it may be gone meanwhile."""
    state, parent = (read_proc(pid, "stat").rpartition(b")")[2].split() or [b"", b"0"])[:2]
    return state.decode(), int(parent)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stopped_before_a_collective(group, transport):
    """A warning at half a second, an error at two; both name rank 2, however indirect the wait."""
    cases = [("allreduce", a) for a in ("direct", "hd", "ring", "tree")]
    cases += [("reduce_scatter", "ring"), ("allgather", "ring"), ("alltoall", "direct")]
    cases += [("allgatherv", "ring"), ("alltoallv", "direct"), ("scatter", "direct")]
    cases += [("barrier", "direct"), ("started", "auto")]
    if transport == "shm":  # over messages a root sends and goes ahead
        cases.append(("broadcast", "tree"))
    results = together(lambda c, a: stop_one(group, transport, c, a), cases)
    for (collective, algorithm), (acted, failures, stderr) in zip(cases, results):
        name = "allreduce" if collective == "started" else collective
        assert sorted(f["rank"] for f in failures) == [0, 1, 3]
        for failure in failures:
            text = failure["text"]
            assert failure["status"] == "LS_ERR_TIMEOUT", failure
            assert named(text) == [2] and "has not entered it" in text, failure
            assert text.startswith(f"{name}("), failure
            assert 1.9 < failure["at"] - acted["at"] < 3 * SLOWER, failure
        warnings = re.findall(r"lockstep\[(\d)\]: (.* waiting for ([\d.]+) s: .*)", stderr)
        assert sorted(int(w[0]) for w in warnings) == [0, 1, 3], stderr
        for _, text, seconds in warnings:
            assert named(text) == [2], stderr
            assert 0.4 < float(seconds) < 1.5 * SLOWER, stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stopped_for_ever(group, transport):
    """The others give up and leave in order; then the stopped ones are ended, and that is said."""
    env = {"LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_TIMEOUT": "1"}
    act, two = program("act"), "exec $0 $(($LOCKSTEP_RANK % 2)) stop"
    cases = [((act, 1, "stop"), "rank 1"), (("sh", "-c", two, act), "ranks 0, 1")]
    begin = time.monotonic()
    results = together(lambda words, _: group.run(3, *words, env=env, on_death="end"), cases)
    assert time.monotonic() - begin < 12 * SLOWER
    for done, (_, who) in zip(results, cases):
        assert done.returncode == 3, done
        failed, ended = [t for t in done.stderr.splitlines() if t.startswith("lockstep: ")]
        assert re.fullmatch(r"lockstep: rank [02]: exited with status 3 after ls_finalize", failed)
        assert ended == f"lockstep: ending {who}: still running 5 s after the first failure"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stopped_anywhere(group, transport):
    """From outside, mostly in the middle of an operation: the rank is named all the same."""

    def trial(number):
        draw = random.Random(f"stop/{transport}/{number}")
        n = draw.randint(2, 4)
        victim = draw.randrange(n)
        env = {"LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_TIMEOUT": "1.5"}
        launcher = group.start(n, program("loop"), draw.randrange(1 << 30), env=env)
        pids = {f["rank"]: f["pid"] for f in group.read(launcher, n)}
        time.sleep(draw.uniform(0, 0.1))
        stopped = time.monotonic()
        os.kill(pids[victim], signal.SIGSTOP)
        failures = group.read(launcher, n - 1)
        os.kill(pids[victim], signal.SIGKILL)
        group.starter.finish(launcher)
        return victim, stopped, failures

    for victim, stopped, failures in together(trial, [(i,) for i in range(6)]):
        for failure in failures:
            assert failure["status"] == "LS_ERR_TIMEOUT", failure
            assert named(failure["text"]) == [victim], (victim, failures)
            assert OPERATION.match(failure["text"]), failure
            assert failure["at"] - stopped < 3 * SLOWER, failure


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_late_is_not_lost(group, transport):
    """A rank that comes back before the deadline: a warning, then all is well."""
    cases = [("allreduce", "ring"), ("barrier", "auto"), ("alltoall", "auto")]
    env = {"LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_TIMEOUT": "10", "LOCKSTEP_WARN_AFTER": "0.5"}
    act = program("act")
    for done in together(lambda c, a: group.run(3, act, 1, "sleep", c, a, env=env), cases):
        assert done.returncode == 0, done
        assert [f["calls"] for f in json_lines(done.stdout) if "calls" in f] == [100] * 3
        assert len(re.findall(r"rank 1 has not entered it", done.stderr)) == 2, done.stderr
        assert done.stderr.count("\n") == 2


# Out of step


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "what, words",
    [
        ("count", ["500 elements", "499 elements"]),
        ("dtype", ["sum f32", "sum i32"]),
        ("op", ["sum f32", "max f32"]),
        ("root", ["root 0", "root 3"]),
        ("collective", ["allgather(", "barrier("]),
        ("order", ["broadcast(", "barrier("]),
        ("algorithm", ["tree", "ring"]),
        ("message", ["500 elements", "250 elements"]),
    ],
)
def test_mismatched_calls(group, transport, what, words):
    """Every rank gets LS_ERR_MISMATCH at once, with both calls and the ranks that made them."""
    env = {"LOCKSTEP_TRANSPORT": transport}
    begin = time.monotonic()
    done = group.run(4, program("mismatch"), what, env=env)
    assert time.monotonic() - begin < 2 * SLOWER
    facts = json_lines(done.stdout)
    assert sorted(f["rank"] for f in facts) == [0, 1, 2, 3], done
    for fact in facts:
        assert fact["status"] == "LS_ERR_MISMATCH", fact
        assert "again" not in fact
        assert re.search(r"\brank 3\b", fact["text"]), fact
        assert all(word in fact["text"] for word in words), fact
    assert done.returncode == 3


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("collective", ["allreduce", "barrier", "broadcast"])
def test_leaving_while_others_go_on(group, transport, collective):
    """ls_finalize of one rank: the others hear that, not of a barrier that nobody called."""
    env = {"LOCKSTEP_TRANSPORT": transport, **QUICK}
    launcher = group.start(3, program("act"), 1, "leave", collective, env=env)
    facts = group.read(launcher, 3)
    launcher.terminate()
    group.starter.finish(launcher)
    (acted,) = [f for f in facts if "acts" in f]
    failures = [f for f in facts if "text" in f]
    if collective != "broadcast":  # the root may have come to its end: it waits for nobody
        assert len(failures) == 2, facts
    for failure in failures:
        assert failure["status"] in ("LS_ERR_MISMATCH", "LS_ERR_PEER_DEAD"), failure
        assert re.search(r"ls_finalize\(\) on rank 1|rank 1 has left", failure["text"]), failure
        assert f"{collective}(" in failure["text"], failure
        assert failure["at"] - acted["at"] < SLOWER


def test_leaving_together_is_fine(group):
    for transport in TRANSPORTS:
        done = group.run(5, program("act"), 0, "none", env={"LOCKSTEP_TRANSPORT": transport})
        assert (done.returncode, done.stderr) == (0, "")


# Faults through the transport's own seam


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "plan", ["*>2 delay=20:200", "*>* short=7", "0>1 delay=4:300; 1>0 short=1"]
)
def test_slow_links_change_nothing(group, transport, plan):
    env = {"LOCKSTEP_TRANSPORT": transport, "LOCKSTEP_FAULT": plan}
    for collective in ("allreduce", "barrier"):
        done = group.run(3, program("act"), 0, "none", collective, "auto", env=env)
        assert (done.returncode, done.stderr) == (0, "")
    done = group.run(3, program("loop"), 7, 0.3, env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "plan, status, words",
    [
        ("0>1 cut=40", "LS_ERR_PEER_DEAD", "rank 0 has lost rank 1: fault: link cut"),
        ("0>1 corrupt=40", "LS_ERR_PEER_DEAD", "rank 1 has lost rank 0: message header: check sum"),
        (
            "0>1 garble=40",
            "LS_ERR_PEER_DEAD",
            "rank 1 has lost rank 0: a message arrived corrupted",
        ),
        ("0>1 drop=40", "LS_ERR_TIMEOUT", "no end after 2 s"),
    ],
)
def test_broken_links(group, transport, plan, status, words):
    """The two ends may each tell their side; the third hears one of them. Nobody hangs."""
    env = {
        "LOCKSTEP_TRANSPORT": transport,
        "LOCKSTEP_FAULT": plan,
        "LOCKSTEP_CHECKSUM": "1",
        "LOCKSTEP_TIMEOUT": "2",
    }
    done = group.run(3, program("act"), 0, "none", "allreduce", "ring", env=env)
    facts = json_lines(done.stdout)
    assert done.returncode == 3 and len(facts) == 3, done
    texts = [fact["text"] for fact in facts]
    assert {fact["status"] for fact in facts} == {status}, texts
    assert any(words in text for text in texts), texts
    if status == "LS_ERR_PEER_DEAD":
        assert all(re.search("rank 0 has lost rank 1|rank 1 has lost rank 0", t) for t in texts)
    assert all(OPERATION.match(text) for text in texts), texts


# Settings that make no sense


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("LOCKSTEP_TIMEOUT", "abc", "'abc' is not a number of seconds"),
        ("LOCKSTEP_TIMEOUT", "0", "'0' is not a number of seconds"),
        ("LOCKSTEP_TIMEOUT", "-1", "'-1' is not a number of seconds"),
        ("LOCKSTEP_WARN_AFTER", "1x", "'1x' is not a number of seconds"),
        ("LOCKSTEP_ALLREDUCE", "0-4k:foo", "allreduce offers direct, hd, ring, tree"),
        ("LOCKSTEP_ALLREDUCE", "4k-0:ring", "cannot read '4k-0:ring'"),
        ("LOCKSTEP_BROADCAST", "hd", "broadcast offers direct, ring, tree"),
        ("LOCKSTEP_TRANSPORT", "ucx", "there is no transport 'ucx'"),
        ("LOCKSTEP_HEAP", "lots", "'lots' is not a number of bytes"),
        ("LOCKSTEP_HEAP", "-5", "'-5' is not a number of bytes"),
        ("LOCKSTEP_HEAP", "999999999G", "set a smaller LOCKSTEP_HEAP"),
        ("LOCKSTEP_SPIN", "x", "'x' is not a whole number"),
        ("LOCKSTEP_TCP_SOCKETS", "17", "'17' is not a whole number from 1 to 16"),
        ("LOCKSTEP_CHECKSUM", "yes", "'yes' is not a whole number from 0 to 1"),
        ("LOCKSTEP_FAULT", "0>1 wobble=3", "cannot read '0>1 wobble=3'"),
    ],
)
def test_bad_settings(group, name, value, words):
    """One clear line of each rank (or of the launcher alone), the name in it, and a status."""
    done = group.run(2, program("once"), env={name: value})
    assert done.returncode == 1
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if "exited with status" not in line]
    assert 1 <= len(lines) <= 2, done.stderr
    for line in lines:
        assert words in line and name in line, line
    alone = group.starter.run(program("once"), env={name: value})
    if name not in ("LOCKSTEP_TCP_SOCKETS", "LOCKSTEP_CHECKSUM"):  # of no meaning without peers
        assert alone.returncode == 1
        assert words in alone.stderr and alone.stderr.count("\n") == 1
        assert alone.stderr.startswith("LS_ERR_CONFIG: ")


@pytest.mark.parametrize("number", ["77", "0", "-1", "x", "99999999999999999999"])
def test_bad_boot_descriptor(group, number):
    done = group.starter.run(program("once"), env={"LOCKSTEP_BOOT_FD": number})
    assert done.returncode == 1
    assert "LOCKSTEP_BOOT_FD" in done.stderr and done.stderr.startswith("LS_ERR_CONFIG: ")


def test_joining_twice(group):
    """The place in a launcher's group is taken once; alone there is always a group of one."""
    done = group.run(2, program("again"))
    assert done.returncode == 0, done
    for fact in json_lines(done.stdout):
        assert (fact["open"], fact["left"]) == ("LS_ERR_INVALID", "LS_ERR_INVALID")
    (fact,) = json_lines(group.starter.run(program("again")).stdout)
    assert (fact["open"], fact["left"]) == ("LS_ERR_INVALID", "LS_OK")


# Speed


@pytest.mark.alone
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_start_to_end(lockstep, group, transport):
    """Two ranks join, sum once and leave: below 60 ms in all, launcher and processes included."""
    command = [lockstep, "run", "-n", "2", "--transport", transport, "--", program("once")]
    times = []
    for _ in range(20):
        begin = time.monotonic()
        subprocess.run(command, env=group.starter.environment(), check=True)
        times.append(time.monotonic() - begin)
    print(f"{transport}: median {statistics.median(times) * 1e3:.1f} ms")
    assert statistics.median(times) < (1.0 if SANITIZED else 0.060), times
