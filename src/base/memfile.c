/* The one place that makes memory files.
 *
 * The kernel makes them for all to read and write (0777, or 0666 where they cannot be executed).
 * Who could open one through /proc may trace the process as well, so nothing hangs on the mode
 * alone; but a descriptor that has got into other hands cannot be opened anew with more rights.
 */
#include "base/memfile.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

int lsi_memfile_create(const char *name, unsigned flags)
{
    flags |= MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* an older kernel */
        fd = memfd_create(name, flags);
    if (fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        fd = -1;
    }
    return fd;
}
