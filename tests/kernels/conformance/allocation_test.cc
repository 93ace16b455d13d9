// Ops allocate nothing: malloc is counted while a step's worth of them runs.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "tests/kernels/conformance/attention_case.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void Count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
}

}  // namespace

// A sanitizer owns malloc; there operator new alone is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  Count();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  Count();
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
#else
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) {
  Count();
  return __libc_malloc(size);
}
#endif

namespace tessera::kernels::conformance {
namespace {

TEST_CASE("the counter counts") {
  counting.store(true);
  const int64_t before = allocations.load();
  std::vector<char>* volatile made = new std::vector<char>(1000);
  const int64_t after = allocations.load();
  counting.store(false);
  delete made;
  CHECK(after > before);
}

// Tensors of a small step, made beforehand.
struct Step {
  explicit Step(Path& path)
      : path(path),
        ids(path, {kTokens}, RandomInts(kTokens, 100, 1)),
        table(Random(path, DType::kF32, {100, kHidden}, 2)),
        hidden(Zeros(path, DType::kF32, {kTokens, kHidden})),
        normed(Zeros(path, DType::kF32, {kTokens, kHidden})),
        weight(Random(path, DType::kF32, {kHidden}, 3)),
        gate_up(Random(path, DType::kF32, {kTokens, 2 * kHidden}, 4)),
        positions(path, {kTokens}, RandomInts(kTokens, 50, 5)),
        cos_sin(Zeros(path, DType::kF32, {kTokens, 16})),
        frequencies(Random(path, DType::kF32, {8}, 6)),
        q(Random(path, DType::kF32, {kTokens, 4, 16}, 7)),
        k(Random(path, DType::kF32, {kTokens, 4, 16}, 8)),
        keys(Zeros(path, DType::kF32, {4, 4, 16, 16})),
        values(Zeros(path, DType::kF32, {4, 4, 16, 16})),
        slots(path, {kTokens}, RandomInts(kTokens, 64, 9)),
        starts(path, {2}, std::vector<int32_t>{0, kTokens}),
        lengths(path, {1}, std::vector<int32_t>{60}),
        tables(path, {1, 4}, std::vector<int32_t>{3, 1, 0, 2}),
        logits(Random(path, DType::kF32, {kTokens, 5000}, 10)),
        best(Zeros(path, DType::kF32, {kTokens, 5})),
        best_ids(path, {kTokens, 5}, std::vector<int32_t>(5 * kTokens)),
        floats(path, DType::kF32, {kTokens}, std::vector<float>(kTokens, 0.7f)),
        ints(path, {kTokens}, std::vector<int32_t>(kTokens, 40)),
        seeds(path, std::vector<uint64_t>(kTokens, 5)),
        no_entries(path, {kTokens + 1}, std::vector<int32_t>(kTokens + 1)),
        no_ids(path, {0}, std::vector<int32_t>()),
        no_values(path, DType::kF32, {0}, {}) {
    const LinearSpec spec = {.in_features = kHidden, .out_features = kHidden};
    auto buffer = path.device().Allocate(path.ops().PackedWeightBytes(spec));
    REQUIRE(buffer.ok());
    packed_memory = *std::move(buffer);
    packed = {.spec = spec, .data = packed_memory.data()};
    REQUIRE(path.ops()
                .PackWeightRows(packed, 0, Random(path, DType::kF32, {kHidden, kHidden}, 11))
                .ok());
    workspace = path.Workspace(1 << 22);
  }

  // Everything a layer and the sampler enqueue; false if any op refused.
  bool Run() {
    Ops& ops = path.ops();
    Stream& stream = path.stream();
    bool ok = ops.Embedding({.out = hidden, .table = table, .ids = ids}, stream).ok();
    ok &= ops.RmsNorm({.out = normed, .in = hidden, .weight = weight}, stream).ok();
    ok &= ops.Linear({.out = hidden, .in = normed, .weights = &packed, .workspace = workspace},
                     stream)
              .ok();
    ok &= ops.RopeTable(
                 {.cos_sin = cos_sin, .positions = positions, .inverse_frequencies = frequencies},
                 stream)
              .ok();
    ok &= ops.Rope({.q = q, .k = k, .cos_sin = cos_sin}, stream).ok();
    const KvCacheView cache = {.keys = keys, .values = values};
    ok &= ops.KvWrite({.cache = cache, .k = k, .v = k, .slots = slots}, stream).ok();
    const TensorView attended(hidden.view().data, DType::kF32, {kTokens, 4, 16});
    ok &= ops.Attention({.out = attended,
                         .q = q,
                         .cache = cache,
                         .query_starts = starts,
                         .context_lengths = lengths,
                         .block_tables = tables,
                         .workspace = workspace},
                        stream)
              .ok();
    ok &= ops.GatedActivate({.out = normed, .gate_up = gate_up}, stream).ok();
    ok &= ops.Add({.out = hidden, .in = normed}, stream).ok();
    ok &= ops.TopK({.values = best, .indices = best_ids, .in = logits}, stream).ok();
    ok &= ops.Sample({.token_ids = ids,
                      .logits = logits,
                      .temperature = floats,
                      .top_p = floats,
                      .min_p = floats,
                      .top_k = ints,
                      .repetition_penalty = floats,
                      .presence_penalty = floats,
                      .frequency_penalty = floats,
                      .seeds = seeds,
                      .choices = ints,
                      .positions = ints,
                      .history_offsets = no_entries,
                      .history_ids = no_ids,
                      .history_counts = no_ids,
                      .bias_offsets = no_entries,
                      .bias_ids = no_ids,
                      .bias_values = no_values,
                      .workspace = workspace},
                     stream)
              .ok();
    ok &= ops.LogSoftmax({.out = logits, .in = logits}, stream).ok();
    return ok && stream.Synchronize().ok();
  }

  static constexpr int32_t kTokens = 40;
  static constexpr int64_t kHidden = 64;
  Path& path;
  Tensor ids, table, hidden, normed, weight, gate_up, positions, cos_sin, frequencies, q, k, keys,
      values, slots, starts, lengths, tables, logits, best, best_ids, floats, ints, seeds,
      no_entries, no_ids, no_values;
  Buffer packed_memory;
  PackedWeights packed;
  TensorView workspace;
};

TEST_CASE("a step allocates nothing on any path") {
  std::vector<Path*> paths = {&Reference()};
  for (const auto& path : OtherPaths()) paths.push_back(path.get());
  for (Path* path : paths) {
    INFO("path " << path->name());
    Step step(*path);
    REQUIRE(step.Run());
    allocations.store(0);
    counting.store(true);
    bool ok = true;
    for (int i = 0; i < 10; ++i) ok = ok && step.Run();
    counting.store(false);
    CHECK(ok);
    CHECK(allocations.load() == 0);
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
