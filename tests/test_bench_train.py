"""lockstep bench train: every model, what it prints, what it refuses."""

import json

import pytest

PARAMETERS = {
    "mlp": 669_706,
    "resnet:20": 272_474,
    "gpt:nano": 809_856,
    "dlrm": 4_635_985,
}
QUICK = ("--seconds", "0.05", "--batch", "2")


@pytest.fixture
def bench(lockstep, leftovers):
    """bench(words...) runs `lockstep bench train words...` to its end."""
    return lambda *words, **options: leftovers.run(lockstep, "bench", "train", *words, **options)


@pytest.mark.parametrize("model", PARAMETERS)
def test_json(bench, model):
    done = bench(model, "--json", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["model"] == model
    assert figures["params"] == PARAMETERS[model]
    assert (figures["workers"], figures["shards"], figures["batch"]) == (1, 1, 2)
    assert figures["samples_per_s"] == pytest.approx(2e3 / figures["step_ms"], rel=1e-3)
    for key in ("step_ms", "cpu_ms", "gflops", "peak_rss_mb"):
        assert figures[key] > 0, key


@pytest.mark.parametrize("words, at_once", [
    (("--batch", "12"), 3), (("--batch", "12", "--shards", "2"), 3),
    (("--batch", "12", "--shards", "4"), 3), (("--batch", "2"), 2),
    (("--batch", "12", "--micro-batch", "5"), 5)])
def test_samples_at_a_time(bench, words, at_once):
    figures = json.loads(bench("gpt:nano", *words, "--seconds", "0.05", "--json").stdout)
    assert figures["micro_batch"] == at_once
    told = f"{at_once} samples at a time" in bench("gpt:nano", *words, "--seconds", "0.05").stdout
    assert told == (at_once < figures["batch"] // figures["shards"])


@pytest.mark.parametrize("workers, transport", [(2, "shm"), (3, "shm"), (2, "tcp")])
@pytest.mark.parametrize("model", ["mlp", "dlrm"])
def test_several_workers(bench, model, workers, transport):
    words = ("-n", str(workers), "--transport", transport, "--batch", "24", "--seconds", "0.05")
    done = bench(model, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert (figures["workers"], figures["shards"], figures["batch"]) == (workers, workers, 24)
    assert figures["pss_mb"] > 0
    assert figures["wait_ms"] >= 0
    done = bench(model, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{workers} workers" in done.stdout
    assert "waiting for others" in done.stdout
    assert ("hidden behind backward" in done.stdout) == (transport == "tcp")


def test_text_and_profile(bench):
    done = bench("gpt:nano", "--profile", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("809856 parameters", "samples/s", "GFLOP/s", "peak memory", "without reuse"):
        assert word in done.stdout
    table = [line.split() for line in done.stdout.splitlines() if "%" in line]
    assert {row[0] for row in table} >= {"linear", "attention", "layer_norm", "update,"}
    shares = [float(word[:-1]) for row in table for word in row if word.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=1)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lars", "lamb"])
def test_optimizers(bench, optimizer):
    done = bench("mlp", "--optimizer", optimizer, "--json", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_and_device(bench):
    sets = ("--set", "model.layers=1", "--set", "dim=32")
    done = bench("gpt", *sets, "--device", "ref", "--json", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["params"] == 32 * (65 + 64) + 12 * 32**2 + 13 * 32 + 2 * 32


@pytest.mark.parametrize(
    "words, said",
    [
        ((), "which model?"),
        (("vgg",), "vgg"),
        (("gpt:huge",), "huge"),
        (("gpt:nano", "mlp"), "one model at a time"),
        (("gpt:nano", "--set", "colour=3"), "colour"),
        (("gpt:nano", "--set", "dim=33"), "dim=33"),
        (("gpt:nano", "--set", "layers=many"), "layers"),
        (("mlp", "--optimizer", "magic"), "magic"),
        (("mlp", "--device", "abacus"), "abacus"),
        (("mlp", "--batch", "0"), "--batch"),
        (("mlp", "--seconds", "-1"), "--seconds"),
        (("mlp", "-n", "2", "--profile"), "one worker"),
        (("mlp", "-n", "4", "--shards", "2"), "too few"),
        (("mlp", "-n", "0"), "-n"),
        (("mlp", "--transport", "pigeon"), "pigeon"),
        (("mlp", "--bind", "tight"), "tight"),
        (("mlp", "--speed"), "--speed"),
    ],
)
def test_refused(bench, words, said):
    done = bench(*words)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.rstrip().endswith("see lockstep bench train --help")


def test_an_instruction_set_that_is_not_there(bench):
    done = bench("mlp", *QUICK, env={"LOCKSTEP_ISA": "mmx"})
    assert done.returncode == 2
    assert "LOCKSTEP_ISA: 'mmx' is none of" in done.stderr


def test_help(bench):
    done = bench("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: lockstep bench train MODEL")
    assert max(map(len, done.stdout.splitlines())) <= 100
