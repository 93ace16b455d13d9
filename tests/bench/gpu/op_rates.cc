#include "tests/bench/gpu/op_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/half_floats.h"
#include "kernels/kv_rows.h"
#include "kernels/ops.h"
#include "tests/kernels/random_bytes.h"
#include "tests/kernels/random_int4.h"

namespace tessera::bench {
namespace {

using kernels::BFloat16;
using kernels::Buffer;
using kernels::DType;
using kernels::TensorView;

constexpr double kRunSeconds = 0.2, kShortRunSeconds = 0.03;
constexpr int kRuns = 3;
constexpr int64_t kBlockTokens = 64;
constexpr int64_t kDistinct = 1 << 16;  // random numbers; larger tensors repeat them
constexpr int64_t kSourceRows = 256;    // of random weights that are packed again and again
constexpr int64_t kBeyondCaches = int64_t{200} << 20;  // bytes

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Device memory and one stream for one measurement.
class Bench {
 public:
  static absl::StatusOr<Bench> Create(kernels::Device& device) {
    auto stream = device.CreateStream();
    if (!stream.ok()) return stream.status();
    return Bench(&device, *std::move(stream));
  }

  kernels::Ops& ops() { return device_->ops(); }
  kernels::Stream& stream() { return *stream_; }

  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) {
    auto buffer = device_->Allocate(std::max<int64_t>(size_bytes, 64));
    if (!buffer.ok()) return buffer.status();
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().data();
  }

  template <typename T>
  absl::StatusOr<std::byte*> Upload(std::span<const T> values, int64_t repeats = 1) {
    const auto bytes = static_cast<int64_t>(values.size_bytes());
    auto to = Allocate(bytes * repeats);
    for (int64_t i = 0; to.ok() && i < repeats; ++i) {
      absl::Status status = stream_->CopyToDevice(*to + i * bytes, values.data(), bytes);
      if (!status.ok()) return status;
    }
    if (absl::Status status = stream_->Synchronize(); !status.ok()) return status;
    return to;
  }

  // Numbers in [-1, 1); of large tensors every kDistinct are the same.
  template <typename T>
  absl::StatusOr<std::byte*> Random(int64_t count) {
    std::mt19937 generator(1);
    std::vector<T> numbers(std::min(count, kDistinct));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (T& number : numbers) number = kernels::FromFloat<T>(uniform(generator));
    const auto each = static_cast<int64_t>(numbers.size());
    return Upload<T>(numbers, (count + each - 1) / each);
  }

  // Seconds of one call, of many that are enqueued behind each other.
  absl::StatusOr<double> Seconds(const std::function<absl::Status()>& enqueue,
                                 double run_seconds = kRunSeconds) {
    int calls = 1;
    double best = 0;
    for (int run = 0; run < kRuns;) {
      const double begin = Now();
      for (int i = 0; i < calls; ++i) {
        if (absl::Status status = enqueue(); !status.ok()) return status;
      }
      if (absl::Status status = stream_->Synchronize(); !status.ok()) return status;
      const double seconds = std::max(Now() - begin, 1e-9);
      if (seconds < run_seconds / 2) {  // also warms up
        calls = static_cast<int>(std::min(10.0, std::ceil(run_seconds / seconds)) * calls);
        continue;
      }
      best = run == 0 ? seconds / calls : std::min(best, seconds / calls);
      ++run;
    }
    return best;
  }

 private:
  Bench(kernels::Device* device, std::unique_ptr<kernels::Stream> stream)
      : device_(device), stream_(std::move(stream)) {}

