"""Runs all tests and counts them; scripts/test calls this once the packages are there.

A unit is one check, one meson test or one pytest test. What should yield units and yields none, a
failed build or a suite that is empty, counts as one failed unit: silence is not success.

Much of a test that starts processes is waiting, and a build never waits: both at once keep the
machine busy. A stage is therefore of a kind, and the kind says what may run beside it:

  behind   builds and C tests: with the processor time that nobody else wants, one stage at a time
  timed    pytest files that assert how long something takes, and C tests that do (the suite
           "clock"): beside one that is behind
  loud     pytest files that do not, and C tests whose ranks wait for each other (GROUPS): two at a
           time, and one that is behind
  alone    what asserts milliseconds (the pytest mark "alone"): by itself, at the end

Those that are ready start in the order in which run_all names them.

Deadlines mean little while a hypervisor gives the processors to somebody else. If it did in a stage
in which something failed, that is said (STOLEN); it excuses nothing.
"""

import argparse
import collections
import fcntl
import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "build-logs")
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's pytest
AARCH64 = "build-aarch64"
TAIL_LINES = 60
BUILD_LIMIT_S = 1800
TEST_LIMIT_S = 3600  # of a whole stage; each C test has a time-out of its own
BEHIND = ["scripts/behind"]
POLITE_S = 15  # what a child gets to end by itself before it is killed
STOLEN = 0.05  # share of the processors' time, from which on a stage was disturbed

# malloc may fail, as it may without a sanitizer: our tests ask for too much on purpose.
SANITIZER_ENV = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1:handle_sigill=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1",
}
OPTIONS = ["--buildtype=debugoptimized", "-Dtests=enabled"]
# Line numbers are all that a report needs of the debugger's information, and -O1 is enough for
# sanitizers. What is undefined is a trap: tests/conftest.py says why; it takes the compiler less
# time than a message, too.
LINES = ["-Dc_args=-g1", "-Dcpp_args=-g1"]
TRAPS = [f"{words} -fsanitize-undefined-trap-on-error" for words in LINES]
PLAIN = [*OPTIONS, *LINES, "-Dwerror=true"]
CROSS = [*OPTIONS, "-Dwerror=true"]  # the arguments of the compiler are in its cross file
SANITIZE = [*OPTIONS, "-Doptimization=1", "-Db_lundef=false"]
ASAN = [*SANITIZE, *TRAPS, "-Db_sanitize=address,undefined"]
TSAN = [*SANITIZE, *LINES, "-Db_sanitize=thread"]

# The pytest files that assert how long something takes, the longest first.
TIMED = ["elastic", "chaos", "faults", "hosts", "run", "run_hosts", "security"]
# Others that take long: they are begun before the rest, which follows in the order of the alphabet.
LONG = ["train", "train_hosts", "join_data", "bench"]
# The suites of C tests in which ranks or workers wait for each other.
GROUPS = ["coll", "launch", "parallel"]
# What runs with the sanitizers each time: every command and every way to fail, with little to
# compute, at which they are slow. (scripts/test --asan-all runs all.)
SANITIZED = ["faults", "run", "run_hosts", "hosts", "security", "train_faults", "info", "hash"]
SANITIZED += ["examples", "install"]  # files, then tests of others
SANITIZED_TESTS = [
    "test_bench.py::test_two_hosts",
    "test_bench.py::test_algorithm",
    "test_chaos.py::test_nothing_happens",
    "test_elastic.py::test_restarts_have_a_limit",
    "test_elastic.py::test_second_of_two_hosts_dies",
    "test_elastic.py::test_store_that_is_lost",
    "test_join_data.py::test_the_data_goes_away",
    "test_train.py::test_every_sample_once_an_epoch",
]

# outcome is "passed", "failed" or "skipped"; log, if any, is where more can be read
Unit = collections.namedtuple("Unit", "name outcome output log", defaults=("", ""))


