/* Reference: attention of many heads, causal or not, with its t x t matrices written out.
 *
 * With s_ij = scale q_i·k_j, p_ij = exp(s_ij - lse_i) and r_ij = 1 / (1 - dropout) where p_ij is
 * kept, else 0: y_i = sum_j r_ij p_ij v_j, and with u_ij = r_ij dy_i·v_j the gradient of s_ij is
 * p_ij (u_ij - sum_j p_ij u_ij), where the sum equals dy_i·y_i.
 */
#include <math.h>

#include "base/status.h"
#include "device/ref.h"

/* The place of row t of a head in q, k, v and their gradients, and in y. */
static size_t row_at(const lsi_attention *p, size_t n, size_t t, size_t head)
{
    return (n * p->t + t) * p->stride + head * p->hd;
}

static size_t result_at(const lsi_attention *p, size_t n, size_t t, size_t head)
{
    return ((n * p->t + t) * p->heads + head) * p->hd;
}

static size_t lse_at(const lsi_attention *p, size_t n, size_t t, size_t head)
{
    return (n * p->heads + head) * p->t + t;
}

/* Row i sees the rows below this one. */
static size_t visible(const lsi_attention *p, size_t i)
{
    return p->causal ? i + 1 : p->t;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* r_ij of the head comment. */
static double kept(const lsi_attention *p, size_t n, size_t head, size_t i, size_t j)
{
    if (!p->dropout)
        return 1;
    const uint64_t e = ((uint64_t)head * p->t + i) * p->t + j;
    return lsi_ref_kept(p->dropout, n, e) ? 1 / (1 - (double)p->dropout->p) : 0;
}

/* Row i of r p into weights (t), and its lse. */
static double weights_of_row(const lsi_attention *p, const float *q, const float *k, size_t n,
                             size_t head, size_t i, double *weights)
{
    double largest = -INFINITY, sum = 0;
    for (size_t j = 0; j < visible(p, i); j++) {
        weights[j] =
            (double)p->scale * dot(q + row_at(p, n, i, head), k + row_at(p, n, j, head), p->hd);
        largest = fmax(largest, weights[j]);
    }
    for (size_t j = 0; j < visible(p, i); j++)
        sum += exp(weights[j] - largest);
    const double lse = largest + log(sum);
    for (size_t j = 0; j < visible(p, i); j++)
        weights[j] = kept(p, n, head, i, j) * exp(weights[j] - lse);
    return lse;
}

ls_status lsi_ref_attention(lsi_device *device, const lsi_attention *p, const float *q,
                            const float *k, const float *v, float *y, float *lse)
{
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, p->t * sizeof(double), &scratch));
    double *weights = scratch; /* (t) */
    for (size_t n = 0; n < p->n; n++) {
        for (size_t head = 0; head < p->heads; head++) {
            for (size_t i = 0; i < p->t; i++) {
                lse[lse_at(p, n, i, head)] = (float)weights_of_row(p, q, k, n, head, i, weights);
                for (size_t c = 0; c < p->hd; c++) {
                    double sum = 0;
                    for (size_t j = 0; j < visible(p, i); j++)
                        sum += weights[j] * (double)v[row_at(p, n, j, head) + c];
                    y[result_at(p, n, i, head) + c] = (float)sum;
                }
            }
        }
    }
    return LS_OK;
}

typedef struct grad_call {
    const lsi_attention *p;
    const float *q, *k, *v, *y, *lse, *dy;
    double *weights, *ds; /* (t, t): r p, and the gradients of s; zero where nothing is seen */
} grad_call;

static void matrices_of_head(const grad_call *a, size_t n, size_t head)
{
    const lsi_attention *p = a->p;
    for (size_t i = 0; i < p->t; i++) {
        const float *qi = a->q + row_at(p, n, i, head), *dyi = a->dy + result_at(p, n, i, head);
        const double along = dot(dyi, a->y + result_at(p, n, i, head), p->hd);
        for (size_t j = 0; j < p->t; j++) {
            a->weights[i * p->t + j] = a->ds[i * p->t + j] = 0;
            if (j >= visible(p, i))
                continue;
            const double s = (double)p->scale * dot(qi, a->k + row_at(p, n, j, head), p->hd);
            const double pij = exp(s - (double)a->lse[lse_at(p, n, i, head)]);
            const double rij = kept(p, n, head, i, j);
            const double u = rij * dot(dyi, a->v + row_at(p, n, j, head), p->hd);
            a->weights[i * p->t + j] = rij * pij;
            a->ds[i * p->t + j] = pij * (u - along);
        }
    }
}

ls_status lsi_ref_attention_grad(lsi_device *device, const lsi_attention *p, const float *q,
                                 const float *k, const float *v, const float *y, const float *lse,
                                 const float *dy, float *dq, float *dk, float *dv)
{
    void *scratch;
    LSI_TRY(lsi_device_scratch(device, 2 * p->t * p->t * sizeof(double), &scratch));
    double *weights = scratch, *ds = weights + p->t * p->t;
    const grad_call call = {p, q, k, v, y, lse, dy, weights, ds};
    for (size_t n = 0; n < p->n; n++) {
        for (size_t head = 0; head < p->heads; head++) {
            matrices_of_head(&call, n, head);
            for (size_t i = 0; i < p->t; i++) {
                for (size_t c = 0; c < p->hd; c++) {
                    double to_q = 0, to_k = 0, to_v = 0;
                    for (size_t j = 0; j < visible(p, i); j++)
                        to_q += ds[i * p->t + j] * (double)k[row_at(p, n, j, head) + c];
                    for (size_t j = 0; j < p->t; j++) {
                        if (i >= visible(p, j))
                            continue;
                        to_k += ds[j * p->t + i] * (double)q[row_at(p, n, j, head) + c];
                        to_v += weights[j * p->t + i] * (double)dy[result_at(p, n, j, head) + c];
                    }
                    dq[row_at(p, n, i, head) + c] = (float)((double)p->scale * to_q);
                    dk[row_at(p, n, i, head) + c] = (float)((double)p->scale * to_k);
                    dv[row_at(p, n, i, head) + c] = (float)to_v;
                }
            }
        }
    }
    return LS_OK;
}
