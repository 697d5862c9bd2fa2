/* Numbers as text: as few digits as read back as the same number. */
#include "train/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The decimal point of the locale, if it is another one. */
static void use_point(char *text)
{
    char *other = text + strspn(text, "0123456789+-eE");
    if (*other) {
        char *rest = other + strcspn(other, "0123456789+-eE");
        *other = '.';
        memmove(other + 1, rest, strlen(rest) + 1);
    }
}

const char *lsi_number_text(double value, char text[LSI_NUMBER_TEXT])
{
    if (!isfinite(value))
        return "null";
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, LSI_NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    use_point(text);
    return text;
}

const char *lsi_number_text_float(double value, char text[LSI_NUMBER_TEXT])
{
    if (!isfinite(value) || (double)(float)value != value)
        return lsi_number_text(value, text);
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, LSI_NUMBER_TEXT, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
    }
    use_point(text);
    return text;
}
