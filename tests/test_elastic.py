"""Workers and hosts that die, stop, join and leave: the bits of an undisturbed run, no step lost.

Every test ends by comparing weights, state and the loss of every step with those of one worker that
nobody disturbed.
"""

import json
import os
import re
import shutil
import signal
import socket
import time
import types

import pytest
from conftest import TIMEOUT, wait_until
from test_run_hosts import network  # noqa: F401
from test_train_hosts import assert_same, hosts  # noqa: F401
from training import BRIEF, MODELS, Result, Trainer, settings, workers_of

WORDS = ["--shards", "8", "--batch", "96", "--schedule", "const", "--warmup", "0", *BRIEF]
STATE = (2 << 20) + 4 * 1000 + 2  # in a weight, in the memory of a host's state


@pytest.fixture
def trainer(lockstep, leftovers, tmp_path):
    return Trainer(lockstep, leftovers, tmp_path)


def finish(trainer, process, out):
    done = trainer.starter.finish(process, TIMEOUT)
    assert done.returncode == 0, done
    return Result(json.loads(done.stdout.splitlines()[-1]), out), done


def replaced(trainer, process, place, pid):
    wait_until(lambda: trainer.workers(process).get(place, pid) != pid, 30, "a new worker")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("workers", [1, 3])
def test_killed_workers_are_replaced(trainer, model, workers):
    words = [*trainer.model(model), *WORDS, "--steps", 150 if model != "resnet" else 40]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", workers, "--json", "--out", out)
    for turn in range(3):
        trainer.read_to(process, 8 * (turn + 1))
        place = turn % workers
        pid = trainer.workers(process)[place]
        os.kill(pid, signal.SIGKILL)
        replaced(trainer, process, place, pid)
    found, done = finish(trainer, process, out)
    assert done.stderr.count("killed by signal 9") == 3, done.stderr
    assert_same(found, trainer.train(*words, "-n", 1))


@pytest.mark.parametrize("options", [
    ["--optimizer", "lamb"],
    ["--optimizer", "adamw", *settings("optimizer.clip=0.3")],
    ["--optimizer", "lars", "--transport", "tcp"],
    ["--micro-batch", "5"],
])  # fmt: skip
def test_kinds_of_updates(trainer, options):
    words = [*MODELS["mlp"], *WORDS, "--steps", 800, *options]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 2, "--json", "--out", out)
    for turn in range(4):
        trainer.read_to(process, 20 * (turn + 1))
        pid = trainer.workers(process)[turn % 2]
        os.kill(pid, signal.SIGKILL)
        replaced(trainer, process, turn % 2, pid)
    found, _ = finish(trainer, process, out)
    assert_same(found, trainer.train(*words, "-n", 1))


def test_all_die_at_once(trainer):
    words = [*MODELS["gpt"], *WORDS, "--steps", 60]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 3, "--json", "--out", out)
    trainer.read_to(process, 10)
    for pid in trainer.workers(process).values():
        os.kill(pid, signal.SIGKILL)
    found, _ = finish(trainer, process, out)
    assert_same(found, trainer.train(*words, "-n", 1))


def test_restarts_have_a_limit(trainer):
    words = [*MODELS["mlp"], *WORDS, "--steps", 1000000, "-n", 1, "--restarts", 2]
    process = trainer.start(*words, "--json")
    killed = set()
    while process.poll() is None:
        for pid in trainer.workers(process).values():
            if pid not in killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    done = trainer.starter.finish(process)
    assert done.returncode == 128 + signal.SIGKILL
    assert len(killed) == 3
    assert "is not replaced: 2 times" in done.stderr
    assert "no worker is left on this host" in done.stderr


def test_stopped_worker_is_given_up(trainer):
    words = [*MODELS["gpt"], *WORDS, "--steps", 100]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 2, "--json", "--out", out, "--evict-after", 1)
    trainer.read_to(process, 5)
    pid = trainer.workers(process)[1]
    os.kill(pid, signal.SIGSTOP)
    replaced(trainer, process, 1, pid)
    found, done = finish(trainer, process, out)
    assert re.search(rf"process {pid}\) has shown no sign of life for", done.stderr), done.stderr
    assert_same(found, trainer.train(*words, "-n", 1))


