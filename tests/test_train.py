"""lockstep train on one host: the result depends on the configuration, never on the workers.

Every test compares digests of weights and of weights with the optimizer's state, and metrics.jsonl
to the last digit.
"""

import json
import os
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import SANITIZED, wait_until
from training import BRIEF, MODELS, Trainer, curve, newest, read_tensors, settings
from training import workers_of, write_cifar, write_criteo

STEPS = ["--steps", "60", "--shards", "8", *settings("eval.batches=1")]
FOREVER = ["--steps", "1000000000", "--schedule", "const", "--warmup", "0", *BRIEF]


@pytest.fixture
def trainer(lockstep, leftovers, tmp_path):
    return Trainer(lockstep, leftovers, tmp_path)


def assert_same(found, wanted):
    assert found.digests() == wanted.digests(), found.folder
    assert curve(found.folder) == curve(wanted.folder)


# The same bits


@pytest.mark.parametrize("batch", [96, 100])
@pytest.mark.parametrize("model", MODELS)
def test_any_number_of_workers(trainer, model, batch):
    words = [*trainer.model(model), *STEPS, "--batch", batch, "--eval-every", "20"]
    one = trainer.train(*words, "-n", 1)  # under sanitizers, few numbers: it takes minutes there
    lines = curve(one.folder)
    assert [fact["step"] for fact in lines if "loss" in fact] == list(range(1, 61))
    assert [fact["step"] for fact in lines if "eval_loss" in fact] == [20, 40, 60]
    for workers in (3, 8) if SANITIZED else (2, 3, 4, 5, 7, 8):
        assert_same(trainer.train(*words, "-n", workers), one)
    for workers in (2,) if SANITIZED else (2, 3):
        tcp = {"LOCKSTEP_TRANSPORT": "tcp"}
        assert_same(trainer.train(*words, "-n", workers, env=tcp), one)


def test_usual_workers(trainer):
    """Without -n as many as there are cores that may be used: under taskset, or in a container."""
    words = [*MODELS["mlp"], "--steps", 2, "--shards", 8, *BRIEF]
    cores = sorted(os.sched_getaffinity(0))
    some = trainer.train(*words)
    assert set(workers_of(some.folder)) == {min(8, len(cores))}
    one = trainer.train(*words, preexec_fn=lambda: os.sched_setaffinity(0, cores[-1:]))
    assert set(workers_of(one.folder)) == {1}
    assert_same(one, some)


@pytest.mark.parametrize("model", MODELS)
def test_digests_tell_configurations_apart(trainer, model):
    """That they could differ: each of these changes the last bits at least."""
    words = [*trainer.model(model), "--steps", "12", "--batch", 96, "-n", 2, *BRIEF]
    changes = [["--shards", 8], ["--shards", 4], ["--seed", 2], ["--lr", 0.012345]]
    found = [trainer.train(*words, *change) for change in changes]
    assert len({one.weights for one in found}) == len(changes)
    assert len({one.state for one in found}) == len(changes)


@pytest.mark.parametrize("model", MODELS)
def test_micro_batches(trainer, model):
    """Of 5 samples, where a shard has 12 or 13: the same bits for any number of workers."""
    words = [*trainer.model(model), *STEPS, "--batch", 100]
    some = [trainer.train(*words, "--micro-batch", 5, "-n", n) for n in (1, 3, 8)]
    for other in some[1:]:
        assert_same(other, some[0])
    if model == "mlp":  # each element of a gradient is one chain of additions, wherever it is cut
        assert_same(some[0], trainer.train(*words, "-n", 2))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lars", "lamb"])
@pytest.mark.parametrize("model", ["mlp", "dlrm"])
def test_optimizers(trainer, model, optimizer):
    """With clipping and decay, which need norms over all parameters."""
    words = [*trainer.model(model), *STEPS, "--batch", 100, "--optimizer", optimizer]
    words += settings("optimizer.clip=0.5", "optimizer.decay=0.01")
    one = trainer.train(*words, "-n", 1)
    assert_same(trainer.train(*words, "-n", 3), one)


def test_mirrored_and_shifted_images(trainer, tmp_path):
    """cifar, in its own size: what is drawn for an image does not depend on who reads it."""
    words = ["resnet:20", "--data", f"cifar:{write_cifar(tmp_path / 'cifar')}", "--steps", 8]
    words += settings("model.blocks=1", "model.width=4", "eval.batches=1") + ["--batch", 40]
    one = trainer.train(*words, "-n", 1)
    assert_same(trainer.train(*words, "-n", 3), one)
    plain = trainer.train(*words, "-n", 1, *settings("data.augment=no"))
    assert plain.weights != one.weights


