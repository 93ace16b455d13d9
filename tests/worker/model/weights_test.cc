// What a share's ranges select is what is packed: rows of fused matrices, columns of those that
// are summed over ranks, layers, experts, vocabulary.
#include "worker/weights/weights.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/half_floats.h"
#include "proto/model/model_folder.h"
#include "tests/fakes/uniform_model.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using kernels::DType;
using Matrix = std::vector<std::vector<float>>;

// A whole tensor of a golden checkpoint, as rows.
Matrix Tensor(const std::string& model, const std::string& name) {
  const auto file = SafetensorsFile::Open(GoldenFolder(model) / "model.safetensors");
  REQUIRE(file.ok());
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    if (entry.name != name) continue;
    const std::vector<float> values = FloatsOf(**file, entry);
    const int64_t columns = entry.shape.back();
    Matrix matrix;
    for (auto row = values.begin(); row != values.end(); row += columns) {
      matrix.emplace_back(row, row + columns);
    }
    return matrix;
  }
  FAIL("no tensor " << name);
  return {};
}

Matrix Slice(const Matrix& matrix, int64_t row_begin, int64_t row_end, int64_t column_begin = 0,
             int64_t column_end = -1) {
  Matrix slice;
  for (int64_t i = row_begin; i < row_end; ++i) {
    const auto end = column_end < 0 ? matrix[i].end() : matrix[i].begin() + column_end;
    slice.emplace_back(matrix[i].begin() + column_begin, end);
  }
  return slice;
}

Matrix Below(std::initializer_list<Matrix> parts) {
  Matrix all;
  for (const Matrix& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// A loaded share of a golden model.
class Loaded {
 public:
  Loaded(const std::string& name, const std::function<void(v1::WorkerShare&)>& change,
         DType dtype = DType::kF32) {
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 26, .cores_shared = true});
    REQUIRE(device.ok());
    device_ = *std::move(device);
    const auto model = ReadModelFolder(GoldenFolder(name).string());
    REQUIRE(model.ok());
    ModelOptions options = {
        .folder = GoldenFolder(name), .model = *model, .share = WholeShare(*model), .limits = {}};
    options.weight_dtype = dtype;
    change(options.share);
    auto weights = LoadWeights(options, *device_, [this](int64_t done, int64_t total) {
      CHECK(done > done_bytes);
      done_bytes = done;
      total_bytes = total;
    });
    INFO(weights.status().ToString());
    REQUIRE(weights.ok());
    weights_ = *std::move(weights);
  }

  const ModelWeights& operator*() const { return *weights_; }
  const ModelWeights* operator->() const { return weights_.get(); }

  Matrix Unpack(const kernels::PackedWeights& packed) const {
    const int64_t rows = packed.spec.out_features, columns = packed.spec.in_features;
    std::vector<float> flat(rows * columns);
    const kernels::TensorView view(flat.data(), DType::kF32, {rows, columns});
    REQUIRE(device_->ops().UnpackWeightRows(packed, 0, view).ok());
    Matrix matrix;
    for (int64_t i = 0; i < rows; ++i) {
      matrix.emplace_back(flat.begin() + i * columns, flat.begin() + (i + 1) * columns);
    }
    return matrix;
  }

  int64_t done_bytes = 0;
  int64_t total_bytes = -1;

 private:
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<ModelWeights> weights_;
};

Matrix Plain(const kernels::TensorView& view) {
  Matrix matrix;
  const int64_t rows = view.rank == 1 ? 1 : view.rows();
  const int64_t columns = view.rank == 1 ? view.rows() : view.shape[1];
  const auto at = [&view](int64_t i) {
    if (view.dtype == DType::kF16) return kernels::ToFloat(view.As<kernels::Float16>()[i]);
    return view.As<float>()[i];
  };
  for (int64_t i = 0; i < rows; ++i) {
    matrix.emplace_back();
    for (int64_t j = 0; j < columns; ++j) matrix.back().push_back(at(i * columns + j));
  }
  return matrix;
}

void SetRange(v1::Range* range, int64_t begin, int64_t end) {
  range->set_begin(begin);
  range->set_end(end);
}

}  // namespace

TEST_CASE("the second of two ranks: heads 2 and 3, the one kv head, half of the columns") {
  const std::string name = "llama_bias_wide_heads";  // head_dim 16, 4 heads, 1 kv head, ffn 48
  const Loaded weights(name, [](v1::WorkerShare& share) {
    SetRange(tests::PartOf(share).mutable_query_heads(), 2, 4);
    SetRange(tests::PartOf(share).mutable_ffn_columns(), 24, 48);
    SetRange(share.mutable_vocabulary_rows(), 40, 96);
  });
  CHECK(weights.done_bytes == weights.total_bytes);
  const std::string layer = "model.layers.1.";
  const AttentionWeights& attention = weights->layers[1].attention;
  CHECK(weights.Unpack(attention.qkv.matrix) ==
        Below({Slice(Tensor(name, layer + "self_attn.q_proj.weight"), 32, 64),
               Tensor(name, layer + "self_attn.k_proj.weight"),
               Tensor(name, layer + "self_attn.v_proj.weight")}));
  std::vector<float> bias = Slice(Tensor(name, layer + "self_attn.q_proj.bias"), 0, 1, 32, 64)[0];
  for (const char* part : {"k", "v"}) {
    const auto more = Tensor(name, layer + "self_attn." + part + "_proj.bias")[0];
    bias.insert(bias.end(), more.begin(), more.end());
  }
  CHECK(Plain(attention.qkv.bias)[0] == bias);
  CHECK(weights.Unpack(attention.output.matrix) ==
        Slice(Tensor(name, layer + "self_attn.o_proj.weight"), 0, 32, 32, 64));
  CHECK(attention.output.bias.empty());  // the first rank adds it

  const FfnWeights& ffn = weights->layers[1].ffn;
  CHECK(weights.Unpack(ffn.up.matrix) ==
        Below({Slice(Tensor(name, layer + "mlp.gate_proj.weight"), 24, 48),
               Slice(Tensor(name, layer + "mlp.up_proj.weight"), 24, 48)}));
  CHECK(weights.Unpack(ffn.down.matrix) ==
        Slice(Tensor(name, layer + "mlp.down_proj.weight"), 0, 32, 24, 48));
  CHECK(ffn.down.bias.empty());
  CHECK(Plain(weights->embedding) == Slice(Tensor(name, "model.embed_tokens.weight"), 40, 96));
  CHECK(weights.Unpack(weights->head.matrix) == Slice(Tensor(name, "lm_head.weight"), 40, 96));
}

