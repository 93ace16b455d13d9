// A worker reads only its slices, and holds little beside them: the system counts the bytes that a
// process reads, and those that it holds.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "tests/catch_skip.h"
#include "tests/fakes/uniform_model.h"
#include "tests/no_more_threads.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/weights/checkpoint.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLayers = 2, kHidden = 128, kHeads = 8, kKvHeads = 4, kHeadDim = 256;
constexpr int64_t kFfn = 4096, kVocabulary = 1024;
constexpr int64_t kNumberBytes = 4;

struct TensorShape {
  std::string name;
  int64_t rows;
  int64_t columns;
};

std::vector<TensorShape> Tensors(int64_t ffn) {
  std::vector<TensorShape> tensors = {{"model.embed_tokens", kVocabulary, kHidden},
                                      {"lm_head", kVocabulary, kHidden}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "self_attn.q_proj", kHeads * kHeadDim, kHidden});
    tensors.push_back({prefix + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden});
    tensors.push_back({prefix + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden});
    tensors.push_back({prefix + "self_attn.o_proj", kHidden, kHeads * kHeadDim});
    tensors.push_back({prefix + "mlp.gate_proj", ffn, kHidden});
    tensors.push_back({prefix + "mlp.up_proj", ffn, kHidden});
    tensors.push_back({prefix + "mlp.down_proj", kHidden, ffn});
  }
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "input_layernorm", 1, kHidden});
    tensors.push_back({prefix + "post_attention_layernorm", 1, kHidden});
  }
  tensors.push_back({"model.norm", 1, kHidden});
  return tensors;
}

// A checkpoint of zeros, which takes no room on the disk.
class SparseCheckpoint {
 public:
  explicit SparseCheckpoint(int64_t ffn = kFfn) {
    std::string header = "{";
    int64_t at = 0;
    for (const TensorShape& tensor : Tensors(ffn)) {
      const int64_t end = at + tensor.rows * tensor.columns * kNumberBytes;
      const std::string rows = tensor.rows == 1 ? "" : std::to_string(tensor.rows) + ",";
      header += "\"" + tensor.name + ".weight\":{\"dtype\":\"F32\",\"shape\":[" + rows +
                std::to_string(tensor.columns) + "],\"data_offsets\":[" + std::to_string(at) + "," +
                std::to_string(end) + "]},";
      at = end;
    }
    header.back() = '}';
    const uint64_t header_bytes = header.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << header;
    file.close();
    fs::resize_file(folder_ / "model.safetensors", 8 + header_bytes + at);
  }

  const fs::path& folder() const { return folder_; }

