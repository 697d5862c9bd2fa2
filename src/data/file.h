/* Files of data in memory.
 *
 * 1. A file is mapped, read-only: memory is the page cache's, shared by all who read it, and given
 *    back when it is needed. Only a .gz is unpacked into memory of the process.
 * 2. A file must not be cut while it is open: the next read of a lost page ends the process with
 *    SIGBUS. Replacing a file by renaming another over it is safe.
 */
#ifndef LSI_DATA_FILE_H
#define LSI_DATA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

typedef struct lsi_file {
    const uint8_t *bytes;
    size_t size; /* at least 1 */
    char *path;  /* as in errors */
    int mapped;
} lsi_file;

/* Map a file. `what` is the kind of data, for errors. LS_ERR_NOT_FOUND: there is none;
 * LS_ERR_CONFIG: empty, or not a regular file; LS_ERR_SYSTEM. */
ls_status lsi_file_map(const char *what, const char *path, lsi_file *file);
/* Unpack a .gz whose first `head` bytes tell the size of the rest: size_of returns the whole size
 * for them, 0 when they make no sense. Then only the head is kept, for the caller to refuse. */
ls_status lsi_file_unpack(const char *what, const char *path, size_t head,
                          size_t (*size_of)(const uint8_t *head), lsi_file *file);
/* Free; zeros too. */
void lsi_file_close(lsi_file *file);

/* Which pages will be read: one after the other, or here and there. */
void lsi_file_read_through(const lsi_file *file);
void lsi_file_read_anywhere(const lsi_file *file);

/* "folder/name" in new memory, NULL without memory; whether there is something of this name. */
char *lsi_path_join(const char *folder, const char *name);
int lsi_path_is_folder(const char *path);
int lsi_path_exists(const char *folder, const char *name);

#endif
