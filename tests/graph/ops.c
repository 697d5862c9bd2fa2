/* Operations for the tests of the graph; what they do is in ops.h. */
#include "ops.h"

#include <math.h>

#include "base/philox.h"

ls_tensor *t_w, *t_b, *t_table;
int t_forwards, t_backwards;

static float *in(const ls_op_call *call, int i)
{
    return call->in[i].data;
}

static float *weight(const ls_op_call *call, int i)
{
    return call->param[i].data;
}

/* NaN where the output goes, unless that is an input. */
static float *begin_forward(const ls_op_call *call)
{
    t_forwards++;
    float *out = call->out.data;
    assert_true(call->out.ndim == 0 || call->out.dims[0] == call->samples || call->out.count == 1);
    int place = -1;
    for (int i = 0; i < call->inputs; i++)
        if (call->in[i].data == (void *)out) {
            assert_int_equal(place, -1); /* not of two inputs at once */
            place = i;
        }
    if (place >= 0)
        return out;
    for (size_t i = 0; i < call->out.count; i++)
        out[i] = NAN;
    return out;
}

/* NaN into a gradient that nobody needs any more, unless somebody got its memory. */
static void poison(const ls_op_call *call, const ls_view *gradient)
{
    float *values = gradient->data;
    int place = -1;
    for (int i = 0; values && i < call->inputs; i++)
        if (call->din[i].data == (void *)values) {
            assert_int_equal(place, -1);
            assert_int_equal(call->add_in[i], 0);
            place = i;
        }
    for (size_t i = 0; values && place < 0 && i < gradient->count; i++)
        values[i] = NAN;
}

static ls_status end_backward(const ls_op_call *call)
{
    t_backwards++;
    poison(call, &call->dout);
    poison(call, &call->dsecond);
    return LS_OK;
}

static void give(float *to, float value, int add)
{
    *to = add ? *to + value : value;
}

static ls_status same_shape(const ls_op_call *call, ls_op_shape *shape)
{
    for (int i = 1; i < call->inputs; i++)
        if (call->in[i].count != call->in[0].count) {
            ls_graph_fail(call->graph, "%zu and %zu elements do not go together", call->in[0].count,
                          call->in[i].count);
            return LS_ERR_INVALID;
        }
    shape->flops_per_sample = (double)call->in[0].count / (double)call->samples;
    return LS_OK;
}

/* ---- affine --------------------------------------------------------------------------------- */

static ls_status affine_forward(const ls_op_call *call)
{
    const size_t width = call->param[0].count;
    float *y = begin_forward(call);
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] * weight(call, 0)[i % width] + weight(call, 1)[i % width];
    return LS_OK;
}

static ls_status affine_backward(const ls_op_call *call)
{
    const size_t width = call->param[0].count;
    const float *dy = call->dout.data;
    for (int p = 0; p < 2; p++) {
        float *d = call->dparam[p].data;
        for (size_t c = 0; c < width; c++) {
            float sum = 0;
            for (size_t i = c; i < call->dout.count; i += width)
                sum += p ? dy[i] : dy[i] * in(call, 0)[i];
            give(&d[c], sum, call->add_param[p]);
        }
    }
    float *dx = call->din[0].data;
    for (size_t i = 0; dx && i < call->dout.count; i++)
        give(&dx[i], dy[i] * weight(call, 0)[i % width], call->add_in[0]);
    return end_backward(call);
}

static const ls_op_kind affine = {sizeof affine, "affine",       LS_OP_KEEP_INPUTS,
                                  same_shape,    affine_forward, affine_backward};

ls_tensor *t_affine_tied(ls_graph *g, ls_tensor *x, ls_tensor *w, ls_tensor *b)
{
    ls_tensor *params[2] = {w, b};
    return ls_op_add(g, &affine, NULL, 0, 1, &x, 2, params);
}

ls_tensor *t_affine(ls_graph *g, ls_tensor *x)
{
    ls_layer(g, "affine");
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    config.init = LS_INIT_NORMAL;
    config.init_scale = 1;
    const size_t width = x ? ls_tensor_dims(x)[ls_tensor_ndim(x) - 1] : 1;
    t_w = ls_param(g, "weight", 1, &width, &config);
    config.init = LS_INIT_ZERO;
    config.no_decay = 1;
    t_b = ls_param(g, "bias", 1, &width, &config);
    return t_affine_tied(g, x, t_w, t_b);
}

/* ---- dense ---------------------------------------------------------------------------------- */