def test_short_stop_is_forgiven(trainer):
    words = [*MODELS["gpt"], *WORDS, "--steps", 60]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 2, "--json", "--out", out)
    trainer.read_to(process, 5)
    pid = trainer.workers(process)[1]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    found, done = finish(trainer, process, out)
    assert "killed" not in done.stderr
    assert set(workers_of(out)) == {2}
    assert_same(found, trainer.train(*words, "-n", 1))


def test_slow_step_is_explained(trainer):
    """Without being asked, and to whoever asks; both say where the stopped worker is."""
    words = [*MODELS["gpt"], *WORDS, "--steps", 1000000]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 2, "--json", "--out", out, "--evict-after", 100)
    trainer.read_to(process, 1)
    end, step = time.monotonic() + 1, 1
    while time.monotonic() < end:  # until the launcher has looked often: it knows what is usual
        step += 1
        trainer.read_to(process, step)
    pid = trainer.workers(process)[0]
    os.kill(pid, signal.SIGSTOP)
    log = out / "log.txt"
    wait_until(lambda: "is usual; the workers here" in log.read_text(), 60, "an explanation")
    told = trainer.starter.run(trainer.lockstep, "status", out)
    assert told.returncode == 0, told
    for text in (log.read_text(), told.stdout):
        where = rf"worker 0 \(process {pid}\): rank 0, step \d+, \w+.*no sign of life"
        assert re.search(where, text), text
        where = r"worker 1 \(process \d+\): rank 1, step \d+, (waiting for|updating weights)"
        assert re.search(where, text), text  # an update waits for the others' parts of it, too
    os.kill(pid, signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    assert trainer.starter.finish(process, TIMEOUT).returncode == 0
    gone = trainer.starter.run(trainer.lockstep, "status", out)
    assert gone.returncode == 1 and "no run is going on" in gone.stderr
    assert not (out / ".status").exists()


def test_too_few_workers(hosts):  # noqa: F811
    """A run waits for its minimum, and goes on as soon as it is there."""
    words = [*MODELS["mlp"], *WORDS, "--steps", 200, "--min-workers", 2, "--restarts", 0]
    out = hosts.new_folder()
    listener, address = hosts.listen(2, 1, *words, "--json", "--out", out)
    hosts.read_to(listener, 10)
    os.kill(hosts.workers(listener)[1], signal.SIGKILL)
    for line in listener.stderr:
        if "waiting for 1 more of at least 2 workers" in line:
            break
    joiner = hosts.join(1, 1, address)
    found = hosts.collect([listener, joiner], out)
    assert_same(found, hosts.train(*words[:-4], "-n", 1))


def test_too_few_workers_for_too_long(trainer):
    words = [*MODELS["mlp"], *WORDS, "--steps", 1000000, "--min-workers", 2, "--restarts", 0]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 2, "--json", "--out", out, "--patience", 1)
    trainer.read_to(process, 10)
    os.kill(trainer.workers(process)[0], signal.SIGKILL)
    done = trainer.starter.finish(process, TIMEOUT)
    assert done.returncode == 1, done
    assert "the work was saved" in done.stderr
    step = json.loads(done.stdout.splitlines()[-1])["step"]
    again = trainer.resume(out, "-n", 1, "--steps", step + 5, "--min-workers", 1)
    assert again.step == step + 5


def test_hosts_join_and_leave(hosts):  # noqa: F811
    words = [*MODELS["gpt"], *WORDS, "--steps", 400]
    out = hosts.new_folder()
    listener, address = hosts.listen(1, 1, *words, "--json", "--out", out)
    hosts.read_to(listener, 5)
    second = hosts.join(1, 2, address)
    wait_until(lambda: 3 in workers_of(out), what="three workers", seconds=30)
    third = hosts.join(2, 1, address)
    wait_until(lambda: 4 in workers_of(out), what="four workers", seconds=30)
    second.send_signal(signal.SIGTERM)
    assert hosts.starter.finish(second, TIMEOUT).returncode == 0
    found = hosts.collect([listener, third], out)
    assert workers_of(out)[-1] == 2
    assert_same(found, hosts.train(*words, "-n", 1))


