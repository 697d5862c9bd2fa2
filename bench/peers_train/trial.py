"""What the training scripts share: the models' sizes, the timed loop, the talk with train-peers.

Each script is started with --model NAME --batch B, builds the model, trains a few steps, and prints
    {"params": …}
Then, for each line of standard input, a number of seconds, it trains for so long and prints
    {"samples_per_s": …, "step_ms": … (the median), "steps": …, "params": …, "peak_rss_mb": …,
     "core": … (the part of the time in which it had the core)}
until standard input ends: `echo 5 | python torch_train.py --model mlp --batch 128`.
"""
import argparse
import json
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
SGD_RATE, MOMENTUM, ADAMW_RATE, ADAMW_DECAY = 0.01, 0.9, 1e-4, 0.01
WARM_UP = 3


def parse(*flags):
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "resnet:20", *GPT, "dlrm"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def say(**values):
    print(json.dumps(values), flush=True)


def timed(step, seconds):
    """The median step, the number of steps, the part of the time in which they had the core. step()
    returns when the step is done."""
    step()  # what others did meanwhile has emptied the caches
    times, start, used = [], time.perf_counter(), time.process_time()
    while len(times) < 3 or time.perf_counter() < start + seconds:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    core = (time.process_time() - used) / (time.perf_counter() - start)
    return sorted(times)[len(times) // 2], len(times), core


def serve(step, params, batch, others=None):
    """others: by a word that may stand instead of a number of seconds, functions giving numbers."""
    for _ in range(WARM_UP):
        step()
    say(params=params)
    for line in sys.stdin:
        word = line.strip()
        if others and word in others:
            say(**others[word]())
            continue
        median, steps, core = timed(step, float(word))
        say(samples_per_s=batch / median, step_ms=median * 1e3, steps=steps, params=params,
            peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, core=core)
