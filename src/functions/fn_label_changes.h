/*
 * fn_label_changes.h - a list of rows and the labels that they are to get, for an
 * UPDATE that scans the same table.
 */
#ifndef GKMEANS_CHANGES_H
#define GKMEANS_CHANGES_H

#include "gkmeans.h"

typedef struct GkChanges GkChanges;

extern GkChanges *gk_changes_begin(void);
extern void gk_changes_end(GkChanges *changes);
extern void gk_changes_add(GkChanges *changes, const GkRowId *row, int32 label);
extern int64 gk_changes_count(const GkChanges *changes);
/*
 * The label that a row is to get, or false.  After the first call nothing may be
 * added.  Cheapest in the order in which rows were added, but any order will do.
 */
extern bool gk_changes_find(GkChanges *changes, const GkRowId *row, int32 *label);

#endif							/* GKMEANS_CHANGES_H */
