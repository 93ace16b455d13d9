// Which ops a device has: what it lacks says so by name, and is on the suite's list; what it has is
// not, so that the suite runs it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

// What the op returns for no arguments at all, which is a refusal in any case.
struct OpCall {
  const char* name;
  absl::Status (*call)(Ops& ops, Stream& stream);
};

template <typename Args, absl::Status (Ops::*op)(const Args&, Stream&)>
absl::Status Call(Ops& ops, Stream& stream) {
  return (ops.*op)({}, stream);
}

const OpCall kOps[] = {
    {"Embedding", &Call<EmbeddingArgs, &Ops::Embedding>},
    {"RmsNorm", &Call<NormArgs, &Ops::RmsNorm>},
    {"LayerNorm", &Call<NormArgs, &Ops::LayerNorm>},
    {"SumSquares", &Call<SumSquaresArgs, &Ops::SumSquares>},
    {"Scale", &Call<ScaleArgs, &Ops::Scale>},
    {"GatherRows", &Call<GatherRowsArgs, &Ops::GatherRows>},
    {"FeedTokens", &Call<FeedTokensArgs, &Ops::FeedTokens>},
    {"Add", &Call<AddArgs, &Ops::Add>},
    {"Activate", &Call<ActivationArgs, &Ops::Activate>},
    {"GatedActivate", &Call<GatedActivationArgs, &Ops::GatedActivate>},
    {"Linear", &Call<LinearArgs, &Ops::Linear>},
    {"GroupedLinear", &Call<GroupedLinearArgs, &Ops::GroupedLinear>},
    {"HeadLinear", &Call<HeadLinearArgs, &Ops::HeadLinear>},
    {"RopeTable", &Call<RopeTableArgs, &Ops::RopeTable>},
    {"Rope", &Call<RopeArgs, &Ops::Rope>},
    {"KvWrite", &Call<KvWriteArgs, &Ops::KvWrite>},
    {"EncodeKv", &Call<KvWireArgs, &Ops::EncodeKv>},
    {"DecodeKv", &Call<KvWireArgs, &Ops::DecodeKv>},
    {"PrepareAttention", &Call<PrepareAttentionArgs, &Ops::PrepareAttention>},
    {"Attention", &Call<AttentionArgs, &Ops::Attention>},
    {"CausalConv", &Call<CausalConvArgs, &Ops::CausalConv>},
    {"GatedDelta", &Call<GatedDeltaArgs, &Ops::GatedDelta>},
    {"ClampedGate", &Call<ClampedGateArgs, &Ops::ClampedGate>},
    {"ExpertBias", &Call<ExpertBiasArgs, &Ops::ExpertBias>},
    {"MoeScores", &Call<MoeScoresArgs, &Ops::MoeScores>},
    {"MoeRoute", &Call<MoeRouteArgs, &Ops::MoeRoute>},
    {"MoeCombine", &Call<MoeCombineArgs, &Ops::MoeCombine>},
    {"LogSoftmax", &Call<LogSoftmaxArgs, &Ops::LogSoftmax>},
    {"TopK", &Call<TopKArgs, &Ops::TopK>},
    {"Sample", &Call<SampleArgs, &Ops::Sample>},
};

TEST_CASE("an op is on the list of missing ones exactly if the CUDA device lacks it") {
  Path* path = CudaEmulated();
  if (path == nullptr) return;
  for (const std::string& name : MissingOnCuda()) {
    INFO(name << " is no op");
    CHECK(std::any_of(std::begin(kOps), std::end(kOps),
                      [&](const OpCall& op) { return op.name == name; }));
  }
  for (const OpCall& op : kOps) {
    const absl::Status status = op.call(path->ops(), path->stream());
    const auto& missing = MissingOnCuda();
    const bool listed = std::find(missing.begin(), missing.end(), op.name) != missing.end();
    INFO(op.name << (listed ? " is on the list: " : " is not on the list: ") << status.message());
    CHECK(status.code() ==
          (listed ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument));
    if (listed) {
      CHECK(status.message() == std::string(op.name) + ": cuda-emulated has no kernel for it yet");
    }
  }
}

TEST_CASE("the CPU's paths have every op but those of memory that the host does not read") {
  for (const OpCall& op : kOps) {
    INFO(op.name);
    const std::string name = op.name;
    CHECK(op.call(Reference().ops(), Reference().stream()).code() ==
          (name == "EncodeKv" || name == "DecodeKv" ? absl::StatusCode::kUnimplemented
                                                    : absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace tessera::kernels::conformance
