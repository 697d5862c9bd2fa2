/* Numbers as text: the shortest decimal that reads back as the same number. So equal values print
 * equally, in files that are compared byte by byte. Pure functions: any thread. */
#ifndef LSI_TRAIN_NUMBER_H
#define LSI_TRAIN_NUMBER_H

#include <stddef.h>

#define LSI_NUMBER_TEXT 40

/* A finite number with '.' whatever the locale; "null" for one that is not (JSON has none). */
const char *lsi_number_text(double value, char text[LSI_NUMBER_TEXT]);
/* The same for a number that is used as a float: no more digits than a float has. */
const char *lsi_number_text_float(double value, char text[LSI_NUMBER_TEXT]);

#endif
