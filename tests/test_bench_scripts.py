"""The scripts of bench/: what they accept, what they make of figures. Nothing is measured."""

import gzip
import importlib.machinery
import importlib.util
import json
import os
import struct
import subprocess
import sys
import types

import pytest
from conftest import ROOT, is_alive, wait_until

BENCH = ROOT / "bench"


def load(name):
    """A script as a module."""
    writes = sys.dont_write_bytecode
    try:
        loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


@pytest.fixture(scope="module")
def peers():
    return load("train-peers")


@pytest.fixture(scope="module")
def hosts():
    return load("hosts")


@pytest.fixture(scope="module")
def learning():
    return load("learning")


def refuses(capsys, parse, *words):
    """What a parser says to words that it does not take."""
    with pytest.raises(SystemExit) as ended:
        parse(list(words))
    assert ended.value.code == 2
    return capsys.readouterr().err


# ---- train-peers --------------------------------------------------------------------------------


def test_peers_options(peers, capsys):
    one = peers.parse([])
    assert (one.workers, one.rounds, one.models) == (1, 5, list(peers.MODELS))
    assert one.only == ["lockstep", "torch", "torch-compile", "tensorflow", "jax"]
    assert "vgg" in refuses(capsys, peers.parse, "--models", "vgg")
    assert "lockstep-2" in refuses(capsys, peers.parse, "--only", "lockstep-2")
    assert "--rounds" in refuses(capsys, peers.parse, "--rounds", "0")
    assert "3" in refuses(capsys, peers.parse, "-n", "3")


def test_peers_options_of_two(peers):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two workers take two cores")
    two = peers.parse(["-n", "2", "--only", "torch,lockstep-1,lockstep"])
    assert two.only == ["lockstep", "lockstep-1", "torch"]
    assert set(peers.FLOORS[2]) == set(peers.MODELS) == set(peers.FLOORS[1])


def trial(peers, workers, rates, **more):
    """One whose runs had these rates, the core to themselves but for the last."""
    t = peers.Trial("gpt:char", workers)
    for name, rate in rates.items():
        row = {"name": name, "params": 7, "gflops": rate, "peak_rss_mb": 1, "core": 1, **more}
        row |= {"step_ms": 4, "fast_ms": 4}
        t.rounds += [{**row, "samples_per_s": rate * x} for x in (0.9, 1, 1.1)]
        t.rounds.append({**row, "samples_per_s": 0.1, "core": 0.5})
    return t


def test_peers_figures_of_one(peers):
    t = trial(peers, 1, {"lockstep": 12, "torch": 8, "jax": 10})
    assert t.ratio() == pytest.approx(1.2)
    assert t.quiet("torch") == pytest.approx(8.8)
    t.rounds[-1]["fast_ms"] = 0.01  # of jax
    assert t.ratio(quiet=True) == pytest.approx(13.2 / 40)
    t.rounds[-1]["fast_ms"] = 4
    assert t.gflops("torch") == pytest.approx(8)
    assert t.figure("tensorflow", "samples_per_s") is None
    demands = list(peers.demands_of_one(t))
    assert [(value, bound) for _, value, bound, _ in demands] == [
        (pytest.approx(1.2), 1.15), (pytest.approx(1.2), 1.15), (1, 1)]


def test_peers_figures_of_two(peers):
    t = trial(peers, 2, {"lockstep": 20, "lockstep-8": 19, "lockstep-1": 10, "torch": 10,
                         "torch-compile": 16, "jax": 38})
    t.memories = {"lockstep": 30, "torch": 300, "torch-compile": 400}
    assert t.ratio() == pytest.approx(20 / 16)
    assert t.ratio("lockstep-8") == pytest.approx(19 / 16)
    assert t.others() == pytest.approx(20 / 38)
    assert t.gain() == pytest.approx(2)
    assert t.shards_cost() == pytest.approx(20 / 19 - 1)
    assert t.memory_share() == pytest.approx(0.1)
    assert trial(peers, 2, {"lockstep": 19}).gain() is None


