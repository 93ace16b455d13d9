#include "coordinator/request_flow.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::coordinator {
namespace {

std::shared_ptr<const Tokenizer> DemoTokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      std::move(Tokenizer::Load("deploy/demo_model/tessera-demo").value());
  return tokenizer;
}

std::vector<int32_t> Ids(const std::string& text) {
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
  bool Send(v1::SessionRequest request) override {
    if (request.has_submit()) submits.push_back(request.submit());
    if (request.has_cancel()) cancels.push_back(request.cancel());
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

  std::vector<v1::Submit> submits;
  std::vector<v1::Cancel> cancels;

 private:
  const std::string name_;
  v1::WorkerReady ready_;
};

struct Recorder : GenerationSink {
  void OnPromptLogprobs(std::vector<PositionChances>) override {}
  void OnChoice(ChoiceEvent event) override {
    text += event.text;
    finish = event.finish;
  }
  void OnEnd(const absl::Status& s, const GenerationUsage& u, const std::string& r) override {
    ++ends;
    status = s;
    usage = u;
    replica = r;
  }
  // As a front door does it: the sink owns the handle of its own generation.
  std::unique_ptr<GenerationHandle> handle;
  std::string text, replica;
  Finish finish = Finish::kNone;
  int ends = 0;
  absl::Status status;
  GenerationUsage usage;
};

struct Flow {
  Flow() {
    RequestFlowOptions options;
    options.max_model_len_tokens = 100;
    options.max_requests = 4;
    options.recovery_timeout_seconds = 5;
    options.now_seconds = [this] { return now; };
    flow = std::make_shared<RequestFlow>(std::move(options), DemoTokenizer(), nullptr);
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
  double now = 100;
  std::shared_ptr<RequestFlow> flow;
  std::vector<std::shared_ptr<Recorder>> sinks;
};

GenerationRequest Ask(int32_t max_tokens) {
  GenerationRequest request;
  request.prompt_token_ids = {5, 6, 7};
  request.max_tokens = max_tokens;
  request.sampling.seed = 11;
  return request;
}

}  // namespace

TEST_CASE("a request is answered, counted and forgotten") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(2));
  REQUIRE(link->submits.size() == 1);
  CHECK(link->submits[0].sampling().seed() == 11);
  const std::vector<int32_t> ids = Ids("12");
  REQUIRE(ids.size() == 2);
  flow.Reply(link, link->Token(0, 0, ids[0], 3));
  v1::TokenEvent last = link->Token(0, 0, ids[1], 4);
  last.set_finish(v1::FINISH_REASON_LENGTH);
  flow.Reply(link, last);
  CHECK(sink->text == "12");
  CHECK(sink->finish == Finish::kLength);
  CHECK(sink->ends == 1);
  CHECK(sink->usage.completion_tokens == 2);
  CHECK(sink->replica == "r0");
  CHECK(flow.flow->requests_in_flight() == 0);
  CHECK(flow.flow->activity()[0].running_sequences == 0);
}

TEST_CASE("a sink that owns its handle may be the last one to let go") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  flow.Start(Ask(1));  // only the generation holds the sink now
  v1::TokenEvent last = link->Token(0, 0, 20, 3);
  last.set_finish(v1::FINISH_REASON_LENGTH);
  flow.Reply(link, last);
  CHECK(flow.flow->requests_in_flight() == 0);
  CHECK(flow.flow->activity()[0].running_sequences == 0);
}

TEST_CASE("what waits for its first token is told apart from what decodes") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  const auto prefilling = [&] { return flow.flow->activity()[0].prefilling_sequences; };
  GenerationRequest twice = Ask(2);
  twice.choice_count = 2;
  flow.Start(std::move(twice));
  auto other = flow.Start(Ask(2));
  CHECK(prefilling() == 3);
  flow.Reply(link, link->Token(0, 1, 20, 3));  // one choice's token: the prompt is done
  CHECK(prefilling() == 1);
  CHECK(flow.flow->activity()[0].messages == 1);
  flow.Reply(link, link->Token(0, 0, 20, 3));
  CHECK(prefilling() == 1);
  other->handle->Cancel();
  CHECK(prefilling() == 0);
  CHECK(flow.flow->activity()[0].running_sequences == 2);
}

