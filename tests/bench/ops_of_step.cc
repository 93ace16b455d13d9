// The ops of a step whose cost is not that of a linear: shapes of a model of some billions of
// parameters, on as many rows as a step has.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "tests/bench/op_subject.h"

namespace tessera::kernels::conformance {
namespace {

constexpr int64_t kHeads = 16, kKvHeads = 4, kHeadDim = 128, kBlockTokens = 16;

using Shared = std::shared_ptr<Tensor>;

Shared Share(Tensor tensor) { return std::make_shared<Tensor>(std::move(tensor)); }
Shared Ints(Path& path, std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  return std::make_shared<Tensor>(path, std::move(shape), values);
}

std::vector<float> Floats(const std::vector<int32_t>& values) {
  return {values.begin(), values.end()};
}

// Keys or values; of 8 bits the bytes of rows, as many as one row has, again and again.
Shared CacheOf(Path& path, DType type, std::vector<int64_t> shape, uint64_t seed) {
  if (!HasKvScales(type)) return Share(Random(path, type, shape, seed));
  const std::vector<float> of_row = RandomFloats(kHeadDim, seed);
  shape.back() = KvRowElements(type, kHeadDim);
  std::vector<std::byte> row(shape.back());
  WriteKvRow(of_row.data(), kHeadDim, type, row.data());
  std::vector<float> bytes;
  for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; ++i)
    for (const std::byte byte : row) bytes.push_back(std::to_integer<uint8_t>(byte));
  return Share(Tensor(path, type, shape, bytes));
}

// `sequences` of `context` tokens, of which the last `rows` are computed.
Maker AttentionOf(int64_t sequences, int64_t rows, int64_t context, DType cache_type) {
  return [=](Path& path) {
    const int64_t width = (context + kBlockTokens - 1) / kBlockTokens;
    const int64_t tokens = sequences * rows;
    std::vector<int32_t> starts, lengths, tables(sequences * width);
    for (int64_t s = 0; s <= sequences; ++s) starts.push_back(static_cast<int32_t>(s * rows));
    lengths.assign(sequences, static_cast<int32_t>(context));
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), std::mt19937_64(1));
    const std::vector<int64_t> cache = {kKvHeads, sequences * width, kBlockTokens, kHeadDim};
    const Shared keys = CacheOf(path, cache_type, cache, 1);
    const Shared values = CacheOf(path, cache_type, cache, 2);
    const Shared q = Share(Random(path, DType::kF32, {tokens, kHeads, kHeadDim}, 3));
    const Shared out = Share(Zeros(path, DType::kF32, {tokens, kHeads, kHeadDim}));
    const Shared query_starts = Ints(path, {sequences + 1}, starts);
    const Shared context_lengths = Ints(path, {sequences}, lengths);
    const Shared block_tables = Ints(path, {sequences, width}, tables);
    const int64_t workspace_bytes =
        path.ops().AttentionWorkspaceBytes({.tokens = tokens,
                                            .sequences = sequences,
                                            .heads = kHeads,
                                            .kv_heads = kKvHeads,
                                            .head_dim = kHeadDim,
                                            .max_context_tokens = width * kBlockTokens});
    const TensorView workspace = path.Workspace(workspace_bytes);
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().Attention({.out = *out,
                                   .q = *q,
                                   .cache = {.keys = *keys, .values = *values},
                                   .query_starts = *query_starts,
                                   .context_lengths = *context_lengths,
                                   .block_tables = *block_tables,
                                   .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
                                   .workspace = workspace},
                                  path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = 2.0 * sequences * context * kKvHeads * KvRowBytes(cache_type, kHeadDim);
    return subject;
  };
}

