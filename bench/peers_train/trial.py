"""What the training scripts share: the models' sizes, the timed loop, the talk with train-peers.

Each script is started with --model NAME --batch B (of a worker) --workers N, builds the model and
trains a few steps. It prints {"first_step": true} after the first, and when it is warm
    {"params": …}
Then, for each line of standard input, a number of seconds, it trains for so long and prints
    {"samples_per_s": …, "step_ms": … (the median), "fast_ms": … (the fastest tenth), "steps": …,
     "params": …, "peak_rss_mb": …, "core": … (the part of the time in which it had the core)}
until standard input ends: `echo 5 | python torch_train.py --model mlp --batch 128`. Several workers
are one process with several devices, or several processes, the first of which has the input.
"""
import argparse
import json
import math
import resource
import sys
import time

CLASSES = 10
MLP = (784, 512, 512, CLASSES)
RESNET_WIDTHS, RESNET_BLOCKS, IMAGE = (16, 32, 64), 3, 32
# vocabulary, context, layers, heads, width
GPT = {"gpt:nano": (65, 64, 4, 4, 128), "gpt:char": (65, 256, 6, 6, 384),
       "gpt:124m": (50257, 64, 12, 12, 768)}
TABLES, ROWS, WIDTH, DENSE = 26, 10000, 16, 13
BOTTOM = (DENSE, 512, 256, 64, WIDTH)
TOP = (WIDTH + (TABLES + 1) * TABLES // 2, 512, 256, 1)
IDS = 16  # of dlrm: so many sets of row numbers take turns, as in `lockstep bench train`
SGD_RATE, MOMENTUM, ADAMW_RATE, ADAMW_DECAY = 0.01, 0.9, 1e-4, 0.01
WARM_UP = 3


def parse(*flags):
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "resnet:20", *GPT, "dlrm"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


class Alone:
    """The only process. A group of several has the same members."""
    size, first = 1, True

    def agree(self, value):
        """What the first process says, to all."""
        return value


def say(**values):
    print(json.dumps(values), flush=True)


def timed(step, seconds, count=0):
    """The median step, the fastest tenth, the number of steps, the part of the time in which they
    had the core. step() returns when the step is done. With a count so many steps, however long."""
    step()  # what others did meanwhile has emptied the caches
    times, start, used = [], time.perf_counter(), time.process_time()
    while len(times) < (count or 3) or not count and time.perf_counter() < start + seconds:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    core = (time.process_time() - used) / (time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2], times[len(times) // 10], len(times), core


def warm_up(step, group):
    """The time of the last of a few steps."""
    for i in range(WARM_UP):
        begin = time.perf_counter()
        step()
        if i == 0 and group.first:
            say(first_step=True)
    return time.perf_counter() - begin


def serve(step, params, samples, others=None, group=Alone()):
    """samples: of a step, of all workers. others: by a word that may stand instead of a number of
    seconds, functions giving numbers."""
    last = warm_up(step, group)
    if group.first:
        say(params=params)
    while word := group.agree(sys.stdin.readline().strip() if group.first else ""):
        if others and word in others:
            say(**others[word]())
            continue
        # processes that wait for each other in each step must all take the same number of steps
        count = group.agree(max(3, math.ceil(float(word) / last))) if group.size > 1 else 0
        last, fast, steps, core = timed(step, float(word), count)
        if group.first:
            say(samples_per_s=samples / last, step_ms=last * 1e3, fast_ms=fast * 1e3, steps=steps,
                params=params, core=core,
                peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
