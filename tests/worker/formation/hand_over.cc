#include "tests/worker/formation/hand_over.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <utility>

namespace tessera::worker {
namespace {

ChoiceEvents JoinChoices(ChoiceEvents first, const ChoiceEvents& rest) {
  first.finish = rest.finish;
  first.error = rest.error;
  first.tokens.insert(first.tokens.end(), rest.tokens.begin(), rest.tokens.end());
  first.token_logprobs.insert(first.token_logprobs.end(), rest.token_logprobs.begin(),
                              rest.token_logprobs.end());
  return first;
}

}  // namespace

Answers Run(const std::string& folder, const ReplicaOptions& options,
            const std::vector<v1::Submit>& requests) {
  PlannedReplica replica(folder, options);
  for (const v1::Submit& request : requests) replica.Submit(request);
  return replica.WaitAll();
}

// The load is told just after the last event.
bool HoldsNothing(const PlannedReplica& replica) {
  for (int i = 0; i < 1000 && replica.load().kv_blocks_used() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return replica.load().kv_blocks_used() == 0;
}

void PlayedHandOver::Begin(const std::vector<v1::Submit>& requests) {
  requests_ = requests;
  for (v1::Submit request : requests) {
    const v1::Reserved reserved = decode_.Reserve(request, prefill_.ready(0));
    INFO(reserved.error());
    REQUIRE(reserved.has_target());
    tickets_[request.submission_id()] = reserved.target().ticket();
    *request.mutable_kv_target() = reserved.target();
    prefill_.Submit(std::move(request));
  }
}

void PlayedHandOver::GoOn(const Answers& first) {
  for (v1::Submit request : requests_) {
    const ChoiceEvents& prompt = first.at({request.submission_id(), 0});
    INFO(prompt.error);
    if (prompt.finish == v1::FINISH_REASON_LENGTH) continue;
    REQUIRE(prompt.finish == v1::FINISH_REASON_HANDED_OVER);
    CHECK(prompt.kv_transfer.bytes() > 0);
    CHECK(prompt.kv_transfer.transport() == way_);
    request.mutable_output_token_ids()->Add(prompt.tokens.begin(), prompt.tokens.end());
    request.set_prompt_logprobs(-1);
    request.set_kv_ticket(tickets_[request.submission_id()]);
    decode_.Submit(std::move(request));
  }
}

Answers PlayedHandOver::Join(const Answers& first, const Answers& rest) const {
  Answers answers;
  for (const v1::Submit& request : requests_) {
    const std::pair<uint64_t, int32_t> key = {request.submission_id(), 0};
    const auto more = rest.find(key);
    answers[key] = more == rest.end() ? first.at(key) : JoinChoices(first.at(key), more->second);
  }
  return answers;
}

}  // namespace tessera::worker
