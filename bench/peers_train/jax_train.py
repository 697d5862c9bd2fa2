"""Training steps of JAX, compiled by XLA, on one thread for each worker.

Several workers: pmap over as many devices of one process.
"""
import itertools
import os

import trial

options = trial.parse()
os.environ["XLA_FLAGS"] = " ".join([
    os.environ.get("XLA_FLAGS", ""),
    f"--xla_force_host_platform_device_count={options.workers}",
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"])
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
import optax  # noqa: E402

random = numpy.random.default_rng(0)


def normal(*shape, scale=1.0):
    return jnp.asarray(random.standard_normal(shape, numpy.float32) * numpy.float32(scale))


def whole(bound, *shape):
    return jnp.asarray(random.integers(0, bound, shape, numpy.int32))


def linear(inputs, out):
    return {"w": normal(inputs, out, scale=inputs ** -0.5), "b": jnp.zeros(out)}


def apply(p, x):
    return x @ p["w"] + p["b"]


def perceptron(sizes):
    return [linear(a, b) for a, b in zip(sizes, sizes[1:])]


def perceive(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(apply(layer, x))
    return apply(layers[-1], x)


def norm(width):
    return {"g": jnp.ones(width), "b": jnp.zeros(width)}


def normalise(p, x, axes):
    """Layer norm, or batch norm in training, whose running statistics are left out."""
    mean = x.mean(axes, keepdims=True)
    var = ((x - mean) ** 2).mean(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["g"] + p["b"]


def conv_norm(inputs, out, kernel):
    scale = (2 / (kernel * kernel * out)) ** 0.5
    return {"w": normal(kernel, kernel, inputs, out, scale=scale), "n": norm(out)}


def convolve(p, x, stride):
    pad = p["w"].shape[0] // 2
    x = jax.lax.conv_general_dilated(x, p["w"], (stride, stride), [(pad, pad)] * 2,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return normalise(p["n"], x, (0, 1, 2))


def resnet(batch):
    inputs, strides = trial.RESNET_WIDTHS[0], []
    p = {"stem": conv_norm(3, inputs, 3), "blocks": []}
    for stage, out in enumerate(trial.RESNET_WIDTHS):
        for i in range(trial.RESNET_BLOCKS):
            block = {"first": conv_norm(inputs, out, 3), "second": conv_norm(out, out, 3)}
            strides.append(2 if stage and i == 0 else 1)
            if strides[-1] != 1 or inputs != out:
                block["shortcut"] = conv_norm(inputs, out, 1)
            p["blocks"].append(block)
            inputs = out
    p["head"] = linear(inputs, trial.CLASSES)

    def forward(p, x):
        x = jax.nn.relu(convolve(p["stem"], x, 1))
        for block, stride in zip(p["blocks"], strides):
            y = convolve(block["second"], jax.nn.relu(convolve(block["first"], x, stride)), 1)
            x = jax.nn.relu(y + (convolve(block["shortcut"], x, stride)
                                 if "shortcut" in block else x))
        return apply(p["head"], x.mean((1, 2)))

    return p, forward, [normal(batch, trial.IMAGE, trial.IMAGE, 3)], whole(trial.CLASSES, batch)


def gpt(name, batch):
    vocab, context, layers, heads, width = trial.GPT[name]
    p = {"tokens": normal(vocab, width, scale=0.02),
         "positions": normal(context, width, scale=0.02), "norm": norm(width), "blocks": [
             {"norm1": norm(width), "qkv": linear(width, 3 * width), "out": linear(width, width),
              "norm2": norm(width), "wide": linear(width, 4 * width),
              "back": linear(4 * width, width)} for _ in range(layers)]}

    def split(x):
        return x.reshape(-1, context, heads, width // heads).transpose(0, 2, 1, 3)

    def forward(p, x):
        mask = jnp.tril(jnp.ones((context, context), bool))
        x = p["tokens"][x] + p["positions"]
        for block in p["blocks"]:
            q, k, v = map(split, jnp.split(
                apply(block["qkv"], normalise(block["norm1"], x, -1)), 3, -1))
            scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
            y = jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ v
            x = x + apply(block["out"], y.transpose(0, 2, 1, 3).reshape(-1, context, width))
            y = jax.nn.gelu(apply(block["wide"], normalise(block["norm2"], x, -1)))
            x = x + apply(block["back"], y)
        return normalise(p["norm"], x, -1) @ p["tokens"].T

    return p, forward, [whole(vocab, batch, context)], whole(vocab, batch, context)


def dlrm(batch):
    p = {"tables": [normal(trial.ROWS, trial.WIDTH, scale=0.01) for _ in range(trial.TABLES)],
         "bottom": perceptron(trial.BOTTOM), "top": perceptron(trial.TOP)}
    rows, columns = numpy.tril_indices(trial.TABLES + 1, -1)

    def forward(p, x):
        dense, ids = x
        bottom = jax.nn.relu(perceive(p["bottom"], dense))
        tables = [table[ids[:, i]] for i, table in enumerate(p["tables"])]
        both = jnp.stack([bottom, *tables], 1)
        pairs = (both @ both.transpose(0, 2, 1))[:, rows, columns]
        return perceive(p["top"], jnp.concatenate([bottom, pairs], 1))[:, 0]

    dense = normal(batch, trial.DENSE)
    x = [(dense, whole(trial.ROWS, batch, trial.TABLES)) for _ in range(trial.IDS)]
    return p, forward, x, whole(2, batch).astype(jnp.float32)


def model_of(name, batch):
    """Parameters, the function of them and the inputs, the inputs that take turns, the targets."""
    if name == "mlp":
        return perceptron(trial.MLP), perceive, [normal(batch, trial.MLP[0])], whole(
            trial.CLASSES, batch)
    if name == "resnet:20":
        return resnet(batch)
    return dlrm(batch) if name == "dlrm" else gpt(name, batch)


def spread(tree, workers):
    """What lies in each device: equal parts of a batch."""
    return jax.tree.map(lambda a: a.reshape(workers, -1, *a.shape[1:]), tree)


def main():
    workers = options.workers
    p, forward, x, y = model_of(options.model, options.batch * workers)
    optimizer = (optax.adamw(trial.ADAMW_RATE, weight_decay=trial.ADAMW_DECAY)
                 if options.model.startswith("gpt") else optax.sgd(trial.SGD_RATE, trial.MOMENTUM))
    loss_of = (optax.sigmoid_binary_cross_entropy if options.model == "dlrm"
               else optax.softmax_cross_entropy_with_integer_labels)
    params = sum(a.size for a in jax.tree.leaves(p))

    def update(p, state, x, y):
        loss, gradient = jax.value_and_grad(lambda p: loss_of(forward(p, x), y).mean())(p)
        if workers > 1:
            gradient = jax.lax.pmean(gradient, "workers")
        change, state = optimizer.update(gradient, state, p)
        return optax.apply_updates(p, change), state, loss

    now = [p, optimizer.init(p)]
    if workers > 1:
        compiled = jax.pmap(update, "workers", donate_argnums=(0, 1))
        now = [jax.tree.map(lambda a: jnp.stack([jnp.asarray(a)] * workers), part) for part in now]
        x, y, p = [spread(one, workers) for one in x], spread(y, workers), None
    else:
        compiled = jax.jit(update, donate_argnums=(0, 1))

    turns = itertools.cycle(x)

    def step():
        now[0], now[1], loss = compiled(now[0], now[1], next(turns), y)
        loss.block_until_ready()
        jax.block_until_ready(now[0])

    trial.serve(step, params, options.batch * workers)


if __name__ == "__main__":
    main()
