#include "coordinator/flow/live_generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

TokenChance ToChance(const v1::TokenLogprob& p) { return {p.token_id(), p.logprob(), p.rank()}; }

PositionChances ToChances(const v1::PositionLogprobs& p) {
  PositionChances out;
  out.has_chosen = p.has_chosen();
  if (p.has_chosen()) out.chosen = ToChance(p.chosen());
  out.top.reserve(p.top_size());
  for (const v1::TokenLogprob& t : p.top()) out.top.push_back(ToChance(t));
  for (const v1::TokenLogprob& t : p.asked()) out.asked.push_back(ToChance(t));
  return out;
}

ChoiceTextOptions TextOptions(const GenerationRequest& request) {
  return {request.stop_strings,
          request.include_stop_string,
          request.skip_special_tokens,
          request.shown_special_ids,
          request.thinking,
          request.min_tokens};
}

}  // namespace

LiveGeneration::LiveGeneration(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                               std::shared_ptr<const Tokenizer> tokenizer, double arrival_seconds)
    : request_(std::move(request)),
      tokenizer_(std::move(tokenizer)),
      arrival_seconds_(arrival_seconds),
      sink_(std::move(sink)) {
  choices_.reserve(request_.choice_count);
  for (int32_t i = 0; i < request_.choice_count; ++i) {
    choices_.push_back({.text = ChoiceText(*tokenizer_, TextOptions(request_)),
                        .end = request_.make_text_end ? request_.make_text_end() : nullptr});
  }
  open_choices_ = request_.choice_count;
  usage_.prompt_tokens = static_cast<int64_t>(request_.prompt_token_ids.size());
}

void LiveGeneration::Resume(const std::vector<int32_t>& stop_ids, double now_seconds) {
  std::lock_guard lock(mutex_);
  const std::vector<int32_t>& tokens = request_.emitted_token_ids;
  if (tokens.empty()) return;
  Choice& choice = choices_.front();
  ChoiceEvent out;  // one for all, so that they are one piece of the stream
  for (size_t i = 0; i < tokens.size() && !choice.finished; ++i) {
    v1::TokenEvent event;
    event.set_has_token(true);
    event.set_token_id(tokens[i]);
    if (std::find(stop_ids.begin(), stop_ids.end(), tokens[i]) != stop_ids.end()) {
      event.set_finish(v1::FINISH_REASON_STOP);
      event.set_stop_token_id(tokens[i]);
    } else if (static_cast<int64_t>(i) + 1 >= request_.max_tokens) {
      event.set_finish(v1::FINISH_REASON_LENGTH);
    }
    EventOutcome outcome;
    ApplyToken(event, now_seconds, out, outcome);
    ApplyFinish(event, out, outcome);
  }
  deliveries_.push_back(
      [out = std::move(out)](GenerationSink& sink) mutable { sink.OnChoice(std::move(out)); });
  choice.resumed_tokens = choice.output_token_ids.size();
  usage_.timings.decode_tokens = 0;
  if (choice.finished) return EndLocked(absl::OkStatus());
  any_token_ = false;
  choice.last_token_seconds = -1;
}

namespace {

// Why a choice whose next token is due at position `expected` ends with this event; else OK.
absl::Status FaultOf(const v1::TokenEvent& event, const std::string& replica, int64_t expected) {
  if (event.finish() == v1::FINISH_REASON_ERROR) {
    const absl::Status failure(static_cast<absl::StatusCode>(event.error_code()), event.error());
    return failure.ok() ? absl::InternalError(event.error()) : failure;
  }
  if (event.has_token() && event.position() > expected) {
    return absl::DataLossError(absl::StrCat("replica ", replica, " sent the token at position ",
                                            event.position(), " where ", expected, " was due"));
  }
  return absl::OkStatus();
}

}  // namespace