  kernels::Device* device_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<kernels::Stream> stream_;
};

// Keys, or values, of so many tokens and heads, from random numbers; of large caches rows repeat.
absl::StatusOr<std::byte*> RandomCache(Bench& bench, DType type, int64_t rows, int64_t head_dim) {
  if (type == DType::kBF16) return bench.Random<BFloat16>(rows * head_dim);
  constexpr int64_t kRows = 1 << 10;
  constexpr float kScale = 0.01f;
  const int64_t row_bytes = kernels::KvRowBytes(type, head_dim);
  std::vector<std::byte> codes(std::min(rows, kRows) * row_bytes);
  std::mt19937 generator(1);
  // No code of float8 is NaN.
  for (std::byte& code : codes) code = static_cast<std::byte>(generator() & 0xbfu);
  for (size_t row = 0; row < codes.size(); row += static_cast<size_t>(row_bytes)) {
    std::memcpy(&codes[row + static_cast<size_t>(kernels::KvScaleOffset(head_dim))], &kScale,
                sizeof kScale);
  }
  return bench.Upload<std::byte>(codes, (rows + kRows - 1) / kRows);
}

// `batch` sequences of `context` tokens, of which the last `rows` are asked for.
absl::StatusOr<double> AttentionSeconds(kernels::Device& device, const HeadShape& shape,
                                        int64_t batch, int64_t rows, int64_t context,
                                        DType cache_type = DType::kBF16) {
  auto bench = Bench::Create(device);
  if (!bench.ok()) return bench.status();
  const int64_t blocks_each = (context + kBlockTokens - 1) / kBlockTokens;
  const int64_t blocks = batch * blocks_each;
  std::vector<int32_t> starts(batch + 1), lengths(batch, static_cast<int32_t>(context));
  for (int64_t i = 0; i <= batch; ++i) starts[i] = static_cast<int32_t>(i * rows);
  // Where a pool has been in use, blocks of a sequence lie anywhere.
  std::vector<int32_t> tables(blocks);
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), std::mt19937(1));

  const int64_t cache_rows = shape.kv_heads * blocks * kBlockTokens;
  const int64_t row_elements = shape.heads * shape.head_dim;
  const auto keys = RandomCache(*bench, cache_type, cache_rows, shape.head_dim);
  const auto values = RandomCache(*bench, cache_type, cache_rows, shape.head_dim);
  const auto q = bench->Random<float>(batch * rows * row_elements);
  const auto out = bench->Allocate(batch * rows * row_elements * 4);
  const auto starts_there = bench->Upload<int32_t>(starts);
  const auto lengths_there = bench->Upload<int32_t>(lengths);
  const auto tables_there = bench->Upload<int32_t>(tables);
  const int64_t workspace_bytes =
      bench->ops().AttentionWorkspaceBytes({.tokens = batch * rows,
                                            .sequences = batch,
                                            .heads = shape.heads,
                                            .kv_heads = shape.kv_heads,
                                            .head_dim = shape.head_dim,
                                            .max_context_tokens = blocks_each * kBlockTokens});
  const auto workspace = bench->Allocate(workspace_bytes);
  for (const auto* memory :
       {&keys, &values, &q, &out, &starts_there, &lengths_there, &tables_there, &workspace}) {
    if (!memory->ok()) return memory->status();
  }
  const auto cache = [&](std::byte* data) {
    return TensorView(
        data, cache_type,
        {shape.kv_heads, blocks, kBlockTokens, kernels::KvRowElements(cache_type, shape.head_dim)});
  };
  const auto all_rows = [&](std::byte* data) {
    return TensorView(data, DType::kF32, {batch * rows, shape.heads, shape.head_dim});
  };
  const kernels::AttentionArgs args = {
      .out = all_rows(*out),
      .q = all_rows(*q),
      .cache = {.keys = cache(*keys), .values = cache(*values)},
      .query_starts = TensorView(*starts_there, DType::kI32, {batch + 1}),
      .context_lengths = TensorView(*lengths_there, DType::kI32, {batch}),
      .block_tables = TensorView(*tables_there, DType::kI32, {batch, blocks_each}),
      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
      .workspace = TensorView(*workspace, DType::kI8, {std::max<int64_t>(workspace_bytes, 64)}),
      .products = DType::kBF16,
      .rows_per_sequence = rows == 1                          ? kernels::RowsPerSequence::kOne
                           : rows > kernels::kFewSequenceRows ? kernels::RowsPerSequence::kMany
                                                              : kernels::RowsPerSequence::kAny};
  return bench->Seconds([&] { return bench->ops().Attention(args, bench->stream()); });
}

