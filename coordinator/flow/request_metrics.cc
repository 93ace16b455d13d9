#include "coordinator/flow/request_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera::coordinator {
namespace {

constexpr char kFirstTokenName[] = "vllm:time_to_first_token_seconds";
constexpr char kGapName[] = "vllm:inter_token_latency_seconds";
constexpr char kRequestName[] = "vllm:e2e_request_latency_seconds";

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

const prometheus::Histogram::BucketBoundaries kChoicesBounds = {1, 2, 5, 10, 20};
const prometheus::Histogram::BucketBoundaries kIterationBounds = {
    1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// 1, 2, 5, 10, 20, 50, ... up to the longest sequence.
prometheus::Histogram::BucketBoundaries TokenBounds(int64_t max_tokens) {
  prometheus::Histogram::BucketBoundaries bounds;
  for (int64_t decade = 1; decade <= max_tokens; decade *= 10) {
    for (const int64_t step : {1, 2, 5}) {
      if (step * decade <= max_tokens) bounds.push_back(static_cast<double>(step * decade));
    }
  }
  return bounds;
}

// A counter of engines: its name with the label engine, the name of their sum, and its value.
struct EngineCounter {
  const char* name;
  const char* total_name;
  const char* help;
  uint64_t (*value)(const v1::EngineLoad& load);
};
template <uint64_t (v1::EngineLoad::*kValue)() const>
uint64_t ValueOf(const v1::EngineLoad& load) {
  return (load.*kValue)();
}
uint64_t AcceptedTokens(const v1::EngineLoad& load) {
  return std::accumulate(load.accepted_draft_tokens().begin(), load.accepted_draft_tokens().end(),
                         uint64_t{0});
}
// What an engine tried since `before`.
DraftCounts DraftsSince(const v1::EngineLoad& before, const v1::EngineLoad& load) {
  DraftCounts counts;
  counts.lists = static_cast<double>(load.drafts() - before.drafts());
  counts.tokens = static_cast<double>(load.draft_tokens() - before.draft_tokens());
  counts.accepted_tokens = static_cast<double>(AcceptedTokens(load) - AcceptedTokens(before));
  const auto generated = static_cast<double>(load.generation_tokens() - before.generation_tokens());
  counts.asked_steps = std::max(counts.lists, generated - counts.accepted_tokens);
  counts.asked_accepted_tokens = counts.accepted_tokens;
  return counts;
}
constexpr EngineCounter kEngineCounters[] = {
    {"vllm:prompt_tokens_total", "tessera_prompt_tokens_total", "Prompt tokens computed.",
     ValueOf<&v1::EngineLoad::prompt_tokens>},
    {"vllm:generation_tokens_total", "tessera_generation_tokens_total", "Tokens generated.",
     ValueOf<&v1::EngineLoad::generation_tokens>},
    {"vllm:num_preemptions_total", "tessera_preemptions_total",
     "Sequences preempted because KV blocks ran out.", ValueOf<&v1::EngineLoad::preemptions>},
    {"vllm:prefix_cache_queries_total", "tessera_prefix_cache_queries_total",
     "Prompt tokens looked up in the prefix cache.",
     ValueOf<&v1::EngineLoad::prefix_queries_tokens>},
    {"vllm:prefix_cache_hits_total", "tessera_prefix_cache_hits_total",
     "Prompt tokens found in the prefix cache.", ValueOf<&v1::EngineLoad::prefix_hits_tokens>},
    {"vllm:spec_decode_num_drafts_total", "tessera_drafts_total",
     "Lists of draft tokens that steps tried.", ValueOf<&v1::EngineLoad::drafts>},
    {"vllm:spec_decode_num_draft_tokens_total", "tessera_draft_tokens_total",
     "Tokens in these lists.", ValueOf<&v1::EngineLoad::draft_tokens>},
    {"vllm:spec_decode_num_accepted_tokens_total", "tessera_accepted_draft_tokens_total",
     "Draft tokens that were accepted: each saved a step.", AcceptedTokens},
};

const char* ReasonOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange: return "invalid";
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied: return "unauthenticated";
    case absl::StatusCode::kNotFound: return "not_found";
    case absl::StatusCode::kResourceExhausted: return "full";
    case absl::StatusCode::kUnavailable: return "unavailable";
    case absl::StatusCode::kDeadlineExceeded: return "queue_timeout";
    default: return "other";
  }
}

}  // namespace

