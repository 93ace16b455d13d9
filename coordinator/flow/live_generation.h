// One generation while it runs: turns the workers' token events into text events for its sink, in
// order, and keeps what another replica would need to go on where this one stopped.
//
// Thread rule: thread-safe. The sink is called by one thread at a time and without any lock held,
// so it may call back into RequestFlow.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/flow/choice_text.h"
#include "coordinator/flow/generation.h"
#include "coordinator/flow/request_metrics.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// What a token event meant for the bookkeeping around it.
struct EventOutcome {
  bool first_token = false;  // of the whole generation
  bool choice_finished = false;
  bool stop_string = false;  // the coordinator ended the choice: the worker must learn of it
  bool generation_finished = false;
  double since_last_token_seconds = -1;  // for a choice's second and later tokens
  int64_t choice_tokens = 0;             // with choice_finished: generated for it
  double choice_decode_seconds = 0;      // with choice_finished: from its first to its last token
  // Not OK: positions have a hole, or the worker reported an error.
  absl::Status broken;
};

// A choice that has not ended, and the tokens it has so far.
struct OpenChoice {
  int32_t choice = 0;
  std::vector<int32_t> output_token_ids;
};

class LiveGeneration {
 public:
  LiveGeneration(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                 std::shared_ptr<const Tokenizer> tokenizer, double arrival_seconds);

  const GenerationRequest& request() const { return request_; }
  double arrival_seconds() const { return arrival_seconds_; }

  // Before any event: takes the request's emitted_token_ids as its answer's beginning. Where one of
  // `stop_ids`, a stop string or max_tokens ends them, it has ended. They count as tokens of the
  // answer, and in no rate. DeliverResumed passes them on, before what comes next.
  void Resume(const std::vector<int32_t>& stop_ids, double now_seconds);
  void DeliverResumed() { Deliver(); }

  EventOutcome Apply(const v1::TokenEvent& event, const std::string& replica, double now_seconds);
  // Ends a choice with an error, and the generation where it was the last open one: with that error
  // where none has ended well, which `broken` of the outcome says then.
  EventOutcome FailChoice(int32_t index, const absl::Status& why);
  // Its prompt's KV has moved to another replica.
  void NoteKvTransfer(const v1::KvTransfer& transfer);
  // Ends it with an error; nothing after that. False: it had ended already.
  bool Fail(const absl::Status& status);
  // Ends it without a word: nothing is delivered any more, except what is being delivered right
  // now. False: it had ended already.
  bool Silence();
  std::vector<OpenChoice> OpenChoices() const;
  bool prompt_logprobs_told() const;
  bool ended() const;
  // What is counted of it once it is answered.
  AnsweredRequest Answered(double now_seconds) const;

 private:
  struct Choice {
    ChoiceText text;
    std::unique_ptr<TextEnd> end = nullptr;  // null: none
    std::vector<int32_t> output_token_ids = {};
    size_t resumed_tokens = 0;  // of output_token_ids: an earlier stream's
    bool finished = false;
    bool failed = false;  // it finished with an error
    double first_token_seconds = 0;
    double last_token_seconds = -1;  // below 0: none has come
  };

  void ApplyToken(const v1::TokenEvent& event, double now_seconds, ChoiceEvent& out,
                  EventOutcome& outcome);
  void ApplyFinish(const v1::TokenEvent& event, ChoiceEvent& out, EventOutcome& outcome);
  bool IsOwnStopId(int32_t token_id) const;
  void EndLocked(const absl::Status& status);
  void Deliver();

  const GenerationRequest request_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const double arrival_seconds_;

  mutable std::mutex mutex_;
  std::shared_ptr<GenerationSink> sink_;  // null after the end
  std::vector<Choice> choices_;
  int32_t open_choices_ = 0;
  bool ended_ = false;
  bool any_token_ = false;
  double first_token_seconds_ = 0;
  double last_token_seconds_ = 0;
  double prefill_seconds_ = 0;
  bool prompt_logprobs_sent_ = false;
  GenerationUsage usage_;
  std::string replica_;
  std::deque<std::function<void(GenerationSink&)>> deliveries_;
  bool delivering_ = false;
};

}  // namespace tessera::coordinator