// Rows of random weights, of which a matrix repeats the same ones.
class RandomWeights {
 public:
  explicit RandomWeights(const kernels::LinearSpec& spec)
      : rows_(std::min(kSourceRows, spec.out_features)) {
    const int64_t in = spec.in_features, group = spec.group_size;
    if (spec.weight_dtype == DType::kI4) {
      codes_ = kernels::RandomInt4(rows_, in, group, 1);
    } else if (spec.e2m1) {
      codes_ = kernels::RandomBytes(DType::kI8, rows_, in, group, 1);
      kernels::TakeE2m1(codes_, rows_, in, group);
    } else {
      std::mt19937 generator(1);
      std::uniform_real_distribution<float> uniform(-1, 1);
      numbers_.resize(rows_ * in);
      for (BFloat16& number : numbers_) number = kernels::FromFloat<BFloat16>(uniform(generator));
    }
  }

  absl::Status Pack(Bench& bench, const kernels::PackedWeights& weights) {
    const kernels::LinearSpec& spec = weights.spec;
    absl::Status status;
    for (int64_t first = 0; first < spec.out_features && status.ok(); first += rows_) {
      const int64_t count = std::min(rows_, spec.out_features - first), in = spec.in_features;
      const TensorView source =
          codes_.empty() ? TensorView(numbers_.data(), DType::kBF16, {count, in})
          : spec.e2m1    ? kernels::ByteRows(codes_, 0, count, in, spec.group_size)
                         : kernels::Int4Rows(codes_, 0, count, in, spec.group_size);
      status = bench.ops().PackWeightRows(weights, first, source);
    }
    return status;
  }

 private:
  const int64_t rows_;
  std::vector<BFloat16> numbers_;
  std::vector<std::byte> codes_;
};

// As many matrices of random weights as no cache holds, eight at most; or `count` of them, one
// behind the other.
absl::StatusOr<std::vector<kernels::PackedWeights>> ManyWeights(Bench& bench,
                                                                const kernels::LinearSpec& spec,
                                                                int64_t count = 0) {
  const int64_t bytes = (bench.ops().PackedWeightBytes(spec) + 63) / 64 * 64;
  if (count == 0) count = std::min<int64_t>(8, (kBeyondCaches + bytes - 1) / bytes);
  const auto memory = bench.Allocate(count * bytes);
  if (!memory.ok()) return memory.status();
  RandomWeights random(spec);
  std::vector<kernels::PackedWeights> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back({.spec = spec, .data = *memory + i * bytes});
    if (absl::Status status = random.Pack(bench, all.back()); !status.ok()) return status;
  }
  return all;
}

}  // namespace

absl::StatusOr<std::vector<double>> LinearSeconds(kernels::Device& device,
                                                  const kernels::LinearSpec& spec,
                                                  std::span<const int64_t> rows) {
  auto bench = Bench::Create(device);
  if (!bench.ok()) return bench.status();
  kernels::Ops& ops = bench->ops();
  const auto weights = ManyWeights(*bench, spec);
  if (!weights.ok()) return weights.status();
  const int64_t most = *std::max_element(rows.begin(), rows.end());
  const auto in = bench->Random<float>(most * spec.in_features);
  const auto out = bench->Allocate(most * spec.out_features * 4);
  const int64_t workspace_bytes = ops.LinearWorkspaceBytes(spec, most, DType::kF32);
  const auto workspace = bench->Allocate(workspace_bytes);
  for (const auto* there : {&in, &out, &workspace}) {
    if (!there->ok()) return there->status();
  }
  std::vector<double> seconds;
  size_t next = 0;
  for (const int64_t count : rows) {
    const auto enqueue = [&] {
      const kernels::LinearArgs args = {
          .out = TensorView(*out, DType::kF32, {count, spec.out_features}),
          .in = TensorView(*in, DType::kF32, {count, spec.in_features}),
          .weights = &(*weights)[next++ % weights->size()],
          .workspace = TensorView(*workspace, DType::kI8, {std::max<int64_t>(workspace_bytes, 64)}),
          .products = DType::kBF16};
      return ops.Linear(args, bench->stream());
    };
    const auto each = bench->Seconds(enqueue, kShortRunSeconds);
    if (!each.ok()) return each.status();
    seconds.push_back(*each);
  }
  return seconds;
}

