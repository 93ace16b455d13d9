#include "coordinator/tracing/tracing.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "coordinator/tracing/otlp_exporter.h"
#include "coordinator/tracing/request_spans.h"
#include "coordinator/tracing/trace_context.h"

namespace tessera::coordinator {
namespace {

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// One request until it ends, the first time that it does.
class Trace {
 public:
  Trace(std::shared_ptr<OtlpExporter> exporter, EndedRequest request)
      : exporter_(std::move(exporter)), request_(std::move(request)) {
    request_.start_unix_nanoseconds = UnixNanoseconds();
  }

  void End(const absl::Status& status, const GenerationUsage& usage) {
    if (ended_.exchange(true)) return;
    request_.end_unix_nanoseconds = UnixNanoseconds();
    request_.status = status;
    request_.usage = usage;
    exporter_->Add(SpansOf(request_, [] { return DrawTraceId(16); }));
  }

  // What it took until then is not known.
  void Cancel() {
    if (ended_) return;
    GenerationUsage usage;
    usage.prompt_tokens = prompt_tokens;
    End(absl::CancelledError("the client left"), usage);
  }

  int64_t prompt_tokens = 0;  // set before it is shared

 private:
  const std::shared_ptr<OtlpExporter> exporter_;
  EndedRequest request_;
  std::atomic<bool> ended_ = false;
};

class TracedSink final : public GenerationSink {
 public:
  TracedSink(std::shared_ptr<Trace> trace, std::shared_ptr<GenerationSink> next)
      : trace_(std::move(trace)), next_(std::move(next)) {}
  void OnPromptLogprobs(std::vector<PositionChances> positions) override {
    next_->OnPromptLogprobs(std::move(positions));
  }
  void OnChoice(ChoiceEvent event) override { next_->OnChoice(std::move(event)); }
  // The trace first: behind the client's last event the handle may cancel what has ended.
  void OnEnd(const absl::Status& status, const GenerationUsage& usage,
             const std::string& replica) override {
    trace_->End(status, usage);
    next_->OnEnd(status, usage, replica);
  }

 private:
  const std::shared_ptr<Trace> trace_;
  const std::shared_ptr<GenerationSink> next_;
};

class TracedHandle final : public GenerationHandle {
 public:
  TracedHandle(std::shared_ptr<Trace> trace, std::unique_ptr<GenerationHandle> next)
      : trace_(std::move(trace)), next_(std::move(next)) {}
  ~TracedHandle() override {
    next_.reset();
    trace_->Cancel();
  }
  void Cancel() override {
    next_->Cancel();
    trace_->Cancel();
  }

 private:
  const std::shared_ptr<Trace> trace_;
  std::unique_ptr<GenerationHandle> next_;
};

class TracedService final : public GenerationService {
 public:
  TracedService(std::string model, std::shared_ptr<OtlpExporter> exporter, GenerationService& next)
      : model_(std::move(model)), exporter_(std::move(exporter)), next_(next) {}

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override {
    EndedRequest traced = {.context = ContextOf(request.traceparent),
                           .request_id = request.request_id,
                           .model = model_,
                           .client = request.client,
                           .choices = request.choice_count,
                           .max_tokens = request.max_tokens,
                           .usage = {},
                           .status = absl::OkStatus()};
    if (!traced.context.sampled) return next_.Start(std::move(request), std::move(sink));
    auto trace = std::make_shared<Trace>(exporter_, std::move(traced));
    trace->prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
    auto handle =
        next_.Start(std::move(request), std::make_shared<TracedSink>(trace, std::move(sink)));
    if (!handle.ok()) {
      GenerationUsage usage;
      usage.prompt_tokens = trace->prompt_tokens;
      trace->End(handle.status(), usage);
      return handle.status();
    }
    return std::make_unique<TracedHandle>(std::move(trace), *std::move(handle));
  }

 private:
  const std::string model_;
  const std::shared_ptr<OtlpExporter> exporter_;
  GenerationService& next_;
};

class TracingImpl final : public Tracing {
 public:
  explicit TracingImpl(std::shared_ptr<OtlpExporter> exporter) : exporter_(std::move(exporter)) {}

  GenerationService& Before(GenerationService& next, const std::string& model) override {
    if (exporter_ == nullptr) return next;
    return *services_.emplace_back(std::make_unique<TracedService>(model, exporter_, next));
  }

  std::vector<prometheus::MetricFamily> families() const override {
    std::vector<prometheus::MetricFamily> families;
    if (exporter_ == nullptr) return families;
    const SpanCounts counts = exporter_->counts();
    const auto add = [&](const char* name, const char* help, int64_t value) {
      prometheus::MetricFamily& family = families.emplace_back();
      family.name = name;
      family.help = help;
      family.type = prometheus::MetricType::Counter;
      family.metric.emplace_back().counter.value = static_cast<double>(value);
    };
    add("tessera_trace_spans_total", "Spans that the collector of --otlp-endpoint took.",
        counts.sent);
    add("tessera_trace_spans_dropped_total",
        "Spans that were dropped: too many waited, or the collector did not take them.",
        counts.dropped);
    return families;
  }

 private:
  const std::shared_ptr<OtlpExporter> exporter_;  // null: nothing is traced
  std::vector<std::unique_ptr<TracedService>> services_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tracing>> Tracing::Start(TracingOptions options) {
  std::shared_ptr<OtlpExporter> exporter;
  if (!options.endpoint.empty()) {
    absl::StatusOr<OtlpEndpoint> endpoint = ParseOtlpEndpoint(options.endpoint);
    if (!endpoint.ok()) return endpoint.status();
    exporter = OtlpExporter::Start(*std::move(endpoint), options.version);
  }
  return std::make_unique<TracingImpl>(std::move(exporter));
}

}  // namespace tessera::coordinator