static ls_status dense_infer(const ls_op_call *call, ls_op_shape *shape)
{
    if (call->in[0].ndim != 2) {
        ls_graph_fail(call->graph, "its input has %d dimensions, it takes 2", call->in[0].ndim);
        return LS_ERR_INVALID;
    }
    shape->dims[1] = call->param[0].dims[1];
    shape->flops_per_sample = 2.0 * (double)call->param[0].count;
    return LS_OK;
}

static ls_status dense_forward(const ls_op_call *call)
{
    const size_t n = call->param[0].dims[0], m = call->param[0].dims[1];
    float *y = begin_forward(call);
    for (size_t s = 0; s < call->samples; s++)
        for (size_t j = 0; j < m; j++) {
            float sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += in(call, 0)[s * n + i] * weight(call, 0)[i * m + j];
            y[s * m + j] = sum;
        }
    return LS_OK;
}

static ls_status dense_backward(const ls_op_call *call)
{
    const size_t n = call->param[0].dims[0], m = call->param[0].dims[1];
    const float *dy = call->dout.data;
    float *dw = call->dparam[0].data, *dx = call->din[0].data;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) {
            float sum = 0;
            for (size_t s = 0; s < call->samples; s++)
                sum += in(call, 0)[s * n + i] * dy[s * m + j];
            give(&dw[i * m + j], sum, call->add_param[0]);
        }
    for (size_t s = 0; dx && s < call->samples; s++)
        for (size_t i = 0; i < n; i++) {
            float sum = 0;
            for (size_t j = 0; j < m; j++)
                sum += dy[s * m + j] * weight(call, 0)[i * m + j];
            give(&dx[s * n + i], sum, call->add_in[0]);
        }
    return end_backward(call);
}

static const ls_op_kind dense = {sizeof dense, "dense",       LS_OP_KEEP_INPUTS,
                                 dense_infer,  dense_forward, dense_backward};

ls_tensor *t_dense(ls_graph *g, ls_tensor *x, size_t out)
{
    ls_layer(g, "dense");
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    config.init = LS_INIT_UNIFORM;
    config.init_scale = 1;
    const size_t width = x ? ls_tensor_dims(x)[ls_tensor_ndim(x) - 1] : 1;
    ls_tensor *w = ls_param(g, "weight", 2, (size_t[]){width, out}, &config);
    return ls_op_add(g, &dense, NULL, 0, 1, &x, 1, &w);
}

/* ---- element by element --------------------------------------------------------------------- */

static ls_status add_forward(const ls_op_call *call)
{
    float *y = begin_forward(call);
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] + in(call, 1)[i];
    return LS_OK;
}

static ls_status add_backward(const ls_op_call *call)
{
    const float *dy = call->dout.data;
    for (int k = 1; k >= 0; k--) { /* the one that may be dout last, unless both are one */
        const int which = call->din[0].data == call->din[1].data ? 1 - k : k;
        float *d = call->din[which].data;
        for (size_t i = 0; d && i < call->dout.count; i++)
            give(&d[i], dy[i], call->add_in[which]);
    }
    return end_backward(call);
}

static ls_status mul_forward(const ls_op_call *call)
{
    float *y = begin_forward(call);
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] * in(call, 1)[i];
    return LS_OK;
}

static ls_status mul_backward(const ls_op_call *call)
{
    const float *dy = call->dout.data;
    for (int k = 0; k < 2; k++) {
        float *d = call->din[k].data;
        for (size_t i = 0; d && i < call->dout.count; i++)
            give(&d[i], dy[i] * in(call, 1 - k)[i], call->add_in[k]);
    }
    return end_backward(call);
}

static ls_status relu_forward(const ls_op_call *call)
{
    float *y = begin_forward(call);
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] > 0 ? in(call, 0)[i] : 0;
    return LS_OK;
}

static ls_status relu_backward(const ls_op_call *call)
{
    const float *y = call->out.data, *dy = call->dout.data;
    float *d = call->din[0].data;
    for (size_t i = 0; d && i < call->dout.count; i++)
        give(&d[i], y[i] > 0 ? dy[i] : 0, call->add_in[0]);
    return end_backward(call);
}

static ls_status scale_forward(const ls_op_call *call)
{
    float *y = begin_forward(call);
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] * *(const float *)call->config;
    return LS_OK;
}

static ls_status scale_backward(const ls_op_call *call)
{
    const float *dy = call->dout.data;
    float *d = call->din[0].data;
    for (size_t i = 0; d && i < call->dout.count; i++)
        give(&d[i], dy[i] * *(const float *)call->config, call->add_in[0]);
    return end_backward(call);
}