EventOutcome LiveGeneration::Apply(const v1::TokenEvent& event, const std::string& replica,
                                   double now_seconds) {
  EventOutcome outcome;
  {
    std::lock_guard lock(mutex_);
    if (ended_ || event.choice() < 0 || event.choice() >= request_.choice_count) return outcome;
    Choice& choice = choices_[event.choice()];
    if (choice.finished) return outcome;
    const int64_t expected =
        usage_.prompt_tokens + static_cast<int64_t>(choice.output_token_ids.size());
    outcome.broken = FaultOf(event, replica, expected);
    if (!outcome.broken.ok()) return outcome;
    if (event.has_token() && event.position() < expected)
      return outcome;  // sent before, by an earlier attempt
    replica_ = replica;
    // Told with the prompt's end, whether a token comes of it or not.
    if (usage_.timings.prefill_replica.empty()) {
      usage_.timings.queue_seconds = event.queue_seconds();
      usage_.timings.prefill_seconds = event.prefill_seconds();
      usage_.timings.prefill_replica = replica;
    }
    // What a later replica has in its cache may have come from the first.
    if (!any_token_)
      usage_.cached_tokens =
          std::clamp<int64_t>(event.cached_tokens(), usage_.cached_tokens, usage_.prompt_tokens);
    if (event.prompt_logprobs_size() > 0 && !prompt_logprobs_sent_) {
      prompt_logprobs_sent_ = true;
      std::vector<PositionChances> positions;
      positions.reserve(event.prompt_logprobs_size());
      for (const v1::PositionLogprobs& p : event.prompt_logprobs())
        positions.push_back(ToChances(p));
      deliveries_.push_back([positions = std::move(positions)](GenerationSink& sink) mutable {
        sink.OnPromptLogprobs(std::move(positions));
      });
    }
    if (event.draft_tokens() > 0) {
      ++usage_.timings.drafts.steps;
      usage_.timings.drafts.tokens += event.draft_tokens();
      usage_.timings.drafts.accepted_tokens += event.accepted_draft_tokens();
    }
    ChoiceEvent out;
    out.choice = event.choice();
    out.final_row.assign(event.final_row().begin(), event.final_row().end());
    if (event.has_token()) ApplyToken(event, now_seconds, out, outcome);
    ApplyFinish(event, out, outcome);
    if (outcome.choice_finished) {
      outcome.choice_tokens =
          static_cast<int64_t>(choice.output_token_ids.size() - choice.resumed_tokens);
      outcome.choice_decode_seconds = choice.last_token_seconds - choice.first_token_seconds;
    }
    if (!out.text.empty() || !out.token_ids.empty() || out.finish != Finish::kNone) {
      deliveries_.push_back(
          [out = std::move(out)](GenerationSink& sink) mutable { sink.OnChoice(std::move(out)); });
    }
    if (open_choices_ == 0) {
      outcome.generation_finished = true;
      EndLocked(absl::OkStatus());
    }
  }
  Deliver();
  return outcome;
}

EventOutcome LiveGeneration::FailChoice(int32_t index, const absl::Status& why) {
  EventOutcome outcome;
  {
    std::lock_guard lock(mutex_);
    if (ended_ || index < 0 || index >= request_.choice_count) return outcome;
    Choice& choice = choices_[index];
    if (choice.finished) return outcome;
    ChoiceEvent out;
    out.choice = index;
    const int64_t reported_before = choice.text.reported_tokens();
    choice.text.Flush(out);
    usage_.completion_tokens += choice.text.reported_tokens() - reported_before;
    out.finish = Finish::kError;
    out.error = why;
    outcome.choice_finished = true;
    outcome.choice_tokens =
        static_cast<int64_t>(choice.output_token_ids.size() - choice.resumed_tokens);
    if (choice.last_token_seconds >= 0)
      outcome.choice_decode_seconds = choice.last_token_seconds - choice.first_token_seconds;
    choice.finished = choice.failed = true;
    deliveries_.push_back(
        [out = std::move(out)](GenerationSink& sink) mutable { sink.OnChoice(std::move(out)); });
    if (--open_choices_ == 0) {
      outcome.generation_finished = true;
      const bool all_failed =
          std::ranges::all_of(choices_, [](const Choice& c) { return c.failed; });
      if (all_failed) outcome.broken = why;
      EndLocked(outcome.broken);
    }
  }
  Deliver();
  return outcome;
}

void LiveGeneration::ApplyToken(const v1::TokenEvent& event, double now_seconds, ChoiceEvent& out,
                                EventOutcome& outcome) {
  Choice& choice = choices_[event.choice()];
  outcome.first_token = !any_token_;
  if (!any_token_) {
    first_token_seconds_ = now_seconds;
    prefill_seconds_ = event.prefill_seconds();
  }
  any_token_ = true;
  last_token_seconds_ = now_seconds;
  if (choice.last_token_seconds >= 0) {
    ++usage_.timings.decode_tokens;
    outcome.since_last_token_seconds = now_seconds - choice.last_token_seconds;
  } else {
    choice.first_token_seconds = now_seconds;
  }
  choice.last_token_seconds = now_seconds;
  choice.output_token_ids.push_back(event.token_id());

  PositionChances chances;
  if (event.has_logprobs()) chances = ToChances(event.logprobs());
  const PositionChances* told = event.has_logprobs() ? &chances : nullptr;
  const int64_t reported_before = choice.text.reported_tokens();
  const int64_t thinking_before = choice.text.thinking_tokens();
  const size_t text_before = out.text.size();
  if (event.finish() == v1::FINISH_REASON_UNSPECIFIED) {
    choice.text.Append(event.token_id(), told, out);
  } else {
    choice.text.AppendLast(event.token_id(), told, event.finish() == v1::FINISH_REASON_STOP, out);
  }
  usage_.completion_tokens += choice.text.reported_tokens() - reported_before;
  usage_.thinking_tokens += choice.text.thinking_tokens() - thinking_before;
  if (choice.end != nullptr && out.finish == Finish::kNone &&
      choice.end->Append(std::string_view(out.text).substr(text_before))) {
    out.finish = Finish::kStop;
  }
  if (out.finish == Finish::kStop) {
    outcome.stop_string = event.finish() == v1::FINISH_REASON_UNSPECIFIED;
    outcome.choice_finished = true;
    choice.finished = true;
    --open_choices_;
  }
}

