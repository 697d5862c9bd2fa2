/* A model of your own on many workers: the network and its gradients are written by hand, Lockstep
 * cuts the batch, sums the gradients and updates the weights.
 *
 *     lockstep run -n 4 -- ./own_model
 *
 * A network with one hidden layer learns whether two bits of a number are equal, whatever the
 * others. The last line is a checksum of the weights: the same for any -n.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <lockstep/lockstep.h>

#define BITS 8
#define HIDDEN 16
#define BATCH 250 /* of 256 different samples: it need not divide evenly */
#define STEPS 400

typedef struct model {
    float in[HIDDEN][BITS], in_bias[HIDDEN], out[HIDDEN], out_bias[1];
} model;

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ls_last_error());
    return 1;
}

/* Sample number i of a step: its bits as -1 and 1, and whether bits 1 and 5 are equal. */
static float sample(uint64_t i, uint64_t step, float x[BITS])
{
    const uint64_t number = (i * 7 + step * 31) % 256;
    for (int b = 0; b < BITS; b++)
        x[b] = number >> b & 1 ? 1.0f : -1.0f;
    return (number >> 1 & 1) == (number >> 5 & 1) ? 1.0f : 0.0f;
}

/* Add the gradient of one sample's loss to `g`; returns the loss. */
static double backward(const model *m, const float x[BITS], float target, model *g)
{
    float hidden[HIDDEN], logit = m->out_bias[0];
    for (int h = 0; h < HIDDEN; h++) {
        float sum = m->in_bias[h];
        for (int b = 0; b < BITS; b++)
            sum += m->in[h][b] * x[b];
        hidden[h] = sum > 0 ? sum : 0;
        logit += m->out[h] * hidden[h];
    }
    const float p = 1 / (1 + expf(-logit)), d = p - target;
    g->out_bias[0] += d;
    for (int h = 0; h < HIDDEN; h++) {
        g->out[h] += d * hidden[h];
        const float dh = hidden[h] > 0 ? d * m->out[h] : 0;
        g->in_bias[h] += dh;
        for (int b = 0; b < BITS; b++)
            g->in[h][b] += dh * x[b];
    }
    return -log((double)(target > 0.5f ? p : 1 - p) + 1e-12);
}

static uint32_t checksum(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ p[i]) * 16777619u;
    return sum;
}

int main(void)
{
    ls_comm *comm;
    if (ls_init(NULL, &comm) != LS_OK)
        return fail("ls_init");

    ls_optim_config adam = LS_OPTIM_CONFIG_INIT;
    adam.name = "adam";
    adam.lr = 0.01f;
    ls_replica_config config = LS_REPLICA_CONFIG_INIT;
    config.batch = BATCH;
    config.optimizer = &adam;
    ls_replica *replica;
    if (ls_replica_create(comm, &config, &replica) != LS_OK)
        return fail("ls_replica_create");

    /* Weights and gradients stay where they are. The order is that of the backward pass. */
    static model m, g;
    for (int h = 0; h < HIDDEN; h++) {
        m.out[h] = (float)(h % 5 - 2) * 0.2f;
        for (int b = 0; b < BITS; b++)
            m.in[h][b] = (float)((h * BITS + b) * 37 % 19 - 9) * 0.05f;
    }
    if (ls_replica_add(replica, "out.bias", m.out_bias, g.out_bias, 1) != LS_OK ||
        ls_replica_add(replica, "out", m.out, g.out, HIDDEN) != LS_OK ||
        ls_replica_add(replica, "in.bias", m.in_bias, g.in_bias, HIDDEN) != LS_OK ||
        ls_replica_add(replica, "in", &m.in[0][0], &g.in[0][0], HIDDEN * BITS) != LS_OK ||
        ls_replica_start(replica) != LS_OK)
        return fail("ls_replica_start");

    ls_replica_result result = {0};
    for (uint64_t step = 0; step < STEPS; step++) {
        ls_shard shard;
        if (ls_replica_begin(replica, BATCH) != LS_OK)
            return fail("ls_replica_begin");
        while (ls_replica_next(replica, &shard)) {
            float x[BITS];
            double loss = 0;
            memset(&g, 0, sizeof g);
            for (uint64_t i = shard.first; i < shard.end; i++) {
                const float target = sample(i, step, x);
                loss += backward(&m, x, target, &g);
            }
            for (int p = 0; p < 4; p++) /* a real model calls it as each gradient appears */
                ls_replica_ready(replica, p);
            if (ls_replica_done(replica, loss, (double)(shard.end - shard.first)) != LS_OK)
                return fail("ls_replica_done");
        }
        if (ls_replica_sync(replica, &result) != LS_OK)
            return fail("ls_replica_sync");
        if (ls_comm_rank(comm) == 0 && step % 100 == 0)
            printf("step %d: loss %.4f\n", (int)step, result.loss);
    }
    if (ls_comm_rank(comm) == 0)
        printf("loss %.6f weights %08x\n", result.loss, (unsigned)checksum(&m, sizeof m));
    ls_replica_destroy(replica);
    ls_finalize(comm);
    return result.loss < 0.1 ? 0 : 1;
}