absl::StatusOr<double> MultiplyRate(kernels::Device& device, int64_t size) {
  auto bench = Bench::Create(device);
  if (!bench.ok()) return bench.status();
  kernels::Ops& ops = bench->ops();
  const kernels::LinearSpec spec = {
      .in_features = size, .out_features = size, .weight_dtype = DType::kBF16};
  std::vector<BFloat16> row(size);
  const auto memory = bench->Allocate(ops.PackedWeightBytes(spec));
  const auto in = bench->Random<BFloat16>(size * size);
  const auto out = bench->Allocate(size * size * 2);
  const int64_t workspace_bytes = ops.LinearWorkspaceBytes(spec, size, DType::kBF16);
  const auto workspace = bench->Allocate(workspace_bytes);
  for (const auto* there : {&memory, &in, &out, &workspace}) {
    if (!there->ok()) return there->status();
  }
  const kernels::PackedWeights weights = {.spec = spec, .data = *memory};
  std::mt19937 generator(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t r = 0; r < size; ++r) {
    for (BFloat16& number : row) number = kernels::FromFloat<BFloat16>(uniform(generator));
    absl::Status status =
        ops.PackWeightRows(weights, r, TensorView(row.data(), DType::kBF16, {1, size}));
    if (!status.ok()) return status;
  }
  const kernels::LinearArgs args = {
      .out = TensorView(*out, DType::kBF16, {size, size}),
      .in = TensorView(*in, DType::kBF16, {size, size}),
      .weights = &weights,
      .workspace = TensorView(*workspace, DType::kI8, {std::max<int64_t>(workspace_bytes, 64)}),
      .products = DType::kBF16};
  const auto seconds = bench->Seconds([&] { return ops.Linear(args, bench->stream()); });
  if (!seconds.ok()) return seconds;
  return 2.0 * std::pow(static_cast<double>(size), 3) / *seconds;
}

absl::StatusOr<double> DecodeAttentionRate(kernels::Device& device, const HeadShape& shape,
                                           int64_t batch, int64_t context) {
  const auto seconds = AttentionSeconds(device, shape, batch, 1, context);
  if (!seconds.ok()) return seconds;
  const int64_t elements = 2 * batch * context * shape.kv_heads * shape.head_dim;
  return 2.0 * static_cast<double>(elements) / *seconds;
}

absl::StatusOr<double> DecodeAttentionSeconds(kernels::Device& device, const HeadShape& shape,
                                              int64_t batch, int64_t context, DType cache_type) {
  return AttentionSeconds(device, shape, batch, 1, context, cache_type);
}

absl::StatusOr<double> RowsAttentionSeconds(kernels::Device& device, const HeadShape& shape,
                                            int64_t rows, int64_t context) {
  return AttentionSeconds(device, shape, 1, rows, context);
}

absl::StatusOr<double> PrefillAttentionRate(kernels::Device& device, const HeadShape& shape,
                                            int64_t prompts, int64_t tokens) {
  const auto seconds = AttentionSeconds(device, shape, prompts, tokens, tokens);
  if (!seconds.ok()) return seconds;
  const auto pairs = static_cast<double>(prompts * tokens) * static_cast<double>(tokens) / 2;
  return 4.0 * static_cast<double>(shape.heads * shape.head_dim) * pairs / *seconds;
}