TEST_CASE("a middle stage: its layers, no embedding, no head") {
  const std::string name = "qwen3_moe";  // layer 3 has experts, 0 to 2 are dense
  const Loaded weights(name, [](v1::WorkerShare& share) {
    SetRange(share.mutable_layers(), 2, 4);
    SetRange(share.mutable_kinds(1)->mutable_experts(), 1, 3);
    share.set_holds_embedding(false);
    share.set_holds_head(false);
  });
  CHECK(weights->embedding.empty());
  CHECK(weights->head.matrix.data == nullptr);
  CHECK(weights->final_norm.weight.empty());
  REQUIRE(weights->layers.size() == 2);
  CHECK_FALSE(weights->layers[0].ffn.has_experts());
  const FfnWeights& ffn = weights->layers[1].ffn;
  REQUIRE(ffn.expert_up.size() == 2);
  const std::string expert = "model.layers.3.mlp.experts.2.";
  CHECK(weights.Unpack(ffn.expert_up[1]) == Below({Tensor(name, expert + "gate_proj.weight"),
                                                   Tensor(name, expert + "up_proj.weight")}));
  CHECK(weights.Unpack(ffn.expert_down[1]) == Tensor(name, expert + "down_proj.weight"));
  CHECK(weights.Unpack(ffn.router) == Tensor(name, "model.layers.3.mlp.gate.weight"));
  CHECK(Plain(weights->layers[1].attention.k_norm) ==
        Tensor(name, "model.layers.3.self_attn.k_norm.weight"));
}

TEST_CASE("a tied head is the embedding; beside int8 the table stays, as bfloat16") {
  const std::string name = "llama_tied_v4";
  const Loaded exact(name, [](v1::WorkerShare&) {});
  CHECK(exact.Unpack(exact->head.matrix) == Tensor(name, "model.embed_tokens.weight"));
  CHECK(exact->embedding.empty());  // looked up in the head, which keeps every bit
  const Loaded small(
      name, [](v1::WorkerShare&) {}, DType::kI8);
  CHECK(small->embedding.dtype == DType::kBF16);
  CHECK(small->memory.size_bytes() < exact->memory.size_bytes() / 2);
}

TEST_CASE("a share that is no part of the model is refused") {
  const auto model = ReadModelFolder(GoldenFolder("llama").string());
  REQUIRE(model.ok());
  const auto error = [&](const std::function<void(v1::WorkerShare&)>& change) {
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 26, .cores_shared = true});
    REQUIRE(device.ok());
    ModelOptions options = {.folder = GoldenFolder("llama"),
                            .model = *model,
                            .share = WholeShare(*model),
                            .limits = {}};
    options.weight_dtype = DType::kF32;
    change(options.share);
    const auto weights = LoadWeights(options, **device, nullptr);
    REQUIRE_FALSE(weights.ok());
    return std::string(weights.status().message());
  };
  CHECK_THAT(error([](auto& s) { SetRange(s.mutable_layers(), 1, 3); }),
             Contains("layers [1, 3) is no part of the model's [0, 2)"));
  CHECK_THAT(error([](auto& s) { SetRange(s.mutable_layers(), 1, 1); }), Contains("layers [1, 1)"));
  CHECK_THAT(error([](auto& s) { SetRange(s.mutable_vocabulary_rows(), -1, 3); }),
             Contains("vocabulary rows"));
  CHECK_THAT(error([](auto& s) { SetRange(tests::PartOf(s).mutable_query_heads(), 0, 2); }),
             Contains("query heads [0, 2) read kv heads [0, 1)"));
  CHECK_THAT(error([](auto& s) { SetRange(tests::PartOf(s).mutable_query_heads(), 1, 4); }),
             Contains("query heads [1, 4)"));
}

TEST_CASE("memory that is not there is refused before anything is read") {
  auto device = kernels::CreateCpuDevice({.memory_bytes = 4096, .cores_shared = true});
  REQUIRE(device.ok());
  const auto model = ReadModelFolder(GoldenFolder("llama").string());
  ModelOptions options = {
      .folder = GoldenFolder("llama"), .model = *model, .share = WholeShare(*model), .limits = {}};
  options.weight_dtype = DType::kF32;
  bool read = false;
  const auto weights = LoadWeights(options, **device, [&](int64_t, int64_t) { read = true; });
  CHECK(weights.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_FALSE(read);
}

}  // namespace tessera::worker
