"""Gloo through PyTorch: the protocol and loops of driver.c, one process a rank.

    gloo.py -n RANKS RENDEZVOUS-FILE      starts the ranks and waits for them
"""
import datetime
import os
import socket
import subprocess
import sys
import time


def launch(ranks, rendezvous):
    """Starts itself once a rank, pinned like those of driver.c; returns the worst exit status."""
    cores = [int(x) for x in os.environ["BENCH_CORES"].split(",")]
    children = []
    for rank in range(ranks):
        env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", BENCH_RANK=str(rank))
        children.append(subprocess.Popen(
            [sys.executable, __file__, "-n", str(ranks), rendezvous], env=env,
            preexec_fn=lambda core=cores[rank % len(cores)]: os.sched_setaffinity(0, [core])))
    return max(child.wait() for child in children)


class Rank:
    def __init__(self, rank, size, rendezvous):
        import torch
        import torch.distributed as dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank,
                                world_size=size, timeout=datetime.timedelta(seconds=120))
        self.torch, self.all_reduce, self.leave = torch, dist.all_reduce, dist.destroy_process_group
        self.rank, self.size = rank, size
        self.buffer = torch.zeros(max(64, int(os.environ["BENCH_MAX_BYTES"])) // 4)

    def check(self, nbytes):
        count, wrong = nbytes // 4, 0
        part, period = self.buffer[:count], self.torch.arange(101) * 7
        for turn in range(1 if nbytes > 4 << 20 else 3):
            values = [(period + r * 13 + turn) % 101 for r in range(self.size)]
            part.copy_(values[self.rank].repeat(count // 101 + 1)[:count])
            self.all_reduce(part)
            wrong += int((part != sum(values).repeat(count // 101 + 1)[:count]).sum())
        part.zero_()
        return f"checked {wrong}"

    def touch_all_reduce(self, part):
        part.zero_()
        self.all_reduce(part)
        part.sum()

    def run(self, all_reduce, nbytes, warm, samples, batch):
        part, now = self.buffer[:nbytes // 4], time.monotonic_ns
        for _ in range(warm):
            all_reduce(part)
        stamps = [now()]
        for _ in range(samples):
            for _ in range(batch):
                all_reduce(part)
            stamps.append(now())
        return "ran " + " ".join(str(b - a) for a, b in zip(stamps, stamps[1:]))

    def serve(self, script):
        script.write(f"hello {self.rank} {self.size} {os.getpid()}\n")
        script.flush()
        for line in script:
            word, *numbers = line.split()
            if word == "quit":
                break
            numbers = [int(x) for x in numbers]
            if word == "check":
                answer = self.check(*numbers)
            else:
                call = self.touch_all_reduce if word == "touch" else self.all_reduce
                answer = self.run(call, *numbers)
            script.write(answer + "\n")
            script.flush()
        self.leave()


def main():
    size, rendezvous = int(sys.argv[2]), sys.argv[3]
    if "BENCH_RANK" not in os.environ:
        return launch(size, rendezvous)
    rank = Rank(int(os.environ["BENCH_RANK"]), size, rendezvous)
    script = socket.socket(socket.AF_UNIX)
    script.connect(os.environ["BENCH_SOCKET"])
    rank.serve(script.makefile("rw"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
