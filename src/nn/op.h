/* What the layers share: short names for what an op's functions need again and again.
 *
 * A layer is a file: a function of nn.h that makes the parameters and appends a node, and a static
 * const ls_op_kind whose forward and backward stand next to each other and call the device's
 * kernels (device/kernels.h). Layers do no arithmetic of their own.
 *
 * 1. Parameters are made by the function of nn.h, before the node, so that they carry its name;
 *    infer checks what depends on shapes alone, forward what depends on values (ids, labels).
 * 2. backward may overwrite dout: its values are not read by anybody after the node's backward.
 * 3. din[i].data is NULL when nobody wants that gradient; nothing is computed for it then.
 */
#ifndef LSI_NN_OP_H
#define LSI_NN_OP_H

#include <lockstep/nn.h>

#include "base/status.h"
#include "device/kernels.h"
#include "graph/graph.h"

/* The kernels of the device that this call runs on: LSI_KERNEL(call, add, n, m, a, b, y). */
#define LSI_KERNEL(call, kernel, ...) ((call)->device->k->kernel((call)->device, __VA_ARGS__))

static inline const float *lsi_in(const ls_op_call *call, int i)
{
    return call->in[i].data;
}

static inline const float *lsi_weight(const ls_op_call *call, int i)
{
    return i < call->params ? call->param[i].data : NULL;
}

static inline float *lsi_din(const ls_op_call *call, int i)
{
    return call->din[i].data;
}

static inline float *lsi_dparam(const ls_op_call *call, int i)
{
    return i < call->params ? call->dparam[i].data : NULL;
}

static inline size_t lsi_last(const ls_view *view)
{
    return view->dims[view->ndim - 1];
}

/* Rows of the last dimension. */
static inline size_t lsi_rows(const ls_view *view)
{
    return view->count / lsi_last(view);
}

/* Values of one sample. */
static inline size_t lsi_each(const ls_view *view)
{
    size_t each = 1;
    for (int i = 1; i < view->ndim; i++)
        each *= view->dims[i];
    return each;
}

/* Begin a layer named after `kind` on x of at least `least` dimensions, the batch included. 0 with
 * the error kept when that cannot be. */
int lsi_layer_begin(ls_graph *graph, const char *kind, const ls_tensor *x, int least);
/* The layer is not needed (dropout of 0): its name is not given to the next one. Returns x. */
ls_tensor *lsi_layer_skip(ls_graph *graph, ls_tensor *x);
/* 0 with the error kept when a configuration is of another size than it should be; 0 when it is
 * missing. */
int lsi_config_fits(ls_graph *graph, size_t size, size_t expected);
/* Values of this input are in [0, bound): for who fills it. */
void lsi_tensor_limit(ls_tensor *ids, size_t bound);

/* The output has the shape of `view`. */
void lsi_shape_as(const ls_view *view, ls_op_shape *shape);
/* Are all dimensions the same? */
int lsi_same_shape(const ls_view *a, const ls_view *b);
/* Refuse, in infer, an input of another type than f32 (i32), or of fewer than `least` dimensions,
 * the batch included. `what` names it in the error: "input", "residual". */
ls_status lsi_need_f32(const ls_op_call *call, int input, int least, const char *what);
ls_status lsi_need_i32(const ls_op_call *call, int input, int least, const char *what);
/* (4, 28, 28), into text. Returns text. */
#define LSI_SHAPE_TEXT 128
const char *lsi_shape_text(const ls_view *view, char text[LSI_SHAPE_TEXT]);

/* The gradient `dout` (or what stands there now) is also that of input i: copied or added, unless
 * the graph gave both the same memory. */
ls_status lsi_pass_gradient(const ls_op_call *call, int input);

/* LS_ERR_INVALID naming the node, unless every one of `count` ids is in [0, bound) or is `ignore`
 * (LSI_NO_IGNORE: none is). `what` they are: "id", "label". */
#define LSI_NO_IGNORE 0
ls_status lsi_check_ids(const ls_op_call *call, const char *what, size_t count, const int32_t *ids,
                        size_t bound, int32_t ignore);

/* The activation as the kernels know it; the number of kernels' activations when it is none. */
lsi_act lsi_act_of(ls_activation activation);

/* Where dropout draws from, for a node of this call. */
lsi_dropout lsi_dropout_of(const ls_op_call *call, float p, size_t each);

#endif
