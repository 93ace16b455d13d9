// A RequestFlow whose replicas are played by the test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/request_flow.h"
#include "coordinator/flow/request_metrics.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "prometheus/registry.h"

namespace tessera::coordinator {

inline std::shared_ptr<const Tokenizer> DemoTokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      std::move(Tokenizer::Load("deploy/demo_model/tessera-demo").value());
  return tokenizer;
}

inline std::vector<int32_t> Ids(const std::string& text) {
  return DemoTokenizer()
      ->Encode(text, {.add_special_tokens = false, .parse_special_tokens = false})
      .value();
}

// A replica whose every message the test sees, and whose answers the test makes.
class FakeLink : public ReplicaLink, public std::enable_shared_from_this<FakeLink> {
 public:
  explicit FakeLink(std::string name) : name_(std::move(name)) {}
  const std::string& replica() const override { return name_; }
  int64_t max_sequences() const override { return 8; }
  const v1::WorkerReady& ready() const override { return ready_; }
  void SetPool(int32_t blocks, int32_t block_tokens) {
    ready_.set_kv_blocks(blocks);
    ready_.set_block_tokens(block_tokens);
  }
  bool Send(v1::SessionRequest request) override {
    if (request.has_submit()) submits.push_back(request.submit());
    if (request.has_cancel()) cancels.push_back(request.cancel());
    if (request.has_reserve()) reserves.push_back(request.reserve());
    if (request.has_credit()) {
      credit += request.credit().messages();
      ++credit_messages;
    }
    return true;
  }
  bool FindKept(const v1::FindKeptRequest& request, double, KeptFound found) override {
    wanted.push_back(request);
    finders.push_back(std::move(found));
    return true;
  }
  v1::TokenEvent Token(size_t submit, int32_t choice, int32_t token, int64_t position) const {
    v1::TokenEvent event;
    event.set_submission_id(submits[submit].submission_id());
    event.set_attempt(submits[submit].attempt());
    event.set_choice(choice);
    event.set_has_token(true);
    event.set_token_id(token);
    event.set_position(position);
    return event;
  }

  // The submission's end by an error of its worker.
  v1::TokenEvent Error(size_t submit, absl::StatusCode code, const std::string& text) const {
    v1::TokenEvent event;
    event.set_submission_id(submits[submit].submission_id());
    event.set_attempt(submits[submit].attempt());
    event.set_finish(v1::FINISH_REASON_ERROR);
    event.set_error_code(static_cast<int>(code));
    event.set_error(text);
    return event;
  }

  std::vector<v1::Submit> submits;
  std::vector<v1::Cancel> cancels;
  std::vector<v1::Reserve> reserves;
  std::vector<v1::FindKeptRequest> wanted;
  std::vector<KeptFound> finders;  // of these, for the test to call
  int64_t credit = 0;              // all that it was given, in so many messages
  int credit_messages = 0;

 private:
  const std::string name_;
  v1::WorkerReady ready_;
};

struct Recorder : GenerationSink {
  void OnPromptLogprobs(std::vector<PositionChances>) override {}
  void OnChoice(ChoiceEvent event) override {
    text += event.text;
    finish = event.finish;
    if (finish != Finish::kNone) ended.push_back(std::move(event));
    if (during_choice) during_choice();
  }
  void OnEnd(const absl::Status& s, const GenerationUsage& u, const std::string& r) override {
    ++ends;
    status = s;
    usage = u;
    replica = r;
  }
  // As a front door does it: the sink owns the handle of its own generation.
  std::unique_ptr<GenerationHandle> handle;
  std::function<void()> during_choice;
  std::string text, replica;
  Finish finish = Finish::kNone;
  std::vector<ChoiceEvent> ended;  // that ended a choice
  int ends = 0;
  absl::Status status;
  GenerationUsage usage;
};

struct Flow {
  using Adjust = std::function<void(RequestFlowOptions&)>;
  explicit Flow(const Adjust& adjust = nullptr) {
    RequestFlowOptions options;
    options.max_model_len_tokens = 100;
    options.max_requests = 4;
    options.recovery_timeout_seconds = 5;
    options.now_seconds = [this] { return now; };
    if (adjust) adjust(options);
    flow = std::make_shared<RequestFlow>(std::move(options), DemoTokenizer(), &metrics);
  }
  // A sink holds its generation, which holds the sink: a front door lets go at the end.
  ~Flow() {
    for (const auto& sink : sinks) sink->handle.reset();
  }
  std::shared_ptr<FakeLink> AddReplica(const std::string& name) {
    auto link = std::make_shared<FakeLink>(name);
    flow->OnLinkReady(link);
    return link;
  }
  std::shared_ptr<Recorder> Start(GenerationRequest request) {
    auto sink = std::make_shared<Recorder>();
    auto handle = flow->Start(std::move(request), sink);
    sink->status = handle.status();
    if (handle.ok()) sink->handle = *std::move(handle);
    sinks.push_back(sink);
    return sink;
  }
  void Reply(const std::shared_ptr<FakeLink>& link, v1::TokenEvent event) {
    v1::SessionReply reply;
    *reply.add_events() = std::move(event);
    flow->OnReply(link, reply);
  }
  void Say(const std::shared_ptr<FakeLink>& link, bool draining) {
    v1::SessionReply reply;
    reply.mutable_load()->set_draining(draining);
    flow->OnReply(link, reply);
  }
  double Migrations() const {
    return Metric("tessera_request_migrations_total").at(0).counter.value;
  }
  double Gauge(const std::string& name) const { return Metric(name).at(0).gauge.value; }
  // tessera_requests_refused_total of one reason.
  double Refused(const std::string& reason) const {
    for (const prometheus::ClientMetric& metric : Metric("tessera_requests_refused_total")) {
      for (const auto& label : metric.label) {
        if (label.value == reason) return metric.counter.value;
      }
    }
    return -1;
  }
  std::vector<prometheus::ClientMetric> Metric(const std::string& name) const {
    for (const prometheus::MetricFamily& family : registry.Collect()) {
      if (family.name == name) return family.metric;
    }
    return {};
  }
  double now = 100;
  prometheus::Registry registry;
  RequestMetrics metrics{registry, "model", 1000};
  std::shared_ptr<RequestFlow> flow;
  std::vector<std::shared_ptr<Recorder>> sinks;
};

inline GenerationRequest Ask(int32_t max_tokens) {
  GenerationRequest request;
  request.prompt_token_ids = {5, 6, 7};
  request.max_tokens = max_tokens;
  request.sampling.seed = 11;
  return request;
}

}  // namespace tessera::coordinator