class Interrupted(BaseException):
    """A signal asked us to stop."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


def on_signal(number, _frame):
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough: cleaning up is short
    raise Interrupted(number)


def tail(text, lines=TAIL_LINES):
    """Returns the last lines of a text, indented."""
    kept = text.rstrip().splitlines()
    if len(kept) > lines:
        kept = [f"[{len(kept) - lines} lines before]"] + kept[-lines:]
    return "\n".join("    " + line for line in kept)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def stop(process, polite):
    """Ends a child: politely first, so that it ends its own children, then its whole group."""
    process.send_signal(polite)
    try:
        process.wait(POLITE_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


running = {}  # processes of ours, and the signal that ends each politely
lock = threading.Lock()  # of that, and of what is printed and counted


def execute(command, log, limit, env=None, polite=signal.SIGTERM):
    """Runs a command with its output in the file log; returns its exit code, None on time-out."""
    with open(log, "ab") as out:
        with lock:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone, and we stop the child
            )
            running[process] = polite
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            stop(process, polite)
            out.write(f"stopped: still running after {limit} s\n".encode())
            return None
        finally:
            running.pop(process)


def run_check(log, script, *args):
    code = execute([PYTHON, os.path.join("scripts", script), *args], log, 120)
    return [Unit(" ".join([script, *args]), "failed" if code != 0 else "passed", read(log))]


def suites_programs(folder, suites):
    """Returns the targets of the tests in these suites."""
    with open(os.path.join(ROOT, folder, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
        tests = json.load(f)
    wanted = [t for t in tests if any(s.split(":")[-1] in suites for s in t["suite"])]
    return sorted({os.path.relpath(t["cmd"][0], os.path.join(ROOT, folder)) for t in wanted})


def run_build(log, folder, options, setup=("meson", "setup"), targets=(), suites=()):
    """Configures (afresh when the options are not those of last time) and compiles: all, or these
    targets and the tests of these suites."""
    path = os.path.join(ROOT, folder)
    stamp = os.path.join(path, "lockstep-options")
    wanted = " ".join([os.environ.get("CC", ""), *options])
    if not os.path.exists(stamp) or read(stamp) != wanted:
        shutil.rmtree(path, ignore_errors=True)
        code = execute([*setup, folder, *options], log, BUILD_LIMIT_S)
        if code != 0:
            return [Unit(" ".join([*setup, folder]), "failed", read(log), log)]
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(wanted)
    if suites:
        targets = [*targets, *suites_programs(folder, suites)]
    code = execute([*BEHIND, "ninja", "-C", folder, *targets], log, BUILD_LIMIT_S)
    return [] if code == 0 else [Unit(f"ninja -C {folder}", "failed", read(log), log)]


def parse_meson(path):
    """Yields the units of one of meson's logs, a JSON object a line."""
    outcomes = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
    for line in read(path).splitlines() if os.path.exists(path) else ():
        test = json.loads(line)
        result = test["result"]
        output = f"{test.get('stdout') or ''}\n{test.get('stderr') or ''}".strip()
        note = f"{result}, exit code {test['returncode']}, {test['duration']:.1f} s"
        log = path.removesuffix(".json") + ".txt"
        yield Unit(test["name"], outcomes.get(result, "failed"), f"{output}\n{note}", log)


def run_meson(log, folder, name, select=(), slower=1, before=(), behind=True):
    """Runs the meson tests of a build folder; name is for their log."""
    logs = f"{name}-{os.path.basename(*BEHIND)}.json" if behind else f"{name}.json"  # by meson
    results = os.path.join(ROOT, folder, "meson-logs", logs)
    if os.path.exists(results):
        os.remove(results)
    command = [*before, "meson", "test", "-C", folder, "--no-rebuild", "--logbase", name]
    command += ["--timeout-multiplier", str(slower), *select]
    if behind:  # each test is a session of its own
        command += ["--wrapper", os.path.join(ROOT, *BEHIND)]
    code = execute(command, log, TEST_LIMIT_S, SANITIZER_ENV)
    units = list(parse_meson(results))
    if not units:
        units.append(Unit(f"{name}: no tests were run", "failed", read(log), log))
    elif code != 0 and all(u.outcome != "failed" for u in units):
        units.append(Unit(f"meson test {name} ended with {code}", "failed", read(log), log))
    return units


