#include "tests/bench/timed_device.h"

#include <chrono>
#include <deque>
#include <utility>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/ops.h"
#include "tests/fakes/forwarding_ops.h"

namespace tessera::bench {

using kernels::Stream;

namespace {

using Clock = std::chrono::steady_clock;

// An op of its own, which the stream runs between others.
struct StampArgs {
  Clock::time_point* time;
};
void Stamp(const StampArgs& args, kernels::ThreadPool&) { *args.time = Clock::now(); }

}  // namespace

class TimedDevice::TimedOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  struct Span {
    const char* op;
    Clock::time_point start, end;
  };
  bool timing = false;
  std::deque<Span> spans;  // written by the stream: these must not move

  absl::Status Embedding(const kernels::EmbeddingArgs& args, Stream& stream) override {
    return Timed("embedding", &Ops::Embedding, args, stream);
  }
  absl::Status RmsNorm(const kernels::NormArgs& args, Stream& stream) override {
    return Timed("norm", &Ops::RmsNorm, args, stream);
  }
  absl::Status LayerNorm(const kernels::NormArgs& args, Stream& stream) override {
    return Timed("norm", &Ops::LayerNorm, args, stream);
  }
  absl::Status SumSquares(const kernels::SumSquaresArgs& args, Stream& stream) override {
    return Timed("norm", &Ops::SumSquares, args, stream);
  }
  absl::Status Scale(const kernels::ScaleArgs& args, Stream& stream) override {
    return Timed("scale", &Ops::Scale, args, stream);
  }
  absl::Status GatherRows(const kernels::GatherRowsArgs& args, Stream& stream) override {
    return Timed("gather", &Ops::GatherRows, args, stream);
  }
  absl::Status FeedTokens(const kernels::FeedTokensArgs& args, Stream& stream) override {
    return Timed("feed", &Ops::FeedTokens, args, stream);
  }
  absl::Status Add(const kernels::AddArgs& args, Stream& stream) override {
    return Timed("add", &Ops::Add, args, stream);
  }
  absl::Status Activate(const kernels::ActivationArgs& args, Stream& stream) override {
    return Timed("activation", &Ops::Activate, args, stream);
  }
  absl::Status GatedActivate(const kernels::GatedActivationArgs& args, Stream& stream) override {
    return Timed("activation", &Ops::GatedActivate, args, stream);
  }

  absl::Status Linear(const kernels::LinearArgs& args, Stream& stream) override {
    return Timed("linear", &Ops::Linear, args, stream);
  }
  absl::Status GroupedLinear(const kernels::GroupedLinearArgs& args, Stream& stream) override {
    return Timed("linear", &Ops::GroupedLinear, args, stream);
  }

  absl::Status RopeTable(const kernels::RopeTableArgs& args, Stream& stream) override {
    return Timed("rope", &Ops::RopeTable, args, stream);
  }
  absl::Status Rope(const kernels::RopeArgs& args, Stream& stream) override {
    return Timed("rope", &Ops::Rope, args, stream);
  }
  absl::Status KvWrite(const kernels::KvWriteArgs& args, Stream& stream) override {
    return Timed("kv_write", &Ops::KvWrite, args, stream);
  }
  absl::Status Attention(const kernels::AttentionArgs& args, Stream& stream) override {
    return Timed("attention", &Ops::Attention, args, stream);
  }

  absl::Status ClampedGate(const kernels::ClampedGateArgs& args, Stream& stream) override {
    return Timed("activation", &Ops::ClampedGate, args, stream);
  }
  absl::Status ExpertBias(const kernels::ExpertBiasArgs& args, Stream& stream) override {
    return Timed("experts", &Ops::ExpertBias, args, stream);
  }
  absl::Status MoeScores(const kernels::MoeScoresArgs& args, Stream& stream) override {
    return Timed("experts", &Ops::MoeScores, args, stream);
  }
  absl::Status MoeRoute(const kernels::MoeRouteArgs& args, Stream& stream) override {
    return Timed("experts", &Ops::MoeRoute, args, stream);
  }
  absl::Status MoeCombine(const kernels::MoeCombineArgs& args, Stream& stream) override {
    return Timed("experts", &Ops::MoeCombine, args, stream);
  }

  absl::Status LogSoftmax(const kernels::LogSoftmaxArgs& args, Stream& stream) override {
    return Timed("log_softmax", &Ops::LogSoftmax, args, stream);
  }
  absl::Status TopK(const kernels::TopKArgs& args, Stream& stream) override {
    return Timed("top_k", &Ops::TopK, args, stream);
  }
  absl::Status Sample(const kernels::SampleArgs& args, Stream& stream) override {
    return Timed("sample", &Ops::Sample, args, stream);
  }

 private:
  template <typename Args>
  absl::Status Timed(const char* name, absl::Status (Ops::*op)(const Args&, Stream&),
                     const Args& args, Stream& stream) {
    if (!timing) return (ops()->*op)(args, stream);
    auto& cpu_stream = static_cast<kernels::CpuStream&>(stream);
    Span& span = spans.emplace_back(Span{.op = name, .start = {}, .end = {}});
    cpu_stream.Enqueue<StampArgs>(&Stamp, {&span.start});
    const absl::Status status = (ops()->*op)(args, stream);
    cpu_stream.Enqueue<StampArgs>(&Stamp, {&span.end});
    return status;
  }
};

TimedDevice::TimedDevice(kernels::Device* device)
    : device_(device), ops_(std::make_unique<TimedOps>(&device->ops())) {}

TimedDevice::~TimedDevice() = default;

void TimedDevice::set_timing(bool timing) { ops_->timing = timing; }

std::map<std::string, double> TimedDevice::Take() {
  std::map<std::string, double> seconds;
  for (const auto& span : std::exchange(ops_->spans, {})) {
    seconds[span.op] += std::chrono::duration<double>(span.end - span.start).count();
  }
  return seconds;
}

kernels::Ops& TimedDevice::ops() { return *ops_; }

}  // namespace tessera::bench