static ls_status stop_forward(const ls_op_call *call)
{
    memcpy(begin_forward(call), in(call, 0), call->out.count * sizeof(float));
    return LS_OK;
}

static const ls_op_kind add = {sizeof add, "add",       LS_OP_IN_PLACE,
                               same_shape, add_forward, add_backward};
static const ls_op_kind mul = {sizeof mul, "mul",       LS_OP_KEEP_INPUTS,
                               same_shape, mul_forward, mul_backward};
static const ls_op_kind relu = {sizeof relu, "relu",       LS_OP_KEEP_OUTPUT | LS_OP_IN_PLACE,
                                same_shape,  relu_forward, relu_backward};
static const ls_op_kind scale = {sizeof scale, "scale",       LS_OP_IN_PLACE,
                                 same_shape,   scale_forward, scale_backward};
static const ls_op_kind stop = {sizeof stop, "stop", 0, same_shape, stop_forward, NULL};

ls_tensor *t_add(ls_graph *g, ls_tensor *a, ls_tensor *b)
{
    ls_tensor *inputs[2] = {a, b};
    return ls_op_add(g, &add, NULL, 0, 2, inputs, 0, NULL);
}

ls_tensor *t_mul(ls_graph *g, ls_tensor *a, ls_tensor *b)
{
    ls_tensor *inputs[2] = {a, b};
    return ls_op_add(g, &mul, NULL, 0, 2, inputs, 0, NULL);
}

ls_tensor *t_relu(ls_graph *g, ls_tensor *x)
{
    return ls_op_add(g, &relu, NULL, 0, 1, &x, 0, NULL);
}

ls_tensor *t_scale(ls_graph *g, ls_tensor *x, float c)
{
    return ls_op_add(g, &scale, &c, sizeof c, 1, &x, 0, NULL);
}

ls_tensor *t_stop(ls_graph *g, ls_tensor *x)
{
    return ls_op_add(g, &stop, NULL, 0, 1, &x, 0, NULL);
}

/* ---- kept bytes, noise, views --------------------------------------------------------------- */

#define SQUARE_MARK 0x5eed5eedu

static ls_status square_infer(const ls_op_call *call, ls_op_shape *shape)
{
    shape->kept_per_sample = call->in[0].count / call->samples * sizeof(float);
    shape->kept_fixed = sizeof(uint32_t);
    return LS_OK;
}

static ls_status square_forward(const ls_op_call *call)
{
    const size_t n = call->out.count;
    float *y = begin_forward(call), *kept = call->kept;
    for (size_t i = 0; i < n; i++) {
        kept[i] = in(call, 0)[i];
        y[i] = kept[i] * kept[i] / 2;
    }
    memcpy(kept + n, &(uint32_t){SQUARE_MARK}, sizeof(uint32_t));
    return LS_OK;
}

static ls_status square_backward(const ls_op_call *call)
{
    const float *dy = call->dout.data, *kept = call->kept;
    float *d = call->din[0].data;
    uint32_t mark;
    memcpy(&mark, kept + call->dout.count, sizeof mark);
    assert_int_equal(mark, SQUARE_MARK);
    for (size_t i = 0; d && i < call->dout.count; i++)
        give(&d[i], dy[i] * kept[i], call->add_in[0]);
    return end_backward(call);
}

static ls_status pair_infer(const ls_op_call *call, ls_op_shape *shape)
{
    shape->in_place = 1;
    return same_shape(call, shape);
}

static ls_status pair_forward(const ls_op_call *call)
{
    float *y = begin_forward(call), *s = call->second.data;
    for (int i = 0; i < 2; i++) /* no output in the place of an input, nor of the other */
        assert_true(call->in[i].data != (void *)y && call->in[i].data != (void *)s);
    assert_true(y != s && call->second.dims[0] == call->samples);
    for (size_t i = 0; i < call->second.count; i++)
        s[i] = NAN;
    for (size_t i = 0; i < call->second.count; i++) {
        s[i] = (in(call, 0)[i] + in(call, 1)[i]) / 2;
        y[i] = s[i] * s[i] / 2;
    }
    return LS_OK;
}

static ls_status pair_backward(const ls_op_call *call)
{
    const float *s = call->second.data, *dy = call->dout.data, *ds = call->dsecond.data;
    assert_true(dy || ds);
    for (size_t i = 0; i < call->second.count; i++) {
        const float half = ((ds ? ds[i] : 0) + (dy ? dy[i] * s[i] : 0)) / 2;
        for (int k = 0; k < 2; k++)
            if (call->din[k].data)
                give((float *)call->din[k].data + i, half, call->add_in[k]);
    }
    return end_backward(call);
}

