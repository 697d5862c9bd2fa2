/* Element types and reduction operators of the collectives. */
#ifndef LOCKSTEP_TYPES_H
#define LOCKSTEP_TYPES_H

#include <stddef.h>

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_dtype {
    LS_F32,
    LS_F64,
    LS_BF16, /* stored as uint16_t; each addition is rounded to nearest even */
    LS_F16,  /* IEEE binary16, likewise */
    LS_I8,
    LS_U8,
    LS_I32,
    LS_I64,
    LS_DTYPE_COUNT
} ls_dtype;

typedef enum ls_op {
    LS_SUM,
    LS_PROD,
    LS_MIN,
    LS_MAX,
    LS_BAND, /* integers only */
    LS_BOR,  /* integers only */
    LS_OP_COUNT
} ls_op;

/* Bytes of one element; 0 for a value that is no dtype. */
LS_API size_t ls_dtype_size(ls_dtype dtype);
/* "f32", "bf16", …; "?" for a value that is no dtype. */
LS_API const char *ls_dtype_name(ls_dtype dtype);
/* "sum", "band", …; "?" for a value that is no operator. */
LS_API const char *ls_op_name(ls_op op);
/* Parse the names above. LS_ERR_INVALID lists the accepted ones. */
LS_API ls_status ls_dtype_parse(const char *text, ls_dtype *dtype);
LS_API ls_status ls_op_parse(const char *text, ls_op *op);
/* 1 when `op` is defined on `dtype`. */
LS_API int ls_op_supports(ls_op op, ls_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