 private:
  const tests::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

v1::Model Shape(int64_t ffn = kFfn) {
  v1::Model model;
  model.set_architecture("LlamaForCausalLM");
  tests::SetLayers({.layers = kLayers,
                    .heads = kHeads,
                    .kv_heads = kKvHeads,
                    .head_dim = kHeadDim,
                    .ffn_width = static_cast<int>(ffn),
                    .gated = true},
                   &model);
  model.set_hidden(kHidden);
  model.set_embedding_width(kHidden);
  model.set_vocabulary(kVocabulary);
  model.set_norm(v1::NORM_KIND_RMS);
  tests::FfnOf(model).set_activation(v1::ACTIVATION_KIND_SILU);
  return model;
}

// Rows and columns of each tensor that a share needs, as the plan's vocabulary defines them;
// absent: none. Written down without looking at worker/model/weights.cc.
struct Needed {
  int64_t row_begin, row_end, column_begin, column_end;
};

std::map<std::string, Needed> NeedsOf(const v1::WorkerShare& share) {
  std::map<std::string, Needed> needs;
  const auto& vocabulary = share.vocabulary_rows();
  const Needed rows_of_vocabulary = {vocabulary.begin(), vocabulary.end(), 0, kHidden};
  if (share.holds_embedding()) needs["model.embed_tokens"] = rows_of_vocabulary;
  if (share.holds_head()) {
    needs["lm_head"] = rows_of_vocabulary;
    needs["model.norm"] = {0, 1, 0, kHidden};
  }
  const auto rows = [](const v1::Range& range, int64_t each) -> Needed {
    return {range.begin() * each, range.end() * each, 0, kHidden};
  };
  const auto columns = [](const v1::Range& range, int64_t each) -> Needed {
    return {0, kHidden, range.begin() * each, range.end() * each};
  };
  for (int64_t layer = share.layers().begin(); layer < share.layers().end(); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    needs[prefix + "input_layernorm"] = {0, 1, 0, kHidden};
    needs[prefix + "post_attention_layernorm"] = {0, 1, 0, kHidden};
    needs[prefix + "self_attn.q_proj"] = rows(share.kinds(0).query_heads(), kHeadDim);
    needs[prefix + "self_attn.k_proj"] = rows(share.kinds(0).kv_heads(), kHeadDim);
    needs[prefix + "self_attn.v_proj"] = rows(share.kinds(0).kv_heads(), kHeadDim);
    needs[prefix + "self_attn.o_proj"] = columns(share.kinds(0).query_heads(), kHeadDim);
    needs[prefix + "mlp.gate_proj"] = rows(share.kinds(0).ffn_columns(), 1);
    needs[prefix + "mlp.up_proj"] = rows(share.kinds(0).ffn_columns(), 1);
    needs[prefix + "mlp.down_proj"] = columns(share.kinds(0).ffn_columns(), 1);
  }
  return needs;
}

int64_t BytesOf(const v1::WorkerShare& share) {
  int64_t numbers = 0;
  for (const auto& [name, part] : NeedsOf(share)) {
    numbers += (part.row_end - part.row_begin) * (part.column_end - part.column_begin);
  }
  return numbers * kNumberBytes;
}

// Bytes that this process has read so far, -1 where the system does not count them.
int64_t ReadSoFar() {
  std::ifstream file("/proc/self/io");
  std::string key;
  int64_t bytes = -1;
  return file >> key >> bytes && key == "rchar:" ? bytes : -1;
}

// The most memory that this process has held so far, -1 where the system does not tell.
int64_t PeakSoFar() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

// What `measure` says in a process of its own, where no test has run before.
int64_t InItsOwnProcess(const std::function<int64_t()>& measure) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int64_t measured = measure();
    ::_exit(::write(ends[1], &measured, sizeof(measured)) == sizeof(measured) ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t measured = -1;
  const bool told = ::read(ends[0], &measured, sizeof(measured)) == sizeof(measured);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CAPTURE(status);
  REQUIRE(told);
  return measured;
}

// What `so_far` counts while a share is loaded, and the bytes that the weights then take.
struct Spent {
  int64_t counted = std::numeric_limits<int64_t>::min() / 2;  // where loading failed
  int64_t weight_bytes = 0;
};
Spent SpentOnLoading(const fs::path& folder, const ModelOptions& options, int64_t (*so_far)()) {
  const auto checkpoint = Checkpoint::Open(folder);
  auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 29, .cores_shared = true});
  if (!checkpoint.ok() || !device.ok()) return {};
  const int64_t before = so_far();
  const auto loaded = LoadWeights(options, **checkpoint, **device, nullptr);
  if (!loaded.ok()) return {};
  return {.counted = so_far() - before, .weight_bytes = (*loaded)->memory.size_bytes()};
}

// Bytes that loading `share` reads beyond what `given` needs: a test that ran before may have read
// something lazily.
int64_t ReadBeyond(const fs::path& folder, const v1::WorkerShare& given,
                   const v1::WorkerShare& share) {
  ModelOptions options;
  options.model = Shape();
  options.share = share;
  options.weight_dtype = kernels::DType::kF32;
  return InItsOwnProcess(
      [&] { return SpentOnLoading(folder, options, &ReadSoFar).counted - BytesOf(given); });
}

// Reading the count is counted too.
constexpr int64_t kOfTheCount = 256;

void CheckReadsItsOwn(const fs::path& folder, const v1::WorkerShare& share) {
  const int64_t beyond = ReadBeyond(folder, share, share);
  CHECK(beyond >= 0);
  CHECK(beyond < kOfTheCount);
}

v1::WorkerShare SecondHalfOfHeads() {
  v1::WorkerShare share = WholeShare(Shape());
  share.mutable_layers()->set_begin(1);
  tests::PartOf(share).mutable_query_heads()->set_begin(kHeads / 2);
  tests::PartOf(share).mutable_kv_heads()->set_begin(kKvHeads / 2);
  tests::PartOf(share).mutable_ffn_columns()->set_begin(kFfn / 2);
  share.mutable_vocabulary_rows()->set_begin(kVocabulary / 2);
  share.set_holds_embedding(false);
  return share;
}

