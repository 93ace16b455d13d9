#include "coordinator/flow/request_metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::coordinator {
namespace {

class Metrics {
 public:
  // The value of `name{labels}`, labels as Prometheus prints them; -1 where there is none.
  double Of(const std::string& series) const {
    std::istringstream text(prometheus::TextSerializer().Serialize(registry_.Collect()));
    for (std::string line; std::getline(text, line);) {
      const size_t space = line.rfind(' ');
      if (line.substr(0, space) == series) return std::stod(line.substr(space + 1));
    }
    return -1;
  }
  RequestMetrics& operator*() { return metrics_; }
  RequestMetrics* operator->() { return &metrics_; }
  // The collected family of that name.
  prometheus::MetricFamily Family(const std::string& name) const {
    for (prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name == name) return family;
    }
    return {};
  }

 private:
  prometheus::Registry registry_;
  RequestMetrics metrics_{registry_, "m", 1000};
};

v1::EngineLoad Load(uint64_t steps, uint64_t prompt, uint64_t generation) {
  v1::EngineLoad load;
  load.set_steps(steps);
  load.set_prefill_steps(prompt > 0 ? 1 : 0);
  load.set_prompt_tokens(prompt);
  load.set_generation_tokens(generation);
  load.set_running(2);
  load.set_waiting(1);
  return load;
}

}  // namespace

TEST_CASE("an engine's series are there, with zeros, before it has done anything") {
  Metrics metrics;
  metrics->OnReplicaKnown("r0");
  for (const char* name :
       {"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
        "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "tessera_worker_up", "vllm:iteration_tokens_total_count",
        "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total"}) {
    INFO(name);
    CHECK(metrics.Of(std::string(name) + "{engine=\"r0\",model_name=\"m\"}") == 0);
  }
  for (const char* phase : {"prefill", "decode"}) {
    CHECK(metrics.Of(std::string("tessera_step_seconds_count{engine=\"r0\",model_name=\"m\",") +
                     "phase=\"" + phase + "\"}") == 0);
  }
  metrics->OnReplicaReady("r0", 16, 10);
  metrics->OnReplicaKnown("r0");
  CHECK(metrics.Of("tessera_worker_up{engine=\"r0\",model_name=\"m\"}") == 1);
}

TEST_CASE("drafts are counted under vLLM's names, those that stood by their place, too") {
  Metrics metrics;
  v1::EngineLoad load = Load(5, 10, 9);
  load.set_drafts(3);
  load.set_draft_tokens(7);
  for (const uint64_t accepted : {3, 1}) load.add_accepted_draft_tokens(accepted);
  metrics->OnEngineLoad("r0", load);
  load.set_steps(9);
  load.set_drafts(4);
  load.set_draft_tokens(11);
  load.set_accepted_draft_tokens(0, 4);
  load.add_accepted_draft_tokens(1);
  metrics->OnEngineLoad("r0", load);
  const std::string engine = "{engine=\"r0\",model_name=\"m\"";
  CHECK(metrics.Of("vllm:spec_decode_num_drafts_total" + engine + "}") == 4);
  CHECK(metrics.Of("vllm:spec_decode_num_draft_tokens_total" + engine + "}") == 11);
  CHECK(metrics.Of("vllm:spec_decode_num_accepted_tokens_total" + engine + "}") == 6);
  CHECK(metrics.Of("tessera_accepted_draft_tokens_total{model_name=\"m\"}") == 6);
  const std::string at = "vllm:spec_decode_num_accepted_tokens_per_pos_total" + engine;
  CHECK(metrics.Of(at + ",position=\"0\"}") == 4);
  CHECK(metrics.Of(at + ",position=\"1\"}") == 1);
  CHECK(metrics.Of(at + ",position=\"2\"}") == 1);
  // The worker starts again, and counts from zero.
  load.set_steps(1);
  load.set_drafts(1);
  load.set_draft_tokens(2);
  load.clear_accepted_draft_tokens();
  load.add_accepted_draft_tokens(1);
  metrics->OnEngineLoad("r0", load);
  CHECK(metrics.Of("vllm:spec_decode_num_drafts_total" + engine + "}") == 5);
  CHECK(metrics.Of(at + ",position=\"0\"}") == 5);
}

