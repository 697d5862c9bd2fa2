"""lockstep info: what it must tell, as text and as JSON, and that both follow the environment."""

import json
import os
import re

import pytest
from conftest import ROOT

RANGES = "0-4k:tree,4k-inf:ring"


@pytest.fixture
def info(lockstep, leftovers):
    """info(words...) runs `lockstep info words...` to its end."""
    return lambda *words, **options: leftovers.run(lockstep, "info", *words, **options)


@pytest.fixture
def facts(info):
    """facts(words...) returns its JSON object; all must be well."""

    def run(*words, **options):
        done = info("--json", *words, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def named(entries):
    return {entry["name"]: entry for entry in entries}


def test_text(info):
    done = info("-n", "2")  # what is selected depends on it, and without it on the cores
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"lockstep \d+\.\d+\.\d+\n", done.stdout)
    for line in (
        r"processor +\S",
        r"cores +\d+ online",
        r"memory +\d+\.\d GiB",
        r"kernels +\w+ in use",
        r"segment +yes +memfd",
        r"heap +\d+\.\d GiB",
        r"reading peers +(yes|no) ",
        r"shm +yes",
        r"tcp +yes",
        r"ucx +no +not built",
        r"lo +127\.0\.0\.1",
        r"etcd +(yes +an etcd that runs already|no +\S)",
        r"native +yes",
        r"mpi +no +not built",
        r"nccl +no +not built",
        r"allreduce +direct, hd, ring, tree +0-inf:\w+ +0-inf:\w+$",
        r"barrier +direct ",
        r"gpt +nano, char, 124m$",
        r" +vocab, context, layers, heads, dim, dropout, checkpoint$",
        r"data +synthetic, idx, cifar, text, tokens, criteo$",
        r"optimizers +sgd, adam, adamw, lars, lamb$",
        r"schedules +const, linear, step, cosine$",
        r"LOCKSTEP_TIMEOUT +\(30\) ",
    ):
        assert re.search(r"^  " + line, done.stdout, re.MULTILINE), line
    assert max(len(line) for line in done.stdout.splitlines() if "LOCKSTEP" in line) <= 100


