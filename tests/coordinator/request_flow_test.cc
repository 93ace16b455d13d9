#include "coordinator/flow/request_flow.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/flow_fixture.h"

namespace tessera::coordinator {

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

TEST_CASE("a prompt of which no token is wanted has timings too") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(0));
  v1::TokenEvent only = link->Token(0, 0, 0, 0);
  only.set_has_token(false);
  only.set_finish(v1::FINISH_REASON_LENGTH);
  only.set_queue_seconds(0.25);
  only.set_prefill_seconds(0.5);
  flow.Reply(link, only);
  REQUIRE(sink->ends == 1);
  CHECK(sink->usage.timings.prefill_replica == "r0");
  CHECK(sink->usage.timings.queue_seconds == 0.25);
  CHECK(sink->usage.timings.prefill_seconds == 0.5);
  CHECK(sink->usage.timings.decode_tokens == 0);
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

TEST_CASE("a worker's credit comes back in pieces, long before it has none left") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  const int64_t first = link->credit;
  REQUIRE(link->credit_messages == 1);
  int64_t least = first;
  for (int reply = 0; reply < 1000; ++reply) {
    --link->credit;
    flow.flow->OnReply(link, v1::SessionReply());
    least = std::min(least, link->credit);
  }
  CHECK(least >= first / 2);
  CHECK(link->credit_messages < 1000 / 10);
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

TEST_CASE("a request that no replica begins in time ends, and is counted") {
  Flow flow([](RequestFlowOptions& options) { options.queue_timeout_seconds = 3; });
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(3));
  REQUIRE(link->submits.size() == 1);
  CHECK(link->submits[0].queue_timeout_seconds() == 3);
  flow.Reply(link, link->Error(0, absl::StatusCode::kDeadlineExceeded, "not started"));
  CHECK(sink->ends == 1);
  CHECK(absl::IsUnavailable(sink->status));
  CHECK_THAT(std::string(sink->status.message()),
             Catch::Contains("3 s") && Catch::Contains("--queue-timeout"));
  CHECK(flow.Refused("queue_timeout") == 1);
  CHECK(flow.flow->requests_in_flight() == 0);
  CHECK(link->submits.size() == 1);  // and nobody else is asked
}

TEST_CASE("a request that is too late for its deadline goes on waiting, behind the others") {
  Flow flow([](RequestFlowOptions& options) { options.queue_timeout_seconds = 9; });
  auto link = flow.AddReplica("r0");
  GenerationRequest request = Ask(3);
  request.turn = 40;
  request.late_turn = 4000;
  request.begin_within_seconds = 2;
  auto sink = flow.Start(request);
  REQUIRE(link->submits.size() == 1);
  CHECK(link->submits[0].turn() == 40);
  CHECK(link->submits[0].queue_timeout_seconds() == 2);
  flow.now += 2;
  flow.Reply(link, link->Error(0, absl::StatusCode::kDeadlineExceeded, "not started"));
  CHECK(sink->ends == 0);
  REQUIRE(link->submits.size() == 2);
  CHECK(link->submits[1].turn() == 4000);
  CHECK(link->submits[1].queue_timeout_seconds() == Approx(7));
  CHECK(flow.Migrations() == 0);
  // The queue's own time-out ends it as ever.
  flow.now += 7;
  flow.Reply(link, link->Error(1, absl::StatusCode::kDeadlineExceeded, "not started"));
  CHECK(sink->ends == 1);
  CHECK(flow.Refused("queue_timeout") == 1);
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("the queue timeout counts from the request's start, wherever it waits") {
  bool changing = true;
  Flow flow([&](RequestFlowOptions& options) {
    options.queue_timeout_seconds = 3;
    options.changing_plan = [&] { return changing; };
  });
  auto placed = flow.Start(Ask(3));
  flow.now += 2;
  auto link = flow.AddReplica("r0");
  REQUIRE(link->submits.size() == 1);
  CHECK(link->submits[0].queue_timeout_seconds() == Approx(1));

  Flow none([&](RequestFlowOptions& options) {
    options.queue_timeout_seconds = 3;
    options.changing_plan = [&] { return changing; };
  });
  auto waits = none.Start(Ask(3));
  none.now += 2.5;
  none.flow->Tick();
  CHECK(waits->ends == 0);
  none.now += 1;
  none.flow->Tick();
  CHECK(waits->ends == 1);
  CHECK_THAT(std::string(waits->status.message()), Catch::Contains("--queue-timeout"));
  CHECK(none.Refused("queue_timeout") == 1);
  CHECK(none.flow->requests_in_flight() == 0);
}

TEST_CASE("what a replica had taken, and prompts behind their request's first, have no timeout") {
  Flow flow([](RequestFlowOptions& options) { options.queue_timeout_seconds = 3; });
  auto first = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(3));
  GenerationRequest behind = Ask(3);
  behind.group = 5;
  behind.leads_group = false;
  flow.Start(behind);
  REQUIRE(first->submits.size() == 2);
  CHECK(first->submits[1].queue_timeout_seconds() == 0);
  CHECK(first->submits[1].request_group() == 5);
  flow.Reply(first, first->Token(0, 0, 20, 3));
  flow.flow->OnLinkLost(first, absl::UnavailableError("gone"));
  flow.now += 4;
  flow.flow->Tick();
  CHECK(sink->ends == 0);
  auto second = flow.AddReplica("r1");
  REQUIRE(second->submits.size() == 2);
  for (const v1::Submit& submit : second->submits) CHECK(submit.queue_timeout_seconds() == 0);

  Flow off;
  auto link = off.AddReplica("r0");
  off.Start(Ask(3));
  CHECK(link->submits[0].queue_timeout_seconds() == 0);
}

