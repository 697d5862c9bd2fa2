"""The implementations that allreduce-peers measures: how each is installed, built and started.

To add one: its title, its settings in ALONE and CROWDED, and how to start it (start_commands).
"""
import os
import shutil

from shared import (
    CORES, ROOT, NotAvailable, command, isolated, pip_install, torch_venv, venv)

SOURCES = os.path.dirname(os.path.abspath(__file__))

TITLES = {"openmpi4": "Open MPI 4", "openmpi5": "Open MPI 5", "mpich5": "MPICH 5",
          "intelmpi": "Intel MPI", "gloo": "Gloo", "lockstep": "Lockstep",
          "lockstep-foreign": "Lockstep, foreign buffers", "lockstep-tcp": "Lockstep, TCP"}
PACKAGES = {"openmpi5": ["openmpi<6"], "mpich5": ["mpich<6"], "intelmpi": ["impi-rt"]}

OPENMPI = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]  # driver.c pins
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # malloc asks for huge pages


def mca(**values):
    return [x for key, value in values.items() for x in ("--mca", key, str(value))]


def algorithm(number, **values):
    return mca(coll_tuned_use_dynamic_rules=1, coll_tuned_allreduce_algorithm=number, **values)


def cvar(**values):
    return {"MPIR_CVAR_" + key: str(value) for key, value in values.items()}


# What is tried of each: label, arguments of its launcher, environment. The best of many that were
# measured; of more, each would only add its noise. A library's own settings come without malloc's
# huge pages, and with them (HUGE_LABEL): those are a setting of the program, not of the library.
BIG_CELLS = cvar(ALLREDUCE_POSIX_INTRA_ALGORITHM="release_gather",
                 REDUCE_INTRANODE_BUFFER_TOTAL_SIZE=1 << 20, REDUCE_INTRANODE_NUM_CELLS=4,
                 BCAST_INTRANODE_BUFFER_TOTAL_SIZE=1 << 20, BCAST_INTRANODE_NUM_CELLS=4)
EAGER = mca(btl_vader_eager_limit=1 << 16, btl_vader_max_send_size=1 << 17,
            btl_sm_eager_limit=1 << 16, btl_sm_max_send_size=1 << 17)
YIELD = mca(mpi_yield_when_idle=1)
HUGE_LABEL = "-huge"


def both(*settings):
    """Each of them without malloc's huge pages and with them."""
    return [(label + more, args, {**env, **pages}) for label, args, env in settings
            for more, pages in (("", {}), (HUGE_LABEL, HUGE))]


DEFAULT = ("default", [], {})
ALONE = {  # a core for each rank
    "openmpi": [DEFAULT, *both(
        ("eager", EAGER, {}),
        ("ring", algorithm(5, coll_tuned_allreduce_algorithm_segmentsize=1 << 20), {}))],
    "mpich": [DEFAULT, *both(
        ("big-cells", [], BIG_CELLS),
        ("p2p", [], cvar(ALLREDUCE_POSIX_INTRA_ALGORITHM="mpir")))],
    "intelmpi": [("default", [], {"I_MPI_FABRICS": "shm"}), *both(
        ("14", [], {"I_MPI_FABRICS": "shm", "I_MPI_ADJUST_ALLREDUCE": "14"}))],
    "gloo": both(DEFAULT),
    "lockstep": [DEFAULT],
    "lockstep-foreign": both(DEFAULT),
    "lockstep-tcp": [DEFAULT],
}
CROWDED = {  # more ranks than cores
    **ALONE,
    "openmpi": [("yield", YIELD, {}), *both(
        ("linear", YIELD + algorithm(1), {}), ("rabenseifner", YIELD + algorithm(6), {}))],
    # with its collectives in shared memory, MPICH waits without yielding: 8 ms for 8 bytes
    "mpich": [("p2p-yield", [], cvar(DEVICE_COLLECTIVES="none", POLLS_BEFORE_YIELD=1)),
              *both(("p2p", [], cvar(DEVICE_COLLECTIVES="none")))],
    "intelmpi": [("default", [], {"I_MPI_FABRICS": "shm"}), *both(
        ("spin-1", [], {"I_MPI_FABRICS": "shm", "I_MPI_SPIN_COUNT": "1"}))],
}


