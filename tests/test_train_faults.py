"""lockstep train when something is wrong: input, files, disks, processes.

What is wrong is said in one clear line, the exit status is not 0, nothing half-written stays, and
the checkpoint before it is usable.
"""

import gzip
import os
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest
from conftest import wait_until
from training import BRIEF, Trainer, curve, is_root, newest, settings
from training import criteo_line, write_cifar, write_idx

FOREVER = ["--steps", "1000000000", "--schedule", "const", "--warmup", "0", *BRIEF]
CONST = ["--schedule", "const", "--warmup", "0", *BRIEF]
MLP = ["mlp", *settings("model.hidden=32", "data.samples=1005"), "--batch", "96", "--shards", "8"]
RANK = re.compile(r"^lockstep: rank \d+: exited with status [12] after ls_finalize\n", re.M)


@pytest.fixture
def trainer(lockstep, leftovers, tmp_path):
    return Trainer(lockstep, leftovers, tmp_path)


def refusal(done, *statuses):
    """The one line that a command says when it fails; the launcher may add which rank it was."""
    assert done.returncode in (statuses or (1, 2)), done
    said = RANK.sub("", done.stderr)
    assert said.count("\n") == 1 and said.startswith("lockstep"), done.stderr
    return said


# Words


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "which model?"),
        (["vgg"], "vgg"),
        (["gpt:huge"], "huge"),
        (["mlp", "gpt:nano"], "one model at a time"),
        (["mlp", "--speed"], "--speed"),
        (["mlp", "--batch"], "--batch needs a value"),
        (["mlp", "--batch", "0"], "train.batch"),
        (["mlp", "--batch", "ten"], "ten"),
        (["mlp", "--batch", "-5"], "-5"),
        (["mlp", "--lr", "nan"], "optimizer.lr"),
        (["mlp", "--lr", "0"], "optimizer.lr"),
        (["mlp", "--steps", "0", "--epochs", "0"], "train.epochs"),
        (["mlp", "--steps", "1e30"], "train.steps"),
        (["mlp", "--optimizer", "magic"], "magic"),
        (["mlp", "--schedule", "magic"], "magic"),
        (["mlp", "--seed", "x"], "train.seed"),
        (["mlp", "--set", "model.colour=3"], "colour"),
        (["mlp", "--set", "train.batsh=3"], "train.batch"),
        (["mlp", "--set", "batch=3"], "train.batch"),
        (["mlp", "--set", "nonsense"], "nonsense"),
        (["mlp", "--set", "model.hidden=many"], "many"),
        (["gpt:nano", "--set", "model.dim=33"], "33"),
        (["mlp", "--data", "punchcards:x"], "punchcards"),
        (["mlp", "--data", "idx"], "KIND:PATH"),
        (["mlp", "--data", "synthetic:x"], "synthetic"),
        (["gpt:nano", "--set", "data.augment=yes", "--data", "text:x"], "data.augment"),
        (["mlp", "--sync", "async"], "not available yet"),
        (["mlp", "--wire", "int8"], "not available yet"),
        (["mlp", "--threads", "2"], "not available yet"),
        (["mlp", "--transport", "pigeon"], "pigeon"),
        (["mlp", "--batch", "8", "--shards", "9"], "9 shards are more than the 8 samples"),
        (["mlp", "--shards", "2", "-n", "3"], "3 workers are more than the 2"),
        (["mlp", "--batch", "96", "--micro-batch", "13"], "train.micro_batch"),
        (["mlp", "-n", "many"], "many"),
        (["mlp", "--config", "/nonexistent.ini"], "/nonexistent.ini"),
        (["--resume", "/nonexistent"], "/nonexistent"),
        (["mlp", "--resume", "/nonexistent"], "--resume"),
        (["mlp", "--listen", "127.0.0.1:0"], "--hosts"),
        (["mlp", "--listen", "127.0.0.1:0", "--hosts", "2"], "--key-file"),
        (["mlp", "--join", "127.0.0.1:1", "--listen", "127.0.0.1:0"], "--join"),
    ],
    ids=lambda value: " ".join(value)[:40] or "nothing" if isinstance(value, list) else "",
)
def test_words(trainer, words, said):
    out = trainer.folder / "run"
    done = trainer.run(*([] if "--resume" in words else ["--out", out]), *words)
    assert done.stdout == ""
    assert said in refusal(done)
    assert not out.exists()