TEST_CASE("the number of running requests follows cancels and ends at once") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(3));
  auto other = flow.Start(Ask(3));
  v1::SessionReply reply;
  *reply.add_events() = link->Token(0, 0, 20, 3);
  reply.mutable_load()->set_running(1);
  reply.mutable_load()->set_waiting(1);
  flow.flow->OnReply(link, reply);
  const auto shown = [&](const std::string& name) {
    flow.flow->CountSequences();
    return flow.Gauge(name);
  };
  CHECK(shown("vllm:num_requests_running") == 1);
  CHECK(shown("vllm:num_requests_waiting") == 1);
  auto third = flow.Start(Ask(3));
  CHECK(shown("vllm:num_requests_running") + shown("vllm:num_requests_waiting") ==
        flow.flow->requests_in_flight());
  // No reply comes of a cancel.
  for (const auto& one : {sink, other, third}) one->handle->Cancel();
  CHECK(flow.flow->requests_in_flight() == 0);
  for (const char* name : {"vllm:num_requests_running", "vllm:num_requests_waiting",
                           "tessera_requests_running", "tessera_requests_waiting"}) {
    INFO(name);
    CHECK(shown(name) == 0);
  }
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

TEST_CASE("an end that a reader of the text finds ends its choice alone, and reaches the worker") {
  // Each choice has a reader of its own, which ends it behind its second text.
  struct Second : TextEnd {
    bool Append(std::string_view text) override { return !text.empty() && ++texts == 2; }
    int texts = 0;
  };
  Flow f;
  auto r0 = f.AddReplica("r0");
  GenerationRequest request = Ask(8);
  request.choice_count = 2;
  request.make_text_end = [] { return std::make_unique<Second>(); };
  auto sink = f.Start(request);
  const int32_t id = Ids("x").at(0);
  f.Reply(r0, r0->Token(0, 0, id, 3));
  f.Reply(r0, r0->Token(0, 1, id, 3));
  CHECK(r0->cancels.empty());
  f.Reply(r0, r0->Token(0, 0, id, 4));
  REQUIRE(r0->cancels.size() == 1);
  CHECK(r0->cancels[0].choice() == 0);
  CHECK(sink->finish == Finish::kStop);
  CHECK(sink->ends == 0);
  f.Reply(r0, r0->Token(0, 0, id, 5));  // comes too late
  f.Reply(r0, r0->Token(0, 1, id, 4));
  CHECK(sink->ends == 1);
  CHECK(sink->text == "xxxx");
  CHECK(sink->usage.completion_tokens == 4);
}

