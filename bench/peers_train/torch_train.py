"""Training steps of PyTorch, eager or with --compile, on one thread.

Under torchrun: DistributedDataParallel over Gloo, each process on a core of BENCH_CORES.
"""
import datetime
import itertools
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import trial


def perceptron(sizes):
    layers = []
    for inputs, out in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inputs, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv_norm(inputs, out, kernel, stride):
    return nn.Sequential(nn.Conv2d(inputs, out, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(out))


class Residual(nn.Module):
    def __init__(self, inputs, out, stride):
        super().__init__()
        self.first, self.second = conv_norm(inputs, out, 3, stride), conv_norm(out, out, 3, 1)
        same = stride == 1 and inputs == out
        self.shortcut = nn.Identity() if same else conv_norm(inputs, out, 1, stride)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        inputs = trial.RESNET_WIDTHS[0]
        self.stem, blocks = conv_norm(3, inputs, 3, 1), []
        for stage, out in enumerate(trial.RESNET_WIDTHS):
            for i in range(trial.RESNET_BLOCKS):
                blocks.append(Residual(inputs, out, 2 if stage and i == 0 else 1))
                inputs = out
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, trial.CLASSES)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
        return x + self.back(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab, context, layers, heads, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x) + self.positions.weight
        return self.head(self.norm(self.blocks(x)))


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(trial.ROWS, trial.WIDTH, mode="sum")
                                    for _ in range(trial.TABLES))
        self.bottom, self.top = perceptron(trial.BOTTOM), perceptron(trial.TOP)
        pairs = torch.tril_indices(trial.TABLES + 1, trial.TABLES + 1, -1)
        self.register_buffer("rows", pairs[0])
        self.register_buffer("columns", pairs[1])

    def forward(self, dense, ids):
        bottom = F.relu(self.bottom(dense))
        rows = [table(ids[:, i:i + 1]) for i, table in enumerate(self.tables)]
        x = torch.stack([bottom, *rows], 1)
        pairs = torch.bmm(x, x.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([bottom, pairs], 1)).squeeze(1)


def model_of(name, batch):
    """The network, its inputs, and the loss of its result."""
    labels = torch.randint(0, trial.CLASSES, (batch,))
    if name == "mlp":
        return perceptron(trial.MLP), [[torch.randn(batch, trial.MLP[0])]], (
            lambda out: F.cross_entropy(out, labels))
    if name == "resnet:20":
        x = torch.randn(batch, 3, trial.IMAGE, trial.IMAGE)
        layout = torch.channels_last
        return ResNet().to(memory_format=layout), [[x.to(memory_format=layout)]], (
            lambda out: F.cross_entropy(out, labels))
    if name == "dlrm":
        targets = torch.rand(batch).round()
        dense = torch.randn(batch, trial.DENSE)
        inputs = [[dense, torch.randint(0, trial.ROWS, (batch, trial.TABLES))]
                  for _ in range(trial.IDS)]
        return DLRM(), inputs, lambda out: F.binary_cross_entropy_with_logits(out, targets)
    vocab, context, *_ = trial.GPT[name]
    tokens, targets = (torch.randint(0, vocab, (batch, context)) for _ in range(2))
    return GPT(*trial.GPT[name]), [[tokens]], (
        lambda out: F.cross_entropy(out.view(-1, vocab), targets.view(-1)))


def product():
    """The speed of one large matrix product: what the core can do at best."""
    best, least = 0, 1
    for n in (768, 1024, 1536):
        a, b = torch.randn(n, n), torch.randn(n, n)
        out = torch.empty(n, n)
        median, _, _, core = trial.timed(lambda: torch.mm(a, b, out=out), 0.3)
        best, least = max(best, 2e-9 * n ** 3 / median), min(least, core)
    return {"gflops": best, "core": least}


class Group:
    """The processes that torchrun has started."""

    def __init__(self):
        self.size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        self.first = rank == 0
        cores = [int(core) for core in os.environ["BENCH_CORES"].split(",")]
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        # asleep while others are measured: no reason to give up
        dist.init_process_group("gloo", timeout=datetime.timedelta(days=1))

    def agree(self, value):
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]


def main():
    options = trial.parse("--compile")
    torch.set_num_threads(1)
    group = Group() if "WORLD_SIZE" in os.environ else trial.Alone()
    torch.manual_seed(0)
    net, inputs, loss_of = model_of(options.model, options.batch)
    params = list(net.parameters())
    if options.model.startswith("gpt"):
        optimizer = torch.optim.AdamW(params, lr=trial.ADAMW_RATE, weight_decay=trial.ADAMW_DECAY,
                                      fused=True)
    else:
        optimizer = torch.optim.SGD(params, lr=trial.SGD_RATE, momentum=trial.MOMENTUM, fused=True)
    if group.size > 1:
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    if options.compile:
        net = torch.compile(net)

    turns = itertools.cycle(inputs)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(*next(turns))).backward()
        optimizer.step()

    trial.serve(step, sum(p.numel() for p in params), options.batch * group.size,
                {"product": product}, group)
    if group.size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