def test_first_host_leaves(hosts):  # noqa: F811
    """The store goes with it, but not before those of the next generation have met there."""
    words = [*MODELS["gpt"], *WORDS, "--steps", 600]
    out = hosts.new_folder()
    launchers = hosts.launch([1, 1, 1], *words, "--json", "--out", out, "--evict-after", 300)
    wait_until(lambda: len(workers_of(out)) > 10, what="ten steps", seconds=30)
    launchers[0].send_signal(signal.SIGTERM)
    assert hosts.starter.finish(launchers[0], TIMEOUT).returncode == 0
    wait_until(lambda: workers_of(out)[-1] == 2, what="a step of the others", seconds=10)
    done = hosts.end(launchers[1:])
    assert [one.returncode for one in done] == [0, 0], done
    assert_same(Result(json.loads(done[0].stdout.splitlines()[-1]), out),
                hosts.train(*words, "-n", 1))


def test_all_hosts_leave_at_once(hosts):  # noqa: F811
    """Nobody is left to go on: the work is saved, and can be resumed."""
    words = [*MODELS["mlp"], *WORDS]
    out = hosts.new_folder()
    launchers = hosts.launch([1, 1, 1], *words, "--steps", 1000000, "--json", "--out", out)
    wait_until(lambda: len(workers_of(out)) > 10, what="ten steps", seconds=30)
    for launcher in launchers:
        launcher.send_signal(signal.SIGTERM)
    done = hosts.end(launchers)
    assert [one.returncode for one in done] == [0, 0, 0], done
    steps = len(workers_of(out)) + 5
    assert_same(hosts.resume(out, "-n", 1, "--steps", steps),
                hosts.train(*words, "--steps", steps, "-n", 1))


def test_leaves_while_another_joins(hosts):  # noqa: F811
    """The only host with the state stays until the one that has just come has it, too."""
    words = [*MODELS["gpt"], *WORDS, "--steps", 1500]
    out = hosts.new_folder()
    listener, address = hosts.listen(1, 1, *words, "--json", "--out", out)
    hosts.read_to(listener, 5)
    joiner = hosts.join(1, 1, address, "--json")
    status = ["ip", "netns", "exec", hosts.names[0], hosts.lockstep, "status", address,
              "--key-file", hosts.key]
    wait_until(lambda: "host 2" in hosts.starter.run(*status).stdout, what="the other host",
               seconds=30)
    listener.send_signal(signal.SIGTERM)
    done = hosts.end([listener, joiner])
    assert [one.returncode for one in done] == [0, 0], done
    assert_same(Result(json.loads(done[1].stdout.splitlines()[-1]), out),
                hosts.train(*words, "-n", 1))


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_launcher(hosts, victim):  # noqa: F811
    """Whichever host goes, the store's too, the two others go on; one of them records."""
    words = [*MODELS["gpt"], *WORDS, "--steps", 300]
    out = hosts.new_folder()
    launchers = hosts.launch([1, 1, 1], *words, "--json", "--out", out)
    wait_until(lambda: len(workers_of(out)) > 10, what="ten steps", seconds=30)
    launchers[victim].kill()
    done = hosts.end(launchers)
    assert [one.returncode for i, one in enumerate(done) if i != victim] == [0, 0], done
    last = done[1 if victim == 0 else 0].stdout.splitlines()[-1]
    assert_same(Result(json.loads(last), out), hosts.train(*words, "-n", 1))
    assert {3, 2} == set(workers_of(out))


def test_last_of_two_hosts_saves_and_ends(hosts):  # noqa: F811
    """The host that is left cannot know whether the first goes on without it."""
    words = [*MODELS["mlp"], *WORDS, "--steps", 1000000, "--patience", 2]
    out = hosts.new_folder()
    listener, address = hosts.listen(1, 2, *words, "--json", "--out", out)
    joiner = hosts.join(1, 1, address, "--patience", 2, "--json")
    hosts.read_to(listener, 10)
    listener.kill()
    done = hosts.end([listener, joiner])
    assert done[1].returncode == 1
    assert "the work was saved" in done[1].stderr, done[1].stderr
    step = json.loads(done[1].stdout.splitlines()[-1])["step"]
    again = hosts.resume(out, "-n", 1, "--steps", step + 5)
    short = [*words[:-4], "--steps", step + 5]
    assert again.step == step + 5 and hosts.train(*short, "-n", 1).step == again.step


