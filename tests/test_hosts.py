"""Collectives over several hosts: network namespaces on one bridge, unequal numbers of ranks.

Results must be those of one host, bit for bit; whatever breaks must be named on every host.
"""

import json
import os
import re
import signal
import socket
import time

import pytest
from conftest import SLOWER, is_alive, wait_until
from test_run_hosts import Hosts, ip, network  # noqa: F401
from trial import OPERATION, json_lines, names_victim, program

EXACT = ["direct", "hd", "tree"]
LEAVE = ["--on-death", "leave"]


@pytest.fixture
def cluster(lockstep, leftovers, tmp_path, network):  # noqa: F811
    """A Cluster over the namespaces of `network`."""
    names, switch = network
    return Cluster(lockstep, leftovers, tmp_path, names, switch)


class Cluster(Hosts):
    """Starts one program on several hosts and keeps order: host i has the i-th range of ranks."""

    def __init__(self, lockstep, starter, directory, names, switch):
        super().__init__(lockstep, starter, directory)
        self.names = names
        self.switch = switch

    def launch(self, sizes, *words, options=(), env=None):
        """Returns one launcher a host. Host numbers are given in order of arrival."""
        common = {"options": options, "env": env}
        where = dict(at="10.77.0.1:0", namespace=self.names[0])
        launchers = [self.listen(sizes[0], len(sizes), *words, **where, **common)]
        for i, n in enumerate(sizes[1:], 1):
            launchers.append(self.join(n, *words, namespace=self.names[i], **common))
            if i + 1 < len(sizes):
                time.sleep(0.4)
        return launchers

    def read_pids(self, launchers, sizes):
        """Returns {rank: pid}, once all ranks have joined."""
        facts = [
            json.loads(launcher.stdout.readline())
            for launcher, n in zip(launchers, sizes)
            for _ in range(n)
        ]
        return {fact["rank"]: fact["pid"] for fact in facts}

    def finish_all(self, launchers):
        return [self.finish(launcher) for launcher in launchers]


def digests(outputs):
    """Returns {name: digest} of what all ranks printed; those of a name must be equal."""
    found = {}
    for line in "".join(outputs).splitlines():
        if not line.startswith("{"):
            name, digest = line.split()
            assert found.setdefault(name, digest) == digest, f"ranks differ in {name}"
    return found


