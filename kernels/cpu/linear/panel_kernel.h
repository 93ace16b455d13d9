// The seam between the driver of a linear (linear_driver.cc) and the code that computes one panel
// of output columns with one instruction set. Plain data and function pointers only: the files
// behind it are compiled with their own -m flags, so nothing inline of ours or of a library may be
// shared with them.
//
// Weights: panels of kPanelColumns output columns; in a panel, segments of inputs (geometry.h).
//   f32   [input][column]
//   bf16  [pair of inputs][column][2]
//   i8    per segment: f32 scale [column], then [pair of inputs] of 64 bytes: [2][column] in two's
//         complement; with Kernel::sign_magnitude in the order and coding of sign_magnitude.h
//   f8    as i8; the codes are e4m3 in either order
//   i4    per segment: word of int4_rows.h [column], then [pair of inputs] of 32 bytes: a column's
//         two codes, the first input's in the lower half; with Kernel::sign_magnitude the columns
//         are in the order of sign_magnitude.h. Kernels make i8 of a segment and compute with that.
//         With offsets there are no words: before the first segment of a block stand its pairs, f16
//         scale [column] and f16 offset [column]; where blocks have several segments, each of these
//         begins with its steps, i8 of the scale [column] and i8 of the offset [column]. With
//         Kernel::sign_magnitude two pairs of inputs are 64 bytes: in the order of
//         sign_magnitude.h, codes of the first pair in the lower halves, of the second one in the
//         upper halves.
// Activations: words of 4 bytes (an f32 or two bf16), [block][row][kBlockWords]: a row stands at a
// fixed distance from the next, so kernels address it by displacement. Padding is zero.
//
// Sums: every output is one chain of multiply-adds in the order of the inputs (f8, i8, i4: one
// chain per segment, scaled and added to the sum of the segments before; an offset times the sum of
// the segment's activations is added before that), whatever the number of rows. That gives the f32
// invariance of kernels/ops.h, and the same for bf16, f8, i8 and i4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels::cpu::linear {

inline constexpr int64_t kPanelColumns = 32;
inline constexpr int64_t kBlockWords = 128;
inline constexpr int64_t kMaxChunkRows = 512;       // rows of one call of a panel kernel
inline constexpr int64_t kMaxPanels = 8;            // of one call, too
inline constexpr int64_t kFewRows = 32;             // up to so many, a call computes one panel
inline constexpr int64_t kScratchBytes = 64 << 10;  // i8 and i4 weights, widened

struct Geometry {
  int64_t in_features = 0;
  int64_t out_features = 0;
  int64_t panels = 0;
  int64_t panel_bytes = 0;
  // One segment of a panel. A step is a unit of weights: one input (f32) or a pair (bf16, i8, i4).
  int64_t segments = 0;
  int64_t segment_inputs = 0;  // i8, i4: the inputs of one scale; else what fills a block
  int64_t segment_steps = 0;   // of each segment but the last
  int64_t last_segment_steps = 0;
  int64_t segment_bytes = 0;  // weights in a panel
  int64_t segment_words = 0;  // activations in a row
  int64_t segments_per_block = 0;
  int64_t blocks = 0;
  // i4 with offsets: segments that share a pair, and how many of the first ones are not here. 0:
  // weights have no offsets.
  int64_t pair_segments = 0;
  int64_t skipped_segments = 0;
};

struct PanelArgs {
  const Geometry* geometry;
  const std::byte* weights;     // the panels, one behind the other
  const uint32_t* activations;  // row 0 in block 0
  int64_t block_stride_words;
  const float* input_sums;    // i4 with offsets: of row 0 in segment 0
  int64_t input_sums_stride;  // from segment to segment; rows follow each other
  int64_t rows;               // 1..kMaxChunkRows
  int64_t panels;             // 1..Kernel::max_panels
  float* sums;                // scratch [panels][rows][kPanelColumns], 64-byte aligned
  std::byte* scratch;         // kScratchBytes, 64-byte aligned
  std::byte* out;             // row 0, the first panel's first column
  int64_t out_row_stride;     // elements
  bool out_bf16;
  int64_t columns;    // real ones: only of the last panel some may be missing, not all
  const float* bias;  // of the first panel's first column, or null
};

// How one weight type is computed.
struct Kernel {
  void (*run)(const PanelArgs& args);
  bool pair_words;      // an activation word is a pair of bf16, else one f32
  bool sign_magnitude;  // f8, i8 and i4 only
  // bf16 only, may be null: packs a panel's rows of bf16 as they are, `inputs` of them, a multiple
  // of 32. Rows stand `row_stride` numbers apart, the panel on a cache line; it goes past the
  // caches unless it is read soon. Loading time is spent here.
  void (*turn)(std::byte* panel, const uint16_t* rows, int64_t row_stride, int64_t inputs,
               bool read_soon) = nullptr;
  // Panels of one call with more than kFewRows rows, which may share what they read.
  int max_panels = 1;
};

// bf16, f8, i8 and i4 weights have two kernels over the same packed bytes (equal sign_magnitude):
// one for bf16 activations, or f32 ones that may be rounded to bf16, and one that keeps f32
// activations. Where the first does not multiply pairs, they are the same.
struct KernelSet {
  const char* name;
  Kernel f32;
  Kernel bf16;
  Kernel i8;
  Kernel bf16_keeping_f32;
  Kernel i8_keeping_f32;
  Kernel i4;
  Kernel i4_keeping_f32;
  Kernel f8;
  Kernel f8_keeping_f32;
  void (*widen)(float* out, const uint16_t* in_bf16, int64_t count);
  void (*narrow)(uint16_t* out_bf16, const float* in, int64_t count);  // to nearest even
};

// Each is compiled with flags of its own; calling into one needs a CPU that has them.
extern const KernelSet kAvx2Kernels;    // and fma: f32 activations
extern const KernelSet kAvx512Kernels;  // f, bw, dq, vl: f32 activations
extern const KernelSet
    kAvx512DotKernels;  // and bf16, vbmi: bf16 activations with bf16, i8 and i4 weights
extern const KernelSet kAmxKernels;  // and amx-tile, amx-bf16

}  // namespace tessera::kernels::cpu::linear