// In place, so the result is that of a fresh tensor rotated once.
Maker RopeOf(int64_t tokens) {
  return [=](Path& path) {
    const auto fresh = [&path, tokens](int64_t heads, uint64_t seed) {
      return Share(Random(path, DType::kF32, {tokens, heads, kHeadDim}, seed));
    };
    const Shared q = fresh(kHeads, 1), k = fresh(kKvHeads, 2);
    std::vector<float> rotations(tokens * kHeadDim);
    for (int64_t i = 0; i < tokens * kHeadDim; ++i) {
      const double angle = static_cast<double>(i / kHeadDim) / (1 + i % (kHeadDim / 2));
      const bool cosine = i % kHeadDim < kHeadDim / 2;
      rotations[i] = static_cast<float>(cosine ? std::cos(angle) : std::sin(angle));
    }
    const Shared cos_sin = std::make_shared<Tensor>(
        path, DType::kF32, std::vector<int64_t>{tokens, kHeadDim}, rotations);
    const auto rotate = [=, &path](const Tensor& query, const Tensor& key) {
      return path.ops().Rope({.q = query, .k = key, .cos_sin = *cos_sin}, path.stream());
    };
    Subject subject;
    subject.run = [=] { return rotate(*q, *k); };
    subject.out = [=, &path] {
      const Shared query = fresh(kHeads, 1), key = fresh(kKvHeads, 2);
      REQUIRE(rotate(*query, *key).ok());
      path.Synchronize();
      return query->Read();
    };
    subject.bytes = 2.0 * tokens * (kHeads + kKvHeads) * kHeadDim * 4;
    return subject;
  };
}

Maker KvWriteOf(int64_t tokens, DType cache_type) {
  return [=](Path& path) {
    const int64_t blocks = tokens / kBlockTokens;
    const std::vector<int64_t> shape = {kKvHeads, blocks, kBlockTokens, kHeadDim};
    std::vector<int32_t> slots(tokens);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), std::mt19937_64(1));
    const Shared keys = Share(Zeros(path, cache_type, shape));
    const Shared values = Share(Zeros(path, cache_type, shape));
    const Shared k = Share(Random(path, DType::kF32, {tokens, kKvHeads, kHeadDim}, 1));
    const Shared v = Share(Random(path, DType::kF32, {tokens, kKvHeads, kHeadDim}, 2));
    const Shared places = Ints(path, {tokens}, slots);
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().KvWrite(
          {.cache = {.keys = *keys, .values = *values}, .k = *k, .v = *v, .slots = *places},
          path.stream());
    };
    subject.out = [keys] { return keys->Read(); };
    subject.bytes = 2.0 * tokens * kKvHeads * kHeadDim * (4 + SizeInBytes(cache_type));
    return subject;
  };
}

// `rows` rows of each sequence; values are fetched again, as they change in place.
Maker DeltaOf(int64_t sequences, int64_t rows) {
  return [=](Path& path) {
    constexpr int64_t kKeyHeads = 8, kValueHeads = 16;
    const int64_t tokens = sequences * rows, width = kValueHeads * kHeadDim;
    const auto random = [&path](std::vector<int64_t> shape, uint64_t seed) {
      return Share(Random(path, DType::kF32, std::move(shape), seed));
    };
    const auto numbered = [&path](int64_t count, int64_t step) {
      std::vector<int32_t> numbers;
      for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<int32_t>(i * step));
      return Ints(path, {count}, numbers);
    };
    const Shared fresh = random({tokens, width}, 1), values = random({tokens, width}, 1);
    const Shared queries = random({tokens, kKeyHeads, kHeadDim}, 2);
    const Shared keys = random({tokens, kKeyHeads, kHeadDim}, 3);
    const Shared gates = random({tokens, 2 * kValueHeads}, 4);
    const Shared decay_log = random({kValueHeads}, 5), decay_bias = random({kValueHeads}, 6);
    const Shared states =
        Share(Zeros(path, DType::kF32, {sequences, kValueHeads, kHeadDim, kHeadDim}));
    const Shared order = numbered(tokens, 1), starts = numbered(sequences + 1, rows);
    const Shared seats = numbered(sequences, 1);
    const Shared lengths =
        Ints(path, {sequences}, std::vector<int32_t>(sequences, static_cast<int32_t>(rows)));
    Subject subject;
    subject.run = [=, &path] {
      const absl::Status fetched =
          path.ops().GatherRows({.out = *values, .in = *fresh, .rows = *order}, path.stream());
      if (!fetched.ok()) return fetched;
      const TensorView heads(values->view().data, DType::kF32, {tokens, kValueHeads, kHeadDim});
      return path.ops().GatedDelta(
          {.values = heads,
           .queries = *queries,
           .keys = *keys,
           .gates = *gates,
           .decay_log = *decay_log,
           .decay_bias = *decay_bias,
           .states = *states,
           .at = {.query_starts = *starts, .context_lengths = *lengths, .seats = *seats}},
          path.stream());
    };
    subject.out = [values] { return values->Read(); };
    subject.bytes = 2.0 * sequences * kValueHeads * kHeadDim * kHeadDim * 4;
    return subject;
  };
}