TEST_CASE("a worker's error that is final is told, a passing one is tried again") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(10));
  flow.Reply(link, link->Error(0, absl::StatusCode::kAborted, "step failed"));
  REQUIRE(link->submits.size() == 2);
  CHECK(flow.Migrations() == 0);  // it is where it was
  flow.Reply(link, link->Error(1, absl::StatusCode::kInvalidArgument, "bad token"));
  CHECK(sink->ends == 1);
  CHECK(sink->status == absl::InvalidArgumentError("bad token"));
}

TEST_CASE("what no other replica would mend ends its choice alone, where there are others") {
  Flow f;
  auto link = f.AddReplica("r0");
  GenerationRequest request = Ask(2);
  request.choice_count = 2;
  const int32_t id = Ids("x").at(0);
  const absl::Status why = absl::InternalError("the form has too many readings");
  const auto fail = [&](size_t submit, int32_t choice) {
    v1::TokenEvent event = link->Error(submit, why.code(), std::string(why.message()));
    event.set_choice(choice);
    f.Reply(link, std::move(event));
  };
  auto sink = f.Start(request);
  for (const int32_t choice : {0, 1}) f.Reply(link, link->Token(0, choice, id, 3));
  fail(0, 1);
  CHECK(link->cancels.empty());  // the other choice goes on
  CHECK(sink->ends == 0);
  REQUIRE(sink->ended.size() == 1);
  CHECK((sink->ended[0].choice == 1 && sink->ended[0].finish == Finish::kError));
  CHECK(sink->ended[0].error == why);
  v1::TokenEvent last = link->Token(0, 0, id, 4);
  last.set_finish(v1::FINISH_REASON_LENGTH);
  f.Reply(link, last);
  CHECK((sink->ends == 1 && sink->status.ok() && sink->text == "xxx"));
  CHECK(sink->usage.completion_tokens == 3);
  CHECK((f.flow->requests_in_flight() == 0 && f.flow->activity()[0].running_sequences == 0));

  // Where none ends well, the request has the error.
  auto none = f.Start(request);
  for (const int32_t choice : {0, 1}) f.Reply(link, link->Token(1, choice, id, 3));
  fail(1, 0);
  CHECK(none->ends == 0);
  fail(1, 1);
  CHECK((none->ends == 1 && none->status == why));
  // So it has before any token: nothing was streamed, and a refusal is of the request.
  auto refused = f.Start(request);
  fail(2, 0);
  CHECK((refused->ends == 1 && refused->status == why && refused->ended.empty()));
  // What may be well elsewhere is tried again.
  auto again = f.Start(request);
  f.Reply(link, link->Token(3, 0, id, 3));
  f.Reply(link, link->Error(3, absl::StatusCode::kAborted, "step failed"));
  CHECK((again->ends == 0 && again->ended.empty() && link->submits.size() > 4));
  CHECK(f.flow->requests_in_flight() == 1);
  // What ends so before its first token there has tokens all the same.
  size_t resumed = link->submits.size() - 1;
  while (link->submits[resumed].first_choice() != 0) --resumed;
  REQUIRE(resumed > 3);
  fail(resumed, 0);
  CHECK((again->ends == 0 && again->ended.size() == 1 && again->ended[0].error == why));
}

TEST_CASE("a replica that says it drains gets nothing new, and keeps what it has") {
  Flow flow;
  auto first = flow.AddReplica("r0");
  auto running = flow.Start(Ask(2));
  auto second = flow.AddReplica("r1");
  flow.Say(first, true);
  CHECK(flow.flow->ready_replicas() == 1);
  flow.Start(Ask(2));
  flow.Start(Ask(2));
  CHECK(first->submits.size() == 1);
  CHECK(second->submits.size() == 2);
  flow.Reply(first, first->Token(0, 0, 20, 3));
  flow.Say(first, false);  // an older word, late: what drains never comes back over its link
  CHECK(flow.flow->ready_replicas() == 1);
  CHECK(running->ends == 0);
  // By heartbeat too, and nobody left is said at once.
  v1::EngineLoad load;
  load.set_draining(true);
  flow.flow->OnHeartbeat(second, load);
  CHECK(absl::IsUnavailable(flow.Start(Ask(2))->status));
}

