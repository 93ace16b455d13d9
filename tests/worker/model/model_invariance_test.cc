// In float32 a row's logits have the same bits whatever else is in the step, however its prompt was
// chunked, and wherever its blocks lie; in bfloat16 and int8 they stay within kRoundedRowTolerance.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::Isa;
using Logits = std::vector<std::vector<float>>;

// A sequence of known tokens: golden prompt and golden tokens behind it.
struct Sequence {
  std::vector<int32_t> tokens;
  int64_t prompt_tokens;
};

std::vector<Sequence> Sequences(const std::string& name) {
  const std::vector<GoldenRun> runs = ReadGolden(name);
  std::vector<Sequence> sequences;
  for (int i = 0; i < TinyModel::kSequences; ++i) {
    const GoldenRun& run = runs[i % runs.size()];
    // Copies of a prompt start elsewhere in it, so that all sequences differ.
    const int64_t first = std::min<int64_t>(i / 2 * 3, std::ssize(run.prompt) - 1);
    Sequence sequence = {{run.prompt.begin() + first, run.prompt.end()}, 0};
    sequence.prompt_tokens = static_cast<int64_t>(sequence.tokens.size());
    sequence.tokens.insert(sequence.tokens.end(), run.tokens.begin(), run.tokens.end());
    sequences.push_back(sequence);
  }
  return sequences;
}

Chunk Part(const Sequence& sequence, int index, int64_t first, int64_t count) {
  return {.sequence = index,
          .tokens = {sequence.tokens.begin() + first, sequence.tokens.begin() + first + count},
          .first_position = first,
          .prompt_tokens = sequence.prompt_tokens};
}

// The plain way: alone, prompt at once, then token by token.
Logits Alone(TinyModel& model, const Sequence& sequence, int index) {
  Logits all = model.Run({Part(sequence, index, 0, sequence.prompt_tokens)});
  for (auto i = sequence.prompt_tokens; i < static_cast<int64_t>(sequence.tokens.size()); ++i) {
    all.push_back(model.Run({Part(sequence, index, i, 1)})[0]);
  }
  return all;
}

// All sequences together, in random chunks, some of them waiting at times, with padding.
std::vector<Logits> Mixed(TinyModel& model, const std::vector<Sequence>& sequences,
                          std::mt19937& random) {
  std::vector<Logits> all(sequences.size());
  const auto left = [&](size_t i) { return sequences[i].tokens.size() - all[i].size(); };
  const auto total_left = [&] {
    size_t total = 0;
    for (size_t i = 0; i < sequences.size(); ++i) total += left(i);
    return total;
  };
  while (total_left() > 0) {
    std::vector<Chunk> chunks;
    int64_t rows = 0;
    std::vector<int> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    for (int i : order) {
      const auto most = std::min<int64_t>(static_cast<int64_t>(left(i)), 100 - rows);
      if (most == 0 || random() % 4 == 0) continue;
      // Decode rows and small chunks as often as large ones.
      const int64_t wanted = random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 40);
      const int64_t count = std::min(most, wanted);
      chunks.push_back(Part(sequences[i], i, static_cast<int64_t>(all[i].size()), count));
      rows += count;
    }
    if (chunks.empty()) continue;
    const Logits logits = model.Run(chunks, static_cast<int64_t>(random() % 5));
    size_t row = 0;
    for (const Chunk& chunk : chunks) {
      for (size_t i = 0; i < chunk.tokens.size(); ++i) {
        all[chunk.sequence].push_back(logits[row++]);
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("float32: chunks, company and places change no bit") {
  for (const std::string& name : GoldenModels()) {
    const std::vector<Sequence> sequences = Sequences(name);
    for (Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
      TinyModel plain(GoldenFolder(name), {.isa = isa});
      TinyModel mixed(GoldenFolder(name), {.isa = isa, .block_tokens = 4});
      std::vector<Logits> want;
      for (int i = 0; i < TinyModel::kSequences; ++i) {
        want.push_back(Alone(plain, sequences[i], i));
      }
      std::mt19937 random(7);
      for (int round = 0; round < 2; ++round) {
        const std::vector<Logits> got = Mixed(mixed, sequences, random);
        for (int i = 0; i < TinyModel::kSequences; ++i) {
          INFO(name << ", " << kernels::Name(isa) << ", round " << round << ", sequence " << i);
          CHECK(got[i] == want[i]);
        }
      }
    }
  }
}

// What a model of these types computes, in random company against alone.
static void CheckRounded(const std::string& name, const TinyOptions& options) {
  TinyOptions other = options;
  other.block_tokens = 4;
  TinyModel plain(GoldenFolder(name), options), mixed(GoldenFolder(name), other);
  const std::vector<Sequence> sequences = Sequences(name);
  std::mt19937 random(11);
  const std::vector<Logits> got = Mixed(mixed, sequences, random);
  double largest = 0;
  for (int i = 0; i < TinyModel::kSequences; ++i) {
    const Logits want = Alone(plain, sequences[i], i);
    REQUIRE(got[i].size() == want.size());
    for (size_t row = 0; row < want.size(); ++row) {
      largest = std::max(largest, RelativeError(got[i][row], want[row]));
    }
  }
  INFO(name << ", " << kernels::Name(options.isa) << ", weights " << Name(options.weight_dtype)
            << ", products " << Name(options.product_dtype) << ", KV " << Name(options.kv_dtype)
            << ": a row moved by " << largest << " of its largest logit");
  CHECK(largest <= kRoundedRowTolerance);
  const bool same_bits = options.isa != Isa::kAmx || options.weight_dtype != DType::kI8;
  if (same_bits) CHECK(largest == 0);
}

TEST_CASE("bfloat16 and int8: chunks, company and places move no row beyond the stated tolerance") {
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kI8 = DType::kI8;
  const std::vector<TinyOptions> kinds = {
      {.weight_dtype = kBF16, .kv_dtype = kBF16, .product_dtype = kBF16},
      {.weight_dtype = kI8, .kv_dtype = kBF16, .product_dtype = kBF16},
      {.weight_dtype = kI8, .kv_dtype = kF32, .product_dtype = kF32},
      {.weight_dtype = kBF16, .kv_dtype = kF32, .product_dtype = kF32}};
  for (const std::string name : {"llama", "mistral_window", "qwen2", "opt", "qwen3_moe", "qwen3_5",
                                 "qwen3_next", "deepseek_v3"}) {
    for (Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
      for (TinyOptions options : kinds) {
        options.isa = isa;
        CheckRounded(name, options);
      }
    }
  }
}

}  // namespace tessera::worker
