/* A name that nobody else has: 32 random hexadecimal digits. It is no secret. */
#ifndef LSI_BASE_ID_H
#define LSI_BASE_ID_H

#include <lockstep/status.h>

#define LSI_ID_BYTES 33 /* with the final 0 */

ls_status lsi_id_make(char id[LSI_ID_BYTES]);

#endif
