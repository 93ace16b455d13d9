// What does not fit is refused by name, before anything is enqueued.
#include <catch2/catch.hpp>
#include <string>

#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

float memory[4096];

TensorView F32(std::initializer_list<int64_t> shape) {
  return TensorView(memory, DType::kF32, shape);
}
TensorView Bf16(std::initializer_list<int64_t> shape) {
  return TensorView(memory, DType::kBF16, shape);
}
TensorView I32(std::initializer_list<int64_t> shape) {
  return TensorView(memory + 2048, DType::kI32, shape);
}
TensorView Elsewhere(TensorView view) {
  view.data += 4096;
  return view;
}

void CheckRefused(const absl::Status& status, const std::string& op, const std::string& tensor) {
  INFO(status.message());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  CHECK(message.find(op + ": " + tensor) == 0);
}

TEST_CASE("row ops refuse what does not fit") {
  Ops& ops = Reference().ops();
  Stream& stream = Reference().stream();
  CheckRefused(
      ops.Embedding({.out = F32({2, 8}), .table = Elsewhere(F32({4, 9})), .ids = I32({2})}, stream),
      "Embedding", "table");
  CheckRefused(
      ops.Embedding({.out = F32({2, 8}), .table = Elsewhere(F32({4, 8})), .ids = I32({3})}, stream),
      "Embedding", "ids");
  PackedWeights packed;
  packed.spec = {.in_features = 9, .out_features = 4};
  CheckRefused(ops.Embedding({.out = F32({2, 8}), .packed = &packed, .ids = I32({2})}, stream),
               "Embedding", "out");
  CheckRefused(ops.Embedding({.out = F32({2, 9}), .packed = &packed, .ids = I32({2})}, stream),
               "Embedding", "packed");
  CheckRefused(ops.RmsNorm({.out = Bf16({2, 8}), .in = F32({2, 8}), .weight = F32({8})}, stream),
               "RmsNorm", "out");
  CheckRefused(
      ops.LayerNorm({.out = F32({2, 8}), .in = F32({2, 8}), .weight = F32({8}), .bias = F32({7})},
                    stream),
      "LayerNorm", "bias");
  CheckRefused(
      ops.RmsNorm({.out = F32({2, 8}), .in = F32({2, 8}), .weight = F32({8}), .bias = F32({8})},
                  stream),
      "RmsNorm", "bias");
  CheckRefused(
      ops.RmsNorm({.out = F32({2, 3, 8}), .in = F32({2, 3, 8}), .weight = F32({2, 8})}, stream),
      "RmsNorm", "weight");
  CheckRefused(
      ops.RmsNorm(
          {.out = F32({2, 8}), .in = F32({2, 8}), .weight = F32({8}), .squares = F32({2, 1})},
          stream),
      "RmsNorm", "whole_width");
  CheckRefused(ops.LayerNorm({.out = F32({2, 8}),
                              .in = F32({2, 8}),
                              .weight = F32({8}),
                              .squares = F32({2, 1}),
                              .whole_width = 16},
                             stream),
               "LayerNorm", "squares");
  CheckRefused(ops.SumSquares({.out = F32({3, 1}), .in = F32({2, 8})}, stream), "SumSquares",
               "out");
  CheckRefused(ops.Scale({.rows = F32({2, 8}), .positions = I32({3})}, stream), "Scale",
               "positions");
  CheckRefused(ops.Scale({.rows = F32({2, 8}), .soft_cap = -1}, stream), "Scale", "soft_cap");
  CheckRefused(ops.Scale({.rows = F32({2, 8}), .limit = -1}, stream), "Scale", "limit");
  CheckRefused(ops.GatherRows({.out = F32({2, 8}), .in = F32({4, 8}), .rows = I32({2})}, stream),
               "GatherRows", "out");  // alias
  CheckRefused(ops.FeedTokens({.ids = F32({2}), .drawn = I32({4})}, stream), "FeedTokens", "ids");
  CheckRefused(ops.FeedTokens({.ids = I32({2}), .drawn = F32({4})}, stream), "FeedTokens", "drawn");
  CheckRefused(ops.Add({.out = F32({2, 8}), .in = F32({3, 8})}, stream), "Add", "out");
  CheckRefused(ops.Add({.out = F32({2, 8}), .in = TensorView()}, stream), "Add", "in");
  CheckRefused(ops.Activate({.out = F32({2, 8}), .in = I32({2, 8})}, stream), "Activate", "in");
  CheckRefused(ops.GatedActivate({.out = F32({2, 8}), .gate_up = Elsewhere(F32({2, 15}))}, stream),
               "GatedActivate", "gate_up");
}

TEST_CASE("the message tells what is and what must be") {
  const absl::Status status =
      Reference().ops().Add({.out = F32({2, 8}), .in = F32({3, 8})}, Reference().stream());
  const std::string message(status.message());
  CHECK(message == "Add: out is [2, 8] float32; must be [3, 8] float32");
}

