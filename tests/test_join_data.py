"""Hosts that join a run without its data: others lend them samples, and the bits are the same.

A host without the data is a launcher in another folder: the run names its data by a relative path.
"""

import json
import os
import re
import shutil
import signal

import pytest
from conftest import TIMEOUT, wait_until
from test_train_hosts import assert_same
from training import (
    Result, Trainer, settings, workers_of, write_cifar, write_criteo, write_idx,
)  # fmt: skip

WORDS = ["--shards", "8", "--batch", "96", "--schedule", "const", "--warmup", "0"]
WORDS += ["--eval-every", "50", *settings("eval.batches=2")]


def write_text(path, words="to be or not to be, that is the question; "):
    path.write_text("".join(f"{number} {words}" for number in range(500)))
    return path


GPT = [
    "gpt:nano", "--data", "text:book.txt",
    *settings("model.layers=1", "model.heads=2", "model.dim=32", "model.context=16"),
    *settings("model.dropout=0.1"), *WORDS,
]  # fmt: skip
KINDS = {
    "text": [*GPT, "--steps", 400],
    "idx": ["mlp", "--data", "idx:digits", *settings("model.hidden=48,32"), *WORDS,
            "--steps", 2500],
    "cifar": ["resnet:20", "--data", "cifar:images", "--steps", 60,
              *settings("model.blocks=1,1", "model.width=4", "data.augment=yes"), *WORDS],
    "criteo": ["dlrm", "--data", "criteo:clicks.txt", "--steps", 1500,
               *settings("model.rows=300", "model.bottom=32", "model.top=32"), *WORDS],
}  # fmt: skip


class Lenders(Trainer):
    """A Trainer whose data lies in one folder, and hosts that are started in another."""

    def __init__(self, lockstep, starter, folder):
        super().__init__(lockstep, starter, folder)
        self.home, self.away = folder / "home", folder / "away"
        for place in (self.home, self.away):
            place.mkdir()
        self.meet = ["--key-file", folder / "key", "--json"]

    def furnish(self, kind, place):
        match kind:
            case "text":
                write_text(place / "book.txt")
            case "idx":
                write_idx(place / "digits")
            case "cifar":
                write_cifar(place / "images", 70)
            case "criteo":
                write_criteo(place / "clicks.txt", 1111)

    def listen(self, workers, *words, hosts=1):
        """The launcher of the host with the data, where it listens, and the run's folder."""
        out = self.new_folder()
        process = self.start(
            *words, *self.meet, "--out", out, "-n", workers, "--listen", "127.0.0.1:0",
            "--hosts", hosts, cwd=self.home,
        )  # fmt: skip
        for line in process.stderr:
            if match := re.search(r"listening on (\S+)$", line):
                return process, match[1], out
        raise AssertionError("it does not listen")

    def join(self, workers, address, *words):
        command = [self.lockstep, "join", address, "-n", workers, *self.meet, *words]
        return self.starter.start(*command, cwd=self.away)

    def finish_all(self, *processes):
        return [self.starter.finish(process, TIMEOUT) for process in processes]

    def alone(self, *words):
        """What the run comes to when nobody disturbs it."""
        return self.train(*words, "-n", 1, cwd=self.home)


@pytest.fixture
def lenders(lockstep, leftovers, tmp_path):
    return Lenders(lockstep, leftovers, tmp_path)


def wait_for_workers(out, count):
    """For two steps: whoever joins has the state when its first one ends, but not if the only one
    who had it is killed as soon as that is written down."""
    wait_until(lambda: workers_of(out).count(count) >= 2, 30, f"{count} workers")


def result_of(done, out):
    return Result(json.loads(done.stdout.splitlines()[-1]), out)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_lent(lenders, kind):
    """All kinds of fields; batches that do not divide; evaluation by those who have the data."""
    lenders.furnish(kind, lenders.home)
    words = KINDS[kind]
    listener, address, out = lenders.listen(1, *words)
    lenders.read_to(listener, 3)
    joiner = lenders.join(2, address)
    wait_for_workers(out, 3)
    first, second = lenders.finish_all(listener, joiner)
    assert (first.returncode, second.returncode) == (0, 0), (first, second)
    assert second.stderr.count("no data here") == 1, second.stderr
    assert "the other workers lend theirs" in second.stderr
    assert_same(result_of(first, out), lenders.alone(*words))


def test_from_the_first_step_on(lenders):
    """More workers without data than with it; the last batch has fewer samples than workers."""
    lenders.furnish("text", lenders.home)
    words = [*GPT, "--batch", 100, "--steps", 80]
    listener, address, out = lenders.listen(2, *words, "--transport", "tcp", hosts=2)
    done = lenders.finish_all(listener, lenders.join(5, address))
    assert [one.returncode for one in done] == [0, 0], done
    assert set(workers_of(out)) == {7}
    assert_same(result_of(done[0], out), lenders.alone(*words))


