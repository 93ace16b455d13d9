// Requests whose prompt one replica computes and another decodes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/plan_pairs.h"
#include "tests/coordinator/flow_fixture.h"

namespace tessera::coordinator {
namespace {

// Prompts go to "p", and from there to "d".
struct PairFlow : Flow {
  explicit PairFlow(const Adjust& adjust = nullptr) : Flow(adjust) {
    v1::DeploymentPlan plan;
    v1::RoutingShare* route = plan.add_routing();
    route->set_prefill_replica("p");
    route->set_decode_replica("d");
    route->set_share(1);
    flow->SetPairs(PlanPairs(plan));
    prefill = AddReplica("p");
    decode = AddReplica("d");
  }
  void GiveRoom(size_t reserve) {
    v1::SessionReply reply;
    v1::Reserved& answer = *reply.add_reserved();
    answer.set_submission_id(decode->reserves[reserve].submission_id());
    answer.set_attempt(decode->reserves[reserve].attempt());
    answer.mutable_target()->set_ticket("ticket");
    flow->OnReply(decode, reply);
  }
  bool GaveRoomBack(size_t reserve) const {
    return std::any_of(decode->cancels.begin(), decode->cancels.end(), [&](const auto& cancel) {
      return cancel.submission_id() == decode->reserves[reserve].submission_id();
    });
  }
  v1::TokenEvent HandedOver() const {
    v1::TokenEvent event = prefill->Token(0, 0, 0, 0);
    event.set_has_token(false);
    event.set_finish(v1::FINISH_REASON_HANDED_OVER);
    return event;
  }

