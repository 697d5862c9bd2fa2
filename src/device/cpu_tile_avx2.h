/* Eight steps of k of a whole tile of six rows by two vectors, with AVX2, instruction by
 * instruction: twelve sums, two vectors of B and one float of A need fifteen of the sixteen
 * registers, and the compiler, given less, moves them about. What it adds costs little where the
 * core is ours, and a tenth while another thread shares it; eight steps instead of four are worth
 * another 1 % then.
 *
 * The sums stay where the compiler has put them; ymm13, 14 and 15 are ours.
 */
#ifndef LSI_DEVICE_CPU_TILE_AVX2_H
#define LSI_DEVICE_CPU_TILE_AVX2_H

#include "device/cpu_lane.h"

#define LSI_TILE_AHEAD 28 /* rows that B is asked for early */
#define LSI_STEP_TEXT(x) #x
#define LSI_STEP_AHEAD(rows) "64*" LSI_STEP_TEXT(rows)

/* Row i of the tile, whose float of A is at `at`. */
#define LSI_STEP_ROW(at, i)                                                                        \
    "vbroadcastss " at ", %%ymm15\n\t"                                                             \
    "vfmadd231ps %%ymm13, %%ymm15, %[s" #i "0]\n\t"                                                \
    "vfmadd231ps %%ymm14, %%ymm15, %[s" #i "1]\n\t"

/* Step u: rows of B are a line apart. */
#define LSI_STEP_B(u)                                                                              \
    "vmovups 64*" #u "(%[b]), %%ymm13\n\t"                                                         \
    "vmovups 64*" #u "+32(%[b]), %%ymm14\n\t"                                                      \
    "prefetcht0 64*" #u "+" LSI_STEP_AHEAD(LSI_TILE_AHEAD) "(%[b])\n\t"

/* A by rows: three from a0 on and three from a1 on, `row` bytes apart. */
#define LSI_STEP_BY_ROW(u)                                                                         \
    LSI_STEP_B(u)                                                                                  \
    LSI_STEP_ROW("4*" #u "(%[a0])", 0)                                                             \
    LSI_STEP_ROW("4*" #u "(%[a0],%[row])", 1)                                                      \
    LSI_STEP_ROW("4*" #u "(%[a0],%[row],2)", 2)                                                    \
    LSI_STEP_ROW("4*" #u "(%[a1])", 3)                                                             \
    LSI_STEP_ROW("4*" #u "(%[a1],%[row])", 4)                                                      \
    LSI_STEP_ROW("4*" #u "(%[a1],%[row],2)", 5)

/* A packed: six floats for each k. */
#define LSI_STEP_PACKED(u)                                                                         \
    LSI_STEP_B(u)                                                                                  \
    LSI_STEP_ROW("24*" #u "(%[a0])", 0)                                                            \
    LSI_STEP_ROW("24*" #u "+4(%[a0])", 1)                                                          \
    LSI_STEP_ROW("24*" #u "+8(%[a0])", 2)                                                          \
    LSI_STEP_ROW("24*" #u "+12(%[a0])", 3)                                                         \
    LSI_STEP_ROW("24*" #u "+16(%[a0])", 4)                                                         \
    LSI_STEP_ROW("24*" #u "+20(%[a0])", 5)

#define LSI_EIGHT(step, acc, ...)                                                                  \
    __asm__ volatile(step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7)               \
                     : [s00] "+x"(acc[0][0]), [s01] "+x"(acc[0][1]), [s10] "+x"(acc[1][0]),        \
                       [s11] "+x"(acc[1][1]), [s20] "+x"(acc[2][0]), [s21] "+x"(acc[2][1]),        \
                       [s30] "+x"(acc[3][0]), [s31] "+x"(acc[3][1]), [s40] "+x"(acc[4][0]),        \
                       [s41] "+x"(acc[4][1]), [s50] "+x"(acc[5][0]), [s51] "+x"(acc[5][1])         \
                     : __VA_ARGS__                                                                 \
                     : "xmm13", "xmm14", "xmm15", "memory")

LSI_VEC void eight_by_row(const float *a0, const float *a1, size_t row, const float *b,
                          lane acc[6][2])
{
    LSI_EIGHT(LSI_STEP_BY_ROW,
              acc, [a0] "r"(a0), [a1] "r"(a1), [row] "r"(row * sizeof *a0), [b] "r"(b));
}

LSI_VEC void eight_packed(const float *a0, const float *b, lane acc[6][2])
{
    LSI_EIGHT(LSI_STEP_PACKED, acc, [a0] "r"(a0), [b] "r"(b));
}

#endif