TEST_CASE("linear ops refuse what does not fit") {
  for (Path* path : {&Reference(), OtherPaths().empty() ? &Reference() : OtherPaths()[0].get()}) {
    Ops& ops = path->ops();
    Stream& stream = path->stream();
    const LinearSpec spec = {.in_features = 8, .out_features = 4};
    std::vector<std::byte> bytes(ops.PackedWeightBytes(spec) + 64);
    const PackedWeights weights = {.spec = spec, .data = bytes.data()};
    CheckRefused(ops.PackWeightRows(weights, 2, F32({3, 8})), "PackWeightRows", "rows");
    CheckRefused(ops.PackWeightRows(weights, 0, F32({3, 9})), "PackWeightRows", "rows");
    PackedWeights odd = weights;
    odd.spec.weight_dtype = DType::kI32;
    CheckRefused(ops.PackWeightRows(odd, 0, F32({3, 8})), "PackWeightRows", "weights");
    odd.spec.weight_dtype = DType::kI8;
    odd.spec.group_size = 129;
    CheckRefused(ops.PackWeightRows(odd, 0, F32({3, 8})), "PackWeightRows", "weights");
    CheckRefused(
        ops.Linear({.out = Elsewhere(F32({2, 4})), .in = F32({2, 8}), .weights = nullptr}, stream),
        "Linear", "weights");
    CheckRefused(
        ops.Linear({.out = Elsewhere(F32({2, 5})), .in = F32({2, 8}), .weights = &weights}, stream),
        "Linear", "out");
    CheckRefused(ops.GroupedLinear({.out = Elsewhere(F32({2, 4})),
                                    .in = F32({2, 8}),
                                    .experts = {},
                                    .expert_offsets = I32({1})},
                                   stream),
                 "GroupedLinear", "experts");
    CheckRefused(ops.GroupedLinear({.out = Elsewhere(F32({2, 4})),
                                    .in = F32({2, 8}),
                                    .experts = absl::MakeConstSpan(&weights, 1),
                                    .expert_offsets = I32({3})},
                                   stream),
                 "GroupedLinear", "expert_offsets");
  }
}

AttentionArgs GoodAttention() {
  return {.out = Elsewhere(F32({2, 4, 8})),
          .q = F32({2, 4, 8}),
          .cache = {.keys = F32({2, 3, 4, 8}), .values = F32({2, 3, 4, 8})},
          .query_starts = I32({2}),
          .context_lengths = I32({1}),
          .block_tables = I32({1, 3})};
}

TEST_CASE("attention ops refuse what does not fit") {
  Ops& ops = Reference().ops();
  Stream& stream = Reference().stream();
  AttentionArgs args = GoodAttention();
  args.cache.values = F32({2, 3, 4, 9});
  CheckRefused(ops.Attention(args, stream), "Attention", "cache.values");
  args = GoodAttention();
  args.cache = {.keys = F32({3, 3, 4, 8}), .values = F32({3, 3, 4, 8})};
  CheckRefused(ops.Attention(args, stream), "Attention", "q");
  args = GoodAttention();
  args.query_starts = I32({3});
  CheckRefused(ops.Attention(args, stream), "Attention", "query_starts");
  args = GoodAttention();
  args.block_tables = F32({1, 3});
  CheckRefused(ops.Attention(args, stream), "Attention", "block_tables");
  args = GoodAttention();
  args.window = -1;
  CheckRefused(ops.Attention(args, stream), "Attention", "window");
  args.window = 0;
  args.chunked = true;
  CheckRefused(ops.Attention(args, stream), "Attention", "chunked");
  args.chunked = false;
  args.scale = 0;
  CheckRefused(ops.Attention(args, stream), "Attention", "scale");
  for (const auto& path : OtherPaths()) {
    CheckRefused(path->ops().Attention(GoodAttention(), path->stream()), "Attention", "workspace");
  }
  CheckRefused(
      ops.RopeTable(
          {.cos_sin = F32({2, 7}), .positions = I32({2}), .inverse_frequencies = F32({3})}, stream),
      "RopeTable", "cos_sin");
  CheckRefused(ops.RopeTable({.cos_sin = F32({2, 8}),
                              .positions = I32({2}),
                              .inverse_frequencies = F32({4}),
                              .dynamic_factor = 2.0f},
                             stream),
               "RopeTable", "lengths");
  CheckRefused(
      ops.Rope({.q = F32({2, 4, 8}), .k = F32({2, 2, 8}), .cos_sin = F32({2, 10})}, stream), "Rope",
      "cos_sin");
  CheckRefused(ops.KvWrite({.cache = {.keys = F32({2, 3, 4, 8}), .values = F32({2, 3, 4, 8})},
                            .k = F32({2, 3, 8}),
                            .v = F32({2, 3, 8}),
                            .slots = I32({2})},
                           stream),
               "KvWrite", "cache.keys");
}

TEST_CASE("the ops at the end of a step refuse what does not fit") {
  Ops& ops = Reference().ops();
  Stream& stream = Reference().stream();
  CheckRefused(ops.MoeRoute({.logits = F32({2, 4}),
                             .weights = F32({2, 5}),
                             .slots = I32({2, 5}),
                             .source_rows = I32({10}),
                             .expert_offsets = I32({5})},
                            stream),
               "MoeRoute", "weights");
  CheckRefused(ops.MoeCombine({.out = Elsewhere(F32({2, 4})),
                               .in = F32({5, 4}),
                               .weights = F32({2, 2}),
                               .slots = I32({2, 2})},
                              stream),
               "MoeCombine", "in");
  CheckRefused(ops.LogSoftmax({.out = F32({2, 4}), .in = Bf16({2, 4})}, stream), "LogSoftmax",
               "in");
  CheckRefused(ops.TopK({.values = F32({2, 9}), .indices = I32({2, 9}), .in = F32({2, 8})}, stream),
               "TopK", "values");
  SampleArgs sample;
  sample.token_ids = I32({2});
  sample.logits = F32({2, 8});
  CheckRefused(ops.Sample(sample, stream), "Sample", "temperature");
}

}  // namespace
}  // namespace tessera::kernels::conformance
