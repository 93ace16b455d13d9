// Launch shapes of the plain kernels (kernels/cuda/plain): pure functions of the problem's extents.
//
// What a sum runs over depends on its own extent alone, never on the number of rows or on the GPU:
// so a row has the same bits whatever other rows are in the call. Extents are 1 or more, except
// where a function says otherwise; all shapes are legal for every GPU. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch/launch_shape.h"

namespace tessera::kernels::cuda {

// Edge of the square of outputs that a block of a plain matrix product computes.
inline constexpr int kMatmulTile = 16;
// Most warps that sum one vector of a norm.
inline constexpr int kMaxNormWarps = 8;
// The same of a wide vector, of which each thread holds up to kWideNormFours times four elements.
inline constexpr int kMaxWideNormWarps = 16;
inline constexpr int kWideNormFours = 8;
// Most threads of a block of RowShape and SpreadShape.
inline constexpr int kMaxRowThreads = 256;
inline constexpr int kMaxRowWarps = kMaxRowThreads / kWarpThreads;
// Most warps of a block of LogitsShape.
inline constexpr int kMaxLogitsWarps = 32;
// Keys whose scores a block of plain attention holds at a time.
inline constexpr int kAttentionTile = 128;

// Threads (32 * warps of one vector, vectors); a warp alone sums what is short.
LaunchShape NormShape(int64_t vectors, int64_t width);
// Whether a vector has a block with all its elements in registers, and that: a thread per four.
bool HasWideNorm(int64_t width);
LaunchShape WideNormShape(int64_t vectors, int64_t width);
// A block per row, a thread per element of it up to a limit.
LaunchShape RowShape(int64_t rows, int64_t elements);
// Blocks (rows, parts of a row), a thread per element (or what stands for one) of a row: for what
// needs no sums.
LaunchShape SpreadShape(int64_t rows, int64_t elements);
// A block per row, whole warps: a thread per 16 elements of it up to the most that a block may
// have.
LaunchShape LogitsShape(int64_t rows, int64_t width);
// Blocks (rows, groups of vectors), threads (a warp, vectors): a warp per vector of each row.
LaunchShape HeadsShape(int64_t rows, int64_t vectors);
// Threads (a warp, rows): a warp per row.
LaunchShape WarpRowsShape(int64_t rows);
// One block that sorts `choices` (0 or more) by expert, threads (a warp, warps): a warp per 32 of
// them, up to as many as have room for a count of each expert. 8192 experts at most.
LaunchShape SortShape(int64_t choices, int64_t experts);
// A thread per element.
LaunchShape ElementShape(int64_t elements);
// Blocks (rows, heads); shared memory for the scores and slots of a tile, a query and its sums.
LaunchShape AttendShape(int64_t rows, int64_t heads, int64_t head_dim);
// Blocks (tiles of rows, tiles of columns).
LaunchShape MatmulShape(int64_t rows, int64_t columns);

}  // namespace tessera::kernels::cuda
