#include "coordinator/grpc_door/inference_reply.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator {
namespace {

v1::Logprob ToProto(const Tokenizer& tokenizer, const TokenChance& chance) {
  v1::Logprob logprob;
  logprob.set_token_id(chance.token_id);
  logprob.set_token(tokenizer.TokenBytes(chance.token_id));
  logprob.set_logprob(chance.logprob);
  return logprob;
}

// The entry of a call, made where there is none yet.
v1::ToolCall& CallOf(int index, v1::Choice& choice) {
  for (v1::ToolCall& call : *choice.mutable_tool_calls()) {
    if (call.index() == index) return call;
  }
  v1::ToolCall& call = *choice.add_tool_calls();
  call.set_index(index);
  return call;
}

}  // namespace

v1::TokenLogprobs ToProto(const Tokenizer& tokenizer, const PositionChances& position) {
  v1::TokenLogprobs logprobs;
  if (position.has_chosen) *logprobs.mutable_chosen() = ToProto(tokenizer, position.chosen);
  for (const TokenChance& top : position.top) *logprobs.add_top() = ToProto(tokenizer, top);
  return logprobs;
}

v1::Usage ToProto(const GenerationUsage& usage) {
  v1::Usage out;
  out.set_prompt_tokens(usage.prompt_tokens);
  out.set_completion_tokens(usage.completion_tokens);
  out.set_cached_tokens(usage.cached_tokens);
  out.set_reasoning_tokens(usage.thinking_tokens);
  return out;
}

v1::Timings ToProto(const GenerationTimings& timings) {
  v1::Timings out;
  out.set_queue_seconds(timings.queue_seconds);
  out.set_prefill_replica(timings.prefill_replica);
  out.set_prefill_seconds(timings.prefill_seconds);
  if (timings.kv_transfer.has_value()) {
    v1::KvMove* move = out.mutable_kv_transfer();
    move->set_bytes(timings.kv_transfer->bytes);
    move->set_seconds(timings.kv_transfer->seconds);
    move->set_hidden_share(timings.kv_transfer->hidden_share);
    move->set_transport(timings.kv_transfer->transport);
    move->set_codec(timings.kv_transfer->codec);
  }
  out.set_decode_replica(timings.decode_replica);
  out.set_decode_seconds(timings.decode_seconds);
  out.set_decode_tokens(timings.decode_tokens);
  if (timings.drafts.steps > 0) {
    v1::Drafts* drafts = out.mutable_drafts();
    drafts->set_steps(timings.drafts.steps);
    drafts->set_tokens(timings.drafts.tokens);
    drafts->set_accepted_tokens(timings.drafts.accepted_tokens);
  }
  return out;
}

ChoiceWriter::ChoiceWriter(const Tokenizer& tokenizer, std::shared_ptr<const AnswerFormat> format)
    : tokenizer_(tokenizer), is_plain_(format == nullptr), message_(std::move(format)) {}

void ChoiceWriter::AddDelta(const MessageDelta& delta, v1::Choice& choice) const {
  switch (delta.kind) {
    case MessageDelta::Kind::kText: choice.mutable_text()->append(delta.text); break;
    case MessageDelta::Kind::kThinking: choice.mutable_reasoning()->append(delta.text); break;
    case MessageDelta::Kind::kCall: {
      v1::ToolCall& call = CallOf(delta.call, choice);
      call.set_id(delta.id);
      call.set_name(delta.text);
      break;
    }
    case MessageDelta::Kind::kArguments:
      CallOf(delta.call, choice).mutable_arguments()->append(delta.text);
      break;
  }
}

void ChoiceWriter::DropBrokenCalls(v1::Choice& choice) const {
  const std::vector<ToolCall>& calls = message_.message().calls;
  auto* const written = choice.mutable_tool_calls();
  const auto broken = [&](const v1::ToolCall& call) {
    return !call.id().empty() && std::none_of(calls.begin(), calls.end(),
                                              [&](const ToolCall& c) { return c.id == call.id(); });
  };
  written->erase(std::remove_if(written->begin(), written->end(), broken), written->end());
}

void ChoiceWriter::Add(const ChoiceEvent& event, v1::Choice& choice) {
  choice.set_index(event.choice);
  choice.mutable_token_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  for (const PositionChances& position : event.logprobs)
    *choice.add_logprobs() = ToProto(tokenizer_, position);
  const bool over = event.finish != Finish::kNone;
  if (is_plain_) {
    choice.mutable_text()->append(event.text);
  } else {
    for (const MessageDelta& delta : message_.Append(event.text)) AddDelta(delta, choice);
  }
  if (!over) return;
  const bool failed = event.finish == Finish::kError;
  const bool cut = failed || event.finish == Finish::kLength;
  if (!is_plain_) {
    for (const MessageDelta& delta : message_.Finish(cut ? AnswerEnd::kCut : AnswerEnd::kStop))
      AddDelta(delta, choice);
    DropBrokenCalls(choice);
  }
  const bool has_calls = !message_.message().calls.empty();
  choice.set_finish_reason(failed ? "error" : cut ? "length" : has_calls ? "tool_calls" : "stop");
}

}  // namespace tessera::coordinator