absl::StatusOr<double> RouteSeconds(kernels::Device& device, const RouterShape& shape,
                                    int64_t rows) {
  auto bench = Bench::Create(device);
  if (!bench.ok()) return bench.status();
  const int64_t choices = rows * shape.used;
  const auto logits = bench->Random<float>(rows * shape.experts);
  const auto weights = bench->Allocate(choices * 4), slots = bench->Allocate(choices * 4);
  const auto sources = bench->Allocate(choices * 4);
  const auto offsets = bench->Allocate((shape.experts + 1) * 4);
  for (const auto* there : {&logits, &weights, &slots, &sources, &offsets}) {
    if (!there->ok()) return there->status();
  }
  const kernels::MoeRouteArgs args = {
      .logits = TensorView(*logits, DType::kF32, {rows, shape.experts}),
      .weights = TensorView(*weights, DType::kF32, {rows, shape.used}),
      .slots = TensorView(*slots, DType::kI32, {rows, shape.used}),
      .source_rows = TensorView(*sources, DType::kI32, {choices}),
      .expert_offsets = TensorView(*offsets, DType::kI32, {shape.experts + 1})};
  return bench->Seconds([&] { return bench->ops().MoeRoute(args, bench->stream()); },
                        kShortRunSeconds);
}

absl::StatusOr<double> ExpertSeconds(kernels::Device& device, const ExpertShape& shape,
                                     DType weights, int64_t rows) {
  auto bench = Bench::Create(device);
  if (!bench.ok()) return bench.status();
  kernels::Ops& ops = bench->ops();
  const int64_t experts = shape.router.experts, used = shape.router.used, slots = rows * used;
  const bool e2m1 = weights == DType::kI8;
  const auto spec = [&](int64_t in, int64_t out) {
    return kernels::LinearSpec{.in_features = in,
                               .out_features = out,
                               .weight_dtype = weights,
                               .group_size = e2m1 ? 32 : 128,
                               .e2m1 = e2m1};
  };
  const auto up = ManyWeights(*bench, spec(shape.hidden, 2 * shape.ffn), experts);
  const auto down = ManyWeights(*bench, spec(shape.ffn, shape.hidden), experts);
  if (!up.ok()) return up.status();
  if (!down.ok()) return down.status();
  const int64_t workspace_bytes = std::max<int64_t>(
      {ops.GroupedLinearWorkspaceBytes(up->front().spec, slots, experts, DType::kF32),
       ops.GroupedLinearWorkspaceBytes(down->front().spec, slots, experts, DType::kF32), 64});
  const auto logits = bench->Random<float>(rows * experts);
  const auto in = bench->Random<float>(rows * shape.hidden);
  const auto route = bench->Allocate(slots * 4), places = bench->Allocate(slots * 4);
  const auto sources = bench->Allocate(slots * 4), offsets = bench->Allocate((experts + 1) * 4);
  const auto wide = bench->Allocate(slots * 2 * shape.ffn * 4);
  const auto inner = bench->Allocate(slots * shape.ffn * 4);
  const auto out = bench->Allocate(slots * shape.hidden * 4);
  const auto sum = bench->Allocate(rows * shape.hidden * 4);
  const auto scratch = bench->Allocate(workspace_bytes);
  for (const auto* there :
       {&logits, &in, &route, &places, &sources, &offsets, &wide, &inner, &out, &sum, &scratch}) {
    if (!there->ok()) return there->status();
  }
  const auto floats = [](std::byte* data, int64_t count, int64_t width) {
    return TensorView(data, DType::kF32, {count, width});
  };
  const kernels::MoeRouteArgs routing = {
      .logits = floats(*logits, rows, experts),
      .weights = floats(*route, rows, used),
      .slots = TensorView(*places, DType::kI32, {rows, used}),
      .source_rows = TensorView(*sources, DType::kI32, {slots}),
      .expert_offsets = TensorView(*offsets, DType::kI32, {experts + 1})};
  const TensorView workspace(*scratch, DType::kI8, {workspace_bytes});
  const auto enqueue = [&]() -> absl::Status {
    kernels::Stream& stream = bench->stream();
    absl::Status status = ops.MoeRoute(routing, stream);
    status.Update(ops.GroupedLinear({.out = floats(*wide, slots, 2 * shape.ffn),
                                     .in = floats(*in, rows, shape.hidden),
                                     .experts = *up,
                                     .source_rows = routing.source_rows,
                                     .expert_offsets = routing.expert_offsets,
                                     .workspace = workspace,
                                     .products = DType::kBF16},
                                    stream));
    status.Update(ops.GatedActivate(
        {.out = floats(*inner, slots, shape.ffn), .gate_up = floats(*wide, slots, 2 * shape.ffn)},
        stream));
    status.Update(ops.GroupedLinear({.out = floats(*out, slots, shape.hidden),
                                     .in = floats(*inner, slots, shape.ffn),
                                     .experts = *down,
                                     .expert_offsets = routing.expert_offsets,
                                     .workspace = workspace,
                                     .products = DType::kBF16},
                                    stream));
    status.Update(ops.MoeCombine({.out = floats(*sum, rows, shape.hidden),
                                  .in = floats(*out, slots, shape.hidden),
                                  .weights = routing.weights,
                                  .slots = routing.slots},
                                 stream));
    return status;
  };
  return bench->Seconds(enqueue, kShortRunSeconds);
}

