"""How far apart the cores are, now. A virtual machine's are moved: two share a cache, or do not, or
are the halves of one, and what goes between them takes half or four times as long. What is compared
has to be measured in the same situation.
"""
import os
import statistics
import subprocess

from shared import CORES, command

APART, TRIES = 1.8, 4  # a trip of a line that is so much longer or shorter is another situation


class Cores:
    """The first two of them; `work` is a folder for the program that looks (trip.c)."""

    def __init__(self, work):
        self.trips, self.process = [], None
        if len(CORES) > 1:
            source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trip.c")
            program = os.path.join(work, "trip")
            command([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-pthread", "-o", program,
                     source], "compiler")
            self.process = subprocess.Popen(
                [program, str(CORES[0]), str(CORES[1])], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE)

    def trip(self):
        """Nanoseconds of a cache line's way to the other core and back."""
        if not self.process:
            return 0
        print(file=self.process.stdin, flush=True)
        self.trips.append(float(self.process.stdout.readline()))
        return self.trips[-1]

    def are_as_usual(self, trip):
        """As in most runs: all are compared in the same situation, not each in its best one."""
        usual = statistics.median(self.trips) if self.trips else 0
        return usual / APART <= trip <= usual * APART

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def alike(trips):
    """Were the cores as far apart each time?"""
    return max(trips) <= min(trips) * APART