struct RequestMetrics::Families {
  using Labels = std::map<std::string, std::string>;
  // One engine and its series, which are looked up once: a reply comes with every step.
  // Counters of an engine start again when its worker does; ours only grow.
  struct Engine {
    Engine(Families& families, const std::string& name)
        : up(families.Gauge("tessera_worker_up", "1 while the replica serves.",
                            {{"engine", name}})),
          requests_running(families.Gauge("vllm:num_requests_running",
                                          "Sequences that are computed now.", {{"engine", name}})),
          requests_waiting(families.Gauge("vllm:num_requests_waiting",
                                          "Sequences that wait for a step.", {{"engine", name}})),
          kv_usage(families.Gauge("vllm:kv_cache_usage_perc",
                                  "Share of KV blocks held by sequences, 0..1.",
                                  {{"engine", name}})),
          prefill_step(families.StepSeconds(name, "prefill")),
          decode_step(families.StepSeconds(name, "decode")),
          iteration_tokens(
              families.Histogram("vllm:iteration_tokens_total",
                                 "Tokens of one step: prompt tokens computed and tokens generated.",
                                 kIterationBounds, {{"engine", name}})) {
      for (const EngineCounter& counter : kEngineCounters)
        counters.push_back(&families.Counter(counter.name, counter.help, {{"engine", name}}));
    }

    v1::EngineLoad seen;
    DraftingSteps drafting;
    int64_t running = 0, waiting = 0;  // as shown
    prometheus::Gauge& up;
    prometheus::Gauge& requests_running;
    prometheus::Gauge& requests_waiting;
    prometheus::Gauge& kv_usage;
    prometheus::Histogram& prefill_step;
    prometheus::Histogram& decode_step;
    prometheus::Histogram& iteration_tokens;
    std::vector<prometheus::Counter*> counters;     // of kEngineCounters
    std::vector<prometheus::Counter*> accepted_at;  // by place in a list of drafts
  };

  Families(prometheus::Registry& registry_in, const std::string& model, int64_t max_tokens)
      : registry(registry_in),
        labels{{"model_name", model}},
        token_bounds(TokenBounds(max_tokens)) {}

  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& bounds,
                                   Labels more = {}) {
    more.insert(labels.begin(), labels.end());
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(more, bounds);
  }
  // A message may cover several steps: sum and count stay exact, their spread is lost.
  static void ObserveSteps(prometheus::Histogram& histogram, uint64_t steps, double sum) {
    constexpr uint64_t kMaxSteps = 10'000;  // of one message; a bound for a peer gone wrong
    if (steps == 0 || steps > kMaxSteps) return;
    for (uint64_t i = 0; i < steps; ++i) histogram.Observe(sum / static_cast<double>(steps));
  }
  prometheus::Histogram& StepSeconds(const std::string& engine, const char* phase) {
    return Histogram("tessera_step_seconds",
                     "Duration of a step, seconds; a step with prompt tokens is a prefill step.",
                     kStepBounds, {{"engine", engine}, {"phase", phase}});
  }
  prometheus::Counter& AcceptedAt(const std::string& engine, int position) {
    return Counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                   "Draft tokens that were accepted, by their place in the list.",
                   {{"engine", engine}, {"position", std::to_string(position)}});
  }
  // With mutex held.
  Engine& EngineOf(const std::string& name) {
    const auto found = engines.find(name);
    if (found != engines.end()) return found->second;
    return engines.try_emplace(name, *this, name).first->second;
  }
  prometheus::Counter& Refused(const char* reason) {
    return Counter("tessera_requests_refused_total", "Generation requests refused, by reason.",
                   {{"reason", reason}});
  }
  prometheus::Counter& Ended(const char* reason) {
    return Counter("vllm:request_success_total", "Choices that ended, by reason.",
                   {{"finished_reason", reason}});
  }
  // And the gauges of all engines added up. With mutex held.
  void SetSequences(Engine& engine, int64_t running, int64_t waiting) {
    all_running += running - std::exchange(engine.running, running);
    all_waiting += waiting - std::exchange(engine.waiting, waiting);
    engine.requests_running.Set(static_cast<double>(running));
    engine.requests_waiting.Set(static_cast<double>(waiting));
    requests_running.Set(static_cast<double>(all_running));
    requests_waiting.Set(static_cast<double>(all_waiting));
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
  const prometheus::Histogram::BucketBoundaries token_bounds;
  prometheus::Histogram& first_token = Histogram(
      kFirstTokenName, "Time from arrival to the first token, seconds.", kFirstTokenBounds);
  prometheus::Histogram& gap =
      Histogram(kGapName, "Time between tokens of one choice, seconds.", kGapBounds);
  prometheus::Histogram& end_to_end =
      Histogram(kRequestName, "Time from arrival to the last token, seconds.", kRequestBounds);
  prometheus::Histogram& queue =
      Histogram("vllm:request_queue_time_seconds",
                "Time from submission to the first step, seconds.", kRequestBounds);
  prometheus::Histogram& prefill =
      Histogram("vllm:request_prefill_time_seconds",
                "Time from the first step to the first token, seconds.", kRequestBounds);
  prometheus::Histogram& decode =
      Histogram("vllm:request_decode_time_seconds",
                "Time from the first to the last token, seconds.", kRequestBounds);
  prometheus::Counter& migrations =
      Counter("tessera_request_migrations_total", "Requests continued at another replica.");
  prometheus::Histogram& inference =
      Histogram("vllm:request_inference_time_seconds",
                "Time from the first step to the last token, seconds.", kRequestBounds);
  prometheus::Histogram& per_token =
      Histogram("vllm:request_time_per_output_token_seconds",
                "Mean time between tokens of one choice, seconds.", kGapBounds);
  prometheus::Histogram& prompt_tokens =
      Histogram("vllm:request_prompt_tokens", "Prompt tokens of one request.", token_bounds);
  prometheus::Histogram& generation_tokens =
      Histogram("vllm:request_generation_tokens", "Tokens generated for one choice.", token_bounds);
  prometheus::Histogram& params_n =
      Histogram("vllm:request_params_n", "Choices (n) of one request.", kChoicesBounds);
  prometheus::Histogram& params_max_tokens = Histogram(
      "vllm:request_params_max_tokens", "Max tokens of the answer to a request.", token_bounds);
  prometheus::Gauge& requests_running =
      Gauge("tessera_requests_running", "Sequences that are computed now, of all engines.");
  prometheus::Gauge& requests_waiting =
      Gauge("tessera_requests_waiting", "Sequences that wait for a step, of all engines.");
  std::map<std::string, prometheus::Counter*, std::less<>> ended;  // choices, by reason
  std::vector<prometheus::Counter*> totals;                        // of kEngineCounters
  std::mutex mutex;                                                // guards what follows
  DraftCounts drafts;
  std::map<std::string, Engine> engines;
  int64_t all_running = 0, all_waiting = 0;  // of all engines
};