absl::StatusOr<double> SampleSeconds(kernels::Device& device, const SampleCase& sample) {
  auto bench = Bench::Create(device);
  if (!bench.ok()) return bench.status();
  const int64_t rows = sample.rows;
  std::vector<float> row(sample.vocabulary);
  for (int64_t i = 0; i < sample.vocabulary; ++i) {
    const auto rank = static_cast<float>(i + 1);
    row[i] = sample.flat ? rank / static_cast<float>(sample.vocabulary) : -1.2f * std::log(rank);
  }
  std::shuffle(row.begin(), row.end(), std::mt19937(1));
  std::vector<uint64_t> seeds(rows);
  std::iota(seeds.begin(), seeds.end(), 1);
  const auto of_rows = [&](auto value) { return std::vector<decltype(value)>(rows + 1, value); };
  const auto logits = bench->Upload<float>(row, rows);
  const auto temperature = bench->Upload<float>(of_rows(sample.temperature));
  const auto top_p = bench->Upload<float>(of_rows(sample.top_p));
  const auto top_k = bench->Upload<int32_t>(of_rows(sample.top_k));
  const auto ones = bench->Upload<float>(of_rows(1.0f));
  const auto zeros = bench->Upload<int32_t>(of_rows(0));  // as floats, too
  const auto seeds_there = bench->Upload<uint64_t>(seeds);
  const auto ids = bench->Allocate(rows * 4);
  for (const auto* there :
       {&logits, &temperature, &top_p, &top_k, &ones, &zeros, &seeds_there, &ids}) {
    if (!there->ok()) return there->status();
  }
  const auto column = [rows](std::byte* data, DType dtype) {
    return TensorView(data, dtype, {rows});
  };
  const TensorView offsets(*zeros, DType::kI32, {rows + 1}), none(*zeros, DType::kI32, {0});
  const kernels::SampleArgs args = {
      .token_ids = column(*ids, DType::kI32),
      .logits = TensorView(*logits, DType::kF32, {rows, sample.vocabulary}),
      .temperature = column(*temperature, DType::kF32),
      .top_p = column(*top_p, DType::kF32),
      .min_p = column(*zeros, DType::kF32),
      .top_k = column(*top_k, DType::kI32),
      .repetition_penalty = column(*ones, DType::kF32),
      .presence_penalty = column(*zeros, DType::kF32),
      .frequency_penalty = column(*zeros, DType::kF32),
      .seeds = column(*seeds_there, DType::kU64),
      .choices = column(*zeros, DType::kI32),
      .positions = column(*zeros, DType::kI32),
      .history_offsets = offsets,
      .history_ids = none,
      .history_counts = none,
      .bias_offsets = offsets,
      .bias_ids = none,
      .bias_values = TensorView(*zeros, DType::kF32, {0})};
  return bench->Seconds([&] { return bench->ops().Sample(args, bench->stream()); },
                        kShortRunSeconds);
}

}  // namespace tessera::bench