TEST_CASE("engines add up in series of their own, also when one starts over or is lost") {
  Metrics metrics;
  CHECK(metrics.Of("tessera_generation_tokens_total{model_name=\"m\"}") == 0);
  metrics->OnEngineLoad("r0", Load(2, 10, 5));
  metrics->OnEngineLoad("r1", Load(1, 7, 1));
  metrics->OnEngineLoad("r0", Load(4, 10, 9));
  CHECK(metrics.Of("vllm:generation_tokens_total{engine=\"r0\",model_name=\"m\"}") == 9);
  CHECK(metrics.Of("tessera_generation_tokens_total{model_name=\"m\"}") == 10);
  CHECK(metrics.Of("tessera_prompt_tokens_total{model_name=\"m\"}") == 17);
  CHECK(metrics.Of("tessera_requests_running{model_name=\"m\"}") == 4);
  CHECK(metrics.Of("tessera_requests_waiting{model_name=\"m\"}") == 2);
  metrics->OnEngineLoad("r0", Load(1, 3, 1));
  CHECK(metrics.Of("tessera_generation_tokens_total{model_name=\"m\"}") == 11);
  metrics->OnReplicaLost("r0");
  CHECK(metrics.Of("tessera_requests_running{model_name=\"m\"}") == 2);
  // Steps of a message share its tokens.
  CHECK(metrics.Of("vllm:iteration_tokens_total_count{engine=\"r0\",model_name=\"m\"}") == 5);
  CHECK(metrics.Of("vllm:iteration_tokens_total_sum{engine=\"r0\",model_name=\"m\"}") == 23);
}

TEST_CASE("an answered request is in vLLM's histograms") {
  Metrics metrics;
  metrics->OnChoiceEnd({.finished_reason = "length", .tokens = 5, .decode_seconds = 2});
  metrics->OnChoiceEnd({.finished_reason = "stop", .tokens = 1, .decode_seconds = 0});
  metrics->OnRequestEnd({.since_arrival_seconds = 4,
                         .since_first_token_seconds = 2,
                         .prefill_seconds = 0.5,
                         .prompt_tokens = 30,
                         .choice_count = 2,
                         .max_tokens = 5});
  const auto sum = [&](const std::string& name) {
    return metrics.Of("vllm:" + name + "_sum{model_name=\"m\"}");
  };
  CHECK(sum("request_prompt_tokens") == 30);
  CHECK(sum("request_generation_tokens") == 6);
  CHECK(sum("request_params_n") == 2);
  CHECK(sum("request_params_max_tokens") == 5);
  CHECK(sum("request_inference_time_seconds") == 2.5);
  CHECK(sum("request_time_per_output_token_seconds") == 0.5);
  CHECK(metrics.Of("vllm:request_time_per_output_token_seconds_count{model_name=\"m\"}") == 1);
  CHECK(metrics.Of("vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"20\"}") == 0);
  CHECK(metrics.Of("vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"50\"}") == 1);
  CHECK(metrics.Of("vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"1000\"}") == 1);
}

TEST_CASE("refused requests are counted by reason, from zero on") {
  Metrics metrics;
  const auto refused = [&](const std::string& reason) {
    return metrics.Of("tessera_requests_refused_total{model_name=\"m\",reason=\"" + reason + "\"}");
  };
  for (const char* reason : {"invalid", "unauthenticated", "not_found", "full", "unavailable"})
    CHECK(refused(reason) == 0);
  metrics->OnRefused(absl::StatusCode::kResourceExhausted);
  metrics->OnRefused(absl::StatusCode::kUnauthenticated);
  metrics->OnRefused(absl::StatusCode::kUnauthenticated);
  CHECK(refused("full") == 1);
  CHECK(refused("unauthenticated") == 2);
  CHECK(refused("invalid") == 0);
}

