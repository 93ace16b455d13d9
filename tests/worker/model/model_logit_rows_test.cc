// A step computes the last layer for the rows whose logits are wanted: any of them, in any order,
// come out as they do among all, and the keys and values of the others are there for later steps.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using kernels::Isa;
using Logits = std::vector<std::vector<float>>;

constexpr int kMaxLogitRows = 5;  // logit rows of a step, of many more

// The sequences' tokens from `first` on, `count` of each.
std::vector<Chunk> Chunks(int sequences, int64_t first, int64_t count) {
  std::vector<Chunk> chunks;
  for (int s = 0; s < sequences; ++s) {
    Chunk& chunk = chunks.emplace_back();
    chunk.sequence = s;
    chunk.first_position = first;
    chunk.prompt_tokens = 40;
    for (int64_t i = first; i < first + count; ++i) {
      chunk.tokens.push_back(static_cast<int32_t>((7 * i + 13 * s + 3) % 90));
    }
  }
  return chunks;
}

// What a row gives may differ from the same among others by this much of its largest logit.
void CheckRows(const Logits& got, const Logits& all, const std::vector<int32_t>& wanted,
               double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    INFO("row " << wanted[i]);
    if (tolerance == 0) {
      CHECK(got[i] == all[wanted[i]]);
    } else {
      CHECK(RelativeError(got[i], all[wanted[i]]) <= tolerance);
    }
  }
}

void CheckModel(const fs::path& folder, TinyOptions options, double tolerance) {
  TinyModel every(folder, options);
  options.max_logit_rows = kMaxLogitRows;
  TinyModel few(folder, options);
  INFO(folder << ", " << kernels::Name(options.isa) << ", " << kernels::Name(options.weight_dtype));
  // Two pieces of three prompts, then a token of each; behind the rows stands padding.
  const std::vector<std::vector<int32_t>> wanted = {{}, {38, 0, 21, 59, 20}, {2, 0}};
  const std::vector<Chunk> steps[] = {Chunks(3, 0, 15), Chunks(3, 15, 20), Chunks(3, 35, 1)};
  for (int i = 0; i < 3; ++i) {
    INFO("step " << i);
    const Logits all = every.Run(steps[i], 2);
    CheckRows(few.RunFor(wanted[i], steps[i], 2), all, wanted[i], tolerance);
  }
  if (every.model().seats() > 0) return;  // a step that runs again goes on from its own states
  // A step again, for rows chosen at random.
  std::mt19937 random(5);
  const Logits all = every.Run(steps[1], 0);
  for (int round = 0; round < 3; ++round) {
    std::vector<int32_t> rows(all.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(1 + random() % kMaxLogitRows);
    CheckRows(few.RunFor(rows, steps[1], 0), all, rows, tolerance);
  }
}

// A golden model of which only the first layer is left: first and last in one.
class OneLayer {
 public:
  explicit OneLayer(const std::string& name) {
    for (const auto& file : fs::directory_iterator(GoldenFolder(name))) {
      if (file.path().filename() == "config.json") continue;
      fs::copy_file(file.path(), temporary_.path() / file.path().filename());
    }
    std::ifstream in(GoldenFolder(name) / "config.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string layers = "\"num_hidden_layers\": ";
    const size_t at = text.find(layers);
    REQUIRE(at != std::string::npos);
    text.replace(at + layers.size(), 1, "1");
    std::ofstream(temporary_.path() / "config.json") << text;
  }
  const fs::path& folder() const { return temporary_.path(); }

 private:
  const tests::TemporaryFolder temporary_;
};

}  // namespace

TEST_CASE("float32: a row's logits are the same bits, whichever others are wanted") {
  for (const std::string& name : GoldenModels()) {
    for (Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
      CheckModel(GoldenFolder(name), {.isa = isa}, 0);
    }
  }
}

TEST_CASE("bfloat16 and int8: a row's logits, whichever others are wanted") {
  for (const std::string name : {"llama", "opt_projected_post_norm", "qwen3_moe"}) {
    for (Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
      for (DType dtype : {DType::kBF16, DType::kI8}) {
        CheckModel(GoldenFolder(name),
                   {.isa = isa,
                    .weight_dtype = dtype,
                    .kv_dtype = DType::kBF16,
                    .product_dtype = DType::kBF16},
                   isa == Isa::kAmx ? kRoundedRowTolerance : 0);
      }
    }
  }
}

TEST_CASE("a model of one layer: its first is its last") {
  for (const std::string name : {"llama", "opt_projected_post_norm", "mixtral"}) {
    const OneLayer model(name);
    CheckModel(model.folder(), {.isa = kernels::SupportedIsas(kernels::DetectCpuFeatures()).back()},
               0);
  }
}

}  // namespace tessera::worker
