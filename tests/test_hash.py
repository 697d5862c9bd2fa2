"""lockstep hash: digests of a checkpoint that this file writes by hand, as the format says."""

import hashlib
import json
import struct

import pytest


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def safetensors(tensors):
    """Returns the bytes of a file with these {name: list of floats}."""
    header, data = {}, b""
    for name, values in sorted(tensors.items()):
        packed = struct.pack(f"<{len(values)}f", *values)
        offsets = [len(data), len(data) + len(packed)]
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": offsets}
        data += packed
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def state_json(step, model, optimizer):
    """Returns the bytes of state.json: the last line is a checksum of those before it."""
    whole = sha256(f"{sha256(model)} {sha256(optimizer)} {step}\n".encode())
    state = {
        "format": 1,
        "step": step,
        "epoch": 0,
        "seed": 1,
        "loss": 0.5,
        "eval_loss": None,
        "config_sha256": "0" * 64,
        "weights_sha256": sha256(model),
        "state_sha256": whole,
        "files": {
            "model.safetensors": {"bytes": len(model), "sha256": sha256(model)},
            "optimizer.safetensors": {"bytes": len(optimizer), "sha256": sha256(optimizer)},
        },
    }
    text = json.dumps(state, indent=2).removesuffix("\n}").encode()
    return text + f',\n  "checksum": "{sha256(text)}"\n}}\n'.encode(), whole


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of steps 10 and 20; run.weights and run.state are of the latter."""

    class Run:
        path = tmp_path / "run"

    for step in (10, 20):
        folder = Run.path / "checkpoint" / f"step-{step:08}"
        folder.mkdir(parents=True)
        model = safetensors({"0.weight": [1.0, step], "0.bias": [0.25]})
        optimizer = safetensors({"exp_avg.0.weight": [0.5, 0.5], "exp_avg.0.bias": [step]})
        text, whole = state_json(step, model, optimizer)
        (folder / "model.safetensors").write_bytes(model)
        (folder / "optimizer.safetensors").write_bytes(optimizer)
        (folder / "state.json").write_bytes(text)
        Run.folder, Run.weights, Run.state = folder, sha256(model), whole
    return Run


@pytest.fixture
def hash_of(lockstep, leftovers):
    """hash_of(words...) runs `lockstep hash words...` to its end."""
    return lambda *words: leftovers.run(lockstep, "hash", *words)


def test_newest(hash_of, run):
    done = hash_of(run.path)
    assert (done.returncode, done.stdout, done.stderr) == (0, run.weights + "\n", "")
    assert hash_of(run.path, "--state").stdout == run.state + "\n"
    assert hash_of("--state", run.folder).stdout == run.state + "\n"
    older = run.path / "checkpoint" / "step-00000010"
    assert hash_of(older).stdout == sha256((older / "model.safetensors").read_bytes()) + "\n"


def test_half_written_is_not_seen(hash_of, run):
    hidden = run.path / "checkpoint" / ".step-00000030.tmp"
    hidden.mkdir()
    (hidden / "model.safetensors").write_bytes(b"half")
    assert hash_of(run.path).stdout == run.weights + "\n"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_damage(hash_of, run, name):
    file = run.folder / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    done = hash_of(run.path)
    assert (done.returncode, done.stdout) == (1, "")
    assert name in done.stderr and "damaged" in done.stderr
    assert "step-00000010 is whole" in done.stderr
    assert done.stderr.count("\n") == 1


def test_refused(hash_of, tmp_path):
    done = hash_of(tmp_path / "missing")
    assert (done.returncode, done.stdout) == (1, "")
    assert "missing" in done.stderr
    (tmp_path / "empty").mkdir()
    assert hash_of(tmp_path / "empty").returncode == 1
    for words in ([], ["a", "b"], ["--what", "a"]):
        done = hash_of(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith("see lockstep hash --help\n")


def test_help(hash_of):
    done = hash_of("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: lockstep hash DIR")
    assert max(map(len, done.stdout.splitlines())) <= 100
