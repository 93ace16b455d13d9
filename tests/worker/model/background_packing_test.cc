// Weights that are computed with as their file holds them, until a thread has packed them.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/isa.h"
#include "kernels/half_floats.h"
#include "proto/model/model_folder.h"
#include "tests/catch_skip.h"
#include "tests/fakes/uniform_model.h"
#include "tests/no_more_threads.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/file_mapping.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using kernels::Isa;

constexpr int64_t kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kVocabulary = 96;

struct Shape {
  int64_t ffn = 96;  // rows of gate and up, columns of down
  int64_t layers = 2;
  bool tied = false;
};

// A model folder of random bfloat16 weights, every matrix of whole panels.
class RandomFolder {
 public:
  explicit RandomFolder(const Shape& shape) {
    std::string header = "{";
    std::vector<uint16_t> numbers;
    const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
      const size_t begin = numbers.size() * 2;
      for (int64_t i = 0; i < std::max<int64_t>(1, rows) * columns; ++i) {
        numbers.push_back(kernels::FromFloat<kernels::BFloat16>(normal_(random_)).bits);
      }
      header += "\"" + name + ".weight\":{\"dtype\":\"BF16\",\"shape\":[" +
                (rows == 0 ? "" : std::to_string(rows) + ",") + std::to_string(columns) +
                "],\"data_offsets\":[" + std::to_string(begin) + "," +
                std::to_string(numbers.size() * 2) + "]},";
    };
    add("model.embed_tokens", kVocabulary, kHidden);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      add(prefix + "input_layernorm", 0, kHidden);
      add(prefix + "self_attn.q_proj", kHeads * kHeadDim, kHidden);
      add(prefix + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden);
      add(prefix + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden);
      add(prefix + "self_attn.o_proj", kHidden, kHeads * kHeadDim);
      add(prefix + "post_attention_layernorm", 0, kHidden);
      add(prefix + "mlp.gate_proj", shape.ffn, kHidden);
      add(prefix + "mlp.up_proj", shape.ffn, kHidden);
      add(prefix + "mlp.down_proj", kHidden, shape.ffn);
    }
    add("model.norm", 0, kHidden);
    if (!shape.tied) add("lm_head", kVocabulary, kHidden);
    header.back() = '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');  // as writers do: numbers lie as in memory
    const uint64_t header_bytes = header.size();
    std::ofstream file(weights_path(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << header;
    file.write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(numbers.size() * 2));
    std::ofstream(path() / "config.json")
        << R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_act":"silu",)"
        << R"("max_position_embeddings":128,"rms_norm_eps":1e-5,"rope_theta":10000.0,)"
        << R"("torch_dtype":"bfloat16","vocab_size":)" << kVocabulary << R"(,"hidden_size":)"
        << kHidden << R"(,"num_attention_heads":)" << kHeads << R"(,"num_key_value_heads":)"
        << kKvHeads << R"(,"head_dim":)" << kHeadDim << R"(,"intermediate_size":)" << shape.ffn
        << R"(,"num_hidden_layers":)" << shape.layers << R"(,"tie_word_embeddings":)"
        << (shape.tied ? "true" : "false") << "}";
  }

  const fs::path& path() const { return folder_.path(); }
  fs::path weights_path() const { return path() / "model.safetensors"; }

 private:
  const tests::TemporaryFolder folder_;
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_{0.0f, 0.3f};
};

// The best path that computes with what is not packed; none on an old processor.
std::optional<Isa> Path() {
  const std::vector<Isa> paths = kernels::SupportedIsas(kernels::DetectCpuFeatures());
  return paths.back() == Isa::kReference ? std::nullopt : std::optional(paths.back());
}

TinyOptions Options(Isa isa, bool pack_later) {
  return {.isa = isa,
          .weight_dtype = DType::kBF16,
          .product_dtype = DType::kBF16,
          .pack_later = pack_later};
}

const Chunk kPrompt = {.tokens = {3, 90, 17, 44, 8, 61, 2}, .prompt_tokens = 7};