def test_facts(facts):
    f = facts()
    assert re.fullmatch(r"\d+\.\d+\.\d+", f["version"])
    m = f["machine"]
    assert m["cores"] == os.cpu_count()
    assert m["cores_usable"] == len(os.sched_getaffinity(0))
    assert m["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert m["kernels"]["in_use"] == m["kernels"]["usable"][-1]
    assert f["ranks"] == max(2, os.cpu_count())
    shared = f["shared_memory"]
    assert shared["segment"]["usable"] is True
    assert shared["heap_bytes"] > 0
    assert isinstance(shared["read_peers"]["usable"], bool)
    transports = named(f["transports"])
    assert {name: t["usable"] for name, t in transports.items()} == {
        "shm": True, "tcp": True, "ucx": False
    }
    assert transports["ucx"]["why"] == "not built"
    assert "127.0.0.1" in f["interfaces"]["lo"]
    stores = named(f["stores"])
    assert list(stores) == ["tcp", "etcd"]
    assert stores["tcp"]["usable"] is True
    assert stores["etcd"]["usable"] or stores["etcd"]["why"]
    assert {n: p["usable"] for n, p in named(f["providers"]).items()} == {
        "native": True, "mpi": False, "nccl": False
    }
    collectives = named(f["collectives"])
    assert collectives["allreduce"]["algorithms"] == ["direct", "hd", "ring", "tree"]
    assert collectives["reduce_scatter"]["algorithms"] == ["direct", "ring"]
    for c in collectives.values():
        for key in ("selection", "selection_hosts"):
            assert re.fullmatch(r"(\w+-\w+:(direct|hd|ring|tree),?)+", c[key])


def test_what_can_be_trained(lockstep, leftovers, facts):
    """All that is listed exists: `train` takes it as far as to say what else is wrong."""
    f = facts()
    models = named(f["models"])
    assert list(models) == ["mlp", "resnet", "gpt", "dlrm"]
    assert models["gpt"]["presets"] == ["nano", "char", "124m"]
    assert "20" in models["resnet"]["presets"] and "50" in models["resnet"]["presets"]
    assert "hidden" in models["mlp"]["settings"] and "rows" in models["dlrm"]["settings"]
    for m in models.values():
        for preset in m["presets"]:
            words = (f"{m['name']}:{preset}", "--set", "model.nothing=1")
            complaint = leftovers.run(lockstep, "train", *words).stderr
            assert "nothing" in complaint and "preset" not in complaint
    assert f["data"][0] == "synthetic" and "text" in f["data"]
    assert f["optimizers"] == ["sgd", "adam", "adamw", "lars", "lamb"]
    assert f["schedules"] == ["const", "linear", "step", "cosine"]


@pytest.mark.parametrize("n", [1, 2, 8, 256])
def test_selection_of_a_group(facts, n):
    assert facts("-n", n)["ranks"] == n


def test_selection_follows_the_environment(info, facts):
    env = {"LOCKSTEP_ALLREDUCE": RANGES}
    collectives = named(facts(env=env)["collectives"])
    assert collectives["allreduce"]["selection"].startswith(RANGES)
    assert collectives["allreduce"]["selection_hosts"].startswith(RANGES)
    assert not collectives["reduce"]["selection"].startswith(RANGES)
    assert re.search(rf"^  allreduce .* {RANGES}", info(env=env).stdout, re.MULTILINE)
    # Forced to tcp, the ranks of one host still share its processors.
    shm = named(facts("-n", "8")["collectives"])
    tcp = named(facts("-n", "8", env={"LOCKSTEP_TRANSPORT": "tcp"})["collectives"])
    inside = {"allreduce": "tree", "reduce": "tree", "broadcast": "ring", "allgather": "ring"}
    inside["allgatherv"] = "ring"
    for name, c in tcp.items():
        assert c["selection_hosts"] == shm[name]["selection_hosts"]
        assert shm[name]["selection"] == "0-inf:direct"
        assert inside.get(name, "0-inf:direct") in c["selection"]
    assert tcp["allreduce"]["selection_hosts"].endswith("-inf:hd")


def test_environment_is_complete(facts):
    """All variables that the library's sources name are explained, and no others."""
    named_in_sources = set()
    for room in ("base", "transport", "store", "coll", "device", "graph", "nn", "optim"):
        for path in (ROOT / "src" / room).glob("*.[ch]"):
            named_in_sources |= set(re.findall(r'"(LOCKSTEP_[A-Z_]+)"', path.read_text()))
    variables = named(facts()["environment"])
    assert set(variables) == named_in_sources
    assert all(v["meaning"] and v["default"] for v in variables.values())


def test_environment_has_values(info, facts):
    env = {"LOCKSTEP_TIMEOUT": "12.5", "LOCKSTEP_HEAP": "64M"}
    f = facts(env=env)
    variables = named(f["environment"])
    assert variables["LOCKSTEP_TIMEOUT"]["value"] == "12.5"
    assert variables["LOCKSTEP_WARN_AFTER"]["value"] is None
    assert f["shared_memory"]["heap_bytes"] == 64 << 20
    assert re.search(r"^  LOCKSTEP_TIMEOUT +12\.5 ", info(env=env).stdout, re.MULTILINE)


def test_reading_peers_switched_off(facts):
    reading = facts(env={"LOCKSTEP_CMA": "0"})["shared_memory"]["read_peers"]
    assert reading["usable"] is False
    assert "LOCKSTEP_CMA" in reading["why"]


def test_no_segment(lockstep, leftovers):
    """What cannot be used is said with the reason; the command itself goes on."""
    done = leftovers.run("sh", "-c", f"ulimit -f 1000; exec {lockstep} info --json")
    assert done.returncode == 0
    transports = named(json.loads(done.stdout)["transports"])
    assert not transports["shm"]["usable"] and "address space" in transports["shm"]["why"]
    assert not transports["tcp"]["usable"]


@pytest.mark.parametrize(
    "name, value, complaint",
    [
        ("ALLREDUCE", "fast", "cannot read 'fast'; allreduce offers direct, hd, ring, tree"),
        ("BROADCAST", "0-4k:hd", "cannot read '0-4k:hd'; broadcast offers direct, ring, tree"),
        ("TRANSPORT", "pigeon", "there is no transport 'pigeon' (use auto, shm or tcp)"),
        ("HEAP", "lots", "'lots' is not a number of bytes"),
        ("CMA", "perhaps", "'perhaps' is not a whole number from 0 to 1"),
        ("FAULT", "oops", "cannot read"),
    ],
)
def test_wrong_environment(info, name, value, complaint):
    done = info(env={f"LOCKSTEP_{name}": value})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"LOCKSTEP_{name}: " in done.stderr
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["--fly"], "unknown option --fly"),
        (["-n"], "-n needs a value"),
        (["-n", "257"], "'257' is not a whole number from 1 to 256"),
        (["all"], "what is 'all'?"),
        (["--json=1"], "--json=1 takes no value"),
    ],
)
def test_wrong_usage(info, words, complaint):
    done = info(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert "see lockstep info --help" in done.stderr


@pytest.mark.parametrize("words", [["info", "--help"], ["info", "-h"], ["help", "info"]])
def test_help(lockstep, leftovers, words):
    done = leftovers.run(lockstep, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--ranks" in done.stdout and "--json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
