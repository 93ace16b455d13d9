// A worker reads only its slices: pages of the checkpoint that hold nothing of its share are made
// inaccessible before it loads, so that a single byte read from one of them ends the process.
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "tests/temporary_folder.h"
#include "tests/worker/tiny_model.h"
#include "worker/checkpoint.h"
#include "worker/weights.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

// Wide enough that half a row of every matrix whose columns are shared out is a page at least.
constexpr int64_t kLayers = 2, kHidden = 128, kHeads = 8, kKvHeads = 4, kHeadDim = 256;
constexpr int64_t kFfn = 4096, kVocabulary = 1024;
constexpr int64_t kNumberBytes = 4;

struct TensorShape {
  std::string name;
  int64_t rows;
  int64_t columns;
};

// Matrices first, in whole pages; the small norms share the last ones.
std::vector<TensorShape> Tensors() {
  std::vector<TensorShape> tensors = {{"model.embed_tokens", kVocabulary, kHidden},
                                      {"lm_head", kVocabulary, kHidden}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({prefix + "self_attn.q_proj", kHeads * kHeadDim, kHidden});
    tensors.push_back({prefix + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden});
    tensors.push_back({prefix + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden});
    tensors.push_back({prefix + "self_attn.o_proj", kHidden, kHeads * kHeadDim});
    tensors.push_back({prefix + "mlp.gate_proj", kFfn, kHidden});
    tensors.push_back({prefix + "mlp.up_proj", kFfn, kHidden});
    tensors.push_back({prefix + "mlp.down_proj", kHidden, kFfn});
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
  SparseCheckpoint() {
    std::string header = "{";
    int64_t at = 0;
    for (const TensorShape& tensor : Tensors()) {
      const int64_t end = at + tensor.rows * tensor.columns * kNumberBytes;
      const std::string rows = tensor.rows == 1 ? "" : std::to_string(tensor.rows) + ",";
      header += "\"" + tensor.name + ".weight\":{\"dtype\":\"F32\",\"shape\":[" + rows +
                std::to_string(tensor.columns) + "],\"data_offsets\":[" + std::to_string(at) + "," +
                std::to_string(end) + "]},";
      at = end;
    }
    header.back() = '}';
    // Tensors begin with a page.
    const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
    header.resize((header.size() + 8 + page_bytes - 1) / page_bytes * page_bytes - 8, ' ');
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

v1::Model Shape() {
  v1::Model model;
  model.set_architecture("LlamaForCausalLM");
  model.set_layers(kLayers);
  model.set_hidden(kHidden);
  model.set_embedding_width(kHidden);
  model.set_heads(kHeads);
  model.set_kv_heads(kKvHeads);
  model.set_head_dim(kHeadDim);
  model.set_ffn_width(kFfn);
  model.set_gated_ffn(true);
  model.set_vocabulary(kVocabulary);
  model.set_norm(v1::NORM_KIND_RMS);
  model.set_activation(v1::ACTIVATION_KIND_SILU);
  return model;
}

// Rows and columns of each tensor that a share needs, as the plan's vocabulary defines them;
// absent: none. Written down without looking at worker/weights.cc.
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
    needs[prefix + "self_attn.q_proj"] = rows(share.query_heads(), kHeadDim);
    needs[prefix + "self_attn.k_proj"] = rows(share.kv_heads(), kHeadDim);
    needs[prefix + "self_attn.v_proj"] = rows(share.kv_heads(), kHeadDim);
    needs[prefix + "self_attn.o_proj"] = columns(share.query_heads(), kHeadDim);
    needs[prefix + "mlp.gate_proj"] = rows(share.ffn_columns(), 1);
    needs[prefix + "mlp.up_proj"] = rows(share.ffn_columns(), 1);
    needs[prefix + "mlp.down_proj"] = columns(share.ffn_columns(), 1);
  }
  return needs;
}

// Takes the access to every page that holds no needed byte. Returns the share of pages it took.
double TakeAway(const Checkpoint& checkpoint, const v1::WorkerShare& share) {
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  const std::map<std::string, Needed> needs = NeedsOf(share);
  const SafetensorsFile* file = nullptr;
  std::vector<bool> needed;
  const auto mark = [&](int64_t begin, int64_t end) {
    needed.resize(std::max<size_t>(needed.size(), (end + page_bytes - 1) / page_bytes), false);
    for (int64_t page = begin / page_bytes; page * page_bytes < end; ++page) needed[page] = true;
  };
  int64_t file_bytes = 0;
  for (const TensorShape& tensor : Tensors()) {
    std::vector<int64_t> shape = {tensor.rows, tensor.columns};
    if (tensor.rows == 1) shape = {tensor.columns};
    const auto found = checkpoint.Find(tensor.name + ".weight", shape);
    if (!found.ok()) return -1;
    file = found->file;
    file_bytes = std::max(file_bytes, found->entry->end);
    if (needed.empty()) mark(0, found->entry->begin);  // the header
    const auto need = needs.find(tensor.name);
    if (need == needs.end()) continue;
    const Needed& part = need->second;
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t at = found->entry->begin + row * tensor.columns * kNumberBytes;
      mark(at + part.column_begin * kNumberBytes, at + part.column_end * kNumberBytes);
    }
  }
  needed.resize((file_bytes + page_bytes - 1) / page_bytes, false);
  int64_t taken = 0;
  for (size_t page = 0; page < needed.size(); ++page) {
    if (needed[page]) continue;
    auto* address = const_cast<std::byte*>(file->data()) + static_cast<int64_t>(page) * page_bytes;
    if (::mprotect(address, static_cast<size_t>(page_bytes), PROT_NONE) != 0) return -1;
    ++taken;
  }
  return static_cast<double>(taken) / static_cast<double>(needed.size());
}

