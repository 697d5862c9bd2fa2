"""Training steps of TensorFlow, as a tf.function, on one thread for each worker.

Several workers: MirroredStrategy over as many logical devices.
"""
import itertools
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

import trial  # noqa: E402

layers = tf.keras.layers


def perceptron(sizes):
    return tf.keras.Sequential([tf.keras.Input((sizes[0],)),
                                *(layers.Dense(n, "relu") for n in sizes[1:-1]),
                                layers.Dense(sizes[-1])])


def conv_norm(x, out, kernel, stride):
    x = layers.Conv2D(out, kernel, stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization()(x)


def resnet():
    image = tf.keras.Input((trial.IMAGE, trial.IMAGE, 3))
    inputs = trial.RESNET_WIDTHS[0]
    x = layers.ReLU()(conv_norm(image, inputs, 3, 1))
    for stage, out in enumerate(trial.RESNET_WIDTHS):
        for i in range(trial.RESNET_BLOCKS):
            stride = 2 if stage and i == 0 else 1
            y = conv_norm(layers.ReLU()(conv_norm(x, out, 3, stride)), out, 3, 1)
            if stride != 1 or inputs != out:
                x = conv_norm(x, out, 1, stride)
            x, inputs = layers.ReLU()(x + y), out
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(image, layers.Dense(trial.CLASSES)(x))


class Attention(layers.Layer):
    def __init__(self, context, heads, width):
        super().__init__()
        self.shape, self.width = (context, heads, width // heads), width
        self.qkv, self.out = layers.Dense(3 * width), layers.Dense(width)
        self.mask = numpy.triu(numpy.full((context, context), -1e9, numpy.float32), 1)

    def build(self, shape):
        self.qkv.build(shape)
        self.out.build(shape)
        self.built = True

    def call(self, x):
        q, k, v = (tf.transpose(tf.reshape(part, (-1, *self.shape)), (0, 2, 1, 3))
                   for part in tf.split(self.qkv(x), 3, -1))
        scores = tf.matmul(q, k, transpose_b=True) * self.shape[-1] ** -0.5
        y = tf.matmul(tf.nn.softmax(scores + self.mask), v)
        return self.out(tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (-1, self.shape[0], self.width)))


class GPT(tf.keras.Model):
    def __init__(self, vocab, context, count, heads, width):
        super().__init__()
        start = tf.keras.initializers.RandomNormal(stddev=0.02)
        self.tokens = self.add_weight(shape=(vocab, width), initializer=start)
        self.positions = self.add_weight(shape=(context, width), initializer=start)
        self.parts = [(layers.LayerNormalization(epsilon=1e-5), Attention(context, heads, width),
                       layers.LayerNormalization(epsilon=1e-5), layers.Dense(4 * width),
                       layers.Dense(width)) for _ in range(count)]
        self.flat = [layer for part in self.parts for layer in part]  # Keras looks for layers here
        self.norm = layers.LayerNormalization(epsilon=1e-5)

    def call(self, ids):
        x = tf.gather(self.tokens, ids) + self.positions
        for norm1, attention, norm2, wide, back in self.parts:
            x = x + attention(norm1(x))
            x = x + back(tf.nn.gelu(wide(norm2(x)), approximate=True))
        return tf.matmul(self.norm(x), self.tokens, transpose_b=True)


class DLRM(tf.keras.Model):
    def __init__(self):
        super().__init__()
        start = tf.keras.initializers.RandomUniform(-0.01, 0.01)
        self.tables = [self.add_weight(shape=(trial.ROWS, trial.WIDTH), initializer=start)
                       for _ in range(trial.TABLES)]
        self.bottom, self.top = perceptron(trial.BOTTOM), perceptron(trial.TOP)
        rows, columns = numpy.tril_indices(trial.TABLES + 1, -1)
        self.pairs = rows * (trial.TABLES + 1) + columns

    def call(self, inputs):
        dense, ids = inputs
        bottom = tf.nn.relu(self.bottom(dense))
        rows = [tf.gather(table, ids[:, i]) for i, table in enumerate(self.tables)]
        x = tf.stack([bottom, *rows], 1)
        products = tf.reshape(tf.matmul(x, x, transpose_b=True), (-1, (trial.TABLES + 1) ** 2))
        pairs = tf.gather(products, self.pairs, axis=1)
        return tf.squeeze(self.top(tf.concat([bottom, pairs], 1)), 1)


def model_of(name, batch):
    """The network, its inputs that take turns, its targets."""
    if name == "dlrm":
        dense = tf.random.normal((batch, trial.DENSE))
        inputs = [(dense, tf.random.uniform((batch, trial.TABLES), 0, trial.ROWS, tf.int32))
                  for _ in range(trial.IDS)]
        return DLRM(), inputs, tf.round(tf.random.uniform((batch,)))
    if name in trial.GPT:
        vocab, context, *_ = trial.GPT[name]
        ids, targets = (tf.random.uniform((batch, context), 0, vocab, tf.int32) for _ in range(2))
        return GPT(*trial.GPT[name]), [ids], targets
    labels = tf.random.uniform((batch,), 0, trial.CLASSES, tf.int32)
    if name == "mlp":
        return perceptron(trial.MLP), [tf.random.normal((batch, trial.MLP[0]))], labels
    return resnet(), [tf.random.normal((batch, trial.IMAGE, trial.IMAGE, 3))], labels


def strategy_of(workers):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(workers)
    if workers == 1:
        return tf.distribute.get_strategy()
    device, = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration()] * workers)
    return tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(workers)],
        cross_device_ops=tf.distribute.ReductionToOneDevice())


def main():
    options = trial.parse()
    strategy = strategy_of(options.workers)
    with strategy.scope():
        net, x, y = model_of(options.model, options.batch)
        net(x[0], training=True)
        optimizer = (tf.keras.optimizers.AdamW(trial.ADAMW_RATE, weight_decay=trial.ADAMW_DECAY)
                     if options.model.startswith("gpt")
                     else tf.keras.optimizers.SGD(trial.SGD_RATE, momentum=trial.MOMENTUM))
        optimizer.build(net.trainable_variables)
    loss_of = (tf.nn.sigmoid_cross_entropy_with_logits if options.model == "dlrm"
               else tf.nn.sparse_softmax_cross_entropy_with_logits)

    def update(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(labels=y, logits=net(x, training=True)))
            loss /= options.workers  # the optimizer sums over workers
        gradient = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradient, net.trainable_variables))
        return loss

    @tf.function
    def step(x):
        return strategy.run(update, (x,))

    turns = itertools.cycle(x)
    params = sum(int(numpy.prod(v.shape)) for v in net.trainable_variables)
    trial.serve(lambda: [loss.numpy() for loss in strategy.experimental_local_results(
        step(next(turns)))], params, options.batch * options.workers)


if __name__ == "__main__":
    main()