def mpi_venv(peer):
    def then(path):
        if peer == "intelmpi":  # its wheel has no mpi.h; MPICH's describes the same ABI
            headers = os.path.join(path, "mpich")
            pip_install(path, ["--no-deps", "--target", headers, *PACKAGES["mpich5"]])

    return venv(peer, TITLES[peer], PACKAGES[peer], then)


def compile_driver(work, peer, implementation, flags):
    program = os.path.join(work, peer)
    command([os.environ.get("CC", "cc"), "-std=c11", "-O3", "-o", program,
             os.path.join(SOURCES, "driver.c"), os.path.join(SOURCES, implementation), *flags],
            "compiler")
    return program


def start_mpi(peer, work):
    """Installs and builds; the command before the settings' arguments, and after; environment."""
    env = {}
    if peer == "openmpi4":
        if not shutil.which("mpirun.openmpi") or not shutil.which("mpicc.openmpi"):
            command(["apt-get", "install", "-y", "--no-install-recommends", "openmpi-bin",
                     "libopenmpi-dev"], "apt-get")
        launcher = "mpirun.openmpi"
        flags = (command(["mpicc.openmpi", "--showme:compile"], "mpicc") + " " +
                 command(["mpicc.openmpi", "--showme:link"], "mpicc")).split()
    else:
        path = mpi_venv(peer)
        launcher, lib = os.path.join(path, "bin/mpirun"), os.path.join(path, "lib")
        include = os.path.join(path, "mpich/include" if peer == "intelmpi" else "include")
        flags = ["-I" + include, "-L" + lib, "-lmpi", "-Wl,-rpath," + lib]
        env = {"PATH": os.path.join(path, "bin") + ":" + os.environ["PATH"]}
        if peer == "intelmpi":
            env.update(I_MPI_ROOT=path, I_MPI_PIN="0")
    common = OPENMPI if peer.startswith("openmpi") else []
    return [launcher, *common], [compile_driver(work, peer, "impl_mpi.c", flags)], env


def start_lockstep(name, work, build):
    launcher = os.path.join(build, "lockstep")
    if not os.path.exists(launcher):
        raise NotAvailable(f"no {launcher}; build it with: meson compile -C {build}")
    program = compile_driver(work, name, "impl_lockstep.c", [
        "-I" + os.path.join(ROOT, "include"), "-L" + build, "-llockstep", "-Wl,-rpath," + build])
    env = {"BENCH_FOREIGN": "1"} if name == "lockstep-foreign" else {}
    prefix = []
    if name == "lockstep-tcp":
        prefix, env["LOCKSTEP_TRANSPORT"] = isolated(), "tcp"
    return prefix + [launcher, "run"], ["--bind", "core", "--", program], env


def start_gloo(work):
    python = os.path.join(torch_venv(), "bin/python")
    # the ranks meet at a file, each setting at one of its own
    script, meet = os.path.join(SOURCES, "gloo.py"), os.path.join(work, "gloo-meet-{label}")
    return isolated() + [python, script], [meet], {}


def start_commands(name, work, ranks, build):
    """Yields (label, command, environment) for each setting of name; may raise NotAvailable."""
    if name.startswith("lockstep"):
        head, tail, env = start_lockstep(name, work, os.path.abspath(build))
    elif name == "gloo":
        head, tail, env = start_gloo(work)
    else:
        head, tail, env = start_mpi(name, work)
    for label, args, more in (CROWDED if ranks > len(CORES) else ALONE)[name.rstrip("45")]:
        ends = [word.replace("{label}", label) for word in tail]
        yield label, [*head, *args, "-n", str(ranks), *ends], {**env, **more}
