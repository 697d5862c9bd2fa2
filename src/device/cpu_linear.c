/* Linear layers: y = x w, and its two gradients, each one product of matrices. The panels of w are
 * kept from run to run while it stays as it is (lsi_device_keep). */
#include "base/status.h"
#include "device/cpu.h"
#include "device/cpu_gemm.h"

/* With weights as B: the panels that are kept of them, if any are. */
static void find_panels(lsi_device *device, lsi_kept kind, lsi_gemm *g)
{
    void *panels;
    g->are_packed =
        lsi_device_keep(device, g->b, kind, LSI_GEMM_PANELS(g->k, g->n) * sizeof(float), &panels);
    g->panels = panels;
}

static ls_status run(lsi_device *device, const lsi_gemm *g)
{
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, LSI_GEMM_SCRATCH * sizeof(float), &scratch));
    LSI_K(gemm)(g, scratch);
    return LS_OK;
}

ls_status LSI_K(linear)(lsi_device *device, const lsi_linear *p, const float *x, const float *w,
                        const float *bias, const float *residual, float *slope, float *y)
{
    lsi_gemm g = {.m = p->rows,
                  .n = p->out,
                  .k = p->in,
                  .a = x,
                  .a_row = p->in,
                  .a_col = 1,
                  .b = w,
                  .b_row = p->transposed ? 1 : p->out,
                  .b_col = p->transposed ? p->in : 1,
                  .start = residual,
                  .ld_start = p->out,
                  .c = y,
                  .ldc = p->out,
                  .bias = bias,
                  .slope = slope,
                  .act = p->act};
    find_panels(device, LSI_KEPT_FORWARD, &g);
    return run(device, &g);
}

ls_status LSI_K(linear_dx)(lsi_device *device, const lsi_linear *p, const float *dy, const float *w,
                           float *dx, int add)
{
    lsi_gemm g = {.m = p->rows,
                  .n = p->in,
                  .k = p->out,
                  .a = dy,
                  .a_row = p->out,
                  .a_col = 1,
                  .b = w,
                  .b_row = p->transposed ? p->in : 1,
                  .b_col = p->transposed ? 1 : p->out,
                  .start = add ? dx : NULL,
                  .ld_start = p->in,
                  .c = dx,
                  .ldc = p->in};
    find_panels(device, LSI_KEPT_BACKWARD, &g);
    return run(device, &g);
}

ls_status LSI_K(linear_dw)(lsi_device *device, const lsi_linear *p, const float *x, const float *dy,
                           float *dw, float *dbias, int add)
{
    const int t = p->transposed;
    lsi_gemm g = {.m = t ? p->out : p->in,
                  .n = t ? p->in : p->out,
                  .k = p->rows,
                  .a = t ? dy : x,
                  .a_row = 1,
                  .a_col = t ? p->out : p->in,
                  .b = t ? x : dy,
                  .b_row = t ? p->in : p->out,
                  .b_col = 1,
                  .start = add ? dw : NULL,
                  .ld_start = t ? p->in : p->out,
                  .c = dw,
                  .ldc = t ? p->in : p->out,
                  .sums = t ? NULL : dbias,
                  .add_sums = add};
    if (t && dbias)
        LSI_K(column_sums)(p->rows, p->out, dy, p->out, dbias, add);
    return run(device, &g);
}

void LSI_K(install_linear)(lsi_kernels *kernels)
{
    kernels->linear = LSI_K(linear);
    kernels->linear_dx = LSI_K(linear_dx);
    kernels->linear_dw = LSI_K(linear_dw);
}