RequestMetrics::RequestMetrics(prometheus::Registry& registry, const std::string& model_name,
                               int64_t max_model_len_tokens)
    : families_(std::make_unique<Families>(registry, model_name, max_model_len_tokens)) {
  // So that the series exist before the first request ends.
  for (const char* reason : {"stop", "length", "abort", "error"})
    families_->ended[reason] = &families_->Ended(reason);
  for (const char* reason : {"invalid", "unauthenticated", "not_found", "full", "unavailable",
                             "queue_timeout", "other"}) {
    families_->Refused(reason);
  }
  for (const EngineCounter& counter : kEngineCounters)
    families_->totals.push_back(&families_->Counter(counter.total_name, counter.help));
}

RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::OnFirstToken(double since_arrival_seconds, double queue_seconds,
                                  double prefill_seconds) {
  families_->first_token.Observe(since_arrival_seconds);
  families_->queue.Observe(queue_seconds);
  families_->prefill.Observe(prefill_seconds);
}

void RequestMetrics::OnLaterToken(double gap_seconds) { families_->gap.Observe(gap_seconds); }

void RequestMetrics::OnChoiceEnd(const EndedChoice& choice) {
  const auto ended = families_->ended.find(choice.finished_reason);
  (ended != families_->ended.end() ? *ended->second : families_->Ended(choice.finished_reason))
      .Increment();
  if (choice.tokens > 0) families_->generation_tokens.Observe(static_cast<double>(choice.tokens));
  if (choice.tokens > 1) {
    families_->per_token.Observe(choice.decode_seconds / static_cast<double>(choice.tokens - 1));
  }
}

void RequestMetrics::OnRequestEnd(const AnsweredRequest& request) {
  families_->end_to_end.Observe(request.since_arrival_seconds);
  families_->decode.Observe(request.since_first_token_seconds);
  families_->inference.Observe(request.prefill_seconds + request.since_first_token_seconds);
  families_->prompt_tokens.Observe(static_cast<double>(request.prompt_tokens));
  families_->params_n.Observe(request.choice_count);
  families_->params_max_tokens.Observe(request.max_tokens);
}

void RequestMetrics::OnRefused(absl::StatusCode code) {
  families_->Refused(ReasonOf(code)).Increment();
}

void RequestMetrics::OnMigration() { families_->migrations.Increment(); }