def one_host(lockstep, leftovers, n, transport="shm", algorithms=EXACT):
    words = ["run", "-n", n, "--transport", transport, "--", program("results"), *algorithms]
    done = leftovers.run(lockstep, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return digests([done.stdout])


# Results


def test_direct_hd_and_tree_agree_on_one_host(lockstep, leftovers):
    for n in (1, 2, 3, 5, 6):
        want = one_host(lockstep, leftovers, n)
        for name, digest in want.items():
            for algorithm in EXACT:
                assert want[name.replace(f"-{algorithm}-", "-direct-")] == digest
        assert one_host(lockstep, leftovers, n, "tcp") == want
        assert len(want) >= 12 + 3 * n + n + 3 + 2


def test_the_order_of_summation_matters(lockstep, leftovers):
    """That the numbers are wild enough: another order gives another sum."""
    found = one_host(lockstep, leftovers, 5, algorithms=["direct", "ring"])
    assert found["allreduce-ring-70001"] != found["allreduce-direct-70001"]


@pytest.mark.parametrize(
    "sizes", [[1, 1], [2, 3], [4, 1], [1, 1, 1], [1, 3, 1], [2, 1, 3]], ids=str
)
def test_results_are_those_of_one_host(cluster, lockstep, leftovers, sizes):
    """All-reduce and reduce in tree order, broadcast, gather, all-to-all, split."""
    want = one_host(lockstep, leftovers, sum(sizes))
    for env in (None, {"LOCKSTEP_TRANSPORT": "tcp"}):
        done = cluster.finish_all(cluster.launch(sizes, program("results"), *EXACT, env=env))
        for one in done:
            assert one.returncode == 0, one
        assert digests(one.stdout for one in done) == want
        cluster.key.unlink()


def test_ring_agrees_within_a_run(cluster):
    done = cluster.finish_all(cluster.launch([2, 1, 2], program("results"), "ring"))
    found = digests(one.stdout for one in done)  # compares the ranks
    assert {one.returncode for one in done} == {0}
    assert "allreduce-ring-70001" in found


def test_every_collective_for_a_while(cluster):
    """Random operations, sizes, memory and algorithms, with results checked."""
    sizes = [1, 3, 2]
    done = cluster.finish_all(cluster.launch(sizes, program("loop"), 11, 2))
    rounds = [f["rounds"] for one in done for f in json_lines(one.stdout) if "rounds" in f]
    assert {one.returncode for one in done} == {0}, done
    assert len(rounds) == 6 and len(set(rounds)) == 1 and rounds[0] > 20


# Faults


def failures_of(done):
    return {f["rank"]: f for one in done for f in json_lines(one.stdout) if "status" in f}


@pytest.mark.parametrize("victim", [0, 2, 5])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_killed_rank_is_named_on_every_host(cluster, victim, transport):
    sizes = [2, 3, 1]
    env = {"LOCKSTEP_TRANSPORT": transport}
    launchers = cluster.launch(sizes, program("loop"), victim, options=LEAVE, env=env)
    pids = cluster.read_pids(launchers, sizes)
    time.sleep(0.05)
    killed = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    failures = failures_of(cluster.finish_all(launchers))
    assert set(failures) == set(range(6)) - {victim}
    latency = [(f["at"] - killed) * 1e3 for f in failures.values()]
    print(f"{transport}: slowest {max(latency):.1f} ms")
    for failure in failures.values():
        assert failure["status"] == "LS_ERR_PEER_DEAD", failure
        assert names_victim(failure["text"], victim), failure
        assert OPERATION.match(failure["text"]), failure
    assert max(latency) < 1000 * SLOWER


@pytest.mark.parametrize("host", [0, 1])
def test_killed_launcher_takes_its_ranks_along(cluster, host):
    """The launcher of the listening host, or of one that joined."""
    sizes, ranks_of = [2, 2, 1], [{0, 1}, {2, 3}, {4}]
    launchers = cluster.launch(sizes, program("loop"), 3, options=LEAVE)
    pids = cluster.read_pids(launchers, sizes)
    killed = time.monotonic()
    launchers[host].kill()
    gone = [pids[r] for r in ranks_of[host]]
    wait_until(lambda: not any(map(is_alive, gone)), 2, "the ranks of the killed launcher ended")
    failures = failures_of(cluster.finish_all(launchers))
    # The system closes a dead launcher's sockets before it kills its ranks: those may still hear of
    # it, from the others, and say so.
    others = {r: f for r, f in failures.items() if r not in ranks_of[host]}
    assert set(others) == set(range(5)) - ranks_of[host]
    for failure in others.values():
        assert failure["status"] == "LS_ERR_PEER_DEAD", failure
        assert any(names_victim(failure["text"], r) for r in ranks_of[host]), failure
        assert failure["at"] - killed < SLOWER


def test_stopped_rank_of_another_host_is_named(cluster):
    """A host's leader speaks for it, yet the one that stopped is named, on every host."""
    sizes, victim = [2, 3, 1], 3
    env = {"LOCKSTEP_TIMEOUT": "2", "LOCKSTEP_WARN_AFTER": "0.5"}
    words = [program("act"), victim, "stop", "allreduce", "auto"]
    launchers = cluster.launch(sizes, *words, options=LEAVE, env=env)
    facts = [json.loads(p.stdout.readline()) for p, n in zip(launchers, sizes) for _ in range(n)]
    for launcher in launchers:
        launcher.send_signal(signal.SIGTERM)
    stderr = "".join(one.stderr for one in cluster.finish_all(launchers))
    (acted,) = [f for f in facts if "acts" in f]
    failures = [f for f in facts if "status" in f]
    assert len(failures) == 5, facts
    for failure in failures:
        assert failure["status"] == "LS_ERR_TIMEOUT", failure
        assert f"s: rank {victim} has not entered it" in failure["text"], failure
        assert 1.9 < failure["at"] - acted["at"] < 3 * SLOWER, failure
    warnings = re.findall(r"waiting for 0\.\d s: rank (\d) has not entered it", stderr)
    assert warnings == [str(victim)] * 5, stderr


def test_cut_cable(cluster):
    """No connection is closed: the deadline ends it, and names the ranks behind the cut."""
    sizes = [1, 2, 1]
    env = {"LOCKSTEP_TIMEOUT": "2"}
    launchers = cluster.launch(sizes, program("loop"), 4, options=LEAVE, env=env)
    cluster.read_pids(launchers, sizes)
    time.sleep(0.1)
    cut = time.monotonic()
    ip("-n", cluster.switch, "link", "set", "p1", "down")
    failures = failures_of(cluster.finish_all(launchers))
    assert set(failures) == {0, 1, 2, 3}
    behind = {0: {1, 2}, 1: {0, 3}, 2: {0, 3}, 3: {1, 2}}
    timed_out = 0
    for rank, failure in failures.items():
        text = failure["text"]
        assert OPERATION.match(text), failure
        assert failure["at"] - cut < 5 * SLOWER
        if "has left the group" in text:  # after a time-out on another communicator
            continue
        assert failure["status"] == "LS_ERR_TIMEOUT", json.dumps(failures)
        missing = set(map(int, re.findall(r"\d+", text.partition(" s: ")[2].partition(" ha")[0])))
        assert missing and missing <= behind[rank], json.dumps(failures)
        timed_out += 1
    assert timed_out >= 2
    # Until the lease ends, nobody can know more than that it is silent.
    assert time.monotonic() - cut < 25 * SLOWER


def test_late_start_of_a_host(cluster):
    """Ranks wait inside ls_init for those of a host whose program takes its time."""
    slow = ["sh", "-c", f"sleep 0.5; exec {program('once')}"]
    listener = cluster.listen(2, 2, program("once"), at="10.77.0.1:0", namespace=cluster.names[0])
    joiner = cluster.join(1, *slow, namespace=cluster.names[1])
    for one in cluster.finish_all([listener, joiner]):
        assert (one.returncode, one.stdout) == (0, ""), one


# Strangers


STRANGER = """
import os, socket, sys, time
address, seconds = (sys.argv[1], int(sys.argv[2])), float(sys.argv[3])
end, kept, count = time.monotonic() + seconds, [], 0
while time.monotonic() < end:
    try:
        s = socket.create_connection(address, 1)
        s.sendall([os.urandom(200), b"LSTP\\1\\0\\1\\0" + os.urandom(48), b"LST", b""][count % 4])
        kept.append(s)
        count += 1
    except OSError:
        pass
    del kept[:-150]
print(count)
"""


def test_garbage_from_another_host(cluster, leftovers):
    """On the port that listens: while hosts meet, while they start, while they work."""
    words = [program("loop"), 6, 2]
    where = dict(at="10.77.0.1:0", namespace=cluster.names[0])
    listener = cluster.listen(2, 2, *words, **where)
    host, port = cluster.address.split(":")
    enter = ["ip", "netns", "exec", cluster.names[2], "/usr/bin/python3", "-c"]
    stranger = leftovers.start(*enter, STRANGER, host, port, 2.5)
    time.sleep(0.5)
    joiner = cluster.join(2, *words, namespace=cluster.names[1])
    assert int(cluster.finish(stranger).stdout) > 100
    done = cluster.finish_all([listener, joiner])
    rounds = [f["rounds"] for one in done for f in json_lines(one.stdout) if "rounds" in f]
    assert [one.returncode for one in done] == [0, 0], done
    assert len(rounds) == 4 and len(set(rounds)) == 1


def test_wrong_key_from_another_host(cluster, tmp_path):
    words = [program("once")]
    where = dict(at="10.77.0.1:0", namespace=cluster.names[0])
    listener = cluster.listen(1, 2, *words, **where)
    other = tmp_path / "other"
    other.write_text("0123456789abcdef" * 4 + "\n")
    other.chmod(0o600)
    done = cluster.finish(cluster.join(1, *words, namespace=cluster.names[2], key=other))
    assert done.returncode == 1 and "key" in done.stderr
    joiner = cluster.join(1, *words, namespace=cluster.names[1])
    assert [one.returncode for one in cluster.finish_all([listener, joiner])] == [0, 0]


def test_only_the_address_given_is_reachable(cluster):
    """From another host: the port that listens; no port of a rank once all are connected."""
    sizes = [2, 1]
    launchers = cluster.launch(sizes, program("loop"), 6, 1)
    pids = cluster.read_pids(launchers, sizes)
    for pid, address in ((pids[0], "10.77.0.1"), (pids[2], "10.77.0.2")):
        with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        listening = {
            (socket.inet_ntoa(bytes.fromhex(r[1][:8])[::-1]), int(r[1][9:], 16))
            for r in rows
            if r[3] == "0A"
        }
        port = int(cluster.address.split(":")[1])
        assert listening == ({("10.77.0.1", port)} if address == "10.77.0.1" else set())
    for one in cluster.finish_all(launchers):
        assert one.returncode == 0
