/* Activations and their gradients over arrays. The functions themselves are in vec_act.h.
 *
 * 1. One pass over memory, one loop for each activation: the choice is made outside of it.
 * 2. Adding to dx has the bits of computing the gradient alone and adding it then.
 */
#include "device/cpu.h"
#include "device/vec_act.h"

/* `run(kind, …)` with kind a constant: what is inlined there loses its switch. */
#define FOR_EACH_KIND(act, run, ...)                                                               \
    switch (act) {                                                                                 \
    case LSI_ACT_RELU: run(LSI_ACT_RELU, __VA_ARGS__); break;                                      \
    case LSI_ACT_GELU_TANH: run(LSI_ACT_GELU_TANH, __VA_ARGS__); break;                            \
    case LSI_ACT_GELU_ERF: run(LSI_ACT_GELU_ERF, __VA_ARGS__); break;                              \
    case LSI_ACT_SILU: run(LSI_ACT_SILU, __VA_ARGS__); break;                                      \
    case LSI_ACT_TANH: run(LSI_ACT_TANH, __VA_ARGS__); break;                                      \
    case LSI_ACT_SIGMOID: run(LSI_ACT_SIGMOID, __VA_ARGS__); break;                                \
    default: run(LSI_ACT_NONE, __VA_ARGS__);                                                       \
    }

LSI_VEC void act_at(lsi_act kind, const float *x, float *y, size_t at, size_t n)
{
    v16_put(y + at, v16_act(kind, v16_get(x + at, n)), n);
}

LSI_VEC void act_all(lsi_act kind, size_t n, const float *x, float *y)
{
    V16_FOR_EACH(n, act_at, kind, x, y);
}

static ls_status act(lsi_device *device, lsi_act kind, size_t n, const float *x, float *y)
{
    (void)device;
    FOR_EACH_KIND(kind, act_all, n, x, y)
    return LS_OK;
}

LSI_VEC void grad_at(lsi_act kind, int add, const float *x, const float *dy, float *dx, size_t at,
                     size_t n)
{
    const v16 in = v16_get(x + at, n), from = v16_get(dy + at, n);
    v16 to;
    if (kind == LSI_ACT_NONE)
        to = from;
    else if (kind == LSI_ACT_RELU)
        to = v16_if_gt(in, v16_zero(), from, v16_zero());
    else
        to = v16_mul(from, v16_act_grad(kind, in));
    v16_put(dx + at, add ? v16_add(v16_get(dx + at, n), to) : to, n);
}

LSI_VEC void grad_all(lsi_act kind, size_t n, const float *x, const float *dy, float *dx, int add)
{
    if (add)
        V16_FOR_EACH(n, grad_at, kind, 1, x, dy, dx);
    else
        V16_FOR_EACH(n, grad_at, kind, 0, x, dy, dx);
}

static ls_status act_grad(lsi_device *device, lsi_act kind, size_t n, const float *x,
                          const float *dy, float *dx, int add)
{
    (void)device;
    FOR_EACH_KIND(kind, grad_all, n, x, dy, dx, add)
    return LS_OK;
}

void LSI_K(install_act)(lsi_kernels *kernels)
{
    kernels->act = act;
    kernels->act_grad = act_grad;
}