def test_second_of_two_hosts_dies(hosts):  # noqa: F811
    words = [*MODELS["mlp"], *WORDS, "--steps", 400]
    out = hosts.new_folder()
    launchers = hosts.launch([1, 1], *words, "--json", "--out", out)
    hosts.read_to(launchers[0], 10)
    launchers[1].kill()
    done = hosts.end(launchers)
    assert done[0].returncode == 0, done
    found = Result(json.loads(done[0].stdout.splitlines()[-1]), out)
    assert_same(found, hosts.train(*words, "-n", 1))


def flip_a_bit(pid):
    """In the weights of a worker's domain."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        if "lockstep-state" not in os.readlink(path):
            continue
        with open(path, "r+b", buffering=0) as memory:
            old = os.pread(memory.fileno(), 1, STATE)[0]
            os.pwrite(memory.fileno(), bytes([old ^ 1]), STATE)
        return
    raise AssertionError("it has no state")


@pytest.mark.parametrize("action", ["stop", "repair"])
def test_flipped_bit(trainer, action):
    """Found within --check-every steps, and named. (Over tcp every worker is as good as a host.)"""
    words = [*MODELS["mlp"], *WORDS, "--steps", 600, "--check-every", 10, "--transport", "tcp"]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 3, "--json", "--out", out, "--on-divergence", action)
    trainer.read_to(process, 20)
    flip_a_bit(trainer.workers(process)[1])
    done = trainer.starter.finish(process, TIMEOUT)
    words = r"after step (\d+) the state of host 2 \(workers 1 to 1\) is not that of"
    named = re.search(words, done.stderr)
    assert named and int(named[1]) % 10 == 0, done.stderr
    assert done.returncode == (1 if action == "stop" else 0), done
    assert done.stderr.count("after step") == (2 if action == "stop" else 1), "and never again"


def test_shards_by_speed(trainer):
    """Whoever is slower gets fewer of them; the bits are the same, also after a death."""
    words = [*MODELS["gpt"], *WORDS, "--steps", 150]
    out = trainer.new_folder()
    process = trainer.start(*words, "-n", 2, "--balance", "speed", "--json", "--out", out)
    trainer.read_to(process, 60)
    log = (out / "log.txt").read_text()
    assert "generation 2" in log, log
    pid = trainer.workers(process)[1]
    os.kill(pid, signal.SIGKILL)
    replaced(trainer, process, 1, pid)
    found, _ = finish(trainer, process, out)
    assert_same(found, trainer.train(*words, "-n", 1))


@pytest.fixture
def etcd(leftovers, tmp_path):
    """An etcd of our own: its process and its URL."""
    if not (program := shutil.which("etcd")):
        pytest.skip("there is no etcd here")
    with socket.socket() as one, socket.socket() as two:
        for s in (one, two):
            s.bind(("127.0.0.1", 0))
        client, peer = (f"127.0.0.1:{s.getsockname()[1]}" for s in (one, two))
    process = leftovers.start(
        program, "--data-dir", tmp_path / "etcd",
        "--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}",
        "--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}",
        "--initial-cluster", f"default=http://{peer}", "--log-level", "error",
    )  # fmt: skip
    yield types.SimpleNamespace(process=process, url=f"etcd://{client}")
    process.kill()
    leftovers.finish(process)


def test_any_host_may_die_with_etcd(trainer, etcd):
    """Of two hosts the first: the other goes on, for it is etcd that has the majority."""
    words = [*MODELS["gpt"], *WORDS, "--steps", 400]
    out, key = trainer.new_folder(), trainer.folder / "key"
    meet = ["--key-file", key, "-n", 1, "--store", etcd.url, "--evict-after", 2, "--json"]
    listener = trainer.start(
        *words, *meet, "--out", out, "--listen", "127.0.0.1:0", "--hosts", 2
    )
    for line in listener.stderr:
        if match := re.search(r"listening on (\S+)$", line):
            break
    joiner = trainer.start("--join", match[1], *meet)
    wait_until(lambda: 2 in workers_of(out), 30, "both at work")
    listener.kill()
    trainer.starter.finish(listener)
    found, _ = finish(trainer, joiner, out)
    assert_same(found, trainer.train(*words, "-n", 1))


def test_store_that_is_lost(trainer, etcd):
    """Training needs nothing of it; who waits for it does so for a while."""
    out, key = trainer.new_folder(), trainer.folder / "key"
    process = trainer.start(
        *MODELS["mlp"], *WORDS, "--steps", 1000000, "-n", 1, "--json", "--out", out, "--key-file",
        key, "--store", etcd.url, "--patience", 2, "--listen", "127.0.0.1:0", "--hosts", 1,
    )  # fmt: skip
    trainer.read_to(process, 10)
    etcd.process.kill()
    etcd.process.wait()
    trainer.read_to(process, 30)
    time.sleep(3)
    assert process.poll() is None
    os.kill(trainer.workers(process)[0], signal.SIGKILL)
    done = trainer.starter.finish(process, TIMEOUT)
    assert done.returncode == 1, done
    assert f"waiting for {etcd.url}" in done.stderr
    assert "the run has ended: the store does not answer" in done.stderr


def listen_alone(trainer, *words, **options):
    """A host that others may join: its launcher, and where it listens."""
    listener = trainer.start(*words, "--listen", "127.0.0.1:0", "--hosts", 1, **options)
    for line in listener.stderr:
        if match := re.search(r"listening on (\S+)$", line):
            return listener, match[1]
    raise AssertionError("it does not listen")


def test_joiner_without_the_data(trainer, tmp_path):
    """It says so and goes; the others have not noticed."""
    text = tmp_path / "book.txt"
    text.write_text("to be or not to be, that is the question; " * 400)
    small = settings("model.layers=1", "model.context=16", "model.dim=32")
    words = ["gpt:nano", *small, *WORDS, "--steps", 300, "--data", f"text:{text}"]
    out, key = trainer.new_folder(), trainer.folder / "key"
    meet = ["--key-file", key, "-n", 1, "--json"]
    listener, address = listen_alone(trainer, *words, *meet, "--out", out)
    trainer.read_to(listener, 5)
    joiner = trainer.start("--join", address, *meet, "--data", "text:/nowhere/book.txt")
    done = trainer.starter.finish(joiner, TIMEOUT)
    assert done.returncode == 1, done
    assert "/nowhere/book.txt" in done.stderr and "no worker is left on this host" in done.stderr
    found, ended = finish(trainer, listener, out)
    assert set(workers_of(out)) == {1} and "the run has ended" not in ended.stderr
    assert_same(found, trainer.train(*words, "-n", 1))


def test_who_has_the_state_dies_while_it_is_copied(trainer):
    """Its launcher keeps it: the newcomer waits for the worker that follows."""
    words = ["gpt:char", *settings("model.layers=3"), *WORDS, "--batch", 8, "--steps", 8]
    out, meet = trainer.new_folder(), ["--key-file", trainer.folder / "key", "-n", 1, "--json"]
    listener, address = listen_alone(trainer, *words, *meet, "--out", out)
    trainer.read_to(listener, 3)
    victim = trainer.workers(listener)[0]
    joiner = trainer.start("--join", address, *meet, env={"LOCKSTEP_LOG": "info"})
    for line in joiner.stderr:
        if "interface" in line:  # it is connected, the first step with it has begun
            break
    os.kill(victim, signal.SIGKILL)
    found, _ = finish(trainer, listener, out)
    joined = trainer.starter.finish(joiner, TIMEOUT)
    assert joined.returncode == 0 and "the state of step" in joined.stderr, joined
    assert workers_of(out)[-1] == 2
    assert_same(found, trainer.train(*words, "-n", 1))


def test_joiner_does_not_wait_for_a_long_step(trainer):
    """The step under way is left, and computed anew by both."""
    words = ["gpt:char", *WORDS, "--batch", 8, "--steps", 7]
    out, meet = trainer.new_folder(), ["--key-file", trainer.folder / "key", "-n", 1, "--json"]
    listener, address = listen_alone(
        trainer, *words, *meet, "--out", out, env={"LOCKSTEP_LOG": "info"}
    )
    trainer.read_to(listener, 3)
    joiner = trainer.start("--join", address, *meet)
    found, done = finish(trainer, listener, out)
    assert trainer.starter.finish(joiner, TIMEOUT).returncode == 0
    assert re.search(r"step \d is left, to be computed anew", done.stderr), done.stderr
    assert workers_of(out)[-1] == 2
    quiet = {"LOCKSTEP_LOG": "error"}  # under sanitizers steps take long, and that is said
    assert_same(found, trainer.train(*words, "-n", 2, env=quiet))