// Loads `loaded` in a process of its own, of a checkpoint of which only what `given` needs can be
// read. True if it lived.
bool Loads(const fs::path& folder, const v1::WorkerShare& given, const v1::WorkerShare& loaded,
           double least_taken) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto checkpoint = Checkpoint::Open(folder);
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 28, .cores_shared = true});
    if (!checkpoint.ok() || !device.ok()) ::_exit(2);
    if (TakeAway(**checkpoint, given) < least_taken) ::_exit(3);
    ModelOptions options;
    options.model = Shape();
    options.share = loaded;
    options.weight_dtype = kernels::DType::kF32;
    ::_exit(LoadWeights(options, **checkpoint, **device, nullptr).ok() ? 0 : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CAPTURE(status, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  if (WIFEXITED(status)) {
    // Neither the test's own mistakes nor an error of the loader count as reading too much.
    CHECK((WEXITSTATUS(status) < 2 || WEXITSTATUS(status) > 4));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

v1::WorkerShare SecondHalfOfHeads() {
  v1::WorkerShare share = WholeShare(Shape());
  share.mutable_layers()->set_begin(1);
  share.mutable_query_heads()->set_begin(kHeads / 2);
  share.mutable_kv_heads()->set_begin(kKvHeads / 2);
  share.mutable_ffn_columns()->set_begin(kFfn / 2);
  share.mutable_vocabulary_rows()->set_begin(kVocabulary / 2);
  share.set_holds_embedding(false);
  return share;
}

TEST_CASE("a stage does not touch the layers of another") {
  const SparseCheckpoint checkpoint;
  v1::WorkerShare first = WholeShare(Shape()), second = first;
  first.mutable_layers()->set_end(1);
  first.set_holds_head(false);
  second.mutable_layers()->set_begin(1);
  second.set_holds_embedding(false);
  CHECK(Loads(checkpoint.folder(), first, first, 0.49));
  CHECK(Loads(checkpoint.folder(), second, second, 0.49));
}

TEST_CASE("a rank does not touch the heads, columns and vocabulary rows of another") {
  const SparseCheckpoint checkpoint;
  CHECK(Loads(checkpoint.folder(), SecondHalfOfHeads(), SecondHalfOfHeads(), 0.74));
}

TEST_CASE("whoever reads more than that is found out") {
  const SparseCheckpoint checkpoint;
  const v1::WorkerShare share = SecondHalfOfHeads();
  v1::WorkerShare more = share;
  more.mutable_vocabulary_rows()->set_begin(kVocabulary / 2 - 8);  // a page
  CHECK_FALSE(Loads(checkpoint.folder(), share, more, 0.74));
  more = share;
  more.mutable_ffn_columns()->set_begin(kFfn / 2 - 1);  // a column of down
  CHECK_FALSE(Loads(checkpoint.folder(), share, more, 0.74));
}

}  // namespace
}  // namespace tessera::worker