constexpr int64_t kSampledRows = 64, kVocabulary = 32000;

Maker SampleOf(float temperature, float top_p, int32_t top_k) {
  return [=](Path& path) {
    const auto floats = [&path](float value) {
      return std::make_shared<Tensor>(path, DType::kF32, std::vector<int64_t>{kSampledRows},
                                      std::vector<float>(kSampledRows, value));
    };
    const auto ints = [&path](int64_t count, int32_t value) {
      return Ints(path, {count}, std::vector<int32_t>(count, value));
    };
    std::vector<float> spread = RandomFloats(kSampledRows * kVocabulary, 1);
    for (float& logit : spread) logit *= 12;
    const auto logits = std::make_shared<Tensor>(
        path, DType::kF32, std::vector<int64_t>{kSampledRows, kVocabulary}, spread);
    std::vector<int32_t> rows(kSampledRows);
    std::iota(rows.begin(), rows.end(), 0);
    const Shared token_ids = ints(kSampledRows, 0), positions = Ints(path, {kSampledRows}, rows);
    const Shared choices = ints(kSampledRows, 0), k = ints(kSampledRows, top_k);
    const Shared offsets = ints(kSampledRows + 1, 0), none = ints(0, 0);
    const Shared heat = floats(temperature), p = floats(top_p), zero = floats(0), one = floats(1);
    const Shared bias =
        std::make_shared<Tensor>(path, DType::kF32, std::vector<int64_t>{0}, std::vector<float>());
    const auto seeds = std::make_shared<Tensor>(path, std::vector<uint64_t>(kSampledRows, 42));
    const TensorView workspace =
        path.Workspace(path.ops().SampleWorkspaceBytes(kSampledRows, kVocabulary));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().Sample({.token_ids = *token_ids,
                                .logits = *logits,
                                .temperature = *heat,
                                .top_p = *p,
                                .min_p = *zero,
                                .top_k = *k,
                                .repetition_penalty = *one,
                                .presence_penalty = *zero,
                                .frequency_penalty = *zero,
                                .seeds = *seeds,
                                .choices = *choices,
                                .positions = *positions,
                                .history_offsets = *offsets,
                                .history_ids = *none,
                                .history_counts = *none,
                                .bias_offsets = *offsets,
                                .bias_ids = *none,
                                .bias_values = *bias,
                                .workspace = workspace},
                               path.stream());
    };
    subject.out = [token_ids] { return Floats(token_ids->ReadInts()); };
    subject.bytes = 1.0 * kSampledRows * kVocabulary * 4;
    return subject;
  };
}

constexpr int64_t kRouted = 512, kExperts = 64, kChosen = 8, kModelWidth = 2048;

Maker RouteOf() {
  return [](Path& path) {
    const Shared logits = Share(Random(path, DType::kF32, {kRouted, kExperts}, 1));
    const Shared weights = Share(Zeros(path, DType::kF32, {kRouted, kChosen}));
    const Shared slots = Ints(path, {kRouted, kChosen}, std::vector<int32_t>(kRouted * kChosen));
    const Shared sources = Ints(path, {kRouted * kChosen}, std::vector<int32_t>(kRouted * kChosen));
    const Shared offsets = Ints(path, {kExperts + 1}, std::vector<int32_t>(kExperts + 1));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().MoeRoute({.logits = *logits,
                                  .weights = *weights,
                                  .slots = *slots,
                                  .source_rows = *sources,
                                  .expert_offsets = *offsets,
                                  .renormalise = true},
                                 path.stream());
    };
    subject.out = [=] { return Floats(slots->ReadInts()); };
    subject.bytes = 1.0 * kRouted * kExperts * 4;
    return subject;
  };
}

