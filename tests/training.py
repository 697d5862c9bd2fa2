"""What the tests of `lockstep train` share: small models, data that is made here, runs and curves.

The models are small, but have all that could make results depend on the number of workers: batch
norm and augmentation (resnet), dropout (gpt), tables of which a step touches few rows (dlrm). No
batch size divides the data: the last batch of an epoch has fewer samples than there are shards.
"""

import json
import os
import pathlib
import random
import struct

from conftest import children, read_proc

SAMPLES = 1005  # 45 left over by batches of 96, 5 by batches of 100


def settings(*assignments):
    return [word for assignment in assignments for word in ("--set", assignment)]


MODELS = {
    "mlp": ["mlp", *settings("model.hidden=48,32", f"data.samples={SAMPLES}")],
    "resnet": ["resnet:20", *settings("model.blocks=1,1", "model.width=8", "data.augment=yes")],
    "gpt": [
        "gpt:nano",
        *settings("model.layers=2", "model.heads=2", "model.dim=32", "model.context=16"),
        *settings("model.dropout=0.1", f"data.samples={SAMPLES}"),
    ],
    "dlrm": [
        "dlrm",
        *settings("model.tables=6", "model.rows=300", "model.bottom=32", "model.top=32"),
        *settings(f"data.samples={SAMPLES}"),  # and sgd with momentum, as is usual for it
    ],
}
BRIEF = ["--eval-every", "0", *settings("eval.batches=1")]  # held-out data at the end, shortly


def write_idx(folder, count=SAMPLES + 112, side=12, seed=1):
    """An MNIST-like folder of `count` images, of which a tenth will be held out: 1005 are left."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    classes = [[draw.randrange(256) for _ in range(side * side)] for _ in range(10)]
    labels = [draw.randrange(10) for _ in range(count)]
    images = b"".join(
        bytes((3 * pixel + draw.randrange(256)) // 4 for pixel in classes[label])
        for label in labels
    )
    head = struct.pack(">IIII", 0x803, count, side, side)
    (folder / "train-images-idx3-ubyte").write_bytes(head + images)
    head = struct.pack(">II", 0x801, count)
    (folder / "train-labels-idx1-ubyte").write_bytes(head + bytes(labels))
    return folder


def write_cifar(folder, count=60, seed=1):
    """CIFAR-10 in its binary version: a label and 3 x 32 x 32 bytes a record."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(1, 6):
        records = [bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(count)]
        (folder / f"data_batch_{part}.bin").write_bytes(b"".join(records))
    return folder


def criteo_line(number):
    """A line whose categories are those of no other line."""
    dense = "\t".join(str(number * k % 50) for k in range(13))
    categories = "\t".join(f"{number * 64 + k:08x}" for k in range(26))
    return f"{number % 2}\t{dense}\t{categories}\n"


def write_criteo(path, count):
    path.write_text("".join(map(criteo_line, range(count))))
    return path


def deciding(line):
    """A line of metrics without what may differ between two runs that are the same."""
    fact = json.loads(line)
    for key in ("samples_per_s", "step_s", "wait_share", "workers", "eval_s"):
        fact.pop(key, None)
    return fact


def curve(folder, evaluations=True):
    """What metrics.jsonl says of the result."""
    facts = map(deciding, (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())
    return [fact for fact in facts if evaluations or "loss" in fact]


def workers_of(folder):
    """How many workers did each step of a run, in order."""
    path = folder / "metrics.jsonl"
    lines = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    return [line["workers"] for line in lines if "workers" in line]


def newest(folder):
    """The newest checkpoint of a run."""
    return max((pathlib.Path(folder) / "checkpoint").glob("step-*"))


def read_tensors(path):
    """{name: list of floats} of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + size + begin)
    return found


class Result:
    """The end of a run that went well: its last line, and what it left."""

    def __init__(self, last, folder):
        self.folder = folder
        self.step, self.loss = last["step"], last["loss"]
        self.weights, self.state = last["sha256"], last["state_sha256"]

    def digests(self):
        return self.weights, self.state


class Trainer:
    """Runs `lockstep train`, each time with a run directory of its own unless one is given."""

    def __init__(self, lockstep, starter, folder):
        self.lockstep = lockstep
        self.starter = starter
        self.folder = folder
        self.count = 0

    def model(self, name):
        """The words for one of MODELS."""
        if name != "resnet":
            return MODELS[name]
        folder = self.folder / "idx"
        return [*MODELS[name], "--data", f"idx:{folder if folder.exists() else write_idx(folder)}"]

    def new_folder(self):
        self.count += 1
        return self.folder / f"run-{self.count}"

    def start(self, *words, **options):
        return self.starter.start(self.lockstep, "train", *words, **options)

    def run(self, *words, **options):
        return self.starter.run(self.lockstep, "train", *words, **options)

    def train(self, *words, **options):
        """A run to its end, which must be a good one: a Result."""
        out = self.new_folder()
        return self.finish(self.start(*words, "--out", out, "--json", **options), out)

    def resume(self, folder, *words, **options):
        """The same for a run that goes on."""
        return self.finish(self.start("--resume", folder, "--json", *words, **options), folder)

    def finish(self, process, folder):
        done = self.starter.finish(process)
        assert (done.returncode, done.stderr) == (0, ""), done
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["done"]
        result = Result(last, folder)
        state = json.loads((newest(folder) / "state.json").read_text())
        assert (state["step"], state["weights_sha256"]) == (result.step, result.weights)
        assert state["state_sha256"] == result.state
        return result

    def read_to(self, process, step):
        """Waits until a run that prints objects has done this step."""
        for line in process.stdout:
            if json.loads(line).get("step", 0) >= step:
                return
        raise AssertionError(f"it ended before step {step}: {process.stderr.read()}")

    def workers(self, launcher):
        """{place: pid} of a run's workers on this host."""
        found = {}
        for pid in children(launcher.pid):
            for entry in read_proc(pid, "environ").split(b"\0"):
                if entry.startswith(b"LOCKSTEP_LOCAL_RANK="):
                    found[int(entry.partition(b"=")[2])] = pid
        return found


def is_root():
    return os.geteuid() == 0
