/* The `tcp` store: the client's ops, for the registry. The server's contract is in store.h. */
#ifndef LSI_STORE_TCP_H
#define LSI_STORE_TCP_H

#include "store/store.h"

extern const lsi_store_ops lsi_store_tcp;

#endif
