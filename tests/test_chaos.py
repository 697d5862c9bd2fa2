"""lockstep chaos: the command itself, and a few of the runs of tests/chaos-runs."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from conftest import BUILD, SLOWER, TIMEOUT, is_alive, wait_until

JOB = ["train", "mlp", "--steps", "80", "--batch", "32", "--eval-every", "30"]
BRIEF = ["train", "mlp", "--steps", "20", "--batch", "32"]
LAST = re.compile(
    r"^chaos seed=(\d+) events=(\d+) generations=(\d+) sha256=(\w+) lost=(\d+) verdict=(\w+)$"
)


@pytest.fixture
def chaos(lockstep, leftovers, tmp_path):
    def run(*words, **options):
        env = {"TMPDIR": str(tmp_path)}
        return leftovers.run(lockstep, "chaos", *words, cwd=tmp_path, env=env, **options)

    return run


def last(done):
    match = LAST.match(done.stdout.splitlines()[-1])
    assert match, done
    return match.groups()


def namespaces():
    """Those of `lockstep chaos`, of processes that are gone."""
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    found = [re.match(r"lc(\d+)(h\d+|sw)$", name) for name in names]
    return {match[0] for match in found if match and not is_alive(int(match[1]))}


@pytest.fixture
def tidy(tmp_path):
    """Nothing is left of a run: no temporary folder, no namespace."""
    before = namespaces()
    yield
    assert not list(tmp_path.glob("lockstep-chaos-*"))
    assert not namespaces() - before


def forget_logs(done):
    """Removes the folder that a failure has kept."""
    path = pathlib.Path(re.search(r"are in (/\S+/lockstep-chaos-\w+)", done.stderr)[1])
    assert path.is_dir(), "the logs of a failure are kept"
    shutil.rmtree(path)


@pytest.mark.parametrize(
    "words, complaint",
    [
        ([], "which job?"),
        (["mlp"], "which job?"),
        (["train"], "which job?"),
        (["--hosts", "0", *BRIEF], "--hosts"),
        (["--seed", "x", *BRIEF], "--seed"),
        (["--events", "1000", *BRIEF], "--events"),
        (["--kinds", "kill,burn", *BRIEF], "'burn' is none"),
        (["--kinds", "cut", *BRIEF], "add --netns"),
        (["--kinds", "", *BRIEF], "none is named"),
        (["--expect", "abc", *BRIEF], "no SHA-256"),
        (["--expect", "0" * 64, "train", "mlp"], "--expect needs --steps"),
        (["--expect", "0" * 64, "--reference", "x", *BRIEF], "exclude each other"),
        (["--bogus", *BRIEF], "unknown option --bogus"),
        ([*BRIEF, "--listen", "127.0.0.1:0"], "--listen is not for the job to say"),
        ([*BRIEF, "-n", "2"], "-n is not for the job to say"),
        ([*BRIEF, "--evict-after", "never"], "--evict-after"),
    ],
)
def test_wrong_usage(chaos, words, complaint):
    done = chaos(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert complaint in done.stderr
    assert done.stderr.endswith("see lockstep chaos --help\n")


def test_help(chaos):
    done = chaos("--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: lockstep chaos")
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_nothing_happens(chaos, tidy):
    done = chaos("--events", 0, "--hosts", 1, "--workers", 1, *BRIEF)
    assert done.returncode == 0, done
    assert last(done) == ("1", "0", "1", "same", "0", "ok")


def test_the_seed_decides(chaos, tidy):
    """The schedule is known before the run, and another one with another seed."""
    plans = []
    for seed in (5, 5, 6):
        words = ["--seed", seed, "--expect", "0" * 64, "--deadline", 0.001, "--json", "--hosts", 3]
        done = chaos(*words, *BRIEF)
        forget_logs(done)
        plans.append([line for line in done.stdout.splitlines() if line.startswith('{"plan"')])
    assert len(plans[0]) == 6
    assert plans[0] == plans[1] != plans[2]


def test_a_job_that_fails_by_itself(chaos, tidy):
    done = chaos("train", "mlp", "--steps", 10, "--data", "idx:/nowhere")
    assert done.returncode == 1
    assert "/nowhere" in done.stderr
    assert "the job fails by itself, with status" in done.stderr
    assert last(done)[3:] == ("none", "0", "FAILED")
    forget_logs(done)


def test_other_weights_than_expected(chaos, tidy):
    words = ["--expect", "0" * 64, "--events", 1, "--kinds", "kill", "--hosts", 1, "--json"]
    done = chaos(*words, *BRIEF)
    assert done.returncode == 1
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert verdict["sha256"] == "DIFFERENT" and verdict["verdict"] == "FAILED"
    assert "expected 0000000000000000" in verdict["why"]
    forget_logs(done)


def test_a_run_that_hangs_is_named(chaos, tidy):
    """Nothing happens for 0.5 s while the only host is stopped for much longer."""
    words = ["--expect", "0" * 64, "--events", 1, "--kinds", "pause", "--hosts", 1, "--seed", 3]
    job = ["train", "mlp", "--steps", "2000", "--batch", "32", "--evict-after", "60"]
    done = chaos(*words, "--deadline", "0.5", *job)
    assert done.returncode == 1
    assert "it hangs: nothing for 0.5 s" in done.stderr
    assert "waiting for host 0 (process" in done.stderr
    forget_logs(done)


def test_ctrl_c_cleans_up(lockstep, leftovers, tmp_path, tidy):
    netns = ["--netns"] if os.geteuid() == 0 else []
    words = ["--expect", "0" * 64, "--events", 0, *netns, "train", "mlp", "--steps", 1000000]
    env = {"TMPDIR": str(tmp_path)}
    process = leftovers.start(lockstep, "chaos", *words, cwd=tmp_path, env=env)
    wait_until(
        lambda: sum("train-worker" in line for line in leftovers.alive().values()) == 4,
        TIMEOUT,
        "two workers on each host",
    )
    process.send_signal(signal.SIGINT)
    done = leftovers.finish(process)
    assert done.returncode == 1
    assert "interrupted" in done.stderr
    assert last(done)[-1] == "FAILED"


RUNS = {
    "workers": ["--seed", 1, "--hosts", 1, "--workers", 3, "--kinds", "kill,stop"],
    "killed hosts": ["--seed", 4, "--hosts", 3, "--workers", 1, "--kinds", "launcher,host,join"],
    "polite": ["--seed", 2, "--hosts", 2, "--workers", 2, "--kinds", "join,leave"],
    "pauses": ["--seed", 3, "--hosts", 2, "--workers", 1, "--kinds", "pause,stop"],
    "asleep": ["--seed", 104, "--hosts", 1, "--workers", 2, "--kinds", "pause,kill"],
    "network": ["--seed", 5, "--hosts", 3, "--workers", 1, "--kinds", "cut,delay", "--netns"],
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The directory of the same job, without any trouble."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    words = [BUILD / "lockstep", *JOB, "-n", "1", "--quiet", "--out", folder]
    subprocess.run(words, check=True, timeout=TIMEOUT * SLOWER, stdout=subprocess.DEVNULL)
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_the_same_weights(chaos, tidy, undisturbed, name):
    if "--netns" in RUNS[name] and os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    words = [*RUNS[name], "--events", 4, "--reference", undisturbed, *JOB, "--evict-after", 1]
    done = chaos(*words, timeout=2 * TIMEOUT)
    assert done.returncode == 0, done
    assert last(done)[3:] == ("same", "0", "ok")


def test_a_long_way(chaos, tidy, undisturbed):
    """Each step waits for the host whose link is long."""
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        pytest.skip("network namespaces need root, long links /dev/net/tun")
    words = ["--seed", 5, "--hosts", 3, "--workers", 1, "--kinds", "delay", "--netns", "--json"]
    done = chaos(*words, "--events", 3, "--reference", undisturbed, *JOB, timeout=2 * TIMEOUT)
    assert done.returncode == 0, done
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    begun = [fact for fact in facts if fact.get("event") == "done"]
    ended = [fact for fact in facts if fact.get("event") == "over"]
    assert len(begun) == 3
    for begin, end in zip(begun, ended):
        delay = int(re.match(r"by (\d+) ms", begin["what"])[1]) / 1000
        steps, seconds = end["step"] - begin["step"], end["seconds"] - begin["seconds"]
        assert delay >= 0.05
        assert steps <= seconds / delay + 2, done
