// Requests that go on with answers which workers keep, with replicas that the test plays.
#include "coordinator/flow/resumption.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/kept_answer.h"
#include "coordinator/flow/submit_message.h"
#include "tests/coordinator/flow_fixture.h"

namespace tessera::coordinator {
namespace {

constexpr int32_t kEos = 2;

GenerationRequest Stream(int32_t max_tokens = 20) {
  GenerationRequest request = Ask(max_tokens);
  request.request_id = "r";
  request.client = "agents";
  request.answer_id = "cmpl-1";
  return request;
}

// What a worker keeps of `request`.
v1::KeptAnswer Kept(const GenerationRequest& request, const std::vector<int32_t>& tokens) {
  v1::KeptAnswer kept;
  *kept.mutable_submit() = ToSubmit(request).submit();
  kept.mutable_submit()->set_submission_id(77);
  kept.mutable_submit()->set_turn(4);
  kept.mutable_output_token_ids()->Add(tokens.begin(), tokens.end());
  return kept;
}

std::string TextOf(const std::vector<int32_t>& tokens) {
  return DemoTokenizer()->Decode(tokens, /*skip_special_tokens=*/true);
}

struct Setup {
  Setup()
      : flow([](RequestFlowOptions& options) { options.eos_token_ids = {kEos}; }),
        resumption(flow.flow),
        link(flow.AddReplica("r0")) {
    flow.now += 60;
  }
  std::shared_ptr<Recorder> Start(GenerationRequest request) {
    auto sink = std::make_shared<Recorder>();
    auto handle = resumption.Start(std::move(request), sink);
    sink->status = handle.status();
    if (handle.ok()) sink->handle = *std::move(handle);
    flow.sinks.push_back(sink);
    return sink;
  }
  std::shared_ptr<Recorder> Resume(GenerationRequest request) {
    request.resumes = true;
    return Start(std::move(request));
  }

