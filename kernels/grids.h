// The grids of the i-quants: the points of 8 or 4 weights that a type can store, by their index.
#ifndef KERNELS_GRIDS_H
#define KERNELS_GRIDS_H

#include <stdint.h>

// The first four hold points of 8, the others of 4. GRID_IQ1 serves IQ1_S and IQ1_M.
typedef enum {
    GRID_IQ2_XXS,
    GRID_IQ2_XS,
    GRID_IQ2_S,
    GRID_IQ1,
    GRID_IQ3_XXS,
    GRID_IQ3_S,
    N_GRIDS
} GridId;

enum { GRID_EIGHTS = 256 + 512 + 1024 + 2048, GRID_FOURS = 256 + 512 };

// The points of a grid stand one after another from these indices on.
enum {
    GRID_IQ2_XXS_AT = 0,
    GRID_IQ2_XS_AT = 256,
    GRID_IQ2_S_AT = 768,
    GRID_IQ1_AT = 1792,
    GRID_IQ3_XXS_AT = 0,
    GRID_IQ3_S_AT = 256
};
extern int8_t grid_eights[GRID_EIGHTS][8], grid_fours[GRID_FOURS][4];

// Fills the tables. Before anything is unpacked.
void grids_init(void);

#endif