TEST_CASE("logits have the same bits before, while and after weights are packed") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  for (const bool tied : {false, true}) {
    for (const Isa isa : {*Path(), Isa::kAvx2}) {
      CAPTURE(tied, std::string(kernels::Name(isa)));
      const RandomFolder folder({.tied = tied});
      TinyModel packed(folder.path(), Options(isa, false));
      TinyModel later(folder.path(), Options(isa, true));
      CHECK(packed.model().waiting_weight_bytes() == 0);
      CHECK(later.model().waiting_weight_bytes() > later.model().weight_bytes() / 2);
      CHECK(later.model().weight_bytes() == packed.model().weight_bytes());
      const auto expected = packed.Run({kPrompt});
      CHECK(later.Run({kPrompt}) == expected);
      later.model().PackWeights();
      while (later.model().waiting_weight_bytes() > 0) CHECK(later.Run({kPrompt}) == expected);
      // What was packed no longer depends on the file.
      fs::resize_file(folder.weights_path(), 0);
      CHECK(later.Run({kPrompt}) == expected);
    }
  }
}

TEST_CASE("weights that are quantised, widened or not of whole panels are packed at once") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  const RandomFolder folder({.ffn = 96});
  for (const DType dtype : {DType::kI8, DType::kF32}) {
    TinyOptions options = Options(*Path(), true);
    options.weight_dtype = dtype;
    CHECK(TinyModel(folder.path(), options).model().waiting_weight_bytes() == 0);
  }
  CHECK(TinyModel(folder.path(), Options(Isa::kReference, true)).model().waiting_weight_bytes() ==
        0);
  const RandomFolder narrow({.ffn = 80});  // gate and up meet within a panel; rows of 80 numbers
  TinyModel packed(narrow.path(), Options(*Path(), false));
  TinyModel some(narrow.path(), Options(*Path(), true));
  const int64_t waiting = some.model().waiting_weight_bytes();
  CHECK(waiting > 0);
  CHECK(waiting < some.model().weight_bytes() / 2);
  CHECK(some.Run({kPrompt}) == packed.Run({kPrompt}));
}

// Weights alone.
struct Loaded {
  explicit Loaded(const fs::path& folder) {
    const auto shape = ReadModelFolder(folder.string());
    REQUIRE(shape.ok());
    auto created =
        kernels::CreateCpuDevice({.memory_bytes = 1 << 30, .isa = *Path(), .cores_shared = true});
    REQUIRE(created.ok());
    device = *std::move(created);
    ModelOptions options = {
        .folder = folder, .model = *shape, .share = WholeShare(*shape), .limits = {}};
    options.pack_later = true;
    auto loaded = LoadWeights(options, *device, nullptr);
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    weights = *std::move(loaded);
  }
  // As f32 numbers.
  std::vector<float> Rows(const kernels::PackedWeights& matrix) const {
    const int64_t rows = matrix.spec.out_features, columns = matrix.spec.in_features;
    std::vector<float> numbers(rows * columns);
    const kernels::TensorView view(numbers.data(), DType::kF32, {rows, columns});
    REQUIRE(device->ops().UnpackWeightRows(matrix, 0, view).ok());
    return numbers;
  }

  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<ModelWeights> weights;
};

TEST_CASE("a share's slices are computed with where they lie in the file") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  const RandomFolder folder({});
  const auto shape = ReadModelFolder(folder.path().string());
  REQUIRE(shape.ok());
  auto device =
      kernels::CreateCpuDevice({.memory_bytes = 1 << 28, .isa = *Path(), .cores_shared = true});
  REQUIRE(device.ok());
  ModelOptions options = {
      .folder = folder.path(), .model = *shape, .share = WholeShare(*shape), .limits = {}};
  options.share.mutable_layers()->set_begin(1);
  tests::PartOf(options.share)
      .mutable_ffn_columns()
      ->set_begin(64);  // the last 32 of 96: rows, and columns of down
  options.share.set_holds_embedding(false);
  std::vector<float> rows[2];
  for (const bool later : {false, true}) {
    options.pack_later = later;
    const auto weights = LoadWeights(options, **device, nullptr);
    REQUIRE(weights.ok());
    REQUIRE((*weights)->layers.size() == 1);
    const kernels::PackedWeights& down = (*weights)->layers[0].ffn.down.matrix;
    CHECK((down.unpacked != nullptr) == later);
    rows[later].resize(kHidden * 32);
    const kernels::TensorView view(rows[later].data(), DType::kF32, {kHidden, 32});
    REQUIRE((*device)->ops().UnpackWeightRows(down, 0, view).ok());
  }
  CHECK(rows[0] == rows[1]);
}