  Flow flow;
  Resumption resumption;
  std::shared_ptr<FakeLink> link;
};

const std::vector<int32_t> kTokens = Ids("one two three");

TEST_CASE("an answer comes again from its first token, and goes on with its seed") {
  Setup s;
  const auto other = s.flow.AddReplica("r1");
  s.flow.now += 60;
  GenerationRequest first = Stream();
  GenerationRequest again = first;
  again.sampling.seed = 12;  // drawn for the second request
  const auto sink = s.Resume(again);
  REQUIRE(sink->status.ok());
  REQUIRE(s.link->wanted.size() == 1);
  CHECK(s.link->wanted[0].request_id() == "cmpl-1");
  CHECK(s.link->wanted[0].owner() == OwnerOf("agents"));
  CHECK(s.link->wanted[0].owner() != OwnerOf("other agents"));
  // Where it moved between replicas, the one that had it last has the most.
  s.link->finders[0](Kept(first, {kTokens[0]}));
  CHECK(sink->text.empty());
  other->finders[0](Kept(first, kTokens));
  CHECK(sink->text == TextOf(kTokens));

  const auto& ran = s.link->submits.empty() ? other : s.link;
  REQUIRE(ran->submits.size() == 1);
  const v1::Submit& submit = ran->submits[0];
  CHECK(submit.sampling().seed() == first.sampling.seed);
  CHECK(std::vector<int32_t>(submit.output_token_ids().begin(), submit.output_token_ids().end()) ==
        kTokens);
  CHECK(submit.request_id() == "cmpl-1");
  CHECK(submit.owner() == OwnerOf("agents"));
  const std::vector<int32_t> more = Ids(" four");
  auto token = ran->Token(0, 0, more[0], static_cast<int64_t>(3 + kTokens.size()));
  token.set_finish(v1::FINISH_REASON_LENGTH);
  s.flow.Reply(ran, token);
  CHECK(sink->ends == 1);
  CHECK(sink->status.ok());
  std::vector<int32_t> all = kTokens;
  all.push_back(more[0]);
  CHECK(sink->text == TextOf(all));
  CHECK(sink->usage.completion_tokens == static_cast<int64_t>(all.size()));
  CHECK(s.flow.flow->requests_in_flight() == 0);
}

TEST_CASE("an answer that has ended comes again without a replica's work") {
  Setup s;
  GenerationRequest request = Stream();
  std::vector<int32_t> tokens = kTokens;
  Finish finish = Finish::kStop;
  std::string text = TextOf(kTokens);
  SECTION("by an end token") { tokens.push_back(kEos); }
  SECTION("by its length") {
    request.max_tokens = static_cast<int32_t>(tokens.size());
    finish = Finish::kLength;
  }
  SECTION("by a stop string, behind which the worker had gone on") {
    request.stop_strings = {" two"};
    text = "one";
  }
  SECTION("by a stop token of its own") {
    request.stop_token_ids = {9};
    request.ignore_eos = true;
    tokens.push_back(9);
  }
  const auto sink = s.Resume(request);
  s.link->finders.at(0)(Kept(request, tokens));
  CHECK(sink->ends == 1);
  CHECK(sink->status.ok());
  CHECK(sink->text == text);
  CHECK(sink->finish == finish);
  CHECK(s.link->submits.empty());
  CHECK(s.flow.flow->requests_in_flight() == 0);
}

TEST_CASE("another request than the one that was answered is refused, with what differs") {
  Setup s;
  const GenerationRequest first = Stream();
  GenerationRequest again = first;
  std::string what;
  SECTION("prompt") {
    again.prompt_token_ids.back() = 8;
    what = "prompt or messages";
  }
  SECTION("length") {
    again.max_tokens = 21;
    what = "max_tokens";
  }
  SECTION("sampling") {
    again.sampling.temperature = 0.5f;
    what = "temperature";
  }
  SECTION("bias") {
    again.sampling.logit_bias = {{3, 1.0f}};
    what = "logit_bias";
  }
  SECTION("form") {
    again.grammar = "root ::= \"a\"";
    what = "response_format";
  }
  SECTION("a seed that the client gives") {
    again.sampling.seed = 12;
    again.sampling.seed_given = true;
    what = "seed";
  }
  const auto sink = s.Resume(again);
  s.link->finders.at(0)(Kept(first, kTokens));
  CHECK(sink->ends == 1);
  CHECK(absl::IsInvalidArgument(sink->status));
  CHECK_THAT(std::string(sink->status.message()), Catch::Contains("answers: " + what));
  CHECK(s.link->submits.empty());
}

TEST_CASE(
    "a coordinator that ends does not wait for leaders, and later words of theirs go nowhere") {
  Setup s;
  const GenerationRequest request = Stream();
  const auto sink = s.Resume(request);
  s.resumption.AbortAll(absl::UnavailableError("it ends"));
  CHECK(sink->ends == 1);
  CHECK(sink->status.message() == "it ends");
  s.link->finders.at(0)(Kept(request, kTokens));
  CHECK(sink->ends == 1);
  CHECK(sink->text.empty());
  CHECK(s.link->submits.empty());
  CHECK(s.flow.flow->requests_in_flight() == 0);
  CHECK_THAT(std::string(s.Resume(request)->status.message()), Catch::Contains("draining"));
  CHECK(s.link->wanted.size() == 1);
}

TEST_CASE("what nobody keeps is not found, unless a replica may not have been asked") {
  Setup s;
  absl::StatusCode code = absl::StatusCode::kNotFound;
  absl::StatusOr<v1::KeptAnswer> said = absl::NotFoundError("none");
  SECTION("all were asked") {}
  SECTION("one does not answer") {
    said = absl::DeadlineExceededError("too late");
    code = absl::StatusCode::kUnavailable;
  }
  SECTION("others may come") {
    s.flow.flow->OnLinkLost(s.flow.AddReplica("r1"), absl::UnavailableError("gone"));
    code = absl::StatusCode::kUnavailable;
  }
  const auto sink = s.Resume(Stream());
  s.link->finders.at(0)(said);
  CHECK(sink->ends == 1);
  CHECK(sink->status.code() == code);
  CHECK(s.link->submits.empty());

  for (const char* no_id : {"", "0", "cmpl 1", "cmpl-\xff"}) {
    GenerationRequest other = Stream();
    other.answer_id = no_id;
    CHECK_THAT(std::string(s.Resume(other)->status.message()),
               Catch::Contains("no id of an answer"));
  }
  s.flow.flow->Drain();
  CHECK_THAT(std::string(s.Resume(Stream())->status.message()), Catch::Contains("draining"));

  Flow none;
  Resumption without(none.flow);
  GenerationRequest request = Stream();
  request.resumes = true;
  CHECK(absl::IsUnavailable(
      without.Start(std::move(request), std::make_shared<Recorder>()).status()));
}

TEST_CASE("a stream that runs here ends when another request resumes it, and only its client's") {
  Setup s;
  const auto first = s.Start(Stream());
  s.flow.Reply(s.link, s.link->Token(0, 0, kTokens[0], 3));
  GenerationRequest of_another = Stream();
  of_another.client = "others";
  const auto refused = s.Resume(of_another);
  s.link->finders.at(0)(absl::NotFoundError("none"));
  CHECK(absl::IsNotFound(refused->status));
  CHECK(first->ends == 0);

  const auto second = s.Resume(Stream());
  s.link->finders.at(1)(Kept(Stream(), {kTokens[0]}));
  CHECK(first->ends == 1);
  CHECK(absl::IsAborted(first->status));
  CHECK(s.link->cancels.size() == 1);
  CHECK(second->text == TextOf({kTokens[0]}));
  CHECK(s.link->submits.size() == 2);
  CHECK(s.flow.flow->requests_in_flight() == 1);
}

TEST_CASE("a resumption that is refused leaves the stream to its reader") {
  Setup s;
  const auto first = s.Start(Stream());
  s.flow.Reply(s.link, s.link->Token(0, 0, kTokens[0], 3));
  const auto refused = s.Resume(Stream());
  s.flow.flow->Drain();
  s.link->finders.at(0)(Kept(Stream(), {kTokens[0]}));
  CHECK(absl::IsUnavailable(refused->status));
  CHECK(first->ends == 0);
  CHECK(s.link->cancels.empty());
  s.flow.Reply(s.link, s.link->Token(0, 0, kTokens[1], 4));
  CHECK(first->text == TextOf({kTokens[0], kTokens[1]}));
}

TEST_CASE("a resumption takes the place of its stream where there is room for no more requests") {
  Setup s;
  std::vector<std::shared_ptr<Recorder>> others;
  const auto first = s.Start(Stream());
  for (int i = 1; i < 4; ++i) others.push_back(s.Start(Ask(5)));
  const auto second = s.Resume(Stream());
  s.link->finders.at(0)(Kept(Stream(), {kTokens[0]}));
  CHECK(second->ends == 0);
  CHECK(absl::IsAborted(first->status));
  CHECK(s.flow.flow->requests_in_flight() == 4);
}

TEST_CASE("where several replicas keep an answer, its newest attempt goes on, not the longest") {
  Setup s;
  const auto other = s.flow.AddReplica("r1");
  s.flow.now += 60;
  v1::KeptAnswer left = Kept(Stream(), kTokens), moved = Kept(Stream(), {kTokens[0], kTokens[2]});
  SECTION("it was moved before a token had come") { moved.mutable_submit()->set_attempt(2); }
  SECTION("it was resumed behind a token") {
    moved.mutable_submit()->add_output_token_ids(kTokens[0]);
    left.mutable_submit()->set_attempt(3);
  }
  const auto sink = s.Resume(Stream());
  const bool left_first = GENERATE(true, false);
  s.link->finders.at(0)(left_first ? left : moved);
  other->finders.at(0)(left_first ? moved : left);
  CHECK(sink->text == TextOf({kTokens[0], kTokens[2]}));
}

TEST_CASE("a client that leaves while its answer is looked for starts nothing") {
  Setup s;
  const auto sink = s.Resume(Stream());
  sink->handle->Cancel();
  s.link->finders.at(0)(Kept(Stream(), kTokens));
  CHECK(s.link->submits.empty());
  CHECK(sink->ends == 0);
}

TEST_CASE("a resumed answer waits for a replica with room, as one that a replica had taken") {
  Setup s;
  const auto sink = s.Resume(Stream());
  s.link->finders.at(0)(Kept(Stream(), kTokens));
  s.flow.Reply(s.link, s.link->Error(0, absl::StatusCode::kResourceExhausted, "full"));
  CHECK(sink->ends == 0);
  s.flow.now += 1;
  s.flow.flow->Tick();
  REQUIRE(s.link->submits.size() == 2);
  CHECK(s.link->submits[1].output_token_ids_size() == static_cast<int>(kTokens.size()));
}

TEST_CASE("answers of several choices, of several prompts, with logprobs, and rows are not kept") {
  GenerationRequest choices = Stream(), logprobs = Stream(), prompts = Stream(), rows = Stream();
  choices.choice_count = 2;
  logprobs.top_logprobs = 0;
  prompts.group = 5;
  rows.final_rows = true;
  const auto said = [](const GenerationRequest& request) {
    return std::string(CheckResumable(request).message());
  };
  CHECK(CheckResumable(Stream()).ok());
  CHECK_THAT(said(choices), Catch::StartsWith("n:"));
  CHECK_THAT(said(logprobs), Catch::StartsWith("logprobs:"));
  CHECK_THAT(said(prompts), Catch::StartsWith("prompt:"));
  CHECK_THAT(said(rows), Catch::StartsWith("an embedding"));
  Setup s;
  CHECK(absl::IsInvalidArgument(s.Resume(choices)->status));
  CHECK(s.link->wanted.empty());

  GenerationRequest unkept = Stream();
  unkept.answer_id.clear();
  CHECK(ToSubmit(unkept).submit().owner().empty());
  CHECK(ToSubmit(unkept).submit().request_id() == "r");
}

}  // namespace
}  // namespace tessera::coordinator
