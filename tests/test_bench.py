"""lockstep bench: every collective between real processes, what it prints, what it refuses."""

import json
import os
import re
import signal

import pytest
from conftest import children, read_proc, wait_until

COLLECTIVES = (
    "allreduce reduce reduce_scatter allgather allgatherv broadcast gather scatter alltoall "
    "alltoallv barrier sendrecv"
).split()
REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")
IN_BLOCKS = (
    "reduce_scatter", "allgather", "allgatherv", "gather", "scatter", "alltoall", "alltoallv"
)
QUICK = ("--iters", "3")


@pytest.fixture
def bench(lockstep, leftovers):
    """bench(words...) runs `lockstep bench words...` to its end."""
    return lambda *words, **options: leftovers.run(lockstep, "bench", *words, **options)


@pytest.fixture
def rows(bench):
    """rows(words...) runs it with --json, and returns the objects; all must be well."""

    def run(*words, **options):
        done = bench(*words, "--json", **options)
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def bus_factor(collective, n):
    if collective == "allreduce":
        return 2 * (n - 1) / n
    by_all = ("reduce_scatter", "allgather", "allgatherv", "alltoall", "alltoallv")
    return (n - 1) / n if collective in by_all else 1


# Every collective


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective(rows, collective, n, transport):
    sizes = [0, 8, 100, 4096, 100001]
    found = rows(
        collective, "-n", n, "--transport", transport, "--sizes", ",".join(map(str, sizes)), *QUICK
    )
    one = 4 * n if collective in IN_BLOCKS else 4
    expected = [max(size // one, min(size, 1)) * one for size in sizes]
    assert [r["bytes"] for r in found] == ([0] if collective == "barrier" else expected)
    for r in found:
        assert r["errors"] == 0
        assert r["ranks"] == n
        assert r["collective"] == collective
        assert r["transport"] == (transport if n > 1 else "none")
        assert r["op"] == ("sum" if collective in REDUCTIONS else None)
        assert r["dtype"] == (None if collective == "barrier" else "f32")
        assert r["algorithm"] in ("direct", "hd", "ring", "tree")
        assert 0 < r["min_us"] <= r["time_us"]
        assert r["algbw_gbs"] == pytest.approx(r["bytes"] / r["time_us"] / 1e3, rel=1e-4)
        assert r["busbw_gbs"] == pytest.approx(r["algbw_gbs"] * bus_factor(collective, n), rel=1e-4)


@pytest.mark.parametrize("algorithm", ["direct", "hd", "ring", "tree"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_algorithm(rows, algorithm, transport):
    words = ("--sizes", "8,70001", "--transport", transport, "--reduce", algorithm, *QUICK)
    for n in (2, 5):
        found = rows("allreduce", "-n", n, *words)
        assert [(r["algorithm"], r["errors"]) for r in found] == [(algorithm, 0)] * 2


def test_algorithms_by_size(rows):
    words = ("allreduce", "-n", "2", "--sizes", "8,4k,64k", *QUICK)
    ranges = "0-4k:tree,4k-inf:ring"
    expected = ["tree", "ring", "ring"]
    assert [r["algorithm"] for r in rows(*words, "--reduce", ranges)] == expected
    env = {"LOCKSTEP_ALLREDUCE": ranges}
    assert [r["algorithm"] for r in rows(*words, env=env)] == expected
    assert [r["algorithm"] for r in rows(*words, "--reduce", "hd", env=env)] == ["hd"] * 3
    standard = [r["algorithm"] for r in rows(*words)]
    assert [r["algorithm"] for r in rows(*words, "--reduce", "auto", env=env)] == standard


@pytest.mark.parametrize("dtype", "f32 f64 bf16 f16 i8 u8 i32 i64".split())
def test_types_and_operators(rows, dtype):
    ops = ["sum", "prod", "min", "max"] + (["band", "bor"] if dtype[0] in "iu" else [])
    words = ("allreduce", "-n", "3", "--dtype", dtype, "--sizes", "8,50k", *QUICK)
    for op in ops:
        for r in rows(*words, "--op", op):
            assert (r["errors"], r["dtype"], r["op"]) == (0, dtype, op)


@pytest.mark.parametrize("collective", [c for c in COLLECTIVES if c != "barrier"])
def test_private_memory(rows, collective):
    for r in rows(collective, "-n", "3", "--private", "--sizes", "8,300k", *QUICK):
        assert (r["errors"], r["memory"]) == (0, "malloc")


@pytest.mark.parametrize("collective", COLLECTIVES[:8])
def test_timed_in_place(rows, collective):
    for r in rows(collective, "-n", "3", "--in-place", "--sizes", "8,70001", *QUICK):
        assert (r["errors"], r["in_place"]) == (0, True)


# What it prints


def test_table(bench):
    done = bench("allreduce", "-n", "2", "--sizes", "8:32k:x8", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.match(r"# lockstep \d+\.\d+\.\d+: allreduce, 2 ranks$", lines[0])
    head = "\n".join(line for line in lines if line.startswith("#"))
    assert "transport  shm, buffers from ls_alloc" in head
    assert "selection  0-inf:" in head
    for word in "size count type op algorithm time min algbw busbw wrong".split():
        assert word in head
    table = [line.split() for line in lines if not line.startswith("#")]
    assert [row[0] for row in table] == ["8", "64", "512", "4096", "32768"]
    assert all(row[2:4] == ["f32", "sum"] and row[-1] == "0" and len(row) == 10 for row in table)
    assert re.fullmatch(r"# average bus bandwidth \d+\.\d+ GB/s, 0 wrong", lines[-1])
    assert max(len(line) for line in lines[4:]) <= 100


def test_unchecked(bench, rows):
    words = ("reduce", "-n", "2", "--sizes", "8", *QUICK, "--no-check")
    assert [r["errors"] for r in rows(*words)] == [None]
    assert bench(*words).stdout.endswith(", not checked\n")
    assert [r["errors"] for r in rows(*words, "--check")] == [0]


@pytest.mark.parametrize(
    "text, sizes",
    [
        ("8", [8]),
        ("8:64:x2", [8, 16, 32, 64]),
        ("8:63:x2", [8, 16, 32]),
        ("0:1k:+512", [0, 512, 1024]),
        ("4k,8,1K:2k:x2", [4096, 8, 1024, 2048]),
    ],
)
def test_sizes(rows, text, sizes):
    assert [r["bytes"] for r in rows("allreduce", "-n", "1", "--sizes", text, *QUICK)] == sizes


def test_usual_ranks_and_calls(rows):
    """Without -n as many ranks as cores, without --iters as many calls as take some time."""
    [r] = rows("allreduce", "--sizes", "1M", "--bind", "core")
    assert r["ranks"] == max(2, len(os.sched_getaffinity(0)))
    assert r["errors"] == 0


def test_options_before_the_collective(rows):
    assert rows("-n", "2", *QUICK, "broadcast", "--sizes", "8")[0]["ranks"] == 2


def test_a_reader_that_has_enough(lockstep, leftovers):
    script = f"{lockstep} bench allreduce -n 2 --sizes 8:64M:x2 | head -n 8"
    done = leftovers.run("sh", "-c", script, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 8


def test_output_that_cannot_be_written(bench):
    with open("/dev/full", "w") as full:
        done = bench("allreduce", "-n", "2", "--sizes", "8", *QUICK, stdout=full)
    assert done.returncode == 1
    assert "cannot write the results: No space left on device" in done.stderr


# Under a launcher


def test_as_the_program_of_a_launcher(lockstep, leftovers):
    command = [lockstep, "bench", "allgather", "--sizes", "1k", "--json", *QUICK]
    done = leftovers.run(lockstep, "run", "-n", "3", "--", *command)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["ranks"] == 3
    done = leftovers.run(lockstep, "run", "-n", "1", "--", *command, "-n", "3")
    assert done.returncode == 2
    assert "-n and --bind are for the launcher" in done.stderr


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_two_hosts(lockstep, leftovers, tmp_path, collective):
    key = tmp_path / "key"
    command = ["--", lockstep, "bench", collective, "--sizes", "8,100001", "--json", *QUICK]
    meet = ["--listen", "127.0.0.1:0", "--hosts", "2", "--key-file", key]
    first = leftovers.start(lockstep, "run", "-n", "2", *meet, *command)
    address = None
    while not address:
        line = first.stderr.readline()
        assert line, "no word of the address"
        address = re.search(r"listening on (\S+)", line)
    join = ["--join", address[1], "--key-file", key]
    second = leftovers.run(lockstep, "run", "-n", "1", *join, *command)
    done = leftovers.finish(first)
    assert (done.returncode, second.returncode, second.stdout) == (0, 0, "")
    for line in done.stdout.splitlines():
        r = json.loads(line)
        assert (r["ranks"], r["errors"], r["transport"]) == (3, 0, "shm+tcp")


# Trouble


def test_wrong_results_are_counted(bench):
    """One bit of one message flips on its way: one of the first messages must be a checked one.

    Of integers, for the sum of floats may round the lowest bit of one away."""
    for message in range(1, 30):
        done = bench(
            "allreduce", "-n", "2", "--transport", "tcp", "--sizes", "4k", "--dtype", "i32",
            "--json", *QUICK,
            env={"LOCKSTEP_FAULT": f"0>1 garble={message}", "LOCKSTEP_TIMEOUT": "2"},
        )
        if done.returncode == 1 and done.stdout:
            assert json.loads(done.stdout)["errors"] > 0
            return
    pytest.fail("no flipped bit was noticed")


def test_rank_that_is_killed(lockstep, leftovers):
    command = ["bench", "allreduce", "-n", "3", "--sizes", "64M", "--iters", "100000"]
    process = leftovers.start(lockstep, *command)

    def ranks():
        found = [p for p in children(process.pid) if b"bench-worker" in read_proc(p, "cmdline")]
        return found if len(found) == 3 else None

    os.kill(wait_until(ranks, what="three ranks")[-1], signal.SIGKILL)
    done = leftovers.finish(process, timeout=10)
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed by signal 9" in done.stderr


ALL = ", ".join(COLLECTIVES)


@pytest.mark.parametrize(
    "words, complaint",
    [
        ([], f"which collective? there are {ALL}"),
        (["training"], f"'training' cannot be measured; there are {ALL}"),
        (["allreduce", "reduce"], "one collective at a time"),
        (["allreduce", "--fly"], "unknown option --fly"),
        (["allreduce", "-x"], "unknown option -x"),
        (["allreduce", "--json=1"], "--json=1 takes no value"),
        (["allreduce", "-n"], "-n needs a value"),
        (["allreduce", "-n", "0"], "'0' is not a whole number from 1 to 256"),
        (["allreduce", "--iters", "0"], "--iters: '0' is not"),
        (["allreduce", "--warmup", "-1"], "--warmup: '-1' is not"),
        (["allreduce", "--sizes", "x"], "--sizes: 'x' is no number"),
        (["allreduce", "--sizes", ""], "--sizes: '' is no size"),
        (["allreduce", "--sizes", "8,,9"], "is no size"),
        (["allreduce", "--sizes", "8:1k"], "'8:1k' is not FROM:TO:xFACTOR"),
        (["allreduce", "--sizes", "8:1k:y2"], "'8:1k:y2' is not FROM:TO:xFACTOR"),
        (["allreduce", "--sizes", "8:1q:x2"], "'8:1q:x2' has a part that is no number"),
        (["allreduce", "--sizes", "1k:8:x2"], "begins above its end"),
        (["allreduce", "--sizes", "0:8:x2"], "never reaches its end"),
        (["allreduce", "--sizes", "8:16:x1"], "never reaches its end"),
        (["allreduce", "--sizes", "8:16:+0"], "never reaches its end"),
        (["allreduce", "--sizes", "1:9999:+1"], "more than 512 sizes"),
        (["allreduce", "--sizes", "17179869183G"], "is above 1024G"),
        (["allreduce", "--sizes", "900G"], "do not fit the"),
        (["allreduce", "--reduce", "fast"], "'fast'; allreduce offers direct, hd, ring, tree"),
        (["gather", "--reduce", "ring"], "'ring'; gather offers direct"),
        (["allreduce", "--reduce", "0-4k:tree,4k"], "cannot read '4k'"),
        (["allreduce", "--dtype", "f99"], '"f99" is not known (one of f32 '),
        (["allreduce", "--op", "xor"], '"xor" is not known (one of sum '),
        (["allreduce", "--op", "band"], "band is not defined on f32"),
        (["allreduce", "--transport", "pigeon"], "'pigeon' is none of auto, shm, tcp"),
        (["allreduce", "--bind", "socket"], "'socket' is none of none, core"),
        (["alltoall", "--in-place"], "alltoall cannot be done in place"),
    ],
)
def test_wrong_usage(bench, words, complaint):
    done = bench(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert "see lockstep bench --help" in done.stderr


@pytest.mark.parametrize(
    "name, value", [("ALLREDUCE", "fast"), ("TRANSPORT", "pigeon"), ("TIMEOUT", "-1")]
)
def test_wrong_environment(bench, name, value):
    done = bench("allreduce", env={f"LOCKSTEP_{name}": value})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"LOCKSTEP_{name}" in done.stderr and f"'{value}'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["bench", "--help"], ["bench", "-h"], ["help", "bench"]])
def test_help(lockstep, leftovers, words):
    done = leftovers.run(lockstep, *words)
    assert (done.returncode, done.stderr) == (0, "")
    for word in COLLECTIVES:
        assert word in done.stdout
    flags = "-n --sizes --dtype --op --reduce --transport --bind --private --in-place --iters"
    for word in f"{flags} --warmup --check --no-check --json".split():
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_worker_is_not_for_users(lockstep, leftovers):
    done = leftovers.run(lockstep, "bench-worker", "allreduce")
    assert done.returncode == 2
    assert "no command 'bench-worker'" in done.stderr
    assert "bench-worker" not in leftovers.run(lockstep, "--help").stdout
