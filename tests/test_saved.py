"""What can be done with a finished run: lockstep eval, generate, predict, hash."""

import gzip
import hashlib
import json
import math
import os
import random
import shutil
import struct
import subprocess

import pytest
from conftest import BUILD, Starter

SENTENCE = "the quick brown fox jumps over the lazy dog. "
TINY_GPT = ("model.layers=2", "model.dim=64", "model.heads=2", "model.context=44")
SIDE, CLASSES = 8, 4


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def train(folder, *words):
    """Trains to the end, and returns the last line as a dictionary."""
    starter = Starter()
    done = starter.run(BUILD / "lockstep", "train", *words, "--out", folder, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    line = done.stdout.splitlines()[-1]
    assert line.startswith("done ")
    return dict(word.split("=") for word in line.split()[1:])


def write_idx(folder, part, count, seed):
    """Images with one bright quarter, which is their class; returns the classes."""
    draws = random.Random(seed)
    labels = [draws.randrange(CLASSES) for _ in range(count)]
    images = bytearray()
    for label in labels:
        for y in range(SIDE):
            for x in range(SIDE):
                bright = (2 * y // SIDE) * 2 + 2 * x // SIDE == label
                images.append(draws.randrange(100) + 120 * bright)
    head = struct.pack(">IIII", 0x803, count, SIDE, SIDE)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(head + images)
    head = struct.pack(">II", 0x801, count)
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(head + bytes(labels))
    return labels


def write_npy(path, rows):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    values = b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + values)


def criteo_line(draws):
    label = draws.randrange(2)
    numbers = [str(draws.randrange(50)) for _ in range(13)]
    categories = [f"{draws.randrange(20) + 100 * label:x}" for _ in range(26)]
    return "\t".join([str(label), *numbers, *categories]) + "\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trained once for all tests: runs.mlp, runs.gpt, … and the last line of each, runs.done."""

    class Runs:
        root = tmp_path_factory.mktemp("runs")
        done = {}

    def add(name, *words):
        Runs.done[name] = train(Runs.root / name, *words)
        setattr(Runs, name, Runs.root / name)

    often = sets("eval.every=10", "checkpoint.every=10")
    add("synthetic", "mlp", "--steps", 30, "--batch", 100, "-n", 2, *often,
        *sets("model.hidden=16"))
    Runs.digits = Runs.root / "digits-data"
    Runs.digits.mkdir()
    write_idx(Runs.digits, "train", 400, 1)
    Runs.labels = write_idx(Runs.digits, "t10k", 50, 2)
    add("mlp", "mlp", "--data", f"idx:{Runs.digits}", "--steps", 60, "--batch", 32,
        *sets("model.hidden=32"))
    add("resnet", "resnet:20", "--data", f"idx:{Runs.digits}", "--steps", 6, "--batch", 12,
        *sets("model.width=4"))
    Runs.text = Runs.root / "text.txt"
    Runs.text.write_text(SENTENCE * 300)
    add("gpt", "gpt:nano", "--data", f"text:{Runs.text}", "--steps", 150, "--batch", 16,
        "--lr", "0.003", *sets(*TINY_GPT), *sets("eval.every=75", "checkpoint.every=75"))
    Runs.bytes_text = Runs.root / "bytes.txt"
    Runs.bytes_text.write_text("größer — " * 2000)
    add("bytes", "gpt:nano", "--data", f"text:{Runs.bytes_text}", "--steps", 100, "--batch", 16,
        "--lr", "0.003", *sets(*TINY_GPT, "data.letters=bytes", "eval.batches=2"))
    add("numbers", "gpt:nano", "--steps", 4, *sets(*TINY_GPT))
    Runs.clicks = Runs.root / "clicks.tsv"
    draws = random.Random(3)
    Runs.clicks.write_text("".join(criteo_line(draws) for _ in range(300)))
    add("dlrm", "dlrm", "--data", f"criteo:{Runs.clicks}", "--steps", 60, "--batch", 32,
        "--optimizer", "adam", "--lr", "0.01",
        *sets("model.rows=200", "model.width=4", "model.bottom=8,4", "model.top=8"))
    return Runs


@pytest.fixture
def run(lockstep, leftovers):
    """run(words...) runs `lockstep words...`, which must be well; returns what it printed."""

    def go(*words, **options):
        done = leftovers.run(lockstep, *words, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return go


@pytest.fixture
def refused(lockstep, leftovers):
    """refused(status, said, words...): one line of complaint that says so, and nothing else."""

    def go(status, said, *words):
        done = leftovers.run(lockstep, *words)
        assert (done.returncode, done.stdout) == (status, ""), done
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        if status == 2:
            assert done.stderr.endswith(f"see lockstep {words[0]} --help\n")

    return go


def evaluations(folder):
    """The lines of evaluation in metrics.jsonl, by step."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line for line in lines if "eval_loss" in line}


def contents(folder):
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*")}


# ---- eval


@pytest.mark.parametrize("name", ["synthetic", "mlp", "resnet", "gpt", "bytes", "dlrm"])
def test_eval_is_what_training_printed(run, runs, name):
    folder = getattr(runs, name)
    step, told = sorted(evaluations(folder).items())[-1]
    for n in (1, 2, 3):
        found = json.loads(run("eval", folder, "-n", n, "--json"))
        assert found["step"] == step
        assert found["loss"] == told["eval_loss"]  # to the last bit
        assert found["samples"] == told["eval_samples"]
        assert found.get("accuracy") == told.get("eval_accuracy")
        assert found["part"] == "held-out"
        assert found["sha256"] == runs.done[name]["sha256"]
        if found["model"] == "gpt":
            assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-14)
        else:
            assert "perplexity" not in found


def test_eval_of_a_checkpoint(run, runs):
    for step, told in evaluations(runs.synthetic).items():
        folder = runs.synthetic / "checkpoint" / f"step-{step:08}"
        line = run("eval", folder, "-n", 1)
        assert line.startswith(f"step={step} part=held-out samples={told['eval_samples']} ")
        assert f" loss={told['eval_loss']!r} accuracy={told['eval_accuracy']!r}\n" in line
        # also when it is named from inside of it, and with a slash at the end
        assert run("eval", ".", "-n", 1, cwd=folder) == line
        assert run("eval", f"{folder}/", "-n", 2) == line


def test_eval_of_other_parts_and_data(run, runs, tmp_path):
    before = contents(runs.mlp)
    held = json.loads(run("eval", runs.mlp, "--json"))
    trained = json.loads(run("eval", runs.mlp, "--train", "--json"))
    assert (held["samples"], trained["samples"]) == (50, 400)
    assert (held["part"], trained["part"]) == ("held-out", "train")
    assert held["accuracy"] > 0.9
    few = json.loads(run("eval", runs.mlp, "--train", "--batches", 2, "--json"))
    assert few["samples"] == 64
    all_of_it = json.loads(run("eval", runs.bytes, "--batches", 0, "--json"))
    assert all_of_it["samples"] > json.loads(run("eval", runs.bytes, "--json"))["samples"]
    # the same text at another place, and one that it cannot foresee
    copy = tmp_path / "copy.txt"
    copy.write_text(SENTENCE * 300)
    at_home = json.loads(run("eval", runs.gpt, "--json"))
    moved = json.loads(run("eval", runs.gpt, "--data", f"text:{copy}", "--json"))
    assert moved["loss"] == at_home["loss"]
    copy.write_text(SENTENCE[::-1] * 300)
    assert json.loads(run("eval", runs.gpt, "--data", f"text:{copy}", "--json"))["loss"] > 2
    assert contents(runs.mlp) == before  # nothing was written


def test_eval_refuses(refused, runs, tmp_path):
    refused(2, "of which run?", "eval")
    refused(2, "one run at a time", "eval", runs.mlp, runs.gpt)
    refused(2, "unknown option --fast", "eval", runs.mlp, "--fast")
    refused(2, "-n", "eval", runs.mlp, "-n", "0")
    refused(2, "--batches", "eval", runs.mlp, "--batches", "-1")
    refused(2, "'sound' is not one of", "eval", runs.mlp, "--data", "sound:x")
    for n in (1, 2):
        refused(1, "missing", "eval", tmp_path / "missing", "-n", n)
        refused(1, "nowhere", "eval", runs.gpt, "--data", f"text:{tmp_path}/nowhere", "-n", n)
    refused(1, "knows no letters", "eval", runs.numbers, "--data", f"text:{runs.text}")
    refused(1, "wants 'tokens'", "eval", runs.gpt, "--data", f"idx:{runs.digits}")


# ---- generate


def test_generate_goes_on(run, runs):
    """Greedily, it says the sentence that it has learned, for longer than its context."""
    text = run("generate", runs.gpt, "--prompt", "the quick", "--temperature", 0, "--tokens", 150)
    assert text == (SENTENCE * 4)[: 9 + 150] + "\n"


def test_generate_is_reproducible(run, runs):
    words = ("generate", runs.gpt, "--prompt", "fox ", "--tokens", 80, "--temperature", 1.5)
    first = run(*words)
    assert run(*words) == first and run(*words, "--seed", 1) == first
    others = {run(*words, "--seed", seed) for seed in (2, 3, 4)}
    assert len(others | {first}) == 4
    # no matter how fast the kernels are
    assert run(*words, env={"LOCKSTEP_ISA": "plain"}) == first
    # what was said given as the prompt, it goes on as it did
    begun = run(*words[:5], 30, "--temperature", 1.5)[:-1]
    assert first.startswith(begun)
    assert run(*words[:3], begun, "--tokens", 50, "--temperature", 1.5) == first


def test_generate_top_k(run, runs):
    words = ("generate", runs.gpt, "--prompt", "the lazy", "--tokens", 60)
    greedy = run(*words, "--temperature", 0)
    assert run(*words, "--temperature", 50, "--top-k", 1) == greedy
    assert run(*words, "--temperature", 50, "--top-k", 2) != greedy
    wide = run(*words, "--temperature", 50)
    assert run(*words, "--temperature", 50, "--top-k", 1000) == wide


def test_generate_json(run, runs):
    words = ("generate", runs.gpt, "--prompt", "the ", "--tokens", 20)
    found = json.loads(run(*words, "--json"))
    assert found["prompt"] == "the " and found["step"] == 150 and found["seed"] == 1
    assert run(*words) == found["prompt"] + found["text"] + "\n"
    letters = sorted(set(SENTENCE))
    assert "".join(letters[token] for token in found["tokens"]) == found["text"]


def test_generate_bytes(run, runs):
    """Whole characters only: the prompt may end inside of one."""
    words = ("generate", runs.bytes, "--temperature", 0, "--tokens")
    assert run(*words, 22, "--prompt", "grö").startswith("größer — größer ")
    assert run(*words, 1, "--prompt", "grö") == "grö\ufffd\n"
    assert run(*words, 2, "--prompt", "grö") == "größ\n"
    assert run(*words, 3, "--prompt", os.fsdecode(b"gr\xc3")) == "größ\n"
    found = json.loads(run(*words, 1, "--prompt", "grö", "--json"))
    assert (found["text"], found["tokens"]) == ("\ufffd", [0xC3])
    strange = json.loads(run(*words, 0, "--prompt", os.fsdecode(b"\xff\xe2\x80z"), "--json"))
    assert (strange["prompt"], strange["text"]) == ("\ufffd\ufffd\ufffdz", "")


def test_generate_streams(lockstep, leftovers, runs):
    """The text is there before the end, and a reader that goes away ends it."""
    process = leftovers.start(
        lockstep, "generate", runs.gpt, "--prompt", "the", "--tokens", 10**12, bufsize=0, text=False
    )
    read = b""
    while len(read) < 500:
        read += process.stdout.read(100)
    assert read.startswith(b"the") and process.poll() is None
    process.stdout.close()
    assert process.wait(10) != 0


def test_generate_numbers(run, refused, runs):
    text = run("generate", runs.numbers, "--prompt", "3, 1 64\n", "--tokens", 5)
    numbers = [int(word) for word in text.split()]
    assert numbers[:3] == [3, 1, 64] and len(numbers) == 8 and max(numbers) < 65
    wrong = {"3 x": "offset 2", "3 65": "below 65", "3 -1": "offset 2", " ": "empty"}
    for prompt, said in wrong.items():
        refused(1, said, "generate", runs.numbers, "--prompt", prompt)


def test_generate_refuses(refused, runs, tmp_path):
    refused(2, "from which run?", "generate", "--prompt", "x")
    refused(2, "--prompt", "generate", runs.gpt)
    refused(2, "empty", "generate", runs.gpt, "--prompt", "")
    refused(2, "--tokens", "generate", runs.gpt, "--prompt", "x", "--tokens", "some")
    refused(2, "--temperature", "generate", runs.gpt, "--prompt", "x", "--temperature", "-1")
    refused(2, "--temperature", "generate", runs.gpt, "--prompt", "x", "--temperature", "nan")
    refused(2, "--top-k", "generate", runs.gpt, "--prompt", "x", "--top-k", "0")
    refused(2, "one run", "generate", runs.gpt, runs.bytes, "--prompt", "x")
    refused(1, "missing", "generate", tmp_path / "missing", "--prompt", "x")
    refused(1, "this is a mlp", "generate", runs.mlp, "--prompt", "x")
    refused(1, "'Q' (U+0051)", "generate", runs.gpt, "--prompt", "the Quick")
    refused(1, "'é' (U+00E9)", "generate", runs.gpt, "--prompt", "thé")
    refused(1, "(U+000A), it is at offset 3", "generate", runs.gpt, "--prompt", "the\n")
    refused(1, "not UTF-8 at offset 2", "generate", runs.gpt, "--prompt", os.fsdecode(b"th\xff"))


# ---- predict


def predictions(text):
    return [(int(line.split()[0]), float(line.split()[1])) for line in text.splitlines()]


def test_predict_idx(run, runs, tmp_path):
    images = runs.digits / "t10k-images-idx3-ubyte"
    found = predictions(run("predict", runs.mlp, images))
    right = sum(told == label for (told, _), label in zip(found, runs.labels, strict=True))
    assert right / len(runs.labels) == json.loads(run("eval", runs.mlp, "--json"))["accuracy"]
    packed = tmp_path / "some.gz"
    packed.write_bytes(gzip.compress(images.read_bytes()))
    assert predictions(run("predict", runs.mlp, packed)) == found
    for line, (told, probability) in zip(
        run("predict", runs.mlp, packed, "--json").splitlines(), found, strict=True
    ):
        sample = json.loads(line)
        assert sample["class"] == told
        assert sample["probability"] == pytest.approx(probability, abs=1e-6)
        assert max(sample["probabilities"]) == sample["probability"]
        assert len(sample["probabilities"]) == CLASSES
        assert sum(sample["probabilities"]) == pytest.approx(1, abs=1e-12)


def test_predict_npy(run, refused, runs, tmp_path):
    images = (runs.digits / "t10k-images-idx3-ubyte").read_bytes()[16:]
    rows = [
        [byte * (2 / 255) - 1 for byte in images[i : i + SIDE * SIDE]]
        for i in range(0, len(images), SIDE * SIDE)
    ]
    path = tmp_path / "rows.npy"
    write_npy(path, rows)
    from_idx = predictions(run("predict", runs.mlp, runs.digits / "t10k-images-idx3-ubyte"))
    from_npy = predictions(run("predict", runs.mlp, path))
    assert [told for told, _ in from_npy] == [told for told, _ in from_idx]
    assert [p for _, p in from_npy] == pytest.approx([p for _, p in from_idx], abs=1e-4)
    assert len(predictions(run("predict", runs.resnet, path))) == len(rows)
    whole = path.read_bytes()
    for change, said in (
        (whole[:-1], "bytes of values"),
        (whole[:9], "ends inside of its header"),
        (whole.replace(b"<f4", b"<f8"), "'<f4'"),
        (whole.replace(b"False", b"True "), "fortran_order"),
        (whole.replace(b"(50, 64)", b"(64, 50)"), "50 values a sample, the model wants 64"),
        (whole.replace(b"(50, 64)", b"(3200,) "), "no shape"),
        (b"P6\n", "neither a .npy"),
    ):
        path.write_bytes(change)
        refused(1, said, "predict", runs.mlp, path)


def test_predict_clicks(run, runs):
    found = predictions(run("predict", runs.dlrm, runs.clicks))
    labels = [int(line[0]) for line in runs.clicks.read_text().splitlines()]
    right = [told == label for (told, _), label in zip(found, labels, strict=True)]
    held = json.loads(run("eval", runs.dlrm, "--json"))
    assert sum(right[-held["samples"] :]) / held["samples"] == held["accuracy"] > 0.8
    assert all(0.5 <= probability <= 1 for _, probability in found)


def test_predict_text(run, refused, runs, tmp_path):
    found = json.loads(run("predict", runs.gpt, runs.text, "--json"))
    assert found["tokens"] == 300 * len(SENTENCE) - 1
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-14)
    assert found["loss"] == pytest.approx(
        json.loads(run("eval", runs.gpt, "--train", "--json"))["loss"], rel=0.02
    )
    strange = tmp_path / "strange.txt"
    strange.write_text(SENTENCE[:30][::-1])
    assert json.loads(run("predict", runs.gpt, strange, "--json"))["loss"] > 2
    assert run("predict", runs.gpt, strange).startswith("tokens=29 loss=")
    strange.write_text("t")
    refused(1, "one token", "predict", runs.gpt, strange)
    strange.write_text("the Quick")
    refused(1, "'Q'", "predict", runs.gpt, strange)


def test_predict_refuses(refused, runs, tmp_path):
    refused(2, "by which run?", "predict")
    refused(2, "which file", "predict", runs.mlp)
    refused(2, "one file", "predict", runs.mlp, "a", "b")
    refused(2, "--all", "predict", runs.mlp, "a", "--all")
    refused(1, "no such file", "predict", runs.mlp, tmp_path / "nothing")
    refused(1, "is a folder", "predict", runs.mlp, runs.digits)
    images = runs.digits / "t10k-images-idx3-ubyte"
    cut = tmp_path / "cut"
    cut.write_bytes(images.read_bytes()[:-1])
    refused(1, "its header says", "predict", runs.mlp, cut)
    refused(1, "8 x 8 x 1 values, the model wants 784", "predict", runs.synthetic, images)
    refused(1, "expected", "predict", runs.dlrm, runs.text)


# ---- hash, and what is damaged


def test_hash_is_that_of_the_file_and_of_training(run, runs):
    for name, done in runs.done.items():
        folder = getattr(runs, name)
        newest = sorted((folder / "checkpoint").iterdir())[-1]
        weights = subprocess.run(
            ["sha256sum", newest / "model.safetensors"], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        assert run("hash", folder) == weights + "\n"
        assert weights == done["sha256"]
        state = json.loads((newest / "state.json").read_text())
        assert run("hash", folder, "--state") == state["state_sha256"] + "\n"
        optimizer = hashlib.sha256((newest / "optimizer.safetensors").read_bytes()).hexdigest()
        line = f"{weights} {optimizer} {done['step']}\n"
        assert state["state_sha256"] == hashlib.sha256(line.encode()).hexdigest()


@pytest.mark.parametrize("n", [1, 2])
def test_full_disk(lockstep, leftovers, runs, n):
    images = runs.digits / "t10k-images-idx3-ubyte"
    with open("/dev/full", "w", encoding="utf-8") as full:
        for words in (
            ("eval", runs.mlp, "-n", n),
            ("generate", runs.gpt, "--prompt", "the"),
            ("predict", runs.mlp, images),
        ):
            done = leftovers.run(lockstep, *words, stdout=full)
            assert done.returncode == 1
            assert "No space left" in done.stderr


def test_damaged(refused, runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs.gpt, folder)
    file = folder / "checkpoint" / "step-00000150" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    for words in (
        ("eval", folder, "-n", 2),
        ("generate", folder, "--prompt", "the"),
        ("predict", folder, runs.text),
        ("hash", folder),
    ):
        refused(1, "model.safetensors is damaged", *words)
        refused(1, "step-00000075 is whole", *words)
    (folder / "config.ini").unlink()
    refused(1, "config.ini", "eval", folder / "checkpoint" / "step-00000075")
    shutil.copy(runs.bytes / "config.ini", folder / "config.ini")
    refused(1, "transformer.wte.weight", "eval", folder / "checkpoint" / "step-00000075")


@pytest.mark.parametrize("command", ["eval", "generate", "predict", "hash"])
def test_help(run, command):
    text = run(command, "--help")
    assert text.startswith(f"usage: lockstep {command} DIR")
    assert run("help", command) == text
    assert max(map(len, text.splitlines())) <= 100
    assert f"  {command} " in run("--help")
