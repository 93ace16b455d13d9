#include "coordinator/flow/request_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>

namespace tessera::coordinator {
namespace {

// vLLM's bucket bounds, so that its dashboards read ours. Seconds.
const prometheus::Histogram::BucketBoundaries kFirstTokenBounds = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const prometheus::Histogram::BucketBoundaries kGapBounds = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const prometheus::Histogram::BucketBoundaries kStepBounds = {
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1,   0.15,   0.25,  0.5,    0.75, 1.0,   2.5,  5.0,  10.0};
const prometheus::Histogram::BucketBoundaries kRequestBounds = {
    0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

}  // namespace

struct RequestMetrics::Families {
  using Labels = std::map<std::string, std::string>;
  // Counters of an engine start again when its worker does; ours only grow.
  struct Engine {
    v1::EngineLoad seen;
  };

  Families(prometheus::Registry& registry_in, const std::string& model)
      : registry(registry_in), labels{{"model_name", model}} {}

  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& bounds,
                                   Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(more, bounds);
  }
  // A message may tell of several steps: sum and count stay exact, their spread is lost.
  void ObserveSteps(const std::string& engine, const char* phase, uint64_t steps, double seconds) {
    constexpr uint64_t kMostSteps = 10'000;  // of one message; a bound for a peer gone wrong
    if (steps == 0 || steps > kMostSteps) return;
    prometheus::Histogram& histogram =
        Histogram("tessera_step_seconds",
                  "Of one step, seconds; one that computes prompt tokens is a prefill step.",
                  kStepBounds, {{"engine", engine}, {"phase", phase}});
    for (uint64_t i = 0; i < steps; ++i) histogram.Observe(seconds / static_cast<double>(steps));
  }
  prometheus::Counter& Counter(const char* name, const char* help, Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(more);
  }
  prometheus::Gauge& Gauge(const char* name, const char* help, Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(more);
  }

  prometheus::Registry& registry;
  const Labels labels;
  prometheus::Histogram& first_token =
      Histogram("vllm:time_to_first_token_seconds", "From arrival to the first token, seconds.",
                kFirstTokenBounds);
  prometheus::Histogram& gap = Histogram("vllm:inter_token_latency_seconds",
                                         "Between tokens of one choice, seconds.", kGapBounds);
  prometheus::Histogram& end_to_end =
      Histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token, seconds.",
                kRequestBounds);
  prometheus::Histogram& queue =
      Histogram("vllm:request_queue_time_seconds", "From submission to the first step, seconds.",
                kRequestBounds);
  prometheus::Histogram& prefill =
      Histogram("vllm:request_prefill_time_seconds",
                "From the first step to the first token, seconds.", kRequestBounds);
  prometheus::Histogram& decode =
      Histogram("vllm:request_decode_time_seconds", "From the first to the last token, seconds.",
                kRequestBounds);
  prometheus::Counter& migrations =
      Counter("tessera_request_migrations_total", "Requests continued at another replica.");
  std::mutex mutex;  // guards engines
  std::map<std::string, Engine> engines;
};

RequestMetrics::RequestMetrics(prometheus::Registry& registry, const std::string& model_name)
    : families_(std::make_unique<Families>(registry, model_name)) {
  // So that the series exist before the first request ends.
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    families_->Counter("vllm:request_success_total", "Choices ended, by reason.",
                       {{"finished_reason", reason}});
  }
}

RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::OnFirstToken(double since_arrival_seconds, double queue_seconds,
                                  double prefill_seconds) {
  families_->first_token.Observe(since_arrival_seconds);
  families_->queue.Observe(queue_seconds);
  families_->prefill.Observe(prefill_seconds);
}

void RequestMetrics::OnLaterToken(double gap_seconds) { families_->gap.Observe(gap_seconds); }

void RequestMetrics::OnChoiceEnd(const std::string& finished_reason) {
  families_
      ->Counter("vllm:request_success_total", "Choices ended, by reason.",
                {{"finished_reason", finished_reason}})
      .Increment();
}

void RequestMetrics::OnRequestEnd(double since_arrival_seconds, double since_first_token_seconds) {
  families_->end_to_end.Observe(since_arrival_seconds);
  families_->decode.Observe(since_first_token_seconds);
}

void RequestMetrics::OnMigration() { families_->migrations.Increment(); }

void RequestMetrics::OnEngineLoad(const std::string& engine, const v1::EngineLoad& load) {
  std::lock_guard lock(families_->mutex);
  v1::EngineLoad& seen = families_->engines[engine].seen;
  if (load.steps() < seen.steps()) seen.Clear();
  const Families::Labels label = {{"engine", engine}};
  auto add = [&](const char* name, const char* help, uint64_t now, uint64_t before) {
    families_->Counter(name, help, label).Increment(static_cast<double>(now - before));
  };
  add("vllm:prompt_tokens_total", "Prompt tokens computed.", load.prompt_tokens(),
      seen.prompt_tokens());
  add("vllm:generation_tokens_total", "Tokens generated.", load.generation_tokens(),
      seen.generation_tokens());
  add("vllm:num_preemptions_total", "Sequences put back for want of KV blocks.", load.preemptions(),
      seen.preemptions());
  add("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
      load.prefix_queries_tokens(), seen.prefix_queries_tokens());
  add("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
      load.prefix_hits_tokens(), seen.prefix_hits_tokens());
  families_->Gauge("vllm:num_requests_running", "Sequences in the last step.", label)
      .Set(load.running());
  families_->Gauge("vllm:num_requests_waiting", "Sequences that wait for a step.", label)
      .Set(load.waiting());
  const uint64_t prefill_steps = load.prefill_steps() - seen.prefill_steps();
  families_->ObserveSteps(engine, "prefill", prefill_steps,
                          load.prefill_step_seconds() - seen.prefill_step_seconds());
  families_->ObserveSteps(engine, "decode", load.steps() - seen.steps() - prefill_steps,
                          load.decode_step_seconds() - seen.decode_step_seconds());
  const double blocks = load.kv_blocks_total();
  families_->Gauge("vllm:kv_cache_usage_perc", "Share of KV blocks held by sequences, 0..1.", label)
      .Set(blocks > 0 ? load.kv_blocks_used() / blocks : 0.0);
  seen = load;
}

void RequestMetrics::OnReplicaReady(const std::string& engine, int32_t block_tokens,
                                    int32_t kv_blocks) {
  families_->Gauge("tessera_worker_up", "1 while the replica serves.", {{"engine", engine}}).Set(1);
  families_
      ->Gauge("vllm:cache_config_info", "Shape of the KV cache.",
              {{"engine", engine},
               {"block_size", std::to_string(block_tokens)},
               {"num_gpu_blocks", std::to_string(kv_blocks)}})
      .Set(1);
}

void RequestMetrics::OnReplicaLost(const std::string& engine) {
  families_->Gauge("tessera_worker_up", "1 while the replica serves.", {{"engine", engine}}).Set(0);
  families_->Gauge("vllm:num_requests_running", "Sequences in the last step.", {{"engine", engine}})
      .Set(0);
  families_
      ->Gauge("vllm:num_requests_waiting", "Sequences that wait for a step.", {{"engine", engine}})
      .Set(0);
}

}  // namespace tessera::coordinator