def test_peers_check(peers, capsys):
    held = [("a", 2, 2, "least"), ("b", 0.1, 0.2, "most")]
    assert peers.check(held) == 0
    assert peers.check([*held, ("c", 1.9, 2, "least")]) == 1
    assert peers.check([("d", 0.3, 0.2, "most")]) == 1
    assert peers.check([("e", None, 1, "least")]) == 1
    said = capsys.readouterr().out
    for line in ("c: 1.900, must be at least 2", "d: 0.300, must be at most 0.2",
                 "e: not measured", "0 floors missed", "1 floors missed"):
        assert line in said


def test_peers_shifts(peers):
    names = list(peers.TITLES[2])
    assert peers.Trial("mlp", 2).shifts(names) == [names]
    ours = ["lockstep", "lockstep-8", "lockstep-1"]
    heavy = peers.Trial("gpt:124m", 2)
    assert heavy.shifts(names) == [[*ours, "torch", "torch-compile"], [*ours, "tensorflow"],
                                   [*ours, "jax"]]
    assert heavy.shifts(ours) == [ours]
    assert len(peers.Trial("gpt:124m", 1).shifts(list(peers.TITLES[1]))) == 1


def test_peers_sizes(peers):
    t = trial(peers, 1, {"lockstep": 12, "torch": 8})
    for row in t.rounds:
        row["params"] += row["name"] == "torch"
    t.compare_sizes()
    assert t.missing == {"torch": "has 8 parameters, not 7"}
    assert t.ratio() is None


@pytest.mark.parametrize("workers", [1, 2])
def test_peers_tables(peers, capsys, workers):
    words = ["--models", "gpt:char", "--only", "lockstep,torch"]
    options = peers.parse(words)
    options.workers = workers
    t = trial(peers, workers, {"lockstep": 12, "torch": 8})
    starts = {"lockstep": 0.05, "torch": 5} if workers == 2 else {}
    peers.print_tables(options, [t], starts, 1)
    said = capsys.readouterr().out
    assert "gpt:char (batch 8)" in said
    assert "1.50×" in said
    assert "2 of 8 timed runs" in said
    assert ("first step of mlp: Lockstep 0.050 s, DDP 5.000 s" in said) == (workers == 2)


def test_answers_among_other_lines(peers):
    words = "print('hello'); print('{\"a\": 1}'); print('{\"b\": 2}')"
    runs = sys.modules["train_runs"]
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as process:
        answers = runs.Answers(process, os.devnull)
        assert (answers.next(30), answers.next(30)) == ({"a": 1}, {"b": 2})
        with pytest.raises(runs.NotAvailable):
            answers.next(30)


