"""gpt:nano trained on a text by PyTorch, as a config.ini of `lockstep train` says.

The same letters, windows and held-out part; initial weights from the same distribution; the
schedule, the optimizer and its groups, clipping, batch and steps of the file. The order of the
windows, like the weights, comes from PyTorch's own generator. For each seed it prints
    {"seed": …, "eval_loss": …, "seconds": …}
"""
import argparse
import configparser
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

import torch_train

EVAL_BATCH = 256


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    return parser.parse_args()


def windows(tokens, context):
    """Samples that do not overlap, (n, context + 1): inputs, and targets one further."""
    count = (len(tokens) - 1) // context
    return tokens[:count * context + 1].unfold(0, context + 1, context)


def data_of(path, context, holdout):
    """Windows to train on, windows held out, the number of letters."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    number = {letter: i for i, letter in enumerate(sorted(set(text)))}
    tokens = torch.tensor([number[letter] for letter in text])
    first = len(tokens) - int(len(tokens) * holdout)
    return windows(tokens[:first], context), windows(tokens[first:], context), len(number)


def initialise(net, layers):
    """As GPT-2: 0.02, what is added to the residual divided by the root of their number."""
    for name, p in net.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(p)
        elif p.dim() > 1:
            residual = ".out." in name or ".back." in name
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)


def optimizer_of(net, o):
    """No decay for biases and norms."""
    params = list(net.parameters())
    groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": float(o["decay"])},
              {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=float(o["lr"]), eps=float(o["eps"]), fused=True,
                             betas=(float(o["beta1"]), float(o["beta2"])))


def rate_at(step, steps, o):
    """Warm-up, then a cosine, as src/optim/schedule.c has it."""
    lr, least, warm = float(o["lr"]), float(o["min_lr"]), int(o["warmup"])
    if step < warm:
        return lr * (step + 1) / (warm + 1)
    return least + (lr - least) * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def loss_of(net, samples, reduction="mean"):
    out = net(samples[:, :-1])
    return F.cross_entropy(out.flatten(0, 1), samples[:, 1:].flatten(), reduction=reduction)


def evaluate(net, samples):
    with torch.no_grad():
        total = sum(loss_of(net, part, "sum").item() for part in samples.split(EVAL_BATCH))
    return total / (len(samples) * (samples.shape[1] - 1))


def train(seed, config, train_on, vocab):
    o, steps = config["optimizer"], config.getint("train", "steps")
    batch, layers = config.getint("train", "batch"), config.getint("model", "layers")
    torch.manual_seed(seed)
    net = torch_train.GPT(vocab, *(config.getint("model", key)
                                   for key in ("context", "layers", "heads", "dim")))
    initialise(net, layers)
    optimizer, order = optimizer_of(net, o), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps, o)
        if len(order) < batch:  # each once, then again in another order
            order += torch.randperm(len(train_on)).tolist()
        chosen, order = order[:batch], order[batch:]
        optimizer.zero_grad(set_to_none=True)
        loss_of(net, train_on[chosen]).backward()
        if float(o["clip"]) > 0:
            nn.utils.clip_grad_norm_(net.parameters(), float(o["clip"]))
        optimizer.step()
    return net


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    config = configparser.ConfigParser(interpolation=None)
    config.read(options.config)
    if (config["optimizer"]["name"], config["optimizer"]["schedule"]) != ("adamw", "cosine"):
        raise SystemExit("this trains with adamw and a cosine only")
    train_on, held_out, vocab = data_of(options.text, config.getint("model", "context"),
                                        config.getfloat("data", "holdout"))
    if vocab != config.getint("model", "vocab"):
        raise SystemExit(f"{vocab} letters, the configuration has {config['model']['vocab']}")
    for seed in options.seeds:
        begin = time.monotonic()
        net = train(seed, config, train_on, vocab)
        print(json.dumps({"seed": seed, "eval_loss": evaluate(net, held_out),
                          "seconds": time.monotonic() - begin}), flush=True)


if __name__ == "__main__":
    main()