TEST_CASE("a stage does not read the layers of another") {
  if (ReadSoFar() < 0) TESSERA_SKIP("the system does not count what processes read");
  const SparseCheckpoint checkpoint;
  v1::WorkerShare first = WholeShare(Shape()), second = first;
  first.mutable_layers()->set_end(1);
  first.set_holds_head(false);
  second.mutable_layers()->set_begin(1);
  second.set_holds_embedding(false);
  CheckReadsItsOwn(checkpoint.folder(), first);
  CheckReadsItsOwn(checkpoint.folder(), second);
  CHECK(BytesOf(first) < BytesOf(WholeShare(Shape())) * 51 / 100);
}

TEST_CASE("a rank does not read the heads, columns and vocabulary rows of another") {
  if (ReadSoFar() < 0) TESSERA_SKIP("the system does not count what processes read");
  const SparseCheckpoint checkpoint;
  CheckReadsItsOwn(checkpoint.folder(), SecondHalfOfHeads());
  CHECK(BytesOf(SecondHalfOfHeads()) < BytesOf(WholeShare(Shape())) * 26 / 100);
}

TEST_CASE("a checkpoint that is cut short while it is read: the first tensor missing is told") {
  const SparseCheckpoint files;
  const auto checkpoint = Checkpoint::Open(files.folder());
  auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 28, .cores_shared = true});
  REQUIRE(checkpoint.ok());
  REQUIRE(device.ok());
  const fs::path file = files.folder() / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) / 2);
  ModelOptions options;
  options.model = Shape();
  options.share = WholeShare(Shape());
  options.weight_dtype = kernels::DType::kF32;
  for (int round = 0; round < 8; ++round) {
    const auto loaded = LoadWeights(options, **checkpoint, **device, nullptr);
    REQUIRE_FALSE(loaded.ok());
    // The norms stand behind all matrices of the file.
    CHECK_THAT(std::string(loaded.status().message()),
               Catch::Contains("tensor 'model.layers.0.input_layernorm.weight'") &&
                   Catch::Contains("it was cut short"));
  }
}

// A CPU device on a machine of many cores, where something happens before or after its stream is
// made: that is when its memory is there and no thread reads yet.
class ManyCores : public kernels::Device {
 public:
  explicit ManyCores(kernels::Device* device) : device_(device) {}
  std::function<void()> before_stream, after_stream;

  std::string Describe() const override { return device_->Describe(); }
  int64_t memory_bytes() const override { return device_->memory_bytes(); }
  int host_threads() const override { return 64; }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t size_bytes) override {
    return device_->Allocate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Stream>> CreateStream() override {
    if (before_stream) before_stream();
    auto stream = device_->CreateStream();
    if (after_stream) after_stream();
    return stream;
  }
  kernels::Ops& ops() override { return device_->ops(); }

 private:
  void Free(std::byte*, int64_t) override {}  // buffers are the device's own
  kernels::Device* const device_;
};

// Weights of a checkpoint, loaded by the threads of many cores.
struct ManyCoresLoad {
  explicit ManyCoresLoad(int64_t ffn = kFfn) : files(ffn) {
    REQUIRE(checkpoint.ok());
    REQUIRE(device.ok());
    options.model = Shape(ffn);
    options.share = WholeShare(options.model);
  }
  auto Run(const std::function<void(int64_t, int64_t)>& progress) {
    return LoadWeights(options, **checkpoint, many, progress);
  }

  const SparseCheckpoint files;
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(files.folder());
  const absl::StatusOr<std::unique_ptr<kernels::Device>> device =
      kernels::CreateCpuDevice({.memory_bytes = 1 << 28, .cores_shared = true});
  ManyCores many{device.ok() ? device->get() : nullptr};
  ModelOptions options;
};

TEST_CASE("wide rows on many cores: what all threads read into together stays small") {
  constexpr int64_t kWide = 65536;  // 64 rows of 256 KiB are a thread's part: 4 of them are 64 MiB
  ManyCoresLoad load(kWide);
  load.options.weight_dtype = kernels::DType::kI8;
  std::set<std::thread::id> threads;
  const auto loaded =
      load.Run([&](int64_t, int64_t) { threads.insert(std::this_thread::get_id()); });
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  CHECK(threads.size() <= 4);
}