static float noise_of(const ls_op_call *call, size_t i)
{
    const uint64_t position = call->first_position + i / (call->out.count / call->samples);
    const uint32_t counter[4] = {(uint32_t)(i % (call->out.count / call->samples)), call->node,
                                 (uint32_t)position, (uint32_t)call->step};
    uint32_t words[4];
    lsi_philox(counter, (uint32_t[2]){(uint32_t)call->seed, 0}, words);
    return !call->training ? 1.0f : words[0] & 1 ? 2.0f : 0.0f;
}

static ls_status noise_forward(const ls_op_call *call)
{
    float *y = begin_forward(call);
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] * noise_of(call, i);
    return LS_OK;
}

static ls_status noise_backward(const ls_op_call *call)
{
    const float *dy = call->dout.data;
    float *d = call->din[0].data;
    for (size_t i = 0; d && i < call->dout.count; i++)
        give(&d[i], dy[i] * noise_of(call, i), call->add_in[0]);
    return end_backward(call);
}

typedef struct reshape_config {
    int ndim;
    size_t dims[LS_MAX_DIMS];
} reshape_config;

static ls_status reshape_infer(const ls_op_call *call, ls_op_shape *shape)
{
    const reshape_config *config = call->config;
    shape->ndim = config->ndim;
    memcpy(shape->dims, config->dims, sizeof shape->dims);
    shape->dtype = call->in[0].dtype;
    return LS_OK;
}

static const ls_op_kind square = {sizeof square, "square",       0,
                                  square_infer,  square_forward, square_backward};
static const ls_op_kind pair = {
    sizeof pair, "pair",       LS_OP_SECOND | LS_OP_KEEP_SECOND | LS_OP_IN_PLACE,
    pair_infer,  pair_forward, pair_backward};
static const ls_op_kind noise = {sizeof noise, "noise",       LS_OP_IN_PLACE,
                                 same_shape,   noise_forward, noise_backward};
static const ls_op_kind reshape = {sizeof reshape, "reshape", LS_OP_VIEW,
                                   reshape_infer,  NULL,      NULL};

ls_tensor *t_square(ls_graph *g, ls_tensor *x)
{
    return ls_op_add(g, &square, NULL, 0, 1, &x, 0, NULL);
}

ls_tensor *t_pair(ls_graph *g, ls_tensor *a, ls_tensor *b, ls_tensor **second)
{
    ls_tensor *inputs[2] = {a, b}, *first = ls_op_add(g, &pair, NULL, 0, 2, inputs, 0, NULL);
    *second = ls_op_second(first);
    return first;
}

ls_tensor *t_noise(ls_graph *g, ls_tensor *x)
{
    return ls_op_add(g, &noise, NULL, 0, 1, &x, 0, NULL);
}

ls_tensor *t_reshape(ls_graph *g, ls_tensor *x, int ndim, const size_t *dims)
{
    reshape_config config = {.ndim = ndim};
    memcpy(config.dims, dims, (size_t)ndim * sizeof *dims);
    return ls_op_add(g, &reshape, &config, sizeof config, 1, &x, 0, NULL);
}

/* ---- running statistics --------------------------------------------------------------------- */

static ls_status center_forward(const ls_op_call *call)
{
    const size_t width = call->param[0].count;
    float *y = begin_forward(call), *seen = call->dparam[0].data;
    for (size_t c = 0; call->training && c < width; c++) {
        float sum = 0;
        for (size_t s = 0; s < call->samples; s++)
            sum += in(call, 0)[s * width + c];
        seen[c] = sum / (float)call->samples;
    }
    for (size_t i = 0; i < call->out.count; i++)
        y[i] = in(call, 0)[i] - (call->training ? seen : weight(call, 0))[i % width];
    return LS_OK;
}

static ls_status center_backward(const ls_op_call *call)
{
    const size_t width = call->param[0].count;
    const float *dy = call->dout.data;
    float *d = call->din[0].data;
    for (size_t c = 0; d && c < width; c++) {
        float sum = 0;
        for (size_t s = 0; s < call->samples; s++)
            sum += dy[s * width + c];
        for (size_t s = 0; s < call->samples; s++)
            give(&d[s * width + c], dy[s * width + c] - sum / (float)call->samples,
                 call->add_in[0]);
    }
    return end_backward(call);
}