def test_help(trainer):
    done = trainer.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: lockstep train MODEL")
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    "text, said",
    [
        ("[train]\nbatch = 3\n", "model"),
        ("[model]\nname = mlp\n[train]\nbatch = many\n", "c.ini:4"),
        ("[model]\nname = mlp\n[train]\nbatsh = 3\n", "c.ini:4"),
        ("[model]\nname = mlp\n[fun]\nx = 3\n", "c.ini:3"),
        ("[model\n", "c.ini:1"),
        ("\0\1\2", "c.ini"),
        ("", "model"),
    ],
)
def test_configuration_files(trainer, text, said):
    file = trainer.folder / "c.ini"
    file.write_text(text)
    assert said in refusal(trainer.run("--config", file, "--steps", 2))


# Data


def truncate(path, by=1):
    path.write_bytes(path.read_bytes()[:-by])


def put(path, at, data):
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def idx_case(change):
    def make(folder):
        write_idx(folder / "data", count=200)
        change(folder / "data")
        return "resnet:20", f"idx:{folder / 'data'}"

    return make


def pack_badly(folder):
    images = folder / "train-images-idx3-ubyte"
    packed = bytearray(gzip.compress(images.read_bytes()))
    packed[len(packed) // 2] ^= 0xFF
    images.unlink()
    (folder / "train-images-idx3-ubyte.gz").write_bytes(packed)


def cifar_case(change):
    def make(folder):
        write_cifar(folder / "data")
        change(folder / "data")
        return "resnet:20", f"cifar:{folder / 'data'}"

    return make


def file_case(model, kind, content):
    def make(folder):
        path = folder / "data.bin"
        path.write_bytes(content)
        return model, f"{kind}:{path}"

    return make


def tokens(*values):
    return struct.pack(f"<{len(values)}H", *values)


LINES = "".join(map(criteo_line, range(300)))
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
BAD_DATA = {
    "idx: no folder": (lambda folder: ("mlp", f"idx:{folder / 'none'}"), "none"),
    "idx: a file": (file_case("mlp", "idx", b"x"), "data.bin is not a folder"),
    "idx: no labels": (idx_case(lambda d: (d / LABELS).unlink()), "there is no train-labels"),
    "idx: truncated": (idx_case(lambda d: truncate(d / IMAGES)), "its header says"),
    "idx: no header": (idx_case(lambda d: (d / IMAGES).write_bytes(b"\0" * 7)), "7 bytes"),
    "idx: wrong magic": (idx_case(lambda d: put(d / IMAGES, 3, b"\1")), "expected at offset 0"),
    "idx: counts differ": (
        idx_case(lambda d: (put(d / LABELS, 7, b"\xc7"), truncate(d / LABELS))),
        "199 labels",
    ),
    "idx: damaged .gz": (idx_case(pack_badly), IMAGES + ".gz"),
    "cifar: truncated": (cifar_case(lambda d: truncate(d / "data_batch_3.bin")), "records of 3073"),
    "cifar: a label of 10": (cifar_case(lambda d: put(d / "data_batch_2.bin", 0, b"\n")), "label"),
    "cifar: empty folder": (
        cifar_case(lambda d: [f.unlink() for f in d.iterdir()]),
        "data_batch_1.bin",
    ),
    "text: no file": (lambda folder: ("gpt:nano", f"text:{folder / 'none'}"), "no such file"),
    "text: empty": (file_case("gpt:nano", "text", b""), "data.bin"),
    "text: too short": (file_case("gpt:nano", "text", b"short"), "data.bin"),
    "text: no UTF-8": (file_case("gpt:nano", "text", b"abc\xff\xfe" * 3000), "byte ff at offset 3"),
    "tokens: half a token": (file_case("gpt:nano", "tokens", b"\0" * 20001), "data.bin"),
    "tokens: not in the vocabulary": (
        file_case("gpt:nano", "tokens", tokens(*([1, 2, 3] * 5000), 65, *([1] * 2000))),
        "data.bin",
    ),
    "tokens: empty": (file_case("gpt:nano", "tokens", b""), "data.bin"),
    "criteo: no tabs": (file_case("dlrm", "criteo", b"hello\n" * 100), "data.bin"),
    "criteo: a bad line": (
        file_case("dlrm", "criteo", (LINES + "1\tx\n" + LINES).encode()),
        "line 301",
    ),
    "criteo: another format": (file_case("dlrm", "criteo", bytes(range(256)) * 99), "data.bin"),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(trainer, case, workers):
    make, said = BAD_DATA[case]
    model, data = make(trainer.folder)
    small = {
        "mlp": settings("model.hidden=16"),
        "resnet:20": settings("model.blocks=1", "model.width=4"),
        "gpt:nano": settings("model.layers=1", "model.dim=16", "model.context=16"),
        "dlrm": settings("model.rows=100", "model.bottom=8", "model.top=8"),
    }[model]
    out = trainer.folder / "run"
    words = [model, "--data", data, *small, "--batch", 24, "--epochs", 1, "--out", out]
    done = trainer.run(*words, "-n", workers, "--quiet", *BRIEF)
    assert done.stdout == ""
    assert said in refusal(done)
    if out.exists():  # it came to light while training: there is a run, and no checkpoint of it
        assert "checkpoint" in refusal(trainer.run("--resume", out, "-n", workers))
        assert not (out / "checkpoint").exists()


@pytest.mark.parametrize("workers", [1, 3])
def test_batch_larger_than_the_data(trainer, workers):
    out = trainer.folder / "run"
    done = trainer.run(*MLP, "--batch", 1006, "--out", out, "-n", workers)
    assert "1006, and there are 1005 samples" in refusal(done, 2)
    assert not out.exists()


def test_data_of_another_shape(trainer):
    """The model was given another size than the images have."""
    data = write_idx(trainer.folder / "data", count=200)
    words = ["resnet:20", *settings("model.image=28"), "--data", f"idx:{data}", "-n", 2]
    said = refusal(trainer.run(*words, "--out", trainer.folder / "run"))
    assert "12" in said and "28" in said
    assert not (trainer.folder / "run").exists()


# Run directories and checkpoints


def test_out_that_holds_another_run(trainer):
    one = trainer.train(*MLP, "--steps", 5, "-n", 2)
    before = {f: f.read_bytes() for f in one.folder.rglob("*") if f.is_file()}
    done = trainer.run(*MLP, "--steps", 5, "--seed", 2, "--out", one.folder, "-n", 2)
    assert f"{one.folder} holds a run already (--resume {one.folder} goes on" in refusal(done)
    assert {f: f.read_bytes() for f in one.folder.rglob("*") if f.is_file()} == before


def test_out_that_holds_something_else(trainer):
    out = trainer.folder / "letters"
    out.mkdir()
    (out / "letter.txt").write_text("dear")
    assert "letter.txt" in refusal(trainer.run(*MLP, "--steps", 5, "--out", out, "-n", 2))
    assert [f.name for f in out.iterdir()] == ["letter.txt"]
    done = trainer.run(*MLP, "--steps", 5, "--out", out / "letter.txt", "-n", 2)
    assert "letter.txt is not a folder" in refusal(done)


def test_folder_that_was_there_stays(trainer):
    """A run that cannot begin takes only its own things away."""
    out = trainer.folder / "run"
    out.mkdir()
    (out / "log.txt").write_text("what the shell wrote\n")
    refusal(trainer.run(*MLP, "--batch", 5000, "--out", out, "-n", 2))
    assert [f.name for f in out.iterdir()] == ["log.txt"]
    (out / "log.txt").unlink()
    refusal(trainer.run(*MLP, "--batch", 5000, "--out", out, "-n", 2))
    assert out.exists() and not list(out.iterdir())


@pytest.mark.parametrize("workers", [1, 3])
def test_run_that_is_running(trainer, workers):
    """Neither its folder nor its checkpoints are for a second run."""
    out = trainer.folder / "run"
    process = trainer.start(*MLP, *FOREVER, "--out", out, "-n", 2, "--checkpoint-every", 100)
    wait_until(lambda: list(out.glob("checkpoint/step-*")), what="a checkpoint")
    for words in (["--resume", out], ["--resume", newest(out)]):
        said = refusal(trainer.run(*words, "-n", workers))
        assert f"another run writes to {out}, process" in said or "step-" in said, said
    assert f"{out} holds a run already" in refusal(trainer.run(*MLP, "--out", out, "-n", workers))
    process.send_signal(signal.SIGINT)
    stopped = trainer.starter.finish(process)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    step = int(newest(out).name.removeprefix("step-")) + 5
    again = trainer.resume(out, "--steps", step)
    quiet = trainer.train(*MLP, *CONST, "--steps", step, "-n", 1)
    assert again.digests() == quiet.digests()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--lr", "0.3"], "optimizer.lr"),
        (["--batch", "48"], "train.batch is 96 in the run and 48 here"),
        (["--shards", "4"], "train.shards"),
        (["--seed", "5"], "train.seed"),
        (["--optimizer", "adam"], "adam"),
        (["--set", "model.hidden=33"], "model.hidden"),
        (["--set", "data.samples=1006"], "data.samples"),
        (["--micro-batch", "3"], "train.micro_batch"),
        (["--data", "idx:/tmp"], "idx"),
        (["--schedule", "const"], "in the run"),
        (["--steps", "99"], "train.steps"),
        (["mlp"], "--resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_resume_that_contradicts_the_run(trainer, words, said):
    one = trainer.train(*MLP, *BRIEF, "--steps", 20, "-n", 1)  # the rate follows a cosine
    assert said in refusal(trainer.run("--resume", one.folder, "-n", 2, *words))
    assert trainer.resume(one.folder, "-n", 2).digests() == one.digests()


def test_no_checkpoint_yet(trainer):
    out = trainer.folder / "run"
    process = trainer.start(*MLP, *FOREVER, "--out", out, "-n", 2, "--checkpoint-every", 0)
    wait_until(lambda: (out / "config.ini").exists())
    process.kill()
    process.communicate()
    wait_until(lambda: not trainer.starter.alive())
    for workers in (1, 3):
        assert f"{out}/checkpoint" in refusal(trainer.run("--resume", out, "-n", workers))


FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


@pytest.fixture
def two_checkpoints(trainer):
    """A run of 30 steps with checkpoints of steps 15 and 30."""
    words = [*MLP, *CONST, "--optimizer", "adamw", "--steps", 30, "--checkpoint-every", 15]
    return trainer.train(*words, "-n", 2)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damaged_checkpoint(trainer, two_checkpoints, name, damage):
    """It is named, and so is the older one, which leads to the same bits."""
    run = two_checkpoints
    file = newest(run.folder) / name
    if damage == "flip":
        middle = file.stat().st_size // 2
        put(file, middle, bytes([file.read_bytes()[middle] ^ 4]))
    elif damage == "truncate":
        truncate(file)
    else:
        file.unlink()
    older = run.folder / "checkpoint" / "step-00000015"
    for workers in (1, 3):
        said = refusal(trainer.run("--resume", run.folder, "-n", workers))
        assert str(file) in said and f"{older} is whole" in said
    again = trainer.finish(trainer.start("--resume", older, "--json", "-n", 3), run.folder)
    assert again.digests() == run.digests()
    assert [fact["step"] for fact in curve(again.folder, evaluations=False)] == list(range(1, 31))


@pytest.mark.parametrize("at", [0.0, 0.3, 0.7, 1.0])
def test_damaged_configuration(trainer, two_checkpoints, at):
    """Garbage in config.ini is told by its line, or is a difference; nothing crashes."""
    file = two_checkpoints.folder / "config.ini"
    put(file, int(at * (file.stat().st_size - 9)), b"\n=\xff[\0\n]=")
    done = trainer.run("--resume", two_checkpoints.folder, "-n", 2)
    assert "config.ini" in refusal(done)


@pytest.fixture
def disk(tmp_path):
    """disk(bytes) mounts a small disk, and again with another size; needs root."""
    if not is_root():
        pytest.skip("mounting needs root")
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size, again=False):
        options = f"{'remount,' if again else ''}size={size}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
        return folder

    yield mount
    subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


@pytest.mark.parametrize("workers", [1, 3])
def test_full_disk(trainer, disk, workers):
    """There is room for two checkpoints: training goes on without the others, the last is an error,
    and the second one leads to the bits of a run that had room."""
    words = [*MLP, *CONST, "--steps", 100, *settings("checkpoint.keep=9", "run.tensorboard=no")]
    one = trainer.train(*words, "-n", 1)
    size = sum(file.stat().st_size for file in newest(one.folder).iterdir())
    folder = disk(int(2.7 * size))
    out = folder / "run"
    options = ["--checkpoint-every", 20, "--out", out, "--quiet", "-n", workers]
    done = trainer.run(*words, *options)
    assert done.returncode == 1, done
    assert done.stdout == ""
    lines = RANK.sub("", done.stderr).splitlines()
    full = [line for line in lines if "metrics.jsonl" in line]  # only if it was just then
    assert len(full) <= 1 and all("training goes on" in line for line in full)
    lines = [line for line in lines if line not in full]
    assert sum("no checkpoint: " in line for line in lines) == 2, done.stderr
    assert all("training goes on" in line for line in lines[:2])
    for words in ("No space left on device", "older checkpoints are as they were"):
        assert words in lines[2]
    assert len(lines) == 3
    found = sorted(f.name for f in (out / "checkpoint").iterdir())
    assert found == ["step-00000020", "step-00000040"]
    disk(20 * size, again=True)
    again = trainer.resume(out, "-n", 2)
    assert again.digests() == one.digests()
    assert curve(out) == curve(one.folder)


def test_disk_without_room_for_the_beginning(trainer, disk):
    folder = disk(4096)
    (folder / "filler").write_bytes(b"x" * 4096)
    said = refusal(trainer.run(*MLP, "--steps", 5, "--out", folder / "run", "-n", 2))
    assert "No space left on device" in said
    assert [f.name for f in folder.iterdir()] == ["filler"]


def test_read_only_folder(trainer, two_checkpoints):
    if not is_root():
        pytest.skip("mounting needs root")
    folder = two_checkpoints.folder
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        for words in (["--resume", folder], [*MLP, "--out", folder / "new"]):
            said = refusal(trainer.run(*words, "--steps", 40, "-n", 2))
            assert "Read-only file system" in said and str(folder) in said
    finally:
        subprocess.run(["umount", folder], check=True)
    assert trainer.resume(folder, "--steps", 40).step == 40


# In the middle of a run


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("model", ["mlp", "resnet", "gpt", "dlrm"])
def test_loss_that_is_no_number(trainer, model, workers):
    out = trainer.folder / "run"
    words = [*trainer.model(model), "--batch", 96, "--lr", "1e25", *CONST, "--optimizer", "sgd"]
    words += ["--steps", 200, "--checkpoint-every", 1, "--out", out, "--quiet", "-n", workers]
    done = trainer.run(*words)
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert re.search(r"the loss is -?(nan|inf)", done.stderr) and "learning rate" in done.stderr


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_worker(trainer, victim):
    """Without restarts or survivors it ends; what was saved leads to the bits of a quiet run."""
    out = trainer.folder / "run"
    options = ["--out", out, "--json", "--checkpoint-every", 20, "-n", 3, "--restarts", 0]
    process = trainer.start(*MLP, *FOREVER, *options)
    trainer.read_to(process, 30)
    wait_until(lambda: list(out.glob("checkpoint/step-*")), what="a checkpoint")
    workers = trainer.workers(process)
    assert set(workers) == {0, 1, 2}
    os.kill(workers[victim], signal.SIGKILL)
    wait_until(lambda: victim not in trainer.workers(process), what="its end")
    for pid in trainer.workers(process).values():
        os.kill(pid, signal.SIGKILL)
    done = trainer.starter.finish(process)
    assert done.returncode == 128 + signal.SIGKILL
    for place in workers:
        told = rf"worker {place} .*killed by signal 9 \(SIGKILL\)"
        assert re.search(told, done.stderr), done.stderr
    assert "no worker is left on this host" in done.stderr
    step = int(newest(out).name.removeprefix("step-")) + 5
    again = trainer.resume(out, "-n", 2, "--steps", step)
    quiet = trainer.train(*MLP, *CONST, "--steps", step, "-n", 1)
    assert again.digests() == quiet.digests()
    assert curve(out) == curve(quiet.folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_second_interrupt_ends_it_at_once(trainer, workers):
    """The first waits for the end of the step, which takes very long here."""
    out = trainer.folder / "run"
    words = ["gpt:nano", "--batch", 20000, "--micro-batch", 4, "--shards", 2, *FOREVER]
    process = trainer.start(*words, "-n", workers, "--out", out, "--json")
    wait_until(lambda: (out / "config.ini").exists(), what="the run has begun")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "the first one does not end it"
    process.send_signal(signal.SIGINT)
    done = trainer.starter.finish(process)
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGKILL), done
    assert done.stdout == "", "it has waited for the step"


def test_checkpoints_are_kept_as_asked(trainer):
    words = [*MLP, *CONST, "--steps", 50, "--checkpoint-every", 10, "--eval-every", 10]
    one = trainer.train(*words, *settings("checkpoint.keep=2"), "-n", 2)
    names = sorted(f.name for f in (one.folder / "checkpoint").iterdir())
    losses = {f["step"]: f["eval_loss"] for f in curve(one.folder) if "eval_loss" in f}
    best = min(losses, key=losses.get)
    assert names == sorted({f"step-{step:08}" for step in {40, 50, best}})


def test_moved_run(trainer, two_checkpoints):
    """A run directory may be moved, and its copy goes on alone."""
    copy = trainer.folder / "elsewhere" / "copy"
    shutil.copytree(two_checkpoints.folder, copy)
    moved = trainer.resume(copy, "-n", 1, "--steps", 40)
    stayed = trainer.resume(two_checkpoints.folder, "-n", 3, "--steps", 40)
    assert stayed.digests() == moved.digests()
