#include "tests/worker/model/tiny_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/half_floats.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/kernels/device_under_test.h"
#include "worker/model/model_dtypes.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::TensorView;

constexpr std::string_view kGguf = ".gguf";

std::filesystem::path FolderOf(const std::string& name) {
  const bool gguf = name.ends_with(kGguf);
  return std::filesystem::path("tests/golden/models") /
         name.substr(0, name.size() - (gguf ? kGguf.size() : 0));
}

template <typename T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  for (const SafetensorsEntry& entry : file.entries()) {
    if (entry.name != name) continue;
    std::vector<T> values((entry.end - entry.begin) / sizeof(T));
    REQUIRE(file.Read(entry.begin, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  FAIL("no golden tensor " << name);
  return {};
}

std::vector<std::vector<float>> Rows(const std::vector<float>& values, size_t rows) {
  std::vector<std::vector<float>> split;
  if (rows == 0) return split;
  const size_t width = values.size() / rows;
  for (size_t i = 0; i < rows; ++i) {
    split.emplace_back(values.begin() + i * width, values.begin() + (i + 1) * width);
  }
  return split;
}

// The arrays of one step behind each other, as i32.
class StepArrays {
 public:
  // Offset of the array.
  size_t Add(const std::vector<int32_t>& values) {
    const size_t offset = all_.size();
    all_.insert(all_.end(), values.begin(), values.end());
    return offset;
  }
  const std::vector<int32_t>& all() const { return all_; }

 private:
  std::vector<int32_t> all_;
};

}  // namespace

std::filesystem::path GoldenFolder(const std::string& name) {
  const std::filesystem::path folder = FolderOf(name);
  const bool gguf = name.ends_with(kGguf) || !std::filesystem::exists(folder / "config.json");
  return gguf ? folder / "model.gguf" : folder;
}

std::vector<std::string> GoldenGgufCopies() {
  std::vector<std::string> names;
  for (const std::string& name : GoldenModels()) {
    const std::filesystem::path folder = FolderOf(name);
    if (std::filesystem::exists(folder / "model.gguf") &&
        std::filesystem::exists(folder / "config.json")) {
      names.push_back(name + std::string(kGguf));
    }
  }
  return names;
}

std::vector<std::string> GoldenModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden/models")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<GoldenRun> ReadGolden(const std::string& name) {
  const auto file = SafetensorsFile::Open(FolderOf(name) / "expected.safetensors");
  INFO(file.status().ToString());
  REQUIRE(file.ok());
  std::vector<GoldenRun> runs;
  for (const char* n : {".0", ".1"}) {
    GoldenRun run;
    run.prompt = Values<int32_t>(**file, std::string("prompt") + n);
    run.long_tokens = Values<int32_t>(**file, std::string("tokens") + n);
    run.prompt_logits =
        Rows(Values<float>(**file, std::string("prompt_logits") + n), run.prompt.size());
    const auto logits = Values<float>(**file, std::string("step_logits") + n);
    run.step_logits = Rows(logits, logits.size() / run.prompt_logits[0].size());
    REQUIRE(run.long_tokens.size() >= run.step_logits.size());
    run.tokens.assign(run.long_tokens.begin(),
                      run.long_tokens.begin() + static_cast<int64_t>(run.step_logits.size()));
    runs.push_back(std::move(run));
  }
  return runs;
}

std::vector<float> FloatsOf(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  std::vector<std::byte> bytes(static_cast<size_t>(entry.end - entry.begin));
  REQUIRE(file.Read(entry.begin, bytes).ok());
  const bool half = entry.dtype == "F16";
  REQUIRE((half || entry.dtype == "F32"));
  const size_t size = half ? 2 : 4;
  std::vector<float> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * size, size);
    values[i] = half ? kernels::ToFloat(kernels::Float16{static_cast<uint16_t>(bits)})
                     : kernels::FloatFromBits(bits);
  }
  return values;
}

v1::WorkerShare WholeShare(const v1::Model& model) {
  v1::WorkerShare share;
  share.mutable_layers()->set_end(LayerCount(model));
  for (const v1::LayerKind& kind : model.kinds()) {
    v1::LayerShare& part = *share.add_kinds();
    part.mutable_query_heads()->set_end(kind.attention().heads());
    part.mutable_kv_heads()->set_end(kind.attention().kv_heads());
    part.mutable_key_groups()->set_end(kind.delta().key_heads());
    part.mutable_ffn_columns()->set_end(kind.ffn().width());
    part.mutable_experts()->set_end(kind.ffn().experts().count());
  }
  share.mutable_vocabulary_rows()->set_end(model.vocabulary());
  share.set_holds_embedding(true);
  share.set_holds_head(true);
  return share;
}