static const ls_op_kind center = {sizeof center, "center",       0,
                                  same_shape,    center_forward, center_backward};

ls_tensor *t_center(ls_graph *g, ls_tensor *x)
{
    ls_layer(g, "center");
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    config.init = LS_INIT_ONE;
    config.buffer = 1;
    ls_tensor *mean = ls_param(g, "running_mean", 1, &ls_tensor_dims(x)[1], &config);
    return ls_op_add(g, &center, NULL, 0, 1, &x, 1, &mean);
}

/* ---- sparse --------------------------------------------------------------------------------- */

static ls_status bag_infer(const ls_op_call *call, ls_op_shape *shape)
{
    shape->ndim = 2;
    shape->dims[1] = call->param[0].dims[1];
    shape->sparse_rows_per_sample = call->in[0].dims[1];
    return LS_OK;
}

static ls_status bag_forward(const ls_op_call *call)
{
    const size_t width = call->param[0].dims[1], bag = call->in[0].dims[1];
    const int32_t *ids = call->in[0].data;
    float *y = begin_forward(call);
    for (size_t s = 0; s < call->samples; s++)
        for (size_t c = 0; c < width; c++) {
            y[s * width + c] = 0;
            for (size_t i = 0; i < bag; i++) {
                const int32_t id = ids[s * bag + i];
                if (id < 0 || (size_t)id >= call->param[0].dims[0]) {
                    ls_graph_fail(call->graph, "id %d is not in [0, %zu)", id,
                                  call->param[0].dims[0]);
                    return LS_ERR_INVALID;
                }
                y[s * width + c] += weight(call, 0)[(size_t)id * width + c];
            }
        }
    return LS_OK;
}

static ls_status bag_backward(const ls_op_call *call)
{
    const size_t width = call->param[0].dims[1], bag = call->in[0].dims[1];
    const int32_t *ids = call->in[0].data;
    size_t rows = 0;
    assert_null(call->dparam[0].data);
    for (int32_t id = 0; (size_t)id < call->param[0].dims[0]; id++) {
        float *row = NULL;
        for (size_t i = 0; i < call->in[0].count; i++) {
            if (ids[i] != id)
                continue;
            if (!row) {
                assert_true(rows < call->sparse_room);
                row = call->sparse_values + rows * width;
                memset(row, 0, width * sizeof *row);
                call->sparse_ids[rows++] = id;
            }
            for (size_t c = 0; c < width; c++)
                row[c] += ((const float *)call->dout.data)[i / bag * width + c];
        }
    }
    *call->sparse_rows = rows;
    return end_backward(call);
}

static const ls_op_kind bag_op = {sizeof bag_op, "bag",       LS_OP_KEEP_INPUTS,
                                  bag_infer,     bag_forward, bag_backward};

ls_tensor *t_bag_tied(ls_graph *g, ls_tensor *ids, ls_tensor *table)
{
    return ls_op_add(g, &bag_op, NULL, 0, 1, &ids, 1, &table);
}

static ls_status adding_infer(const ls_op_call *call, ls_op_shape *shape)
{
    shape->sparse_adds = 1;
    return bag_infer(call, shape);
}

/* Row after row into the list, where it belongs. */
static ls_status adding_backward(const ls_op_call *call)
{
    const size_t width = call->param[0].dims[1], bag = call->in[0].dims[1];
    const int32_t *ids = call->in[0].data;
    for (size_t i = 0; i < call->in[0].count; i++) {
        size_t at = 0;
        while (at < *call->sparse_rows && call->sparse_ids[at] < ids[i])
            at++;
        const size_t behind = *call->sparse_rows - at;
        float *row = call->sparse_values + at * width;
        if (!behind || call->sparse_ids[at] != ids[i]) {
            assert_true(*call->sparse_rows < call->sparse_room);
            memmove(call->sparse_ids + at + 1, call->sparse_ids + at, behind * sizeof(int32_t));
            memmove(row + width, row, behind * width * sizeof *row);
            memset(row, 0, width * sizeof *row);
            call->sparse_ids[at] = ids[i];
            ++*call->sparse_rows;
        }
        for (size_t c = 0; c < width; c++)
            row[c] += ((const float *)call->dout.data)[i / bag * width + c];
    }
    return end_backward(call);
}

static const ls_op_kind adding_op = {sizeof adding_op, "adding",    LS_OP_KEEP_INPUTS,
                                     adding_infer,     bag_forward, adding_backward};

