/* Reference: products of matrices, and the products of pairs of rows. */
#include "device/ref.h"

/* Element (k, o) of the weight of a linear layer, whichever way it lies. */
static size_t weight_at(const lsi_linear *p, size_t k, size_t o)
{
    return p->transposed ? o * p->in + k : k * p->out + o;
}

ls_status lsi_ref_linear(lsi_device *device, const lsi_linear *p, const float *x, const float *w,
                         const float *bias, const float *residual, float *slope, float *y)
{
    (void)device;
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t o = 0; o < p->out; o++) {
            const size_t at = r * p->out + o;
            double sum = residual ? (double)residual[at] : 0;
            for (size_t k = 0; k < p->in; k++)
                sum += (double)x[r * p->in + k] * (double)w[weight_at(p, k, o)];
            if (bias)
                sum += (double)bias[o];
            if (slope)
                slope[at] = (float)lsi_ref_act_slope(p->act, sum);
            y[at] = (float)lsi_ref_act_value(p->act, sum);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_linear_dx(lsi_device *device, const lsi_linear *p, const float *dy,
                            const float *w, float *dx, int add)
{
    (void)device;
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t k = 0; k < p->in; k++) {
            const size_t at = r * p->in + k;
            double sum = 0;
            for (size_t o = 0; o < p->out; o++)
                sum += (double)dy[r * p->out + o] * (double)w[weight_at(p, k, o)];
            lsi_ref_put(&dx[at], sum, add);
        }
    }
    return LS_OK;
}

ls_status lsi_ref_linear_dw(lsi_device *device, const lsi_linear *p, const float *x,
                            const float *dy, float *dw, float *dbias, int add)
{
    (void)device;
    for (size_t o = 0; o < p->out; o++) {
        for (size_t k = 0; k < p->in; k++) {
            double sum = 0;
            for (size_t r = 0; r < p->rows; r++)
                sum += (double)x[r * p->in + k] * (double)dy[r * p->out + o];
            lsi_ref_put(&dw[weight_at(p, k, o)], sum, add);
        }
        if (dbias) {
            double sum = 0;
            for (size_t r = 0; r < p->rows; r++)
                sum += (double)dy[r * p->out + o];
            lsi_ref_put(&dbias[o], sum, add);
        }
    }
    return LS_OK;
}

/* Row i of sample s: of x, or of dx with whether it is added to. */
static lsi_features row_of(const lsi_features *part, size_t s, size_t i, size_t d)
{
    while (i >= part->rows)
        i -= part++->rows;
    const size_t at = (s * part->rows + i) * d;
    return (lsi_features){1, part->x + at, part->dx ? part->dx + at : NULL, part->add};
}

static size_t count_rows(int parts, const lsi_features *part)
{
    size_t f = 0;
    for (int i = 0; i < parts; i++)
        f += part[i].rows;
    return f;
}

ls_status lsi_ref_interact(lsi_device *device, size_t n, size_t d, int parts,
                           const lsi_features *part, int head, float *y)
{
    (void)device;
    const size_t f = count_rows(parts, part);
    for (size_t s = 0; s < n; s++) {
        for (size_t c = 0; head && c < d; c++)
            *y++ = row_of(part, s, 0, d).x[c];
        for (size_t i = 1; i < f; i++) {
            for (size_t j = 0; j < i; j++) {
                double sum = 0;
                for (size_t c = 0; c < d; c++)
                    sum += (double)row_of(part, s, i, d).x[c] * (double)row_of(part, s, j, d).x[c];
                *y++ = (float)sum;
            }
        }
    }
    return LS_OK;
}

ls_status lsi_ref_interact_grad(lsi_device *device, size_t n, size_t d, int parts,
                                const lsi_features *part, int head, const float *dy)
{
    (void)device;
    const size_t f = count_rows(parts, part), first = head ? d : 0;
    for (size_t s = 0; s < n; s++, dy += first + f * (f - 1) / 2) {
        for (size_t i = 0; i < f; i++) {
            const lsi_features row = row_of(part, s, i, d);
            for (size_t c = 0; row.dx && c < d; c++) {
                double sum = head && i == 0 ? (double)dy[c] : 0;
                for (size_t j = 0; j < f; j++) {
                    const size_t high = i > j ? i : j, low = i > j ? j : i;
                    if (i != j)
                        sum += (double)dy[first + high * (high - 1) / 2 + low] *
                               (double)row_of(part, s, j, d).x[c];
                }
                lsi_ref_put(&row.dx[c], sum, row.add);
            }
        }
    }
    return LS_OK;
}
