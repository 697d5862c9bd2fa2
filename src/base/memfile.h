/* Memory files: anonymous memory with a descriptor, for what processes share. */
#ifndef LSI_BASE_MEMFILE_H
#define LSI_BASE_MEMFILE_H

/* A new, empty one, which can be sealed, never executed, and opened by no other user: mode 0600.
 * `name` is for /proc; `flags` as of memfd_create (MFD_CLOEXEC or 0). -1 with errno. Any thread. */
int lsi_memfile_create(const char *name, unsigned flags);

#endif