def test_configuration_file_repeats_the_run(trainer):
    """config.ini of a run, alone, gives the same bits; flags that are no part of the result too."""
    words = [*trainer.model("gpt"), "--steps", 30, "--batch", 20, "--shards", 8, "-n", 2]
    first = trainer.train(*words, "--lr", "0.00123", "--seed", 77)
    config = first.folder / "config.ini"
    assert_same(trainer.train("--config", config, "-n", 3), first)
    again = trainer.train("--config", config, "-n", 1, "--eval-every", 7, "--checkpoint-every", 3)
    assert again.digests() == first.digests()


# Stopping and going on


def stopped(trainer, process, folder, number, step):
    """Ends a run by a signal once it has done this step; its Result."""
    trainer.read_to(process, step)
    process.send_signal(number)
    return trainer.finish(process, folder)


OPTIMIZERS = {"mlp": "adamw", "resnet": "sgd", "gpt": "adamw", "dlrm": "sgd"}


@pytest.mark.parametrize("model", MODELS)
def test_stop_and_resume_with_another_number_of_workers(trainer, model):
    """At steps that nobody chose, until one of them is inside an epoch (of 11 steps)."""
    draw = random.Random(model)
    words = [*trainer.model(model), *FOREVER, "--batch", 100, "--shards", 8]
    words += ["--optimizer", OPTIMIZERS[model]]
    out = trainer.new_folder()
    process = trainer.start(*words, "--out", out, "--json", "-n", draw.choice([2, 3]))
    stops = [stopped(trainer, process, out, signal.SIGINT, draw.randrange(3, 40)).step]
    while len(stops) == 1 or all(step % 11 == 0 for step in stops):
        assert len(stops) < 6, f"at the end of an epoch each time: {stops}"
        process = trainer.start("--resume", out, "--json", "-n", draw.choice([4, 5]))
        step = stops[-1] + draw.randrange(1, 40)
        stops.append(stopped(trainer, process, out, signal.SIGTERM, step).step)
        assert stops[-1] > stops[-2]
    total = ["--steps", stops[-1] + draw.randrange(1, 40)]
    last = trainer.resume(out, "-n", 1, *total)
    undisturbed = trainer.train(*words, *total, "-n", 2)
    assert_same(last, undisturbed)


@pytest.mark.parametrize("model", MODELS)
def test_end_by_steps_and_go_on(trainer, model):
    """In the middle of an epoch and at its end; the schedule is said not to end with the run."""
    words = [*trainer.model(model), "--batch", 100, "--shards", 8, *BRIEF]
    words += ["--schedule", "cosine", *settings("optimizer.steps=60"), "--warmup", 6]
    whole = trainer.train(*words, "--steps", 50, "-n", 2)
    part = trainer.train(*words, "--steps", 17, "-n", 3)
    trainer.resume(part.folder, "--steps", 33, "-n", 1)
    again = trainer.resume(part.folder, "--steps", 50, "-n", 5)
    assert again.digests() == whole.digests()
    assert curve(again.folder, evaluations=False) == curve(whole.folder, evaluations=False)
    evaluated = [fact["step"] for fact in curve(again.folder) if "eval_loss" in fact]
    assert evaluated == [17, 33, 50]


def test_interrupted_run_says_how_to_go_on(trainer):
    out = trainer.new_folder()
    words = [*trainer.model("mlp"), *FOREVER, "--batch", 96, "-n", 2, "--out", out]
    process = trainer.start(*words, "--checkpoint-every", "50")
    wait_until(lambda: (out / "checkpoint").exists() and list((out / "checkpoint").glob("s*")))
    process.send_signal(signal.SIGINT)
    done = trainer.starter.finish(process)
    assert (done.returncode, done.stderr) == (0, "")
    advice, last = done.stdout.splitlines()[-2:]
    step = int(re.fullmatch(r"done step=(\d+) loss=\S+ sha256=[0-9a-f]{64}", last)[1])
    assert advice == f"interrupted after step {step}; go on with: lockstep train --resume {out}"
    assert trainer.resume(out, "--steps", step + 5).step == step + 5


@pytest.mark.parametrize("model", MODELS)
def test_killed_launcher(trainer, model):
    """SIGKILL: its workers end, and the newest checkpoint leads to the bits of a quiet run."""
    out = trainer.new_folder()
    words = [*trainer.model(model), *FOREVER, "--batch", 96]
    options = ["--out", out, "--json", "--checkpoint-every", "10", "-n", 3]
    process = trainer.start(*words, *options)
    trainer.read_to(process, 35)
    wait_until(lambda: list((out / "checkpoint").glob("step-*")), what="a checkpoint")
    process.kill()
    process.communicate()
    wait_until(lambda: not trainer.starter.alive(), what="the workers ended")
    step = int(newest(out).name.removeprefix("step-"))
    total = ["--steps", step + 13]
    resumed = trainer.resume(out, "-n", 2, *total)
    assert_same(resumed, trainer.train(*words, *total, "-n", 1))
    hidden = list((out / "checkpoint").glob(".*"))
    assert not hidden, "what the interrupted save has left"