TEST_CASE("a lost replica's request goes on elsewhere where it stopped") {
  Flow flow;
  auto first = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(3));
  const std::vector<int32_t> ids = Ids("123");
  flow.Reply(first, first->Token(0, 0, ids[0], 3));
  auto second = flow.AddReplica("r1");
  flow.flow->OnLinkLost(first, absl::UnavailableError("gone"));
  REQUIRE(second->submits.size() == 1);
  const v1::Submit& again = second->submits[0];
  CHECK(again.attempt() == 2);
  CHECK(again.sampling().seed() == 11);
  CHECK(std::vector<int32_t>(again.output_token_ids().begin(), again.output_token_ids().end()) ==
        std::vector<int32_t>{ids[0]});
  // What the lost one still says is stale; what was told already is not told twice.
  flow.Reply(first, first->Token(0, 0, ids[2], 4));
  flow.Reply(second, second->Token(0, 0, ids[0], 3));
  flow.Reply(second, second->Token(0, 0, ids[1], 4));
  v1::TokenEvent last = second->Token(0, 0, ids[2], 5);
  last.set_finish(v1::FINISH_REASON_LENGTH);
  flow.Reply(second, last);
  CHECK(sink->text == "123");
  CHECK(sink->status.ok());
  CHECK(sink->replica == "r1");
}

TEST_CASE("without another replica a request waits, then ends with the reason") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto waits = flow.Start(Ask(3));
  auto lost = flow.Start(Ask(3));
  flow.flow->OnLinkLost(link, absl::UnavailableError("gone"));
  lost->handle->Cancel();
  flow.now += 4;
  flow.flow->Tick();
  CHECK(waits->ends == 0);
  flow.now += 2;
  flow.flow->Tick();
  CHECK(waits->ends == 1);
  CHECK(absl::IsUnavailable(waits->status));
  CHECK(lost->ends == 0);
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("what cannot be taken is refused at once, with the numbers") {
  Flow flow;
  CHECK(absl::IsUnavailable(flow.Start(Ask(1))->status));
  flow.AddReplica("r0");
  const absl::Status too_long = flow.Start(Ask(98))->status;
  CHECK(absl::IsInvalidArgument(too_long));
  CHECK(std::string(too_long.message()).find("100") != std::string::npos);
  std::vector<std::shared_ptr<Recorder>> running;
  for (int i = 0; i < 4; ++i) running.push_back(flow.Start(Ask(1)));
  CHECK(absl::IsResourceExhausted(flow.Start(Ask(1))->status));
  running[0]->handle->Cancel();
  CHECK(flow.Start(Ask(1))->status.ok());
  flow.flow->Drain();
  running[1]->handle->Cancel();
  CHECK(absl::IsUnavailable(flow.Start(Ask(1))->status));
}

TEST_CASE("a stop string and a cancel reach the worker") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  GenerationRequest request = Ask(10);
  request.stop_strings = {"2"};
  auto sink = flow.Start(std::move(request));
  const std::vector<int32_t> ids = Ids("12");
  flow.Reply(link, link->Token(0, 0, ids[0], 3));
  flow.Reply(link, link->Token(0, 0, ids[1], 4));
  CHECK(sink->text == "1");
  CHECK(sink->finish == Finish::kStop);
  REQUIRE(link->cancels.size() == 1);
  auto other = flow.Start(Ask(10));
  other->handle->Cancel();
  REQUIRE(link->cancels.size() == 2);
  CHECK(link->cancels[1].submission_id() == link->submits[1].submission_id());
  CHECK(other->ends == 0);
}

TEST_CASE("a worker's error that is final is told, a passing one is tried again") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(10));
  v1::TokenEvent event = link->Token(0, 0, 0, 3);
  event.set_has_token(false);
  event.set_finish(v1::FINISH_REASON_ERROR);
  event.set_error("step failed");
  event.set_error_code(static_cast<int>(absl::StatusCode::kAborted));
  flow.Reply(link, event);
  REQUIRE(link->submits.size() == 2);
  event = link->Token(1, 0, 0, 3);
  event.set_has_token(false);
  event.set_finish(v1::FINISH_REASON_ERROR);
  event.set_error("bad token");
  event.set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  flow.Reply(link, event);
  CHECK(sink->ends == 1);
  CHECK(sink->status == absl::InvalidArgumentError("bad token"));
}

}  // namespace tessera::coordinator