TEST_CASE("drafts of all engines are counted together, also of one that starts again") {
  Metrics metrics;
  v1::EngineLoad load = Load(10, 5, 100);
  load.set_drafts(8);
  load.set_draft_tokens(24);
  for (const uint64_t stood : {6, 4, 1}) load.add_accepted_draft_tokens(stood);
  metrics->OnEngineLoad("r0", load);
  metrics->OnEngineLoad("r0", load);  // the same reply's numbers
  metrics->OnEngineLoad("r1", load);
  v1::EngineLoad again = Load(2, 5, 7);
  again.set_drafts(1);
  again.set_draft_tokens(3);
  metrics->OnEngineLoad("r0", again);
  const DraftCounts counts = metrics->draft_counts();
  CHECK(counts.lists == 17);
  CHECK(counts.tokens == 51);
  CHECK(counts.accepted_tokens == 22);
  CHECK(counts.asked_steps == 207 - 22);
  CHECK(counts.asked_accepted_tokens == 22);
}

TEST_CASE("steps of more sequences than drafts pay for say nothing of how often a text repeats") {
  Metrics metrics;
  v1::EngineLoad load = Load(0, 5, 0);
  load.add_accepted_draft_tokens(0);
  const auto step = [&](int running, uint64_t lists, uint64_t tokens, uint64_t stood) {
    load.set_steps(load.steps() + 1);
    load.set_running(running);
    load.set_generation_tokens(load.generation_tokens() + running + stood);
    load.set_drafts(load.drafts() + lists);
    load.set_draft_tokens(load.draft_tokens() + tokens);
    load.set_accepted_draft_tokens(0, load.accepted_draft_tokens(0) + stood);
    metrics->OnEngineLoad("r0", load);
  };
  const auto asked = [&] { return metrics->draft_counts().asked_steps; };
  // Nothing was found so far, or nothing was asked: who knows.
  for (int i = 0; i < 10; ++i) step(4, 0, 0, 0);
  CHECK(asked() == 0);
  // A list of several drafts: at this load they are tried, and steps without any found none.
  step(4, 1, 3, 2);
  CHECK(asked() == 11 * 4);
  for (int i = 0; i < 10; ++i) step(3, 0, 0, 0);
  // Under load a draft is tried now and then.
  for (int i = 0; i < 64; ++i) step(32, i % 16 == 0 ? 32 : 0, i % 16 == 0 ? 32 : 0, 0);
  CHECK(metrics->draft_counts().lists == 1 + 4 * 32);
  CHECK(asked() == 11 * 4);
  for (int i = 0; i < 10; ++i) step(4, 0, 0, 0);
  step(4, 2, 12, 6);
  // The first step of three began with four, and the first of four with 32.
  CHECK(asked() == 11 * 4 + 10 * 3 + 9 * 4 + 4);
  CHECK(metrics->draft_counts().asked_accepted_tokens == 8);
}

TEST_CASE("a worker that is started again counts from zero, with as many steps as before too") {
  Metrics metrics;
  metrics->OnEngineLoad("r0", Load(1, 100, 1));
  metrics->OnEngineLoad("r0", Load(1, 40, 1));
  CHECK(metrics.Of("vllm:prompt_tokens_total{engine=\"r0\",model_name=\"m\"}") == 140);
}

TEST_CASE("latencies alone are as they are among all families") {
  Metrics metrics;
  metrics->OnReplicaKnown("r0");
  metrics->OnFirstToken(0.25, 0.05, 0.2);
  for (const double gap : {0.02, 0.04, 0.9}) metrics->OnLaterToken(gap);
  metrics->OnRequestEnd({.since_arrival_seconds = 1.5});
  std::vector<prometheus::MetricFamily> latencies;
  metrics->AddLatencies(&latencies);
  std::vector<uint64_t> counts;
  for (const prometheus::MetricFamily& family : latencies) {
    const prometheus::MetricFamily whole = metrics.Family(family.name);
    REQUIRE(whole.metric.size() == 1);
    REQUIRE(family.metric.size() == 1);
    const auto& all = whole.metric[0].histogram;
    const auto& alone = family.metric[0].histogram;
    CHECK(family.type == whole.type);
    CHECK(alone.sample_sum == all.sample_sum);
    CHECK(alone.bucket.size() == all.bucket.size());
    counts.push_back(alone.sample_count);
  }
  CHECK(counts == std::vector<uint64_t>{1, 3, 1});
}

}  // namespace tessera::coordinator