def test_run_that_is_complete(trainer):
    """Going on with it changes nothing."""
    whole = trainer.train(*trainer.model("dlrm"), "--steps", 12, "--batch", 96, "-n", 2)
    lines = curve(whole.folder, evaluations=False)
    assert trainer.resume(whole.folder, "-n", 3).digests() == whole.digests()
    assert curve(whole.folder, evaluations=False) == lines


# The ledger


PLACES = re.compile(r"^lockstep\S*: step \d+: places (\d+) to (\d+) of epoch (\d+)$", re.M)


def ledger(text):
    """{epoch: how often each place was trained} from the log of a run."""
    found = {}
    for first, end, epoch in PLACES.findall(text):
        for place in range(int(first), int(end)):
            counts = found.setdefault(int(epoch), {})
            counts[place] = counts.get(place, 0) + 1
    return found


@pytest.mark.parametrize("batch, shards", [(96, 8), (100, 8), (7, 5), (1005, 3)])
def test_every_sample_once_an_epoch(trainer, batch, shards):
    """Stopped and resumed with other numbers of workers, in the middle of an epoch."""
    log = {"LOCKSTEP_LOG": "debug"}
    per_epoch = -(-1005 // batch)
    total = 2 * per_epoch
    cuts = sorted({max(1, total // 3), max(1, 2 * total // 3), total})
    words = ["mlp", *settings("model.hidden=8", "data.samples=1005"), "--schedule", "const"]
    words += ["--warmup", "0", "--batch", batch, "--shards", shards, *BRIEF, "--quiet"]
    out, text = trainer.new_folder(), ""
    for number, (cut, workers) in enumerate(zip(cuts, (3, 1, 2))):
        go_on = ["--resume", out] if number else [*words, "--out", out]
        done = trainer.run(*go_on, "--steps", cut, "-n", workers, env=log)
        assert done.returncode == 0, done
        text += done.stderr
    assert ledger(text) == {epoch: dict.fromkeys(range(1005), 1) for epoch in (0, 1)}


def test_every_sample_leaves_its_trace(trainer, tmp_path):
    """Each line of the data has a row of its own in the tables: as many rows have changed after
    an epoch as lines were to train on, and no place came twice."""
    lines, held = 239, 23
    data = write_criteo(tmp_path / "clicks.tsv", lines)
    words = ["dlrm", "--data", f"criteo:{data}", "--batch", 50, "--shards", 8, "--epochs", 1]
    words += settings("model.rows=20011", "model.width=4", "model.bottom=32", "model.top=64")
    words += ["--optimizer", "sgd", *settings("optimizer.momentum=0", "optimizer.decay=0"), *BRIEF]
    before = trainer.train(*words, "--lr", "1e-30", "-n", 1)
    out = trainer.new_folder()
    log = {"LOCKSTEP_LOG": "debug"}
    done = trainer.run(*words, "--lr", "0.01", "-n", 3, "--quiet", "--out", out, env=log)
    assert ledger(done.stderr) == {0: dict.fromkeys(range(lines - held), 1)}
    old, new = (read_tensors(newest(f) / "model.safetensors") for f in (before.folder, out))
    moved = [
        len({i // 4 for i, (a, b) in enumerate(zip(old[name], new[name])) if a != b})
        for name in old
        if name.startswith("emb_l")
    ]
    assert len(moved) == 26
    assert max(moved) == lines - held  # two lines may share a row of one table, but not of all


# The start


@pytest.mark.alone
def test_start_is_quick(lockstep, leftovers):
    """To the end of the first step of mlp with two workers: a few times what any command takes."""
    words = ["train", "mlp", "--json", "--steps", "1", "-n", "2", *settings("eval.batches=1")]
    trivial, first = [], []
    for _ in range(10):
        begin = time.monotonic()
        subprocess.run([lockstep, "version"], capture_output=True, check=True)
        trivial.append(time.monotonic() - begin)
        begin = time.monotonic()
        process = leftovers.start(lockstep, *words)
        step = json.loads(process.stdout.readline())
        first.append(time.monotonic() - begin)
        leftovers.finish(process)
        assert step["step"] == 1
    print(f"start to first step {1e3 * min(first):.1f} ms, version {1e3 * min(trivial):.1f} ms")
    assert min(first) < 20 * min(trivial) + step["step_s"]