def parse_junit(path, log):
    """Returns the units of a JUnit file; a test that fails twice (call, teardown) is one."""
    units = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        bad = [c for c in case if c.tag in ("failure", "error")]
        outcome = "failed" if bad else "passed" if case.find("skipped") is None else "skipped"
        texts = [c.text or c.get("message", "") for c in bad]
        texts += [c.text or "" for c in case if c.tag in ("system-out", "system-err")]
        output = "\n".join(filter(str.strip, texts))
        if name in units and units[name].outcome == "failed":
            outcome, output = "failed", f"{units[name].output}\n{output}"
        units[name] = Unit(name, outcome, output, log)
    return list(units.values())


def run_pytest(log, tests, args, build="build-test", mark="not alone", aarch64=False):
    """Runs pytest tests with a build; aarch64 says whether there is one for that, too."""
    results = log.removesuffix(".log") + ".xml"
    if os.path.exists(results):
        os.remove(results)
    command = [PYTHON, "-m", "pytest", *tests, "-v", "--color=no", "-p", "no:cacheprovider"]
    command += [f"--junitxml={results}", "-o", "junit_logging=out-err", "-m", mark]
    command += ["-o", "junit_log_passing_tests=false", "-o", "faulthandler_timeout=300"]
    if args.k:
        command += ["-k", args.k]
    env = {"LOCKSTEP_BUILD": os.path.join(ROOT, build), "PYTHONDONTWRITEBYTECODE": "1"}
    env["LOCKSTEP_BUILD_AARCH64"] = os.path.join(ROOT, AARCH64) if aarch64 else ""
    # Only on SIGINT does pytest run the teardowns, which end the workers that a test started.
    code = execute(command, log, TEST_LIMIT_S, env, polite=signal.SIGINT)
    units = parse_junit(results, log) if os.path.exists(results) else []
    nothing_matched = code == 5 and args.k
    if code != 0 and not nothing_matched and all(u.outcome != "failed" for u in units):
        units.append(Unit(f"pytest ended with {code}", "failed", read(log), log))
    return units


class Stage:
    """What is to be done: function(log, *args) returns units; after are those that must go well."""

    def __init__(self, kind, name, after, function, args):
        self.kind, self.name, self.after = kind, name, after
        self.function, self.args = function, args
        self.units = None  # until it has ended

    def is_ready(self):
        return all(other.went_well() for other in self.after)

    def went_well(self):
        return self.units is not None and all(unit.outcome != "failed" for unit in self.units)

    def went_wrong(self):
        return self.units is not None and not self.went_well()


