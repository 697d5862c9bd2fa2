/* What goes into the graph: its inputs, as data and graph see them. */
#ifndef LSI_TRAIN_FIELDS_H
#define LSI_TRAIN_FIELDS_H

#include <lockstep/data.h>
#include <lockstep/graph.h>

#define LSI_FIELDS_MAX 8

typedef struct lsi_fields {
    int n;
    ls_data_field of[LSI_FIELDS_MAX];
    size_t bytes[LSI_FIELDS_MAX]; /* of a sample */
    void *memory[LSI_FIELDS_MAX]; /* in the graph */
} lsi_fields;

/* A graph's inputs as fields. LS_ERR_UNSUPPORTED: more than LSI_FIELDS_MAX. */
ls_status lsi_fields_of(ls_graph *graph, lsi_fields *fields);

#endif