void LiveGeneration::ApplyFinish(const v1::TokenEvent& event, ChoiceEvent& out,
                                 EventOutcome& outcome) {
  Choice& choice = choices_[event.choice()];
  if (choice.finished || event.finish() == v1::FINISH_REASON_UNSPECIFIED) return;
  if (!event.has_token()) {
    const int64_t reported_before = choice.text.reported_tokens();
    choice.text.Flush(out);
    usage_.completion_tokens += choice.text.reported_tokens() - reported_before;
  }
  const bool stop = event.finish() == v1::FINISH_REASON_STOP;
  out.finish = stop ? Finish::kStop : Finish::kLength;
  if (stop && IsOwnStopId(event.stop_token_id()))
    out.stop_reason = absl::StrCat(event.stop_token_id());
  outcome.choice_finished = true;
  choice.finished = true;
  --open_choices_;
}

bool LiveGeneration::IsOwnStopId(int32_t token_id) const {
  const auto& ids = request_.stop_token_ids;
  return std::find(ids.begin(), ids.end(), token_id) != ids.end();
}

void LiveGeneration::NoteKvTransfer(const v1::KvTransfer& transfer) {
  std::lock_guard lock(mutex_);
  KvTransferTimings& timings = usage_.timings.kv_transfer.emplace();
  timings.bytes = static_cast<int64_t>(transfer.bytes());
  timings.seconds = transfer.seconds();
  if (timings.seconds > 0) {
    timings.hidden_share = std::clamp(1 - transfer.exposed_seconds() / timings.seconds, 0.0, 1.0);
  }
  timings.transport = transfer.transport();
  if (transfer.codec() == v1::KV_CODEC_INT8) timings.codec = "int8";
  if (transfer.codec() == v1::KV_CODEC_INT4) timings.codec = "int4";
}

bool LiveGeneration::Fail(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    EndLocked(status);
  }
  Deliver();
  return true;
}

void LiveGeneration::EndLocked(const absl::Status& status) {
  ended_ = true;
  usage_.timings.decode_replica = replica_;
  usage_.timings.decode_seconds = last_token_seconds_ - first_token_seconds_;
  deliveries_.push_back([status, usage = usage_, replica = replica_](GenerationSink& sink) {
    sink.OnEnd(status, usage, replica);
  });
}

bool LiveGeneration::Silence() {
  std::shared_ptr<GenerationSink> dropped;  // destroyed outside the lock
  std::deque<std::function<void(GenerationSink&)>> deliveries;
  std::lock_guard lock(mutex_);
  const bool was_running = !ended_;
  ended_ = true;
  std::swap(deliveries, deliveries_);
  std::swap(dropped, sink_);
  return was_running;
}

std::vector<OpenChoice> LiveGeneration::OpenChoices() const {
  std::lock_guard lock(mutex_);
  std::vector<OpenChoice> open;
  if (ended_) return open;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].finished)
      open.push_back({static_cast<int32_t>(i), choices_[i].output_token_ids});
  }
  return open;
}

bool LiveGeneration::prompt_logprobs_told() const {
  std::lock_guard lock(mutex_);
  return prompt_logprobs_sent_;
}

bool LiveGeneration::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

AnsweredRequest LiveGeneration::Answered(double now_seconds) const {
  std::lock_guard lock(mutex_);
  const double begin = any_token_ ? first_token_seconds_ : arrival_seconds_;
  return {.since_arrival_seconds = now_seconds - arrival_seconds_,
          .since_first_token_seconds = now_seconds - begin,
          .prefill_seconds = prefill_seconds_,
          .prompt_tokens = usage_.prompt_tokens,
          .choice_count = request_.choice_count,
          .max_tokens = request_.max_tokens};
}

void LiveGeneration::Deliver() {
  std::unique_lock lock(mutex_);
  if (delivering_) return;  // whoever delivers now takes these too
  delivering_ = true;
  while (!deliveries_.empty() && sink_ != nullptr) {
    std::function<void(GenerationSink&)> next = std::move(deliveries_.front());
    deliveries_.pop_front();
    std::shared_ptr<GenerationSink> sink = sink_;
    const bool last = ended_ && deliveries_.empty();
    if (last) sink_.reset();
    lock.unlock();
    next(*sink);
    // Maybe the last reference: what the sink holds (a handle on this generation) goes without the
    // lock.
    sink.reset();
    next = nullptr;
    lock.lock();
  }
  delivering_ = false;
}

}  // namespace tessera::coordinator