  std::shared_ptr<FakeLink> prefill, decode;
};

}  // namespace

TEST_CASE("a prompt is computed at one replica and goes on at another") {
  PairFlow flow;
  auto sink = flow.Start(Ask(3));
  REQUIRE(flow.decode->reserves.size() == 1);
  CHECK(flow.decode->reserves[0].prompt_token_ids_size() == 3);
  CHECK(flow.prefill->submits.empty());  // until there is room
  flow.GiveRoom(0);
  REQUIRE(flow.prefill->submits.size() == 1);
  CHECK(flow.prefill->submits[0].kv_target().ticket() == "ticket");
  const std::vector<int32_t> ids = Ids("123");
  flow.Reply(flow.prefill, flow.prefill->Token(0, 0, ids[0], 3));
  CHECK(sink->text == "1");  // before the KV has moved
  CHECK(flow.decode->submits.empty());
  flow.Reply(flow.prefill, flow.HandedOver());
  REQUIRE(flow.decode->submits.size() == 1);
  const v1::Submit& submit = flow.decode->submits[0];
  CHECK(submit.submission_id() == flow.decode->reserves[0].submission_id());
  CHECK(submit.kv_ticket() == "ticket");
  CHECK(submit.output_token_ids_size() == 1);
  flow.Reply(flow.decode, flow.decode->Token(0, 0, ids[1], 4));
  v1::TokenEvent last = flow.decode->Token(0, 0, ids[2], 5);
  last.set_finish(v1::FINISH_REASON_LENGTH);
  flow.Reply(flow.decode, last);
  CHECK(sink->text == "123");
  CHECK(sink->ends == 1);
  CHECK(flow.flow->requests_in_flight() == 0);
  CHECK(flow.decode->cancels.empty());
  for (const ReplicaActivity& activity : flow.flow->activity()) {
    CHECK(activity.running_sequences == 0);
    CHECK(activity.prefilling_sequences == 0);
    CHECK(activity.queued_prompt_tokens == 0);
  }
}

TEST_CASE("a request that waits for room has its queue timeout too") {
  PairFlow flow([](RequestFlowOptions& options) { options.queue_timeout_seconds = 3; });
  auto sink = flow.Start(Ask(3));
  REQUIRE(flow.decode->reserves.size() == 1);
  flow.now += 2;
  flow.flow->Tick();
  CHECK(sink->ends == 0);
  flow.now += 1.5;
  flow.flow->Tick();
  CHECK(sink->ends == 1);
  CHECK(absl::IsUnavailable(sink->status));
  CHECK(flow.GaveRoomBack(0));
  CHECK(flow.prefill->submits.empty());
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("the prompts of one request are known as such where room is asked for") {
  PairFlow flow;
  GenerationRequest request = Ask(3);
  request.group = 77;
  flow.Start(request);
  REQUIRE(flow.decode->reserves.size() == 1);
  CHECK(flow.decode->reserves[0].request_group() == 77);
  flow.GiveRoom(0);
  REQUIRE(flow.prefill->submits.size() == 1);
  CHECK(flow.prefill->submits[0].request_group() == 77);
}

TEST_CASE("one token is not handed over") {
  PairFlow flow;
  flow.Start(Ask(1));
  CHECK(flow.prefill->submits.size() == 1);
  CHECK(flow.decode->reserves.empty());
}

TEST_CASE("of several choices the first is handed over, and the others follow it") {
  PairFlow flow;
  GenerationRequest three = Ask(3);
  three.choice_count = 3;
  three.prompt_logprobs = 0;
  auto sink = flow.Start(std::move(three));
  flow.GiveRoom(0);
  REQUIRE(flow.prefill->submits.size() == 1);
  CHECK(flow.prefill->submits[0].choice_count() == 1);
  const std::vector<int32_t> ids = Ids("1");
  v1::TokenEvent first = flow.prefill->Token(0, 0, ids[0], 3);
  for (int i = 0; i < 3; ++i) first.add_prompt_logprobs();
  flow.Reply(flow.prefill, first);
  CHECK(flow.decode->submits.empty());
  flow.Reply(flow.prefill, flow.HandedOver());
  REQUIRE(flow.decode->submits.size() == 2);
  CHECK(flow.decode->submits[0].kv_ticket() == "ticket");
  CHECK(flow.decode->submits[0].choice_count() == 1);
  CHECK(flow.decode->submits[1].kv_ticket().empty());
  CHECK(flow.decode->submits[1].first_choice() == 1);
  CHECK(flow.decode->submits[1].choice_count() == 2);
  CHECK(flow.decode->submits[1].output_token_ids().empty());
  CHECK(flow.decode->submits[1].prompt_logprobs() == -1);  // told already

  // Where the first ends at once, its KV goes nowhere, and the others are placed without it.
  GenerationRequest two = Ask(3);
  two.choice_count = 2;
  flow.Start(std::move(two));
  flow.GiveRoom(1);
  v1::TokenEvent only = flow.prefill->Token(1, 0, ids[0], 3);
  only.set_finish(v1::FINISH_REASON_STOP);
  flow.Reply(flow.prefill, only);
  CHECK(flow.GaveRoomBack(1));
  REQUIRE(flow.prefill->submits.size() == 3);
  CHECK(flow.prefill->submits[2].first_choice() == 1);
  CHECK(flow.prefill->submits[2].choice_count() == 1);

  // A prefill replica that is lost takes all choices with it.
  GenerationRequest lost = Ask(3);
  lost.choice_count = 2;
  flow.Start(std::move(lost));
  flow.GiveRoom(2);
  flow.flow->OnLinkLost(flow.prefill, absl::UnavailableError("gone"));
  REQUIRE(flow.decode->submits.size() >= 3);
  // In no promised order beside the choice of the request before, which was lost as well.
  CHECK(std::any_of(flow.decode->submits.begin() + 2, flow.decode->submits.end(),
                    [](const v1::Submit& submit) { return submit.choice_count() == 2; }));
  (void)sink;
}

TEST_CASE("a pair whose KV does not arrive is left out for longer and longer") {
  PairFlow flow;
  const auto fails = [&](size_t reserve) {
    flow.Start(Ask(3));
    REQUIRE(flow.decode->reserves.size() == reserve + 1);
    flow.GiveRoom(reserve);
    const int submit = static_cast<int>(flow.prefill->submits.size()) - 1;
    flow.Reply(flow.prefill, flow.prefill->Token(submit, 0, Ids("1")[0], 3));
    flow.Reply(flow.prefill,
               flow.prefill->Error(submit, absl::StatusCode::kDataLoss, "the link broke"));
    CHECK(flow.GaveRoomBack(reserve));
  };
  fails(0);
  HandOverRecord record = flow.flow->hand_overs().at(0);
  CHECK(record.failures == 1);
  CHECK(record.back_off_seconds == 1);
  const size_t before = flow.prefill->submits.size();
  flow.Start(Ask(3));  // meanwhile the prefill replica serves alone
  CHECK(flow.decode->reserves.size() == 1);
  CHECK(flow.prefill->submits.size() == before + 1);
  for (auto& sink : flow.sinks) sink->handle.reset();
  flow.now += 1;
  fails(1);
  CHECK(flow.flow->hand_overs().at(0).back_off_seconds == 2);
  for (auto& sink : flow.sinks) sink->handle.reset();
  flow.now += 2;
  flow.Start(Ask(3));
  REQUIRE(flow.decode->reserves.size() == 3);
  flow.GiveRoom(2);
  const int submit = static_cast<int>(flow.prefill->submits.size()) - 1;
  flow.Reply(flow.prefill, flow.prefill->Token(submit, 0, Ids("1")[0], 3));
  v1::TokenEvent done = flow.prefill->Token(submit, 0, 0, 0);
  done.set_has_token(false);
  done.set_finish(v1::FINISH_REASON_HANDED_OVER);
  done.mutable_kv_transfer()->set_bytes(100);
  done.mutable_kv_transfer()->set_seconds(2);
  done.mutable_kv_transfer()->set_exposed_seconds(0.5);
  done.mutable_kv_transfer()->set_transport("unix");
  flow.Reply(flow.prefill, done);
  record = flow.flow->hand_overs().at(0);
  CHECK(record.prompts == 1);
  CHECK(record.bytes == 100);
  CHECK(record.transport == "unix");
  CHECK(record.failures == 2);
  CHECK(record.back_off_seconds == 0);
  v1::TokenEvent last =
      flow.decode->Token(static_cast<int>(flow.decode->submits.size()) - 1, 0, Ids("2")[0], 4);
  last.set_finish(v1::FINISH_REASON_LENGTH);
  flow.Reply(flow.decode, last);
  const GenerationTimings& timings = flow.sinks.back()->usage.timings;
  CHECK(timings.prefill_replica == "p");
  CHECK(timings.decode_replica == "d");
  CHECK(timings.decode_tokens == 1);
  REQUIRE(timings.kv_transfer.has_value());
  CHECK(timings.kv_transfer->hidden_share == 0.75);
}

TEST_CASE("without room, and without the other replica, a request is served all the same") {
  PairFlow flow;
  auto refused = flow.Start(Ask(3));
  v1::SessionReply reply;
  v1::Reserved& answer = *reply.add_reserved();
  answer.set_submission_id(flow.decode->reserves[0].submission_id());
  answer.set_attempt(1);
  answer.set_error("full");
  answer.set_error_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  flow.flow->OnReply(flow.decode, reply);
  CHECK(flow.prefill->submits.size() == 1);
  CHECK_FALSE(flow.prefill->submits[0].has_kv_target());

  auto late = flow.Start(Ask(3));
  flow.now += 6;
  flow.flow->Tick();
  CHECK(flow.GaveRoomBack(1));
  CHECK(flow.prefill->submits.size() == 2);

  auto lost = flow.Start(Ask(3));
  flow.flow->OnLinkLost(flow.decode, absl::UnavailableError("gone"));
  CHECK(flow.prefill->submits.size() == 3);
  flow.Start(Ask(3));
  CHECK(flow.prefill->submits.size() == 4);  // one role is left: it serves both
  CHECK(flow.prefill->submits[3].kv_ticket().empty());
}

TEST_CASE("what a pool cannot hold is not handed over") {
  PairFlow flow;
  flow.prefill->SetPool(10, 4);
  flow.decode->SetPool(1, 4);
  flow.Start(Ask(3));  // with its prompt, six tokens
  CHECK(flow.decode->reserves.empty());
  CHECK(flow.prefill->submits.size() == 1);
  flow.prefill->SetPool(1, 2);
  flow.decode->SetPool(10, 4);
  flow.Start(Ask(3));
  CHECK(flow.decode->reserves.empty());
  CHECK(flow.decode->submits.size() == 1);  // it computes the prompt
}

TEST_CASE("room is given back where the first token is the last, and where the client leaves") {
  PairFlow flow;
  auto stops = flow.Start(Ask(3));
  flow.GiveRoom(0);
  v1::TokenEvent only = flow.prefill->Token(0, 0, Ids("1")[0], 3);
  only.set_finish(v1::FINISH_REASON_STOP);
  flow.Reply(flow.prefill, only);
  CHECK(stops->ends == 1);
  CHECK(flow.GaveRoomBack(0));

  auto leaves = flow.Start(Ask(3));
  leaves->handle->Cancel();  // while room is asked for
  CHECK(flow.GaveRoomBack(1));
  auto later = flow.Start(Ask(3));
  flow.GiveRoom(2);
  later->handle->Cancel();  // while the prompt is computed
  CHECK(flow.GaveRoomBack(2));
  CHECK(flow.flow->requests_in_flight() == 0);
}

TEST_CASE("KV that does not arrive costs time, not tokens") {
  PairFlow flow;
  auto sink = flow.Start(Ask(3));
  flow.GiveRoom(0);
  const std::vector<int32_t> ids = Ids("123");
  flow.Reply(flow.prefill, flow.prefill->Token(0, 0, ids[0], 3));
  flow.Reply(flow.prefill,
             flow.prefill->Error(0, absl::StatusCode::kAborted, "the KV could not be handed over"));
  CHECK(flow.GaveRoomBack(0));
  REQUIRE(flow.decode->submits.size() == 1);  // decoding is what is left
  CHECK(flow.decode->submits[0].kv_ticket().empty());
  CHECK(flow.decode->submits[0].output_token_ids_size() == 1);

  auto dies = flow.Start(Ask(3));
  flow.GiveRoom(1);
  flow.Reply(flow.prefill, flow.prefill->Token(1, 0, ids[0], 3));
  flow.flow->OnLinkLost(flow.prefill, absl::UnavailableError("gone"));
  CHECK(flow.GaveRoomBack(1));
  CHECK(flow.decode->submits.size() == 2);
  CHECK(dies->text == "1");
}

}  // namespace tessera::coordinator