TEST_CASE("what is not in memory is read, and packed at once") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  // Looking at the file's begin has the system read on for up to some MiB, as it is set. `down`
  // lies in the last 8 of 24 MiB.
  const RandomFolder folder({.ffn = 65536, .layers = 1});
  const int file = ::open(folder.weights_path().c_str(), O_RDONLY);
  REQUIRE(file >= 0);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  const bool cached = IsCached(file, 0, static_cast<int64_t>(fs::file_size(folder.weights_path())));
  ::close(file);
  if (cached) TESSERA_SKIP("the system keeps this file in memory");
  const auto down_waits = [&] {
    return Loaded(folder.path()).weights->layers[0].ffn.down.matrix.unpacked != nullptr;
  };
  CHECK(!down_waits());
  // It has been read now.
  CHECK(down_waits());
}

TEST_CASE("a file cut short before it is packed: said, and what is not packed stays") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  const RandomFolder folder({.ffn = 4096});
  const Loaded loaded(folder.path());
  REQUIRE(loaded.weights->later != nullptr);
  const kernels::PackedWeights& first = loaded.weights->layers[0].attention.qkv.matrix;
  const kernels::PackedWeights& last = loaded.weights->layers[1].ffn.down.matrix;
  const std::vector<float> rows = loaded.Rows(first);
  fs::resize_file(folder.weights_path(), fs::file_size(folder.weights_path()) / 2);
  loaded.weights->later->Start();
  const int64_t all_rows = first.spec.out_features;
  for (int i = 0; i < 10000 && first.unpacked->packed_rows < all_rows; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(first.unpacked->packed_rows == all_rows);
  CHECK(loaded.Rows(first) == rows);
  CHECK(last.unpacked->packed_rows == 0);
  CHECK(loaded.weights->later->waiting_bytes() > 0);
}

TEST_CASE("no thread to pack with: it is done before Start returns") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  const RandomFolder folder({});
  const Loaded loaded(folder.path());
  REQUIRE(loaded.weights->later != nullptr);
  const tests::NoMoreThreads none;
  loaded.weights->later->Start();
  CHECK(loaded.weights->later->waiting_bytes() == 0);
}

TEST_CASE("weights that go while they are packed stop it") {
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  const RandomFolder folder({.ffn = 32768});
  for (int round = 0; round < 10; ++round) {
    const Loaded loaded(folder.path());
    REQUIRE(loaded.weights->later != nullptr);
    loaded.weights->later->Start();
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
  }
}

// Kilobytes after `key` in /proc/self/status; -1 where the system does not tell.
int64_t Held(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1));
  }
  return -1;
}

TEST_CASE("there is one copy of the weights at any time: the file's pages go as they are packed") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  TESSERA_SKIP("a sanitizer's own memory is counted too");
#endif
  if (!Path()) TESSERA_SKIP("this processor has no path that computes with unpacked weights");
  if (Held("RssFile") < 0) TESSERA_SKIP("the system does not tell what processes hold");
  const RandomFolder folder({.ffn = 65536, .layers = 4});  // 96 MiB
  TinyModel model(folder.path(), Options(*Path(), true));
  const auto expected = model.Run({kPrompt});
  const int64_t weights_kib = model.model().weight_bytes() / 1024;
  const int64_t before = Held("VmRSS"), of_files = Held("RssFile");
  CHECK(of_files > weights_kib * 9 / 10);
  model.model().PackWeights();
  int64_t most = before;
  while (model.model().waiting_weight_bytes() > 0) most = std::max(most, Held("VmRSS"));
  CHECK(most < before + weights_kib / 2);
  CHECK(model.Run({kPrompt}) == expected);
  CHECK(Held("RssFile") < of_files - weights_kib * 3 / 4);
}

}  // namespace
}  // namespace tessera::worker
