"""lockstep train over several hosts, with unequal numbers of workers: the bits of one worker.

Hosts are network namespaces on one bridge (the fixture `network`).
"""

import json
import re
import shutil
import signal
import time

import pytest
from conftest import TIMEOUT
from test_run_hosts import network  # noqa: F401
from training import BRIEF, MODELS, Result, Trainer, curve, settings, workers_of, write_idx

STEPS = ["--steps", "60", "--shards", "8", "--eval-every", "20", *settings("eval.batches=1")]


class Hosts(Trainer):
    """A Trainer whose runs are spread over hosts: the first listens, the others join it."""

    def __init__(self, lockstep, starter, folder, names):
        super().__init__(lockstep, starter, folder)
        self.names = names
        self.key = folder / "key"

    def on(self, host, *words, **options):
        enter = ["ip", "netns", "exec", self.names[host]]
        return self.starter.start(*enter, self.lockstep, "train", *words, **options)

    def listen(self, workers, hosts, *words, **options):
        """The launcher of the first host, and its address."""
        meet = ["--listen", "10.77.0.1:0", "--hosts", hosts, "--key-file", self.key, "-n", workers]
        process = self.on(0, *words, *meet, **options)
        for line in process.stderr:
            if match := re.search(r"listening on (\S+)$", line):
                return process, match[1]
        pytest.fail(f"the listener did not start: {process.wait()}")

    def join(self, host, workers, address, *words, **options):
        meet = ["--join", address, "--key-file", self.key, "-n", workers]
        return self.on(host, *meet, *words, **options)

    def launch(self, sizes, *words, env=None):
        """One launcher a host, in the order of arrival."""
        listener, address = self.listen(sizes[0], len(sizes), *words, env=env)
        launchers = [listener]
        for host, workers in enumerate(sizes[1:], 1):
            launchers.append(self.join(host, workers, address, "--json", env=env))
            if host + 1 < len(sizes):
                time.sleep(0.4)
        return launchers

    def end(self, launchers):
        done = [self.starter.finish(launcher, TIMEOUT) for launcher in launchers]
        self.key.unlink()
        return done

    def collect(self, launchers, folder):
        """The Result of a run that went well everywhere."""
        done = self.end(launchers)
        for one in done:
            assert one.returncode == 0, one
        for one in done[1:]:
            assert one.stdout == "", "only the first worker speaks"
        return Result(json.loads(done[0].stdout.splitlines()[-1]), folder)

    def train_on(self, sizes, *words, env=None):
        out = self.new_folder()
        return self.collect(self.launch(sizes, *words, "--json", "--out", out, env=env), out)


@pytest.fixture
def hosts(lockstep, leftovers, tmp_path, network):  # noqa: F811
    return Hosts(lockstep, leftovers, tmp_path, network[0])


def assert_same(found, wanted):
    assert found.digests() == wanted.digests(), found.folder
    assert curve(found.folder) == curve(wanted.folder)


@pytest.mark.parametrize("batch", [96, 100])
@pytest.mark.parametrize("model", MODELS)
def test_the_bits_of_one_worker(hosts, model, batch):
    words = [*hosts.model(model), *STEPS, "--batch", batch]
    one = hosts.train(*words, "-n", 1)
    for sizes in ([1, 2], [2, 1, 3]):
        assert_same(hosts.train_on(sizes, *words), one)
    if batch == 100:
        tcp = {"LOCKSTEP_TRANSPORT": "tcp"}
        assert_same(hosts.train_on([2, 1], *words, env=tcp), one)


@pytest.mark.parametrize("first, second", [("tcp", []), ("auto", ["--transport", "tcp"])])
def test_transport_is_that_of_the_first_host(hosts, first, second):
    """Inside a host, too: the others do as it does, whatever they were told."""
    words = [*hosts.model("mlp"), *STEPS, "--batch", 96]
    out = hosts.new_folder()
    listener, address = hosts.listen(2, 2, *words, "--transport", first, "--json", "--out", out)
    found = hosts.collect([listener, hosts.join(1, 2, address, *second)], out)
    assert_same(found, hosts.train(*words, "-n", 1))


