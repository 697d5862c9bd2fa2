"""aarch64 under emulation: the weights of this machine, bit for bit.

LOCKSTEP_BUILD_AARCH64 names a build that scripts/cross-aarch64 has made possible (scripts/test
makes one, unless it is to be quick). The emulator shows what the program computes, not how fast;
and it runs on a machine that keeps the order of stores, so that a missing barrier would not show.
"""

import json
import os
import pathlib
import re

import pytest
from training import settings, write_cifar

PATIENCE = 300  # the emulator is about a hundred times slower
BRIEF = ["--eval-every", 0, *settings("eval.batches=1")]
RUNS = {
    "mlp": ["mlp", "--steps", 3, "--batch", 8],
    "resnet": ["resnet:20", "--steps", 2, "--batch", 4, "--data", "cifar:photos",
               *settings("data.augment=yes")],
    "gpt": ["gpt:nano", "--steps", 2, "--batch", 4, *settings("model.dropout=0.1")],
    "dlrm": ["dlrm", "--steps", 3, "--batch", 16],
}
DONE = re.compile(r"^done step=\d+ loss=\S+ sha256=[0-9a-f]{64}$", re.MULTILINE)


def last_line(done):
    assert done.returncode == 0, done.stderr
    return DONE.search(done.stdout)[0]


@pytest.fixture
def emulated():
    """The words that run the emulated command."""
    if not (build := os.environ.get("LOCKSTEP_BUILD_AARCH64")):
        pytest.skip("LOCKSTEP_BUILD_AARCH64 names no build for aarch64")
    build = pathlib.Path(build).resolve()
    return [build / "tests" / "programs" / "emulate", build / "lockstep"]


@pytest.fixture
def run(leftovers):
    """run(words..., isa=) runs a command that takes part in an emulated test to its end."""

    def run(*words, isa="", **options):
        # The emulator pays for address space: not all of the machine's memory for each rank.
        env = {"LOCKSTEP_HEAP": "256M", "LOCKSTEP_ISA": isa}
        return leftovers.run(*words, env=env, timeout=PATIENCE, **options)

    return run


@pytest.mark.parametrize("model, isa", [*((m, "neon") for m in RUNS), ("dlrm", "plain")])
def test_the_same_weights(lockstep, emulated, run, tmp_path, model, isa):
    write_cifar(tmp_path / "photos")
    words = ["train", *RUNS[model], *BRIEF]
    here = last_line(run(lockstep, *words, "-n", 1, cwd=tmp_path))
    assert last_line(run(*emulated, *words, "-n", 2, isa=isa, cwd=tmp_path)) == here


def test_hosts_of_both_kinds(lockstep, emulated, leftovers, run, tmp_path):
    """A host of this machine and an emulated one train together, and compare their states."""
    key = tmp_path / "key"  # made by the listener
    words = ["train", *RUNS["dlrm"], *BRIEF]
    alone = last_line(run(lockstep, *words, "-n", 1))
    meet = ["--listen", "127.0.0.1:0", "--hosts", 2, "--key-file", key, "--check-every", 1]
    first = leftovers.start(lockstep, *words, "-n", 1, *meet)
    lines = iter(first.stderr.readline, "")
    address = next(m[1] for m in (re.search(r"listening on (\S+)$", line) for line in lines) if m)
    joined = run(*emulated, "join", address, "-n", 1, "--key-file", key)
    assert joined.returncode == 0, joined.stderr
    assert last_line(leftovers.finish(first)) == alone


def test_what_is_said_of_it(emulated, run):
    done = run(*emulated, "info", "--json")
    assert done.returncode == 0, done.stderr
    (cpu,) = (device for device in json.loads(done.stdout)["devices"] if device["name"] == "cpu")
    assert cpu["usable"] and cpu["why"].startswith("kernels for neon")
    assert "emulation only" in cpu["why"]
