"""lockstep run on one host: exit statuses, signals, deaths, output, and that nothing is left."""

import os
import re
import resource
import signal
import stat
import sys
import threading
import time

import pytest
from conftest import SANITIZED, SLOWER, TIMEOUT, children, is_alive, read_proc, wait_until

SLEEP = "sleep 1000"


@pytest.fixture
def run(lockstep, leftovers):
    """run(words...) runs `lockstep run words...` to its end."""
    return lambda *words, **options: leftovers.run(lockstep, "run", *words, **options)


@pytest.fixture
def start(lockstep, leftovers):
    """start(words...) starts `lockstep run words...`."""
    return lambda *words, **options: leftovers.start(lockstep, "run", *words, **options)


def ranks_of(launcher, program, count):
    """Waits until `count` children of the launcher run `program`, and returns {rank: pid}."""

    def look():
        found = {}
        for pid in children(launcher.pid):
            if program.encode() in read_proc(pid, "cmdline").replace(b"\0", b" "):
                rank = re.search(rb"LOCKSTEP_RANK=(\d+)", read_proc(pid, "environ"))
                if rank:
                    found[int(rank[1])] = pid
        return found if len(found) == count else None

    return wait_until(look, what=f"{count} ranks that run {program}")


# What the command line says


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_help(lockstep, leftovers, words):
    done = leftovers.run(lockstep, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: lockstep COMMAND" in done.stdout
    assert re.search(r"^  run  ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("words", [["run", "--help"], ["run", "-h"], ["help", "run"]])
def test_help_of_run(lockstep, leftovers, words):
    done = leftovers.run(lockstep, *words)
    assert (done.returncode, done.stderr) == (0, "")
    for word in "--prefix --bind --on-death --listen --join --hosts --key-file --wait".split():
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version(lockstep, leftovers, word):
    done = leftovers.run(lockstep, word)
    assert done.returncode == 0
    assert re.fullmatch(r"lockstep \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["fly"], "no command 'fly'"),
        (["--fly"], "no option '--fly'"),
        (["help", "fly"], "no command 'fly'"),
        (["run"], "-n N is missing"),
        (["run", "true"], "-n N is missing"),
        (["run", "-n", "2"], "no program"),
        (["run", "-n", "2", "--"], "no program"),
        (["run", "-n"], "-n needs a value"),
        (["run", "-n", "0", "true"], "'0' is not a whole number from 1 to 256"),
        (["run", "-n", "257", "true"], "'257' is not a whole number from 1 to 256"),
        (["run", "-n", "two", "true"], "'two' is not"),
        (["run", "-n", "2", "--fly", "true"], "unknown option --fly"),
        (["run", "-n", "2", "-x", "true"], "unknown option -x"),
        (["run", "-n", "2", "--prefix=1", "true"], "--prefix=1 takes no value"),
        (["run", "-n", "2", "--bind", "socket", "true"], "--bind: 'socket' is neither"),
        (["run", "-n", "2", "--on-death", "cry", "true"], "--on-death: 'cry' is neither"),
        (["run", "-n", "2", "--listen", "a:1", "--join", "b:1", "true"], "exclude each other"),
        (["run", "-n", "2", "--listen", "a:1", "true"], "--listen needs --hosts"),
        (["run", "-n", "2", "--listen", "nowhere", "true"], "nowhere"),
        (["run", "-n", "2", "--join", "here:99999", "true"], "here:99999"),
        (["run", "-n", "2", "--join", "here:0", "true"], "'here:0' has no port"),
        (["run", "-n", "2", "--hosts", "2", "true"], "--hosts goes with --listen"),
        (["run", "-n", "2", "--join", "a:1", "true"], "need --key-file"),
        (["run", "-n", "2", "--wait", "5", "true"], "go with --listen or --join"),
        (["run", "-n", "2", "--wait", "0", "true"], "--wait: '0' is not"),
    ],
)
def test_wrong_usage(lockstep, leftovers, words, complaint):
    done = leftovers.run(lockstep, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    where = "lockstep run --help" if words[0] == "run" else "lockstep --help"
    assert f"see {where}" in done.stderr


def test_options_end_at_the_program(run):
    done = run("-n", "1", "echo", "--help", "-n")
    assert (done.returncode, done.stdout) == (0, "--help -n\n")
    done = run("-n", "1", "--", "echo", "--", "x")
    assert (done.returncode, done.stdout) == (0, "-- x\n")


# What ranks get


@pytest.mark.parametrize("n", range(1, 10))
def test_ranks(run, n):
    done = run("-n", n, "--", "sh", "-c", "echo $LOCKSTEP_RANK $LOCKSTEP_SIZE $LOCKSTEP_LOCAL_RANK")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(f"{r} {n} {r}" for r in range(n))


def test_many_ranks(run):
    done = run("-n", "256", "--prefix", "--", "sh", "-c", "echo here")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(f"[{r}] here" for r in range(256))


def test_descriptors(run):
    """Of ours, only the boot record and the segment; the user's own go through."""
    done = run("-n", "1", "--", "ls", "-l", "/proc/self/fd")
    files = dict(re.findall(r" (\d+) -> (\S+)", done.stdout))
    names = sorted(name for fd, name in files.items() if int(fd) > 2)
    assert [n for n in names if not n.startswith("/proc/")] == [
        "/memfd:lockstep-boot", "/memfd:lockstep-segment",
    ]

    handed, end = os.pipe()
    os.write(end, b"through")
    os.close(end)
    done = run("-n", "1", "--", "sh", "-c", f"cat /dev/fd/{handed}", pass_fds=[handed])
    os.close(handed)
    assert done.stdout == "through"


def test_standard_input_goes_through(start, leftovers, tmp_path):
    text = tmp_path / "input"
    text.write_text("words\n")
    with text.open() as f:
        done = leftovers.finish(start("-n", "1", "--", "cat", stdin=f))
    assert (done.returncode, done.stdout) == (0, "words\n")


def test_a_terminal_is_not_given_to_ranks(start, leftovers):
    """A rank is in no foreground process group: reading the terminal would stop it for ever."""
    master, slave = os.openpty()
    launcher = start("-n", "2", "--", "sh", "-c", "cat; tty; exit 0", stdin=slave)
    os.close(slave)
    done = leftovers.finish(launcher)
    os.close(master)
    assert (done.returncode, done.stdout) == (0, "not a tty\nnot a tty\n")


def test_closed_standard_files(run):
    """Our own descriptors must not be taken for standard ones."""
    done = run("-n", "2", "--", "true", stdin=None, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (0, "")


def test_key_is_never_visible(lockstep, leftovers, tmp_path):
    """The key travels in the boot record only: not in arguments, not in the environment."""
    key = tmp_path / "key"
    launcher = leftovers.start(
        lockstep, "run", "-n", "2", "--listen", "127.0.0.1:0", "--hosts", "1", "--key-file", key,
        "--", *SLEEP.split(),
    )
    ranks = ranks_of(launcher, SLEEP, 2)
    secret = key.read_text().strip()
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for pid in [launcher.pid, *ranks.values()]:
        for name in ("environ", "cmdline"):
            text = read_proc(pid, name)
            assert text
            assert secret.encode() not in text.lower()
            assert bytes.fromhex(secret) not in text
    launcher.terminate()
    assert leftovers.finish(launcher).returncode == 143


def test_bind(run):
    cores = sorted(os.sched_getaffinity(0))
    look = "import os; print(os.environ['LOCKSTEP_RANK'], sorted(os.sched_getaffinity(0)))"
    done = run("-n", "3", "--bind", "core", "--", sys.executable, "-c", look)
    want = {f"{r} [{cores[r % len(cores)]}]" for r in range(3)}
    assert set(done.stdout.splitlines()) == want
    done = run("-n", "2", "--bind", "none", "--", sys.executable, "-c", look)
    assert set(done.stdout.splitlines()) == {f"{r} {cores}" for r in range(2)}
    # Within the cores that the launcher itself may use.
    last = cores[-1]
    done = run(
        "-n", "2", "--bind", "core", "--", sys.executable, "-c", look,
        preexec_fn=lambda: os.sched_setaffinity(0, {last}),
    )
    assert set(done.stdout.splitlines()) == {f"{r} [{last}]" for r in range(2)}


# Exit statuses


def test_status_of_the_first_failure(run):
    script = "[ $LOCKSTEP_RANK = 1 ] && exit 3; sleep 0.2; exit 4"
    done = run("-n", "3", "--", "sh", "-c", script)
    assert done.returncode == 3
    assert done.stderr == "lockstep: rank 1: exited with status 3\n"


def test_status_of_a_signal(run):
    done = run("-n", "2", "--", "sh", "-c", "[ $LOCKSTEP_RANK = 1 ] && kill -SEGV $$; sleep 0.3")
    assert done.returncode == 128 + signal.SIGSEGV
    assert done.stderr == "lockstep: rank 1: killed by signal 11 (SIGSEGV)\n"


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "program, status, words",
    [
        ("no-such-program", 127, "No such file or directory"),
        ("/no/such/program", 127, "No such file or directory"),
        ("/etc/passwd/x", 127, "Not a directory"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/etc", 126, "Permission denied"),
    ],
)
def test_program_that_cannot_be_executed(run, n, program, status, words):
    done = run("-n", n, "--", program, "x")
    assert done.returncode == status
    assert done.stderr == f"lockstep: cannot run '{program}': {words}\n"
    assert done.stdout == ""


def test_a_script_without_interpreter_line(run, tmp_path):
    script = tmp_path / "script"
    script.write_text("exit 7\n")
    script.chmod(0o755)
    assert run("-n", "1", "--", script).returncode == 7


def test_no_room_for_the_segment(run):
    limit = 100 << 20
    done = run(
        "-n", "2", "--", "true",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert "LOCKSTEP_HEAP" in done.stderr
    assert done.stderr.count("\n") == 1


# Deaths


def test_killed_rank_ends_the_others(start, leftovers):
    launcher = start("-n", "3", "--", *SLEEP.split())
    ranks = ranks_of(launcher, SLEEP, 3)
    os.kill(ranks[1], signal.SIGKILL)
    begin = time.monotonic()
    done = leftovers.finish(launcher)
    assert done.returncode == 137
    assert done.stderr == "lockstep: rank 1: killed by signal 9 (SIGKILL)\n"
    assert 0.9 < time.monotonic() - begin < 3 * SLOWER  # a second to notice, then SIGTERM


def test_others_may_end_by_themselves(start, leftovers):
    """Within the second that they have, they are not disturbed, nor do they change the status."""
    script = "if [ $LOCKSTEP_RANK = 1 ]; then kill -9 $$; fi; sleep 0.4; echo noticed; exit 5"
    done = leftovers.finish(start("-n", "3", "--", "sh", "-c", script))
    assert done.returncode == 137
    assert done.stdout == "noticed\n" * 2


def test_a_rank_that_ignores_sigterm_is_killed(start, leftovers):
    script = "trap '' TERM; if [ $LOCKSTEP_RANK = 1 ]; then exit 9; fi; while :; do sleep 1; done"
    begin = time.monotonic()
    done = leftovers.finish(start("-n", "2", "--", "sh", "-c", script))
    assert done.returncode == 9
    assert 5.5 < time.monotonic() - begin < 9 * SLOWER


def test_on_death_leave(start, leftovers):
    script = "[ $LOCKSTEP_RANK = 1 ] && exit 3; sleep 2; echo went on"
    done = leftovers.finish(start("-n", "3", "--on-death", "leave", "--", "sh", "-c", script))
    assert done.returncode == 3
    assert done.stdout == "went on\n" * 2
    assert done.stderr == "lockstep: rank 1: exited with status 3\n"


def test_killed_rank_takes_its_children_along(start, leftovers):
    """Also those in its process group that outlive it, at once, with --on-death leave."""
    script = "[ $LOCKSTEP_RANK = 0 ] && sleep 2 && exit 0; sleep 777 & echo $!; wait"
    launcher = start("-n", "2", "--on-death", "leave", "--", "sh", "-c", script)
    child = int(launcher.stdout.readline())
    rank = int(read_proc(child, "stat").split()[3])
    os.kill(rank, signal.SIGKILL)
    wait_until(lambda: not is_alive(child), 1)
    assert launcher.poll() is None
    assert leftovers.finish(launcher).returncode == 137


@pytest.mark.parametrize("hide", ["", "setsid "])
def test_background_processes_do_not_outlive_the_run(run, hide):
    """Left behind by ranks that ended well, in their process group or out of it."""
    begin = time.monotonic()
    done = run("-n", "2", "--", "sh", "-c", f"{hide}sleep 777 >/dev/null 2>&1 & exit 0")
    assert done.returncode == 0
    assert time.monotonic() - begin < 3 * SLOWER


def test_stubborn_background_process(run, tmp_path):
    ready = tmp_path / "ready"
    stray = f"trap '' TERM; touch {ready}; while :; do sleep 1; done"
    script = f'setsid sh -c "{stray}" >/dev/null 2>&1 & '
    script += f"while [ ! -e {ready} ]; do sleep 0.01; done"
    begin = time.monotonic()
    assert run("-n", "1", "--", "sh", "-c", script).returncode == 0
    assert 4 < time.monotonic() - begin < 8 * SLOWER


def test_children_of_before_are_left_alone(lockstep, leftovers):
    """Of a shell that started something, then made itself the launcher by exec."""
    script = f"sleep 777 >/dev/null 2>&1 & echo $!; exec {lockstep} run -n 2 -- true"
    done = leftovers.run("sh", "-c", script)
    assert done.returncode == 0
    elder = int(done.stdout)
    assert is_alive(elder)
    os.kill(elder, signal.SIGKILL)


def test_killed_guard(start, leftovers):
    """The guard of the launcher is not needed as long as the launcher lives."""
    launcher = start("-n", "2", "--", "sh", "-c", "(setsid sleep 0.2 &); sleep 1")
    guard = wait_until(
        lambda: [p for p in children(launcher.pid) if b"guard" in read_proc(p, "comm")]
    )
    os.kill(guard[0], signal.SIGKILL)
    wait_until(lambda: not read_proc(guard[0], "stat"), what="the guard is collected")
    assert leftovers.finish(launcher).returncode == 0


def test_rank_that_left_its_process_group(start, leftovers):
    # A child of the rank has a group of its own, which the rank then moves to.
    program = """
import os, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    time.sleep(1000)
while os.getpgid(child) != child:
    time.sleep(0.01)
os.setpgid(0, child)
os.write(1, b"moved\\n")
time.sleep(1000)
"""
    launcher = start("-n", "2", "--", sys.executable, "-c", program)
    read_lines(launcher, 2)
    launcher.terminate()
    assert leftovers.finish(launcher).returncode == 143


@pytest.mark.parametrize(
    "program",
    [SLEEP, "sh -c 'sleep 1000; :'", f"timeout 900 {SLEEP}", f"setsid -f {SLEEP}; {SLEEP}"],
)
def test_killed_launcher(start, leftovers, program):
    """Ranks, and what they have started, vanish with a launcher that is killed."""
    launcher = start("-n", "3", "--", "sh", "-c", f"{program}; :")
    count = 6 if "setsid" in program else 3
    wait_until(lambda: list(leftovers.alive().values()).count(SLEEP + " ") == count)
    launcher.kill()
    launcher.wait()
    begin = time.monotonic()
    wait_until(lambda: not leftovers.alive(), 2)
    assert time.monotonic() - begin < SLOWER


def test_killed_process_group(start, leftovers):
    """kill -9 of the launcher's whole process group."""
    launcher = start("-n", "2", "--", "sh", "-c", f"{SLEEP}; :")
    wait_until(lambda: list(leftovers.alive().values()).count(SLEEP + " ") == 2)
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    wait_until(lambda: not leftovers.alive(), 2)


def test_launchers_killed_at_any_moment(start, leftovers):
    """Whatever it was doing: starting, running, ending."""
    for i in range(40):
        launcher = start("-n", "3", "--", "sh", "-c", "sleep 0.02; sleep 5")
        time.sleep(0.0005 * i)
        launcher.kill()
        launcher.wait()
    wait_until(lambda: not leftovers.alive(), 3)


def test_many_deaths_at_once(start, leftovers):
    launcher = start("-n", "9", "--", *SLEEP.split())
    ranks = ranks_of(launcher, SLEEP, 9)
    for pid in ranks.values():
        os.kill(pid, signal.SIGKILL)
    assert leftovers.finish(launcher).returncode == 137


# Signals

TRAP = """
import os, signal, sys, time
def said(number, frame):
    os.write(1, f"{os.environ['LOCKSTEP_RANK']} {signal.Signals(number).name}\\n".encode())
    if number not in (signal.SIGUSR1, signal.SIGUSR2):
        sys.exit(0)
for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):  # CONT comes with those that end us
    signal.signal(getattr(signal, "SIG" + name), said)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)
"""


def read_lines(launcher, count):
    """The next lines, sorted; a launcher that does not write them in time is killed."""
    watchdog = threading.Timer(TIMEOUT * SLOWER, launcher.kill)
    watchdog.start()
    try:
        return sorted(launcher.stdout.readline().strip() for _ in range(count))
    finally:
        watchdog.cancel()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signals_are_handed_on(start, leftovers, name):
    launcher = start("-n", "2", "--", sys.executable, "-c", TRAP)
    read_lines(launcher, 2)
    launcher.send_signal(getattr(signal, name))
    assert read_lines(launcher, 2) == [f"0 {name}", f"1 {name}"]
    assert leftovers.finish(launcher).returncode == 0  # they chose to end well


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_user_signals_are_handed_on(start, leftovers, name):
    launcher = start("-n", "2", "--", sys.executable, "-c", TRAP)
    read_lines(launcher, 2)
    for _ in range(3):
        launcher.send_signal(getattr(signal, name))
        assert read_lines(launcher, 2) == [f"0 {name}", f"1 {name}"]
    launcher.terminate()
    assert leftovers.finish(launcher).returncode == 0


def test_signals_kill_by_default(start, leftovers):
    launcher = start("-n", "2", "--", *SLEEP.split())
    ranks_of(launcher, SLEEP, 2)
    launcher.send_signal(signal.SIGINT)
    done = leftovers.finish(launcher)
    assert done.returncode == 130
    assert done.stderr.count("\n") == 1
    assert "killed by signal 2 (SIGINT)" in done.stderr


STUBBORN = "trap '' INT TERM; echo ready; while :; do sleep 0.1; done"


def test_second_interrupt_kills(start, leftovers):
    launcher = start("-n", "2", "--", "sh", "-c", STUBBORN)
    read_lines(launcher, 2)
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert launcher.poll() is None
    begin = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    assert leftovers.finish(launcher).returncode == 137
    assert time.monotonic() - begin < SLOWER


def test_grace_ends_in_sigkill(start, leftovers):
    launcher = start("-n", "2", "--", "sh", "-c", STUBBORN)
    read_lines(launcher, 2)
    begin = time.monotonic()
    launcher.send_signal(signal.SIGTERM)
    assert leftovers.finish(launcher).returncode == 137
    assert 4.5 < time.monotonic() - begin < 7 * SLOWER


def test_ignored_signals_stay_ignored(start, leftovers):
    """As under nohup."""
    launcher = start(
        "-n", "2", "--", *SLEEP.split(),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    ranks_of(launcher, SLEEP, 2)
    launcher.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert launcher.poll() is None
    launcher.terminate()
    assert leftovers.finish(launcher).returncode == 143


def stopped(pid):
    return read_proc(pid, "stat").rpartition(b")")[2].split()[:1] == [b"T"]


def test_suspend_and_resume(start, leftovers):
    launcher = start("-n", "2", "--", *SLEEP.split())
    ranks = ranks_of(launcher, SLEEP, 2)
    everybody = [launcher.pid, *ranks.values()]
    for _ in range(2):
        launcher.send_signal(signal.SIGTSTP)
        wait_until(lambda: all(map(stopped, everybody)), what="all stopped")
        launcher.send_signal(signal.SIGCONT)
        wait_until(lambda: not any(map(stopped, everybody)), what="all running")
    os.kill(ranks[0], signal.SIGSTOP)  # a stopped rank can be ended, too
    wait_until(lambda: stopped(ranks[0]))
    launcher.terminate()
    assert leftovers.finish(launcher).returncode == 143


# Output


def test_prefix(run):
    script = """
        printf 'a %s\\nb' $LOCKSTEP_RANK; sleep 0.1; printf ' c\\n\\n'
        echo error >&2; printf 'no newline'
    """
    done = run("-n", "3", "--prefix", "--", "sh", "-c", script)
    assert done.returncode == 0
    for r in range(3):
        mine = [line for line in done.stdout.splitlines() if line.startswith(f"[{r}] ")]
        assert mine == [f"[{r}] a {r}", f"[{r}] b c", f"[{r}] ", f"[{r}] no newline"]
    assert sorted(done.stderr.splitlines()) == ["[0] error", "[1] error", "[2] error"]


def test_prefix_keeps_lines_whole(run):
    """Much output, of several ranks, through one pipe."""
    program = "import os\nfor i in range(20000): print('%d:' % i + 'x' * (i % 200))"
    done = run("-n", "3", "--prefix", "--", sys.executable, "-c", program)
    counts = [0, 0, 0]
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"\[(\d)\] (\d+):(x*)", line)
        assert match, line
        rank, i = int(match[1]), int(match[2])
        assert (i, len(match[3])) == (counts[rank], i % 200)
        counts[rank] += 1
    assert counts == [20000] * 3


def test_prefix_and_a_slow_reader(start, leftovers):
    """Who does not read our output does not stop us from noticing a death."""
    program = "import sys\nwhile True: sys.stdout.write('y' * 70 + '\\n')"
    launcher = start("-n", "2", "--prefix", "--", sys.executable, "-c", program)
    ranks = ranks_of(launcher, "sys.stdout", 2)
    time.sleep(0.3)
    begin = time.monotonic()
    os.kill(ranks[0], signal.SIGKILL)
    assert launcher.stderr.readline() == "lockstep: rank 0: killed by signal 9 (SIGKILL)\n"
    assert time.monotonic() - begin < 0.5 * SLOWER
    assert leftovers.finish(launcher).returncode == 137


def test_prefix_and_a_closed_pipe(lockstep, leftovers):
    """As in `lockstep run ... | head -n 1`: the ranks end by SIGPIPE, and we with them."""
    command = f"{lockstep} run -n 2 --prefix -- yes | head -n 1"
    done = leftovers.run("sh", "-c", command, timeout=20)
    assert re.fullmatch(r"\[[01]\] y\n", done.stdout)
    assert "SIGPIPE" in done.stderr


def test_without_prefix_output_is_untouched(start, leftovers, tmp_path):
    with (tmp_path / "out").open("w") as out:
        launcher = start("-n", "2", "--", "readlink", "/proc/self/fd/1", stdout=out)
        assert launcher.wait(20 * SLOWER) == 0
    assert (tmp_path / "out").read_text() == f"{tmp_path}/out\n" * 2
    launcher.stderr.close()


# Speed


@pytest.mark.alone
def test_speed(lockstep, leftovers):
    """Start to end of two ranks: below 15 ms (here with room for a busy machine)."""
    times = []
    for _ in range(10):
        begin = time.monotonic()
        assert leftovers.run(lockstep, "run", "-n", "2", "--", "true").returncode == 0
        times.append(time.monotonic() - begin)
    assert min(times) < (0.5 if SANITIZED else 0.015), times
