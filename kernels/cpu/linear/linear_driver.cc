#include "kernels/cpu/linear/linear_driver.h"

#include <algorithm>
#include <cstring>

#include "absl/types/span.h"
#include "kernels/cpu/linear/geometry.h"
#include "kernels/cpu/linear/pack.h"

namespace tessera::kernels::cpu::linear {
namespace {

// A task is at least this much work, so that handing it out costs nothing by comparison.
constexpr int64_t kMinTaskBytes = 32 << 10;
constexpr int64_t kMinTaskMultiplies = 1 << 18;
constexpr int64_t kMinTasksPerThread = 4;

// Rows [begin, end) of a chunk that meet the same weights.
struct Group {
  const PackedWeights* weights = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// One chunk of rows.
struct Chunk {
  const KernelSet* kernels;
  const Kernel* kernel;
  const Geometry* geometry;
  TensorView in;
  TensorView out;              // starts at the chunk's first row
  const int32_t* source_rows;  // of the chunk's rows in `in`; null: row_in + i
  int64_t row_in;
  const float* bias;
  uint32_t* words;  // [blocks][rows][kBlockWords]
  // Behind the words. bf16: a panel for each member of the pool, where weights that are not packed
  // yet become one; i4 with offsets: f32 sums of activations [segments][rows].
  std::byte* behind_words;
  int64_t rows;
  absl::Span<const Group> groups;
};

// Inputs [first, first + count) of one row as words, zeros behind up to `words`.
void ConvertInputs(const Chunk& chunk, int64_t row, int64_t first, int64_t count, uint32_t* to,
                   int64_t words) {
  const bool from_bf16 = chunk.in.dtype == DType::kBF16;
  const float* in_f32 = chunk.in.Row<float>(row) + first;
  const uint16_t* in_bf16 = chunk.in.Row<uint16_t>(row) + first;
  const int64_t bytes = count * (chunk.kernel->pair_words ? 2 : 4);
  if (chunk.kernel->pair_words) {
    if (from_bf16) {
      std::memcpy(to, in_bf16, bytes);
    } else {
      chunk.kernels->narrow(reinterpret_cast<uint16_t*>(to), in_f32, count);
    }
  } else if (from_bf16) {
    chunk.kernels->widen(reinterpret_cast<float*>(to), in_bf16, count);
  } else {
    std::memcpy(to, in_f32, bytes);
  }
  std::memset(reinterpret_cast<std::byte*>(to) + bytes, 0, words * 4 - bytes);
}

// The sum of activations as the kernel meets them; its order depends on their number alone.
float SumOfWords(const uint32_t* words, int64_t count, bool pairs) {
  constexpr int64_t kLanes = 8;
  const auto as_float = [](uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  };
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    float& lane = lanes[i % kLanes];
    lane +=
        pairs ? as_float(words[i] << 16) + as_float(words[i] & 0xffff0000u) : as_float(words[i]);
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

float* InputSums(const Chunk& chunk) { return reinterpret_cast<float*>(chunk.behind_words); }

bool KeepsF32(const TensorView& in, DType products) {
  return in.dtype == DType::kF32 && products != DType::kBF16;
}

void ConvertRow(const Chunk& chunk, int64_t row) {
  const Geometry& g = *chunk.geometry;
  const int64_t from = chunk.source_rows != nullptr ? chunk.source_rows[row] : chunk.row_in + row;
  for (int64_t segment = 0; segment < g.segments; ++segment) {
    const int64_t block = segment / g.segments_per_block, within = segment % g.segments_per_block;
    uint32_t* to =
        chunk.words + (block * chunk.rows + row) * kBlockWords + within * g.segment_words;
    ConvertInputs(chunk, from, segment * g.segment_inputs, SegmentInputs(g, segment), to,
                  g.segment_words);
    if (g.pair_segments > 0) {
      InputSums(chunk)[segment * chunk.rows + row] =
          SumOfWords(to, g.segment_words, chunk.kernel->pair_words);
    }
  }
}

// Panels [panel, panel + count) of a group.
void RunPanels(const Chunk& chunk, const Group& group, int64_t panel, int64_t count, int member) {
  alignas(64) float sums[kMaxPanels * kMaxChunkRows * kPanelColumns];
  alignas(64) std::byte scratch[kScratchBytes];
  const Geometry& g = *chunk.geometry;
  const int64_t column = panel * kPanelColumns;
  const int64_t end_column = std::min((panel + count) * kPanelColumns, g.out_features);
  PanelArgs args;
  args.geometry = &g;
  args.weights = group.weights->data + panel * g.panel_bytes;
  if (end_column > PackedRowsOf(*group.weights)) {
    if (count > 1) {
      for (int64_t i = 0; i < count; ++i) RunPanels(chunk, group, panel + i, 1, member);
      return;
    }
    std::byte* turned = chunk.behind_words + member * g.panel_bytes;
    TurnPanel(*chunk.kernel, g, *group.weights->unpacked, panel, turned);
    args.weights = turned;
  }
  args.activations = chunk.words + group.begin * kBlockWords;
  args.block_stride_words = chunk.rows * kBlockWords;
  args.input_sums = InputSums(chunk) + group.begin;
  args.input_sums_stride = chunk.rows;
  args.rows = group.end - group.begin;
  args.panels = count;
  args.sums = sums;
  args.scratch = scratch;
  args.out_bf16 = chunk.out.dtype == DType::kBF16;
  args.out_row_stride = chunk.out.row_stride;
  args.out =
      chunk.out.data + (group.begin * chunk.out.row_stride + column) * SizeInBytes(chunk.out.dtype);
  args.columns = end_column - column;
  args.bias = chunk.bias == nullptr ? nullptr : chunk.bias + column;
  chunk.kernel->run(args);
}

void RunChunk(const Chunk& chunk, ThreadPool& pool) {
  const Geometry& g = *chunk.geometry;
  const int64_t row_bytes = g.in_features * 4;
  const int64_t rows_per_task = std::max<int64_t>(1, kMinTaskBytes / row_bytes);
  pool.ParallelFor((chunk.rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(chunk.rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) ConvertRow(chunk, row);
  });

  const int64_t panels = g.panels * static_cast<int64_t>(chunk.groups.size());
  const int64_t multiplies = chunk.rows * g.in_features * kPanelColumns;
  // Some tasks a thread remain, to be shared out.
  const int64_t panels_per_call =
      chunk.rows <= kFewRows ? 1
                             : std::clamp<int64_t>(panels / (kMinTasksPerThread * pool.threads()),
                                                   1, chunk.kernel->max_panels);
  const int64_t panels_per_task = std::max(
      panels_per_call, std::min(kMinTaskBytes / g.panel_bytes, kMinTaskMultiplies / multiplies));
  const auto run = [&](int64_t task, int member) {
    const int64_t end = std::min(panels, (task + 1) * panels_per_task);
    for (int64_t panel = task * panels_per_task; panel < end;) {
      const int64_t in_group = panel % g.panels;
      const int64_t count = std::min({panels_per_call, end - panel, g.panels - in_group});
      RunPanels(chunk, chunk.groups[panel / g.panels], in_group, count, member);
      panel += count;
    }
  };
  // Each panel asks memory for the beginning of the one behind it.
  pool.ParallelFor((panels + panels_per_task - 1) / panels_per_task, run, Schedule::kGuided);
}

std::byte* BehindWords(const TensorView& workspace, const Geometry& geometry, int64_t rows) {
  return workspace.data + ActivationBytes(geometry, std::min(rows, kMaxChunkRows));
}

}  // namespace

int64_t DriverWorkspaceBytes(const KernelSet& kernels, const LinearSpec& spec, int64_t rows,
                             int threads) {
  int64_t bytes = 0;
  for (const bool keep_f32 : {false, true}) {
    const Geometry geometry = MakeGeometry(spec, KernelFor(kernels, spec.weight_dtype, keep_f32));
    const int64_t chunk_rows = std::min(rows, kMaxChunkRows);
    const int64_t turned_bytes =
        spec.weight_dtype == DType::kBF16 ? threads * geometry.panel_bytes : 0;
    const int64_t sums_bytes =
        geometry.pair_segments > 0 ? geometry.segments * chunk_rows * sizeof(float) : 0;
    bytes = std::max(bytes, ActivationBytes(geometry, chunk_rows) + turned_bytes + sums_bytes);
  }
  return bytes;
}

void DriveLinear(const KernelSet& kernels, const LinearArgs& args, ThreadPool& pool) {
  const Kernel& kernel =
      KernelFor(kernels, args.weights->spec.weight_dtype, KeepsF32(args.in, args.products));
  const Geometry geometry = MakeGeometry(args.weights->spec, kernel);
  const int64_t rows = args.out.rows();
  for (int64_t begin = 0; begin < rows; begin += kMaxChunkRows) {
    const int64_t count = std::min(kMaxChunkRows, rows - begin);
    const Group group = {args.weights, 0, count};
    TensorView out = args.out;
    out.data += begin * out.row_stride * SizeInBytes(out.dtype);
    RunChunk({.kernels = &kernels,
              .kernel = &kernel,
              .geometry = &geometry,
              .in = args.in,
              .out = out,
              .source_rows = nullptr,
              .row_in = begin,
              .bias = args.bias.As<float>(),
              .words = args.workspace.As<uint32_t>(),
              .behind_words = BehindWords(args.workspace, geometry, rows),
              .rows = count,
              .groups = absl::MakeConstSpan(&group, 1)},
             pool);
  }
}

void DriveGroupedLinear(const KernelSet& kernels, const GroupedLinearArgs& args, ThreadPool& pool) {
  if (args.experts.empty()) return;
  const Kernel& kernel =
      KernelFor(kernels, args.experts[0].spec.weight_dtype, KeepsF32(args.in, args.products));
  const Geometry geometry = MakeGeometry(args.experts[0].spec, kernel);
  const int32_t* offsets = args.expert_offsets.As<int32_t>();
  const int64_t experts = static_cast<int64_t>(args.experts.size());
  const int64_t slots = std::min<int64_t>(args.out.rows(), offsets[experts]);
  Group groups[kMaxChunkRows];
  int64_t expert = 0;
  for (int64_t begin = offsets[0]; begin < slots; begin += kMaxChunkRows) {
    const int64_t end = std::min(slots, begin + kMaxChunkRows);
    int64_t count = 0;
    for (int64_t slot = begin; slot < end;) {
      while (offsets[expert + 1] <= slot) ++expert;
      const int64_t stop = std::min<int64_t>(end, offsets[expert + 1]);
      groups[count++] = {&args.experts[expert], slot - begin, stop - begin};
      slot = stop;
    }
    TensorView out = args.out;
    out.data += begin * out.row_stride * SizeInBytes(out.dtype);
    const bool gathers = !args.source_rows.empty();
    RunChunk({.kernels = &kernels,
              .kernel = &kernel,
              .geometry = &geometry,
              .in = args.in,
              .out = out,
              .source_rows = gathers ? args.source_rows.As<int32_t>() + begin : nullptr,
              .row_in = begin,
              .bias = nullptr,
              .words = args.workspace.As<uint32_t>(),
              .behind_words = BehindWords(args.workspace, geometry, args.out.rows()),
              .rows = end - begin,
              .groups = absl::MakeConstSpan(groups, count)},
             pool);
  }
}

}  // namespace tessera::kernels::cpu::linear
