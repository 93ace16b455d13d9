// A prompt of 32k rows through layers that keep states, in bfloat16: errors of a recurrence could
// add up from row to row.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int64_t kRows = 32'768, kPart = 64;

std::vector<int32_t> RandomPrompt() {
  std::mt19937 random(3);
  std::vector<int32_t> tokens(kRows);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 96);
  return tokens;
}

// The logits behind each part of the prompt, which is computed in chunks of one or two parts; from
// `single` on row by row. With `company` another prompt shares the steps of one part.
std::vector<std::vector<float>> Run(TinyModel& model, const std::vector<int32_t>& prompt,
                                    uint32_t seed, int64_t single = kRows, bool company = false) {
  std::mt19937 random(seed);
  std::vector<std::vector<float>> logits;
  for (int64_t first = 0; first < kRows;) {
    const int64_t rows = first >= single                                   ? 1
                         : random() % 2 == 0 && first + 2 * kPart <= kRows ? 2 * kPart
                                                                           : kPart;
    std::vector<Chunk> chunks;
    const bool shared = company && rows == kPart;
    if (shared) chunks.push_back({1, {prompt.begin(), prompt.begin() + 9}, 0, 9});
    const auto before = static_cast<int32_t>(shared ? 9 : 0);
    chunks.push_back({0, {prompt.begin() + first, prompt.begin() + first + rows}, first, kRows});
    std::vector<int32_t> wanted;
    for (int64_t row = 0; row < rows; ++row) {
      if ((first + row + 1) % kPart == 0) wanted.push_back(before + static_cast<int32_t>(row));
    }
    const bool none = wanted.empty();
    if (none) wanted.push_back(before);
    const auto more = model.RunFor(wanted, chunks);
    if (!none) logits.insert(logits.end(), more.begin(), more.end());
    first += rows;
  }
  return logits;
}

TEST_CASE(
    "bfloat16: 32k rows of a hybrid have the same bits in any parts of 64, and no error grows") {
  constexpr DType kBF16 = DType::kBF16;
  const auto isa = kernels::SupportedIsas(kernels::DetectCpuFeatures()).back();
  const std::vector<int32_t> prompt = RandomPrompt();
  for (const std::string name : {"qwen3_5", "qwen3_next"}) {
    INFO(name << ", " << kernels::Name(isa));
    TinyOptions options = {.isa = isa,
                           .weight_dtype = kBF16,
                           .kv_dtype = kBF16,
                           .product_dtype = kBF16,
                           .context_tokens = kRows};
    TinyModel model(GoldenFolder(name), options);
    const auto logits = Run(model, prompt, 1);
    REQUIRE(std::ssize(logits) == kRows / kPart);
    CHECK(Run(model, prompt, 2, kRows - 2 * kPart, /*company=*/true) == logits);
    // The same weights, with nothing else rounded.
    options.kv_dtype = options.product_dtype = DType::kF32;
    TinyModel exact(GoldenFolder(name), options);
    const auto want = Run(exact, prompt, 1);
    std::vector<double> errors;  // by part
    for (size_t i = 0; i < want.size(); ++i) errors.push_back(RelativeError(logits[i], want[i]));
    const auto median_of = [&](size_t first, size_t end) {
      std::vector<double> some(errors.begin() + static_cast<int64_t>(first),
                               errors.begin() + static_cast<int64_t>(end));
      std::nth_element(some.begin(), some.begin() + std::ssize(some) / 2, some.end());
      return some[some.size() / 2];
    };
    constexpr size_t kEighth = 4096 / kPart;
    const double median = median_of(0, errors.size());
    const double first = median_of(0, kEighth),
                 last = median_of(errors.size() - kEighth, errors.size());
    std::printf(
        "%s, %s: half of the rows are off by at most %.4f of their largest logit, all by %.4f; "
        "half "
        "of the first 4k rows by %.4f, of the last %.4f\n",
        name.c_str(), std::string(kernels::Name(isa)).c_str(), median,
        *std::max_element(errors.begin(), errors.end()), first, last);
    // Rows of random weights are now and then near a change: another expert, a norm of nearly zero.
    // There a model with other bits of its own is as far off; errors that add up show in the
    // median.
    CHECK(median > 0);
    CHECK(median <= kRoundedRowTolerance);
    CHECK(last <= 2 * first);
  }
}

}  // namespace
}  // namespace tessera::worker