ls_tensor *t_bag_adding(ls_graph *g, ls_tensor *ids, ls_tensor *table)
{
    return ls_op_add(g, &adding_op, NULL, 0, 1, &ids, 1, &table);
}

ls_tensor *t_bag(ls_graph *g, ls_tensor *ids, size_t vocab, size_t width)
{
    ls_layer(g, "bag");
    ls_param_config config = LS_PARAM_CONFIG_INIT;
    config.sparse = 1;
    config.init = LS_INIT_UNIFORM;
    config.init_scale = 1;
    t_table = ls_param(g, "weight", 2, (size_t[]){vocab, width}, &config);
    return t_bag_tied(g, ids, t_table);
}

/* ---- losses --------------------------------------------------------------------------------- */

static ls_status loss_infer(const ls_op_call *call, ls_op_shape *shape)
{
    (void)call;
    shape->ndim = 1;
    shape->dims[0] = 1;
    return LS_OK;
}

static double half_squares(const ls_op_call *call)
{
    double sum = 0;
    for (size_t i = 0; i < call->in[0].count; i++)
        sum += (double)in(call, 0)[i] * (double)in(call, 0)[i] / 2;
    return sum;
}

static ls_status loss_forward(const ls_op_call *call)
{
    t_forwards++;
    ls_op_set_loss(call, half_squares(call), (double)call->samples);
    assert_true(call->backward || !call->din[0].data);
    if (call->din[0].data)
        memmove(call->din[0].data, in(call, 0), call->in[0].count * sizeof(float));
    return LS_OK;
}

static ls_status loss_backward(const ls_op_call *call)
{
    (void)call;
    t_backwards++;
    return LS_OK;
}

static ls_status late_forward(const ls_op_call *call)
{
    t_forwards++;
    ls_op_set_loss(call, half_squares(call), (double)call->samples);
    return LS_OK;
}

static ls_status late_backward(const ls_op_call *call)
{
    assert_ptr_not_equal(call->din[0].data, call->in[0].data);
    for (size_t i = 0; i < call->in[0].count; i++)
        give((float *)call->din[0].data + i, in(call, 0)[i], call->add_in[0]);
    t_backwards++;
    return LS_OK;
}

static const ls_op_kind loss = {sizeof loss, "loss",       LS_OP_LOSS,
                                loss_infer,  loss_forward, loss_backward};
static const ls_op_kind late = {sizeof late, "late",       LS_OP_LOSS | LS_OP_KEEP_INPUTS,
                                loss_infer,  late_forward, late_backward};

ls_tensor *t_loss(ls_graph *g, ls_tensor *x)
{
    return ls_op_add(g, &loss, NULL, 0, 1, &x, 0, NULL);
}

ls_tensor *t_loss_late(ls_graph *g, ls_tensor *x)
{
    return ls_op_add(g, &late, NULL, 0, 1, &x, 0, NULL);
}

/* ---- graphs --------------------------------------------------------------------------------- */

ls_graph *t_graph(size_t batch)
{
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = batch;
    config.seed = 7;
    ls_graph *graph = NULL;
    OK(ls_graph_create(&config, &graph));
    return graph;
}

ls_tensor *t_input(ls_graph *g, size_t width)
{
    return ls_input(g, "x", LS_F32, 1, &width);
}

void t_fill(float *to, size_t count, uint32_t seed)
{
    lsi_philox_fill_uniform((uint32_t[4]){0}, (uint32_t[2]){seed, 1}, 0, to, count);
    for (size_t i = 0; i < count; i++)
        to[i] = 2 * to[i] - 1;
}

void t_fill_all(ls_graph *g, uint32_t seed)
{
    for (int i = 0; i < g->input_count; i++)
        if (g->inputs[i]->dtype == LS_F32)
            t_fill(ls_input_data(g, g->inputs[i]), g->inputs[i]->count, seed + (uint32_t)i);
    ls_param_info info;
    for (int i = 0; i < ls_graph_param_count(g); i++) {
        OK(ls_graph_param(g, i, &info));
        uint32_t name = 0;
        for (const char *c = info.name; *c; c++)
            name = name * 31 + (unsigned char)*c;
        t_fill(ls_graph_params(g) + info.offset, info.count, seed + name);
    }
}

double t_step(ls_graph *g)
{
    ls_run_config config = LS_RUN_CONFIG_INIT;
    config.training = config.backward = 1;
    config.step = 3;
    ls_run_result result = {0};
    OK(ls_graph_run(g, &config, &result));
    return result.loss;
}