@pytest.mark.parametrize("reduce", ["direct", "hd", "tree"])
def test_algorithms_that_keep_the_order(hosts, reduce):
    words = [*hosts.model("gpt"), "--steps", 10, "--batch", 100, "--shards", 8, *BRIEF]
    one = hosts.train(*words, "-n", 1)
    assert_same(hosts.train_on([2, 1, 2], *words, "--reduce", reduce), one)


def test_more_hosts_than_samples_are_left(hosts):
    """The last batch of an epoch has 2 samples for 3 hosts."""
    words = [*hosts.model("mlp"), *settings("data.samples=26"), "--batch", 12, "--shards", 8]
    words += ["--steps", 9, *BRIEF]
    one = hosts.train(*words, "-n", 1)
    assert_same(hosts.train_on([1, 1, 2], *words), one)


def test_data_that_lies_elsewhere(hosts, tmp_path):
    """A host that joins has it at another place: the listener's path, a relative one, fails."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_idx(tmp_path / "a" / "digits")
    shutil.copytree(tmp_path / "a" / "digits", tmp_path / "b" / "numbers")
    words = [*MODELS["resnet"], "--data", "idx:digits", "--steps", 5, "--batch", 24, *BRIEF]
    out = hosts.new_folder()
    listener, address = hosts.listen(1, 2, *words, "--json", "--out", out, cwd=tmp_path / "a")
    joiner = hosts.join(1, 1, address, "--data", "idx:numbers", cwd=tmp_path / "b")
    spread = hosts.collect([listener, joiner], out)
    assert_same(spread, hosts.train(*words, "-n", 3, cwd=tmp_path / "a"))


def test_data_that_is_missing_on_one_host(hosts, tmp_path):
    """Where it was said to lie: one clear error there, and nobody waits."""
    (tmp_path / "b").mkdir()
    write_idx(tmp_path / "digits")
    words = [*MODELS["resnet"], "--data", "idx:digits", "--steps", 5, "--batch", 24, *BRIEF]
    out = hosts.new_folder()
    listener, address = hosts.listen(2, 2, *words, "--out", out, cwd=tmp_path)
    joiner = hosts.join(1, 2, address, "--data", "idx:digits", cwd=tmp_path / "b")
    first, second = hosts.end([listener, joiner])
    assert first.returncode != 0 and second.returncode != 0
    assert second.stderr.count("digits") == 1, second.stderr
    assert "digits is not a folder" in second.stderr
    assert not out.exists()


def test_stop_on_one_host_and_go_on_with_fewer(hosts):
    """Ctrl-C at a launcher that joined: all end in order, the first host saves."""
    words = [*hosts.model("dlrm"), "--steps", "1000000000", "--batch", 100, "--shards", 8, *BRIEF]
    out = hosts.new_folder()
    launchers = hosts.launch([1, 2, 1], *words, "--json", "--out", out)
    hosts.read_to(launchers[0], 20)
    launchers[1].send_signal(signal.SIGINT)
    stopped = hosts.collect(launchers, out)
    total = ["--steps", stopped.step + 17]
    launchers = hosts.launch([2, 1], "--resume", out, "--json", *total)
    resumed = hosts.collect(launchers, out)
    assert_same(resumed, hosts.train(*words, *total, "-n", 1))


def test_more_workers_than_shards(hosts):
    """Those that have none are spares: the first host's three and one of the second."""
    words = [*hosts.model("mlp"), "--steps", 10, "--batch", 96, "--shards", 4, *BRIEF]
    out = hosts.new_folder()
    launchers = hosts.launch([3, 3], *words, "--json", "--out", out)
    found = hosts.collect(launchers, out)
    assert_same(found, hosts.train(*words, "-n", 1))
    assert set(workers_of(out)) == {4}