void RequestMetrics::OnReplicaKnown(const std::string& engine) {
  std::lock_guard lock(families_->mutex);
  families_->EngineOf(engine);
}

void RequestMetrics::OnEngineLoad(const std::string& name, const v1::EngineLoad& load) {
  std::lock_guard lock(families_->mutex);
  Families::Engine& engine = families_->EngineOf(name);
  v1::EngineLoad& seen = engine.seen;
  // A worker that was started again counts from 0; it may have made as many steps as before.
  bool restarted = load.steps() < seen.steps();
  for (const EngineCounter& counter : kEngineCounters)
    restarted = restarted || counter.value(load) < counter.value(seen);
  if (restarted) {
    seen.Clear();
    engine.drafting = {};
  }
  for (size_t i = 0; i < std::size(kEngineCounters); ++i) {
    const uint64_t more = kEngineCounters[i].value(load) - kEngineCounters[i].value(seen);
    if (more == 0) continue;
    engine.counters[i]->Increment(static_cast<double>(more));
    families_->totals[i]->Increment(static_cast<double>(more));
  }
  for (int i = 0; i < load.accepted_draft_tokens_size(); ++i) {
    if (static_cast<size_t>(i) == engine.accepted_at.size())
      engine.accepted_at.push_back(&families_->AcceptedAt(name, i));
    const uint64_t before =
        i < seen.accepted_draft_tokens_size() ? seen.accepted_draft_tokens(i) : 0;
    engine.accepted_at[i]->Increment(static_cast<double>(load.accepted_draft_tokens(i) - before));
  }
  // A reply comes behind its step, when some of the sequences have ended.
  const int64_t sequences = std::max(seen.running(), load.running());
  families_->drafts.Add(engine.drafting.Count(sequences, DraftsSince(seen, load)));
  const uint64_t steps = load.steps() - seen.steps();
  const uint64_t prefill_steps = load.prefill_steps() - seen.prefill_steps();
  Families::ObserveSteps(engine.prefill_step, prefill_steps,
                         load.prefill_step_seconds() - seen.prefill_step_seconds());
  Families::ObserveSteps(engine.decode_step, steps - prefill_steps,
                         load.decode_step_seconds() - seen.decode_step_seconds());
  Families::ObserveSteps(engine.iteration_tokens, steps,
                         static_cast<double>(load.prompt_tokens() - seen.prompt_tokens() +
                                             load.generation_tokens() - seen.generation_tokens()));
  const double blocks = load.kv_blocks_total();
  engine.kv_usage.Set(blocks > 0 ? load.kv_blocks_used() / blocks : 0.0);
  seen = load;
  families_->SetSequences(engine, load.running(), load.waiting());
}

DraftCounts RequestMetrics::draft_counts() const {
  std::lock_guard lock(families_->mutex);
  return families_->drafts;
}

void RequestMetrics::AddLatencies(std::vector<prometheus::MetricFamily>* families) const {
  const std::pair<const char*, const prometheus::Histogram*> all[] = {
      {kFirstTokenName, &families_->first_token},
      {kGapName, &families_->gap},
      {kRequestName, &families_->end_to_end}};
  for (const auto& [name, histogram] : all) {
    prometheus::MetricFamily& family = families->emplace_back();
    family.name = name;
    family.type = prometheus::MetricType::Histogram;
    family.metric.push_back(histogram->Collect());
  }
}

void RequestMetrics::OnSequences(const std::string& engine, int64_t open) {
  std::lock_guard lock(families_->mutex);
  const auto found = families_->engines.find(engine);
  if (found == families_->engines.end()) return;
  const int64_t waiting = std::min<int64_t>(found->second.seen.waiting(), open);
  families_->SetSequences(found->second, open - waiting, waiting);
}

void RequestMetrics::OnReplicaReady(const std::string& engine, int32_t block_tokens,
                                    int32_t kv_blocks) {
  {
    std::lock_guard lock(families_->mutex);
    families_->EngineOf(engine).up.Set(1);
  }
  families_
      ->Gauge("vllm:cache_config_info", "Shape of the KV cache.",
              {{"engine", engine},
               {"block_size", std::to_string(block_tokens)},
               {"num_gpu_blocks", std::to_string(kv_blocks)}})
      .Set(1);
}

void RequestMetrics::OnReplicaLost(const std::string& engine) {
  std::lock_guard lock(families_->mutex);
  Families::Engine& lost = families_->EngineOf(engine);
  lost.up.Set(0);
  lost.seen.set_waiting(0);
  families_->SetSequences(lost, 0, 0);
}

}  // namespace tessera::coordinator