TEST_CASE("what a replica refuses goes to another, and the refuser waits until it says otherwise") {
  Flow flow;
  auto first = flow.AddReplica("r0");
  auto second = flow.AddReplica("r1");
  auto sink = flow.Start(Ask(2));
  REQUIRE(first->submits.size() == 1);
  flow.Reply(first, first->Error(0, absl::StatusCode::kUnavailable, "shutting down"));
  REQUIRE(second->submits.size() == 1);
  CHECK(second->submits[0].attempt() == 2);
  CHECK(flow.Migrations() == 1);
  flow.Start(Ask(2));
  CHECK(first->submits.size() == 1);
  CHECK(second->submits.size() == 2);
  flow.flow->OnHeartbeat(first, {});
  flow.Start(Ask(2));
  CHECK(first->submits.size() == 2);
  CHECK(sink->ends == 0);
}

TEST_CASE("refused by the only replica, a request waits until it takes requests again") {
  Flow flow;
  auto link = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(2));
  flow.Reply(link, link->Error(0, absl::StatusCode::kUnavailable, "not now"));
  flow.flow->Tick();
  CHECK(link->submits.size() == 1);
  flow.flow->OnHeartbeat(link, {});
  flow.flow->Tick();
  REQUIRE(link->submits.size() == 2);
  // Refusing for ever does not keep it waiting for ever.
  for (size_t i = 1; sink->ends == 0; ++i) {
    REQUIRE(i < 100);
    flow.Reply(link, link->Error(i, absl::StatusCode::kUnavailable, "not now"));
    for (int tick = 0; tick < 10 && sink->ends == 0 && link->submits.size() == i + 1; ++tick) {
      flow.now += 0.5;
      flow.flow->OnHeartbeat(link, {});
      flow.flow->Tick();
    }
  }
  CHECK(absl::IsUnavailable(sink->status));
  CHECK(flow.now <= 106);
}