TinyModel::TinyModel(const std::filesystem::path& folder, const TinyOptions& options)
    : block_tokens_(options.block_tokens),
      table_width_((options.context_tokens + block_tokens_ - 1) / block_tokens_) {
  constexpr int64_t kMemoryBytes = int64_t{1} << 30;
  if (options.cuda) {
    auto made = kernels::cuda::MakeCudaUnderTest(kMemoryBytes);
    INFO(made.status().message());
    REQUIRE(made.ok());
    device_ = std::move(made->device);
    check_memory_ = made->check_memory;
  } else {
    auto device = kernels::CreateCpuDevice(
        {.memory_bytes = kMemoryBytes, .isa = options.isa, .cores_shared = true});
    REQUIRE(device.ok());
    device_ = *std::move(device);
  }
  auto stream = device_->CreateStream();
  REQUIRE(stream.ok());
  stream_ = *std::move(stream);

  const auto shape = ReadModelFolder(folder.string());
  INFO(shape.status().ToString());
  REQUIRE(shape.ok());
  auto model = Model::Load({.folder = folder,
                            .model = *shape,
                            .share = WholeShare(*shape),
                            .weight_dtype = options.weight_dtype,
                            .kv_dtype = options.kv_dtype,
                            .product_dtype = options.product_dtype,
                            .pack_later = options.pack_later,
                            .limits = {.max_tokens = kMaxTokens,
                                       .max_sequences = kSequences,
                                       .max_logit_rows = options.max_logit_rows,
                                       .max_blocks_per_sequence = table_width_}},
                           *device_, nullptr);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  model_ = *std::move(model);

  const int64_t blocks = kSequences * table_width_;
  const KvBlocks cut = {blocks, 0, KeepsStates(*shape) ? kSequences + 1 : 0};
  const KvBlockBytes bytes = BlockBytesOf(*shape, WholeShare(*shape), KvElementOf(options.kv_dtype),
                                          block_tokens_, /*windows_apart=*/false);
  auto kv = device_->Allocate(BytesOf(cut, bytes));
  auto inputs = device_->Allocate((64 * kMaxTokens + kSequences * table_width_) *
                                  static_cast<int64_t>(sizeof(int32_t)));
  REQUIRE(kv.ok());
  REQUIRE(inputs.ok());
  kv_memory_ = *std::move(kv);
  inputs_ = *std::move(inputs);
  // What a block held before must not matter, not even NaN.
  const std::vector<std::byte> nan(kv_memory_.size_bytes(), std::byte{0xff});
  REQUIRE(stream_->CopyToDevice(kv_memory_.data(), nan.data(), kv_memory_.size_bytes()).ok());
  REQUIRE(stream_->Synchronize().ok());
  REQUIRE(model_->AttachKv(kv_memory_.data(), cut, block_tokens_).ok());
}

std::vector<std::vector<float>> TinyModel::Run(const std::vector<Chunk>& chunks, int64_t padding) {
  size_t rows = 0;
  for (const Chunk& chunk : chunks) rows += chunk.tokens.size();
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  return RunFor(all, chunks, padding);
}

std::vector<std::vector<float>> TinyModel::RunFor(const std::vector<int32_t>& wanted,
                                                  const std::vector<Chunk>& chunks,
                                                  int64_t padding) {
  std::vector<int32_t> ids, positions, lengths, slots, starts = {0}, contexts, seats, tables;
  const auto width = static_cast<int32_t>(table_width_);
  for (const Chunk& chunk : chunks) {
    // Block b of sequence s is b * kSequences + s, backwards on odd sequences.
    std::vector<int32_t> table(width);
    for (int32_t b = 0; b < width; ++b) {
      const int32_t place = chunk.sequence % 2 == 0 ? b : width - 1 - b;
      table[b] = place * kSequences + chunk.sequence;
    }
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      const int64_t position = chunk.first_position + static_cast<int64_t>(i);
      ids.push_back(chunk.tokens[i]);
      positions.push_back(static_cast<int32_t>(position));
      lengths.push_back(static_cast<int32_t>(std::max(chunk.prompt_tokens, position + 1)));
      slots.push_back(static_cast<int32_t>(table[position / block_tokens_] * block_tokens_ +
                                           position % block_tokens_));
    }
    starts.push_back(static_cast<int32_t>(ids.size()));
    contexts.push_back(
        static_cast<int32_t>(chunk.first_position + static_cast<int64_t>(chunk.tokens.size())));
    seats.push_back(kSequences - chunk.sequence);  // seat 0 is nobody's
    tables.insert(tables.end(), table.begin(), table.end());
  }
  const auto rows = static_cast<int64_t>(wanted.size());
  const int64_t padded = static_cast<int64_t>(ids.size()) + padding;
  ids.resize(padded, -1);
  slots.resize(padded, -1);
  positions.resize(padded, 0);
  lengths.resize(padded, 0);

  StepArrays arrays;
  const size_t offsets[] = {arrays.Add(ids),    arrays.Add(positions), arrays.Add(lengths),
                            arrays.Add(slots),  arrays.Add(starts),    arrays.Add(contexts),
                            arrays.Add(wanted), arrays.Add(tables),    arrays.Add(seats)};
  const auto bytes = static_cast<int64_t>(arrays.all().size() * sizeof(int32_t));
  REQUIRE(bytes <= inputs_.size_bytes());
  REQUIRE(stream_->CopyToDevice(inputs_.data(), arrays.all().data(), bytes).ok());
  const auto view = [&](int index, std::initializer_list<int64_t> shape) {
    return TensorView(inputs_.data() + offsets[index] * sizeof(int32_t), DType::kI32, shape);
  };
  const auto sequences = static_cast<int64_t>(chunks.size());
  const StepInputs step = {.token_ids = view(0, {padded}),
                           .positions = view(1, {padded}),
                           .rope_lengths = view(2, {padded}),
                           .slots = view(3, {padded}),
                           .query_starts = view(4, {sequences + 1}),
                           .context_lengths = view(5, {sequences}),
                           .block_tables = view(7, {sequences, width}),
                           .seats = view(8, {sequences}),
                           .logit_rows = view(6, {rows})};
  const absl::Status forward = model_->Forward(step, *stream_);
  INFO(forward.ToString());
  REQUIRE(forward.ok());
  const TensorView logits = model_->logits();
  std::vector<float> all(rows * logits.shape[1]);
  REQUIRE(stream_->CopyToHost(all.data(), logits.data, all.size() * sizeof(float)).ok());
  const absl::Status done = stream_->Synchronize();
  INFO(done.ToString());
  REQUIRE(done.ok());
  if (check_memory_ != nullptr) REQUIRE(check_memory_().message() == "");
  return Rows(all, rows);
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return difference / largest;
}

int32_t Best(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace tessera::worker