def test_families(peers):
    """Processor time, memory and end of a process with a child in another session."""
    shared = sys.modules["shared"]
    with subprocess.Popen(["sh", "-c", "setsid sleep 100 & echo; wait"], text=True,
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        family = shared.family(process.pid)
        assert len(family) >= 2
        assert shared.family_memory(process.pid) > 0
        assert 0 <= shared.family_seconds(process.pid) < 10
        shared.end_family(process)
    wait_until(lambda: not any(is_alive(pid) for pid in family), what="the end of all")
    assert shared.busy_seconds() > 0


# ---- hosts --------------------------------------------------------------------------------------


def test_hosts_options(hosts, capsys):
    options = hosts.parse([])
    assert (options.model, options.batch, options.shards, options.rate) == ("gpt:char", 8, 8, 1000)
    assert "--shards" in refuses(capsys, hosts.parse, "--shards", "3")
    assert "--rate" in refuses(capsys, hosts.parse, "--rate", "0")


def test_hosts_figures(hosts, capsys):
    row = {"params": 10_000_000, "exchanged_ms": 400, "exposed_ms": 100, "core": 1}
    rounds = {"alone": [{"step_ms": 300, "core": 1}],
              "both": [{"step_ms": 500, "core": 1}, {"step_ms": 5000, "core": 0.5}],
              "hosts": [{**row, "step_ms": 550}]}
    found = hosts.evaluate(rounds, 1000)
    assert found["transfer"] == pytest.approx(320)  # 40 MB at 125 MB/s
    assert found["ratio"] == pytest.approx(1.1)
    assert found["ratio_alone"] == pytest.approx(550 / 320)
    assert found["hidden"] == pytest.approx(0.75)
    assert found["disturbed"] == 1
    assert hosts.evaluate(rounds, 100)["ratio"] == pytest.approx(550 / 3200)
    hosts.print_figures(hosts.parse([]), found, 10_000_000, 950)
    assert "75 % of the exchange" in capsys.readouterr().out
    assert hosts.check(found) == 0
    assert hosts.check({**found, "ratio": 1.16}) == 1
    rounds["both"][0]["core"] = 0.5
    noisy = hosts.evaluate(rounds, 1000)
    assert noisy["ratio"] < 1.15
    assert hosts.check(noisy) == 1


# ---- learning -----------------------------------------------------------------------------------


def test_learning_options(learning, capsys):
    options = learning.parse(["--seeds", "4,5"])
    assert (options.seeds, options.steps, options.batch) == ([4, 5], 1000, 24)
    assert "--seeds" in refuses(capsys, learning.parse, "--seeds", "one")
    assert "--steps" in refuses(capsys, learning.parse, "--steps", "0")


def test_learning_digits(learning, tmp_path):
    lines = [",".join([str(i % 256)] * 784 + [str(i % 10)]) for i in range(20)]
    train, test = learning.split_digits("\n".join(lines).encode())
    assert ([label for _, label in test], len(train)) == ([4, 9, 4, 9], 16)
    learning.write_idx(tmp_path, "t10k", test)
    images = (tmp_path / "t10k-images-idx3-ubyte").read_bytes()
    labels = (tmp_path / "t10k-labels-idx1-ubyte").read_bytes()
    assert struct.unpack(">4I", images[:16]) == (0x803, 4, 28, 28)
    assert images[16:] == bytes([4] * 784 + [9] * 784 + [14] * 784 + [19] * 784)
    assert labels == struct.pack(">2I", 0x801, 4) + bytes([4, 9, 4, 9])
    with pytest.raises(Exception, match="line 1 of the digits"):
        learning.split_digits(b"1,2,3\n")


def test_learning_bounds(learning):
    ours = [{"eval_loss": x, "seconds": 1} for x in (0.99, 1.01, 1.021)]
    peer = [{"eval_loss": 1.0, "seconds": 1}] * 3
    found = learning.compare(ours, peer)
    assert (found["apart"], found["worst"]) == (pytest.approx(0.007), pytest.approx(0.021))
    assert list(learning.missed_bounds(found, [])) == [
        "bible: a seed is +2.10 % from PyTorch's mean"]
    assert not list(learning.missed_bounds(learning.compare(peer, peer), []))
    better = [{"eval_loss": 0.98, "seconds": 1}] * 3  # is no match either
    assert list(learning.missed_bounds(learning.compare(better, peer), [])) == [
        "bible: the mean is -2.00 % from PyTorch's"]
    rows = learning.bible_rows([1, 2, 3], ours, peer)
    assert rows[-1][:4] == ["mean", "1.0070", "1.0000", "+0.70 %"]
    assert {len(row) for row in rows} == {6}
    right = [{"eval_accuracy": x, "eval_loss": 1, "seconds": 1} for x in (0.94, 0.93)]
    assert len(list(learning.missed_bounds(None, right))) == 1
    assert learning.mnist_rows([1, 2], right)[1][1] == "94.00 %"


def test_learning_keeps_files_whole(learning, monkeypatch, tmp_path):
    monkeypatch.setattr(learning, "PLACE", str(tmp_path))

    def fail():
        raise learning.NotAvailable("no network")

    with pytest.raises(learning.NotAvailable):
        learning.kept("a", fail)
    path = learning.kept("a", lambda: gzip.compress(b"text"))
    assert learning.kept("a", fail) == path
    assert os.listdir(tmp_path / "data") == ["a"]


@pytest.mark.parametrize("name", ["train-peers", "hosts", "learning", "scaling"])
def test_help(name):
    done = subprocess.run([BENCH / name, "--help"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--check" in done.stdout


def test_json_of_two(peers, tmp_path):
    options = peers.parse(["--json", str(tmp_path / "figures.json")])
    peers.write_json(options, [trial(peers, 2, {"lockstep": 12, "torch": 8})], {"lockstep": 0.05})
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["ratios"] == {"gpt:char": pytest.approx(1.5)}
    assert figures["first_step_s"] == {"lockstep": 0.05}


# ---- allreduce-peers ----------------------------------------------------------------------------


def test_floors_of_all_reduces(capsys):
    """Beside each library's settings; how many are missed with malloc's huge pages is said."""
    script = load("allreduce-peers")
    two = types.SimpleNamespace(ranks=len(script.CORES))
    many = types.SimpleNamespace(ranks=len(script.CORES) + 1)
    good, bad = {"lockstep": {8: 2.6, 100 << 20: 2.3}}, {"lockstep": {8: 2.6, 100 << 20: 2.1}}
    assert script.check(two, good, bad) == 0
    assert "0 floors missed, 1 with malloc's huge pages" in capsys.readouterr().out
    assert script.check(two, bad, good) == 1
    said = capsys.readouterr().out
    assert "missed: lockstep at 100 MiB: 2.10, must be 2.2" in said
    assert "1 floors missed, 0 with malloc's huge pages" in said
    assert script.check(many, {"lockstep": {8: 1.01}}, {}) == 0
    assert script.check(many, {"lockstep": {8: None}}, {}) == 1
    assert script.check(two, {}, {}) == 1


def test_calls_of_a_sample():
    script = load("allreduce-peers")
    crowd = 4 * len(script.CORES)
    assert [script.calls_of_sample(ns, 1) for ns in (10, 1e4, 1e6)] == [100, 2, 1]
    assert [script.calls_of_sample(ns, crowd) for ns in (10, 1e4, 1e6)] == [100, crowd, 1]


def test_cores_that_are_moved(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    cores = load("cores.py")
    assert cores.alike([60, 100, 70]) and not cores.alike([60, 330, 70])
    looks = cores.Cores(str(tmp_path))
    trips = [looks.trip() for _ in range(3)]
    looks.stop()
    assert len(cores.CORES) < 2 or min(trips) > 0
    looks.trips = [50, 60, 340]
    assert looks.are_as_usual(100) and not looks.are_as_usual(340) and not looks.are_as_usual(20)


# ---- scaling ------------------------------------------------------------------------------------


def test_scaling(capsys):
    scaling = load("scaling")
    assert "--most" in refuses(capsys, scaling.parse, "--most", "2")
    assert "sizes look like" in refuses(capsys, scaling.parse, "--sizes", "16M,many")
    assert "ipc" in refuses(capsys, scaling.parse, "--kinds", "shm,ipc")
    assert scaling.parse(["--sizes", "3k,1M"]).sizes == [3072, 1 << 20]
    found = {("shm", 1 << 24): {2: [(30, 10)], 3: [(10, 10), (9, 10), (50, 10)]}}
    assert scaling.check(found) == 0
    found["tcp", 1 << 24] = {2: [(1, 1)], 3: [(12, 10), (12, 10), (9, 10)]}
    assert scaling.check(found) == 1
    assert "missed: tcp, 16 MiB, 3 ranks: 1.20" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["shm", "private", "tcp"])
def test_loops_of_scaling(kind, tmp_path):
    scaling = load("scaling")
    program = scaling.build_loops(str(tmp_path))
    assert scaling.measure_loops(program, kind, 3, 99_999) > 0
    one_rank = [program, kind, "1", "8", "0"]
    done = subprocess.run(one_rank, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "usage" in done.stderr
