/* A device: memory, and the kernels that one worker computes with.
 *
 * The kernels are the whole contract between the graph and the hardware (kernels.h). `cpu` is the
 * fast one; `ref` is the obvious one, which the tests hold the others against.
 *
 * 1. Everything is f32, row-major and contiguous unless a kernel says otherwise; ids and labels
 *    are i32. Images are (n, h, w, c).
 * 2. A kernel's result depends on its arguments only: not on the instruction set, the thread, the
 *    address, nor on what ran before. In detail: kernels.h.
 * 3. A row (sample) of a forward result does not depend on the other rows, batch norm aside.
 * 4. Scratch memory grows in the first step and is then reused: a step that repeats does not
 *    allocate.
 *
 * A device belongs to one thread at a time.
 */
#ifndef LSI_DEVICE_DEVICE_H
#define LSI_DEVICE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

typedef struct lsi_device lsi_device;
typedef struct lsi_kernels lsi_kernels;

/* A kind of device. The registry in device.c lists them in order; the first that is usable is the
 * default. */
typedef struct lsi_device_ops {
    const char *name;
    /* NULL when it can be used on this machine, else a static text that says why not. */
    const char *(*why_unusable)(void);
    /* The kernels for this machine; never NULL for a usable device. */
    const lsi_kernels *(*kernels)(void);
    /* `bytes` of memory aligned to 64 that the kernels can use; contents undefined. */
    ls_status (*alloc)(size_t bytes, void **out);
    void (*free)(void *memory);
    /* From and to this process's ordinary memory, and within the device. */
    ls_status (*copy)(void *to, const void *from, size_t bytes);
} lsi_device_ops;

typedef struct lsi_keeper lsi_keeper;

struct lsi_device {
    const lsi_device_ops *ops;
    const lsi_kernels *k;
    void *scratch;
    size_t scratch_bytes;
    lsi_keeper *keeper; /* NULL: nothing is kept */
};

/* Open a device by name (NULL or "": the default). LS_ERR_CONFIG lists the known ones. */
ls_status lsi_device_open(const char *name, lsi_device **out);
void lsi_device_close(lsi_device *device);

/* Memory for the duration of one kernel, aligned to 64; the next call may return the same. */
ls_status lsi_device_scratch(lsi_device *device, size_t bytes, void **out);

/* What kernels make of weights, kept for further runs with the same ones (keep.c). Before a run:
 * are the weights those of the run before? From the first time that they are on things are kept. */
void lsi_device_weights(lsi_device *device, int same);
typedef enum lsi_kept { LSI_KEPT_FORWARD, LSI_KEPT_BACKWARD } lsi_kept;
/* Room for what a kernel makes of the weights at `of`: 1: *room has it already; 0: the kernel is to
 * write it there, all of it, or *room is NULL: it is not kept. */
int lsi_device_keep(lsi_device *device, const void *of, lsi_kept kind, size_t bytes, void **room);
/* Gives all of it back. */
void lsi_device_forget(lsi_device *device);

/* For `lockstep info` and the tests: the i-th known device, NULL past the end. */
const lsi_device_ops *lsi_device_known(int i);

/* Instruction sets of the cpu device, slowest first: "plain", "avx2", "avx512" (x86-64) or "plain",
 * "neon". LOCKSTEP_ISA=NAME forces one; the default is the last usable one. */
int lsi_isa_count(void);
const char *lsi_isa_name(int i);
int lsi_isa_usable(int i);
/* The cpu kernels compiled for set i, for the tests that compare them; NULL when not usable. */
const lsi_kernels *lsi_isa_kernels(int i);
/* LS_ERR_CONFIG when LOCKSTEP_ISA names none that is usable here; lsi_device_open asks, too. */
ls_status lsi_isa_check(void);
/* The one that `cpu` uses. */
int lsi_isa_chosen(void);

#endif