def test_providers_are_killed(lenders):
    """One of two, and then the only one: it is waited for who follows it."""
    lenders.furnish("text", lenders.home)
    words = [*GPT, "--steps", 600]
    listener, address, out = lenders.listen(2, *words)
    lenders.read_to(listener, 3)
    joiner = lenders.join(2, address)
    wait_for_workers(out, 4)
    os.kill(lenders.workers(listener)[1], signal.SIGKILL)
    steps = len(workers_of(out))
    wait_until(lambda: 4 in workers_of(out)[steps + 5 :], 30, "four again")
    for pid in lenders.workers(listener).values():
        os.kill(pid, signal.SIGKILL)
    first, second = lenders.finish_all(listener, joiner)
    assert (first.returncode, second.returncode) == (0, 0), (first, second)
    assert first.stderr.count("killed by signal 9") == 3
    recorder = first if '"done"' in first.stdout else second  # whoever was worker 0 at the end
    assert_same(result_of(recorder, out), lenders.alone(*words))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_data_goes_away(lenders, end):
    """With its host: the others save what they have, say so, and it can be resumed."""
    lenders.furnish("text", lenders.home)
    words = [*GPT, "--steps"]
    listener, address, out = lenders.listen(1, *words, 1000000)
    lenders.read_to(listener, 3)
    count = 1 if end == signal.SIGTERM else 2  # more than half must be left when it is killed
    joiners = [lenders.join(1, address) for _ in range(count)]
    wait_for_workers(out, 1 + count)
    os.kill(listener.pid, end)
    _, *done = lenders.finish_all(listener, *joiners)
    assert [one.returncode for one in done] == [1] * count, done
    told = "".join(one.stderr for one in done)
    assert told.count("no worker that has the data is left") == 1, told
    assert f"the work was saved to {out}" in told and "--resume on a host that has it" in told
    step = max(json.loads(one.stdout.splitlines()[-1])["step"] for one in done if one.stdout)
    again = lenders.resume(out, "-n", 2, "--steps", step + 20, cwd=lenders.home)
    assert_same(again, lenders.alone(*words, step + 20))


@pytest.mark.parametrize("explicit", [False, True])
def test_other_data_is_refused(lenders, explicit):
    """Before it is counted in; the run goes on without it."""
    lenders.furnish("text", lenders.home)
    other = lenders.away / ("other.txt" if explicit else "book.txt")
    write_text(other, "to be or not to be, that is the quesiton; ")
    words = [*GPT, "--steps", 300]
    listener, address, out = lenders.listen(1, *words)
    lenders.read_to(listener, 3)
    joiner = lenders.join(1, address, *(["--data", "text:other.txt"] if explicit else []))
    (refused,) = lenders.finish_all(joiner)
    assert refused.returncode == 1, refused
    assert f"{other.name} is not what the run is trained on" in refused.stderr
    assert "fingerprint" in refused.stderr and "--data KIND:PATH" in refused.stderr
    (done,) = lenders.finish_all(listener)
    assert set(workers_of(out)) == {1}
    assert_same(result_of(done, out), lenders.alone(*words))


def test_other_data_from_the_first_step_on(lenders):
    """One error, on the host that has it, and no run."""
    lenders.furnish("idx", lenders.home)
    write_idx(lenders.away / "digits", seed=2)
    listener, address, out = lenders.listen(1, *KINDS["idx"], hosts=2)
    first, second = lenders.finish_all(listener, lenders.join(2, address))
    assert first.returncode != 0 and second.returncode != 0
    assert second.stderr.count("digits is not what the run is trained on") == 1, second.stderr
    assert "trained on" not in first.stderr
    assert not out.exists()


def test_data_that_was_named_must_be_there(lenders):
    lenders.furnish("idx", lenders.home)
    words = [*KINDS["idx"], "--steps", 1500]
    listener, address, out = lenders.listen(1, *words)
    lenders.read_to(listener, 3)
    (done,) = lenders.finish_all(lenders.join(1, address, "--data", "idx:/nowhere"))
    assert done.returncode == 1 and "/nowhere is not a folder" in done.stderr, done
    shutil.copytree(lenders.home / "digits", lenders.away / "numbers")
    joiner = lenders.join(1, address, "--data", "idx:numbers")
    first, second = lenders.finish_all(listener, joiner)
    assert (first.returncode, second.returncode) == (0, 0), (first, second)
    assert "no data here" not in second.stderr
    assert_same(result_of(first, out), lenders.alone(*words))