def read_stolen():
    """The processors' time so far: what a hypervisor gave to others, and all of it."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(word) for word in f.readline().split()[1:9]]
    return ticks[7], sum(ticks)


class Session:
    """Runs stages as the rules above allow, says how each went, and keeps the count."""

    def __init__(self):
        self.count = collections.Counter()
        self.stages = []  # all, in the order in which they may start
        self.active = []
        self.changed = threading.Condition()
        self.number = 0

    def add(self, kind, name, function, *args, after=()):
        stage = Stage(kind, name, after, function, args)
        self.stages.append(stage)
        return stage

    def may_start(self, stage):
        kinds = collections.Counter(other.kind for other in self.active)
        waiting = {other.kind for other in self.stages}
        ready = {other.kind for other in self.stages if other.is_ready()}
        return stage.is_ready() and {
            "behind": kinds["behind"] == 0,
            "timed": kinds["timed"] + kinds["loud"] == 0,
            "loud": kinds["timed"] == 0 and kinds["loud"] < 2 and "timed" not in ready,
            "alone": not self.active and waiting == {"alone"},
        }[stage.kind]

    def run(self):
        """Runs all that was added; what waits for a stage that went wrong is not run."""
        with self.changed:
            while self.stages or self.active:
                lost = [s for s in self.stages if any(a.went_wrong() for a in s.after)]
                for stage in lost:
                    stage.units = [Unit(stage.name, "failed")]  # nor what waits for it
                    self.stages.remove(stage)
                    print(f"{stage.name:<30}not run, for want of {stage.after[0].name}", flush=True)
                ready = next(filter(self.may_start, self.stages), None)
                if ready:
                    self.stages.remove(ready)
                    self.active.append(ready)
                    threading.Thread(target=self.perform, args=(ready,), daemon=True).start()
                elif not lost:
                    self.changed.wait()

    def perform(self, stage):
        with lock:
            self.number += 1
            name = f"{self.number:02d}-{re.sub('[^a-z0-9-]+', '-', stage.name.lower())}.log"
        log = os.path.join(LOGS, name)
        open(log, "w", encoding="utf-8").close()
        start, before = time.monotonic(), read_stolen()
        try:
            units = stage.function(log, *stage.args)
        except Exception:  # a fault of this file: one failed unit, not a hang
            units = [Unit(stage.name, "failed", traceback.format_exc(), log)]
        stolen, all_time = (now - then for now, then in zip(read_stolen(), before))
        with lock:
            self.report(stage.name, units, time.monotonic() - start)
            if stolen > STOLEN * all_time and any(unit.outcome == "failed" for unit in units):
                print(f"{stage.name}: {stolen / all_time:.0%} of the processors' time went to "
                      "others", flush=True)
        with self.changed:
            stage.units = units
            self.active.remove(stage)
            self.changed.notify()

    def report(self, name, units, seconds):
        count = collections.Counter(unit.outcome for unit in units)
        self.count += count
        words = [f"{count['passed']} ok" if units else "done"]
        if count["failed"]:
            words.append(f"{count['failed']} FAILED")
        if count["skipped"]:
            words.append(f"{count['skipped']} skipped")
        print(f"{name:<30}{', '.join(words):<28}{seconds:7.1f} s", flush=True)
        for unit in units:
            if unit.outcome == "failed":
                more = f" (more in {os.path.relpath(unit.log, ROOT)})" if unit.log else ""
                print(f"--- FAILED: {unit.name}{more}\n{tail(unit.output)}", flush=True)

    def abandon(self):
        """Ends what is running, politely; nothing is said of it any more."""
        lock.acquire()
        for process, polite in list(running.items()):
            stop(process, polite)


def pytest_files():
    """Returns the names between test_ and .py, those first that take long."""
    names = os.listdir(os.path.join(ROOT, "tests"))
    found = sorted(n[5:-3] for n in names if n.startswith("test_") and n.endswith(".py"))
    first = [*TIMED, *LONG]
    return [*first, *(name for name in found if name not in first)]


def add_pytest(session, args, names, after, build="build-test", label="", **more):
    """One stage a file."""
    for name in names:
        kind = "timed" if name in TIMED and not label else "loud"
        tests = [f"tests/test_{name}.py"]
        run = functools.partial(run_pytest, tests=tests, args=args, build=build, **more)
        session.add(kind, f"{label}pytest {name}", run, after=after)


def add_c_tests(session, label, folder, name, select, slower, after):
    """Three stages: those that look at the clock, those with ranks that wait for each other, which
    give up after some seconds, and the others."""
    run = functools.partial(run_meson, select=["--suite", "clock"], slower=slower, behind=False)
    session.add("timed", f"{label}C tests, clock", run, folder, f"{name}-clock", after=after)
    groups = [word for suite in GROUPS for word in ("--suite", suite)] + ["--no-suite", "clock"]
    run = functools.partial(run_meson, select=groups, slower=slower, behind=False)
    session.add("loud", f"{label}C tests, groups", run, folder, f"{name}-groups", after=after)
    rest = [word for suite in ("clock", *GROUPS) for word in ("--no-suite", suite)]
    run = functools.partial(run_meson, select=[*select, *rest], slower=slower)
    session.add("behind", f"{label}C tests", run, folder, name, after=after)


def add_sanitized(session, args):
    """The C tests under ASan+UBSan, and those with threads under TSan; pytest tests under ASan."""
    asan = session.add("behind", "build-asan", run_build, "build-asan", ASAN)
    build = functools.partial(run_build, suites=["threads"])
    tsan = session.add("behind", "build-tsan", build, "build-tsan", TSAN)
    add_c_tests(session, "ASan: ", "build-asan", "asan", [], 8, [asan])
    # TSan of GCC 12 cannot live with the address randomisation of newer kernels.
    fixed = ["setarch", "-R"]
    if subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode:
        fixed = []
    select = ["--suite", "threads"]
    run = functools.partial(run_meson, select=select, slower=16, before=fixed, behind=False)
    session.add("loud", "TSan: C tests", run, "build-tsan", "tsan", after=[tsan])
    # Limits are longer there, of milliseconds too.
    more = {"build": "build-asan", "mark": "alone or not alone"}
    names = [name for name in pytest_files() if name != "aarch64"] if args.asan_all else SANITIZED
    add_pytest(session, args, names, [asan], label="ASan: ", **more)
    if not args.asan_all:
        tests = [os.path.join("tests", test) for test in SANITIZED_TESTS]
        run = functools.partial(run_pytest, tests=tests, args=args, **more)
        session.add("loud", "ASan: pytest, some of others", run, after=[asan])


def add_aarch64(session):
    """What computes, built for aarch64 and run under emulation; returns the stage that builds."""
    suites = ["device", "graph", "nn", "optim"]
    targets = ["lockstep", "tests/programs/libemulated.so"]
    setup = ["scripts/cross-aarch64"]
    build = functools.partial(run_build, setup=setup, targets=targets, suites=suites)
    built = session.add("behind", AARCH64, build, AARCH64, CROSS)
    # The long one compares whole models with numbers of PyTorch; tests/test_aarch64.py compares
    # them with this machine, to the bit.
    select = [word for suite in suites for word in ("--suite", suite)] + ["--no-suite", "long"]
    run = functools.partial(run_meson, select=select, slower=16)
    session.add("behind", "aarch64: C tests", run, AARCH64, "aarch64", after=[built])
    return built


def run_all(session, args):
    plain = session.add("behind", "build-test", run_build, "build-test", PLAIN)
    for script in ("check-layers", "check-style"):
        session.add("timed", script, run_check, script)
        session.add("timed", script + " selftest", run_check, script, "--selftest")
    names = pytest_files()
    names.remove("aarch64")
    add_pytest(session, args, names, [plain])
    crosses = not args.quick and os.uname().machine == "x86_64"
    if not args.quick:
        add_sanitized(session, args)
    built = [add_aarch64(session)] if crosses else []
    add_pytest(session, args, ["aarch64"], [plain, *built], aarch64=crosses)
    add_c_tests(session, "", "build-test", "unit", ["--no-suite", "fuzz"], 4, [plain])
    select = ["--suite", "fuzz"]
    session.add("behind", "fuzz corpora", run_meson, "build-test", "fuzz", select, 4, after=[plain])
    alone = functools.partial(run_pytest, tests=["tests"], args=args, mark="alone")
    session.add("alone", "pytest, alone", alone, after=[plain])
    session.run()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--asan-all", action="store_true")
    parser.add_argument("-k")
    args = parser.parse_args()

    os.makedirs(LOGS, exist_ok=True)
    session, code, begin = Session(), 0, time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    try:
        with open(os.path.join(LOGS, "lock"), "w", encoding="utf-8") as only:
            try:
                fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("waiting for another scripts/test in this folder", flush=True)
                fcntl.flock(only, fcntl.LOCK_EX)
            run_all(session, args)
    except Interrupted as interrupted:
        session.abandon()
        code = 128 + interrupted.number
        print(f"\ninterrupted by {interrupted}")

    passed, failed = session.count["passed"], session.count["failed"]
    if failed or not passed:
        code = code or 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - begin:.0f} s, of processors {used.ru_utime + used.ru_stime:.0f} s")
    print(f"{passed} passed, {failed} failed", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