TEST_CASE("no more threads: those there are read all weights") {
  std::optional<tests::NoMoreThreads> none;
  ManyCoresLoad load;
  load.many.after_stream = [&] { none.emplace(); };
  int64_t done_bytes = 0, total_bytes = -1;
  const auto loaded = load.Run([&](int64_t done, int64_t total) {
    done_bytes = done;
    total_bytes = total;
  });
  INFO(loaded.status().ToString());
  REQUIRE(none);
  REQUIRE(loaded.ok());
  CHECK(done_bytes == total_bytes);
}

TEST_CASE("no thread for the copies: an error with its reason, and the memory is free again") {
  std::optional<tests::NoMoreThreads> none;
  ManyCoresLoad load;
  load.many.before_stream = [&] { none.emplace(); };
  const auto loaded = load.Run(nullptr);
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(loaded.status().message()),
             Catch::Contains("cannot start its thread") && Catch::Contains("unavailable"));
  CHECK((*load.device)->Allocate((*load.device)->memory_bytes()).ok());
}

TEST_CASE("no memory to read into: the tensor and the bytes are told, whichever thread it is") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  TESSERA_SKIP("a sanitizer's own addresses are limited too");
#endif
  // 64 MiB are read at once: more than the allocator keeps of what tests before have freed.
  constexpr int64_t kWide = 262144;
  const SparseCheckpoint files(kWide);
  const int64_t told = InItsOwnProcess([&]() -> int64_t {
    const auto checkpoint = Checkpoint::Open(files.folder());
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 29, .cores_shared = true});
    if (!checkpoint.ok() || !device.ok()) return -1;
    ManyCores many(device->get());
    many.after_stream = [] {
      int64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t bytes = pages * ::sysconf(_SC_PAGESIZE) + (int64_t{12} << 20);  // a stack or two
      const rlimit limit = {bytes, bytes};
      ::setrlimit(RLIMIT_AS, &limit);
    };
    ModelOptions options;
    options.model = Shape(kWide);
    options.share = WholeShare(options.model);
    options.weight_dtype = kernels::DType::kI8;
    const auto loaded = LoadWeights(options, **checkpoint, many, nullptr);
    const std::string text(loaded.status().message());
    return loaded.status().code() == absl::StatusCode::kResourceExhausted &&
           text.find("tensor 'model.") != text.npos &&
           text.find("no memory to read 67108864 bytes into") != text.npos;
  });
  CHECK(told == 1);
}

TEST_CASE("loading holds one copy of the weights, and not the file's beside it") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  TESSERA_SKIP("a sanitizer's own memory is counted too");
#endif
  if (PeakSoFar() < 0) TESSERA_SKIP("the system does not tell what processes hold");
  constexpr int64_t kWide = 65536;
  const SparseCheckpoint files(kWide);
  const auto file_bytes = static_cast<int64_t>(fs::file_size(files.folder() / "model.safetensors"));
  for (const kernels::DType dtype : {kernels::DType::kI8, kernels::DType::kBF16}) {
    ModelOptions options;
    options.model = Shape(kWide);
    options.share = WholeShare(options.model);
    options.weight_dtype = dtype;
    const int64_t beyond = InItsOwnProcess([&] {
      const Spent spent = SpentOnLoading(files.folder(), options, &PeakSoFar);
      return spent.counted - spent.weight_bytes;
    });
    CAPTURE(kernels::Name(dtype), beyond, file_bytes);
    constexpr int64_t kBeside = int64_t{80} << 20;  // what all threads read into, and some pages
    CHECK(beyond < kBeside);
    CHECK(beyond > -(int64_t{16} << 20));  // the weights themselves are in what was counted
    CHECK(file_bytes > 2 * kBeside);
  }
}

TEST_CASE("whoever reads more than that is found out") {
  if (ReadSoFar() < 0) TESSERA_SKIP("the system does not count what processes read");
  const SparseCheckpoint checkpoint;
  const v1::WorkerShare share = SecondHalfOfHeads();
  v1::WorkerShare more = share;
  more.mutable_vocabulary_rows()->set_begin(kVocabulary / 2 - 1);
  CHECK(ReadBeyond(checkpoint.folder(), share, more) >= kOfTheCount);
  more = share;
  tests::PartOf(more).mutable_ffn_columns()->set_begin(kFfn / 2 - 1);
  CHECK(ReadBeyond(checkpoint.folder(), share, more) >= kOfTheCount);
}

}  // namespace
}  // namespace tessera::worker
