/* Names, sizes and legality of element types and operators: the tables behind types.h.
 *
 * 1. The tables are indexed by the enums; a value outside of them is answered, never read past.
 */
#include <lockstep/types.h>

#include <string.h>

#include "base/status.h"

static const struct {
    const char *name;
    unsigned char size;
    unsigned char is_integer;
} dtypes[LS_DTYPE_COUNT] = {
    [LS_F32] = {"f32", 4, 0}, [LS_F64] = {"f64", 8, 0}, [LS_BF16] = {"bf16", 2, 0},
    [LS_F16] = {"f16", 2, 0}, [LS_I8] = {"i8", 1, 1},   [LS_U8] = {"u8", 1, 1},
    [LS_I32] = {"i32", 4, 1}, [LS_I64] = {"i64", 8, 1},
};

static const struct {
    const char *name;
    unsigned char integers_only;
} ops[LS_OP_COUNT] = {
    [LS_SUM] = {"sum", 0}, [LS_PROD] = {"prod", 0}, [LS_MIN] = {"min", 0},
    [LS_MAX] = {"max", 0}, [LS_BAND] = {"band", 1}, [LS_BOR] = {"bor", 1},
};

static int is_dtype(ls_dtype dtype)
{
    return (unsigned)dtype < LS_DTYPE_COUNT;
}

static int is_op(ls_op op)
{
    return (unsigned)op < LS_OP_COUNT;
}

size_t ls_dtype_size(ls_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].size : 0;
}

const char *ls_dtype_name(ls_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

const char *ls_op_name(ls_op op)
{
    return is_op(op) ? ops[op].name : "?";
}

ls_status ls_dtype_parse(const char *text, ls_dtype *dtype)
{
    for (int i = 0; text && i < LS_DTYPE_COUNT; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *dtype = (ls_dtype)i;
            return LS_OK;
        }
    }
    return lsi_fail(LS_ERR_INVALID, "one of f32 f64 bf16 f16 i8 u8 i32 i64", "element type",
                    "\"%s\" is not known", text ? text : "");
}

ls_status ls_op_parse(const char *text, ls_op *op)
{
    for (int i = 0; text && i < LS_OP_COUNT; i++) {
        if (strcmp(text, ops[i].name) == 0) {
            *op = (ls_op)i;
            return LS_OK;
        }
    }
    return lsi_fail(LS_ERR_INVALID, "one of sum prod min max band bor", "reduction operator",
                    "\"%s\" is not known", text ? text : "");
}

int ls_op_supports(ls_op op, ls_dtype dtype)
{
    return is_op(op) && is_dtype(dtype) && (dtypes[dtype].is_integer || !ops[op].integers_only);
}
