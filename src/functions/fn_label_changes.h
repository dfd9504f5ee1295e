/*
 * fn_label_changes.h - a list of rows and the labels that they are to get, for an
 * UPDATE that scans the same table.
 */
#ifndef FN_LABEL_CHANGES_H
#define FN_LABEL_CHANGES_H

#include "gkmeans.h"

typedef struct KmChanges KmChanges;

extern KmChanges *km_changes_begin(void);
extern void km_changes_end(KmChanges *changes);
extern void km_changes_add(KmChanges *changes, const KmRowId *row, int32 label);
extern int64 km_changes_count(const KmChanges *changes);
/*
 * The label that a row is to get, or false.  After the first call nothing may be
 * added.  Cheapest in the order in which rows were added, but any order will do.
 */
extern bool km_changes_find(KmChanges *changes, const KmRowId *row, int32 *label);

#endif							/* FN_LABEL_CHANGES_H */