// `rows` rows to each of 8 experts.
Maker ExpertsOf(DType weight, int64_t rows) {
  return [=](Path& path) {
    constexpr int64_t kCount = 8, kIn = 512, kOut = 1024;
    const LinearSpec spec = {.in_features = kIn, .out_features = kOut, .weight_dtype = weight};
    struct State {
      std::vector<Buffer> memory;
      std::vector<PackedWeights> experts;
    };
    const auto state = std::make_shared<State>();
    std::vector<int32_t> offsets = {0};
    for (uint64_t e = 0; e < kCount; ++e) {
      state->memory.push_back(path.device().Allocate(path.ops().PackedWeightBytes(spec)).value());
      state->experts.push_back({.spec = spec, .data = state->memory.back().data()});
      const Tensor source = Random(path, DType::kF32, {kOut, kIn}, e);
      REQUIRE(path.ops().PackWeightRows(state->experts.back(), 0, source).ok());
      offsets.push_back(offsets.back() + static_cast<int32_t>(rows));
    }
    const Shared in = Share(Random(path, DType::kBF16, {kCount * rows, kIn}, 9));
    const Shared out = Share(Zeros(path, DType::kBF16, {kCount * rows, kOut}));
    const Shared expert_offsets = Ints(path, {kCount + 1}, offsets);
    const TensorView workspace = path.Workspace(
        path.ops().GroupedLinearWorkspaceBytes(spec, kCount * rows, kCount, DType::kBF16));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().GroupedLinear({.out = *out,
                                       .in = *in,
                                       .experts = state->experts,
                                       .source_rows = {},
                                       .expert_offsets = *expert_offsets,
                                       .workspace = workspace},
                                      path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = static_cast<double>(kCount * path.ops().PackedWeightBytes(spec));
    return subject;
  };
}

Maker CombineOf() {
  return [](Path& path) {
    std::vector<int32_t> order(kRouted * kChosen);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
    const Shared in = Share(Random(path, DType::kF32, {kRouted * kChosen, kModelWidth}, 1));
    const Shared weights = Share(Random(path, DType::kF32, {kRouted, kChosen}, 2));
    const Shared slots = Ints(path, {kRouted, kChosen}, order);
    const Shared out = Share(Zeros(path, DType::kF32, {kRouted, kModelWidth}));
    Subject subject;
    subject.run = [=, &path] {
      return path.ops().MoeCombine({.out = *out, .in = *in, .weights = *weights, .slots = *slots},
                                   path.stream());
    };
    subject.out = [out] { return out->Read(); };
    subject.bytes = 1.0 * kRouted * (kChosen + 1) * kModelWidth * 4;
    return subject;
  };
}

}  // namespace

std::vector<NamedMaker> OpsOfStep() {
  return {{"prefill 256 of 256 f32", AttentionOf(1, 256, 256, DType::kF32)},
          {"prefill 128 of 2k bf16", AttentionOf(1, 128, 2048, DType::kBF16)},
          {"decode 16 x 128 bf16", AttentionOf(16, 1, 128, DType::kBF16)},
          {"decode 16 x 1k bf16", AttentionOf(16, 1, 1024, DType::kBF16)},
          {"decode 64 x 1k bf16", AttentionOf(64, 1, 1024, DType::kBF16)},
          {"decode 64 x 1k int8", AttentionOf(64, 1, 1024, DType::kI8)},
          {"decode 64 x 1k float8", AttentionOf(64, 1, 1024, DType::kF8)},
          {"decode 1 x 8k bf16", AttentionOf(1, 1, 8192, DType::kBF16)},
          {"decode 1 x 8k f32", AttentionOf(1, 1, 8192, DType::kF32)},
          {"rope 512 rows f32", RopeOf(512)},
          {"kv write 512 rows bf16", KvWriteOf(512, DType::kBF16)},
          {"gated delta 16 x 1 f32", DeltaOf(16, 1)},
          {"gated delta 1 x 64 f32", DeltaOf(1, 64)},
          {"sample greedy", SampleOf(0, 1, 0)},
          {"sample temperature", SampleOf(0.8f, 1, 0)},
          {"sample top_p 0.9", SampleOf(0.8f, 0.9f, 0)},
          {"sample top_k 50", SampleOf(0.8f, 1, 50)},
          {"moe route 8 of 64", RouteOf()},
          {"moe experts bf16, 1 row", ExpertsOf(DType::kBF16, 1)},
          {"moe experts bf16, 16", ExpertsOf(DType::kBF16, 16)},
          {"moe experts int8, 16", ExpertsOf(DType::kI8, 16)},
          {"moe combine f32", CombineOf()}};
}

}  // namespace tessera::kernels::conformance