TEST_CASE("while a replica that has served is formed again requests wait for it, for a while") {
  bool recovering = true;
  Flow flow([&](RequestFlowOptions& options) { options.recovering = [&] { return recovering; }; });
  CHECK(absl::IsUnavailable(flow.Start(Ask(2))->status));  // it never served
  auto link = flow.AddReplica("r0");
  flow.flow->OnLinkLost(link, absl::UnavailableError("gone"));

  auto waits = flow.Start(Ask(2));
  CHECK(waits->status.ok());
  CHECK(waits->ends == 0);
  auto again = flow.AddReplica("r0");
  REQUIRE(again->submits.size() == 1);
  CHECK(flow.Migrations() == 0);
  waits->handle->Cancel();

  flow.flow->OnLinkLost(again, absl::UnavailableError("gone"));
  auto unserved = flow.Start(Ask(2));
  flow.now += 6;  // though it is still coming back
  flow.flow->Tick();
  CHECK(unserved->ends == 1);
  CHECK_THAT(std::string(unserved->status.message()), Catch::Contains("formed again"));
  recovering = false;
  CHECK(absl::IsUnavailable(flow.Start(Ask(2))->status));
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("while another plan is applied requests wait for a replica, for a while") {
  bool changing = true;
  Flow flow([&](RequestFlowOptions& options) { options.changing_plan = [&] { return changing; }; });
  auto waits = flow.Start(Ask(2));
  CHECK(waits->status.ok());
  CHECK(waits->ends == 0);
  CHECK(flow.flow->requests_in_flight() == 1);
  auto link = flow.AddReplica("r0");
  REQUIRE(link->submits.size() == 1);
  CHECK(link->submits[0].attempt() == 1);
  CHECK(flow.Migrations() == 0);
  waits->handle->Cancel();

  flow.flow->OnLinkLost(link, absl::UnavailableError("gone"));
  auto unserved = flow.Start(Ask(2));
  flow.now += 6;
  flow.flow->Tick();
  CHECK(unserved->ends == 1);
  CHECK(absl::IsUnavailable(unserved->status));
  changing = false;
  CHECK(absl::IsUnavailable(flow.Start(Ask(2))->status));
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("a plan's shares bear on where requests go") {
  Flow flow;
  v1::DeploymentPlan plan;
  for (const auto& [name, share] : {std::pair("r0", 0.25), std::pair("r1", 0.75)}) {
    v1::RoutingShare& route = *plan.add_routing();
    route.set_prefill_replica(name);
    route.set_decode_replica(name);
    route.set_share(share);
  }
  flow.flow->SetPairs(PlanPairs(plan));
  auto first = flow.AddReplica("r0");
  auto second = flow.AddReplica("r1");
  for (int i = 0; i < 40; ++i) flow.Start(Ask(2))->handle.reset();  // cancelled: both stay idle
  CHECK(first->submits.size() + second->submits.size() == 40);
  CHECK(first->submits.size() >= 8);
  CHECK(first->submits.size() <= 14);
}

TEST_CASE("full queues are asked once each, then the client is told") {
  Flow flow;
  std::vector<std::shared_ptr<FakeLink>> links = {flow.AddReplica("r0")};
  auto alone = flow.Start(Ask(2));
  flow.Reply(links[0], links[0]->Error(0, absl::StatusCode::kResourceExhausted, "full"));
  CHECK(alone->status == absl::ResourceExhaustedError("full"));
  CHECK(links[0]->submits.size() == 1);
  CHECK(flow.Migrations() == 0);

  links.push_back(flow.AddReplica("r1"));
  links.push_back(flow.AddReplica("r2"));
  auto sink = flow.Start(Ask(2));
  std::set<FakeLink*> asked;
  for (int round = 0; round < 3; ++round) {
    CHECK(sink->ends == 0);
    for (const auto& link : links) {
      const size_t last = link->submits.size();
      if (last == 0 || asked.contains(link.get()) || (link == links[0] && last < 2)) continue;
      asked.insert(link.get());
      flow.Reply(link, link->Error(last - 1, absl::StatusCode::kResourceExhausted, "full"));
      break;
    }
  }
  CHECK(sink->status == absl::ResourceExhaustedError("full"));
  CHECK(asked.size() == 3);
  CHECK(links[0]->submits.size() + links[1]->submits.size() + links[2]->submits.size() == 4);
  CHECK(flow.Migrations() == 2);
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("an end that comes while something else is delivered is delivered too") {
  Flow f;
  auto link = f.AddReplica("r0");
  auto sink = f.Start(Ask(4));
  // As if another thread stopped the server meanwhile.
  sink->during_choice = [&] { f.flow->AbortAll(absl::UnavailableError("stopped")); };
  f.Reply(link, link->Token(0, 0, Ids("1")[0], 3));
  CHECK(sink->ends == 1);
  CHECK(sink->status.message() == "stopped");
  CHECK(f.flow->requests_in_flight() == 0);
  CHECK(link->cancels.size() == 1);
}

TEST_CASE("what a lost replica was doing waits for room elsewhere") {
  Flow flow;
  auto first = flow.AddReplica("r0");
  auto sink = flow.Start(Ask(3));
  flow.Reply(first, first->Token(0, 0, 20, 3));
  auto second = flow.AddReplica("r1");
  flow.flow->OnLinkLost(first, absl::UnavailableError("gone"));
  REQUIRE(second->submits.size() == 1);
  flow.Reply(second, second->Error(0, absl::StatusCode::kResourceExhausted, "full"));
  CHECK(sink->ends == 0);
  flow.flow->Tick();
  CHECK(second->submits.size() == 1);  // not at once
  flow.now += 0.3;
  flow.flow->Tick();
  REQUIRE(second->submits.size() == 2);
  CHECK(second->submits[1].output_token_ids_size() == 1);
  CHECK(second->submits[1].attempt() == 3);
  flow.Reply(second, second->Token(1, 0, 21, 4));
  // What has outgrown the only replica's memory will not fit there next time.
  flow.Reply(second, second->Error(1, absl::StatusCode::kResourceExhausted, "outgrown"));
  CHECK(sink->status == absl::ResourceExhaustedError("outgrown"));
}

}  // namespace tessera::coordinator
