#include "coordinator/flow/submit_message.h"

#include <openssl/sha.h>

#include <array>

namespace tessera::coordinator {

std::string OwnerOf(const std::string& client) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(client.data()), client.size(), digest.data());
  return {digest.begin(), digest.end()};
}

v1::SessionRequest ToSubmit(const GenerationRequest& request) {
  v1::SessionRequest message;
  v1::Submit& submit = *message.mutable_submit();
  submit.set_request_id(request.request_id);
  if (!request.answer_id.empty()) {
    submit.set_request_id(request.answer_id);
    submit.set_owner(OwnerOf(request.client));
  }
  submit.mutable_prompt_token_ids()->Add(request.prompt_token_ids.begin(),
                                         request.prompt_token_ids.end());
  const auto prompt_tokens = static_cast<int32_t>(request.prompt_token_ids.size());
  if (request.opening_tokens > 0 && request.opening_tokens < prompt_tokens)
    submit.set_message_end_tokens(prompt_tokens - request.opening_tokens);
  if (request.last_message_tokens > 0 && request.last_message_tokens < prompt_tokens)
    submit.set_message_begin_tokens(prompt_tokens - request.last_message_tokens);
  v1::SamplingParams& sampling = *submit.mutable_sampling();
  sampling.set_temperature(request.sampling.temperature);
  sampling.set_top_p(request.sampling.top_p);
  sampling.set_top_k(request.sampling.top_k);
  sampling.set_min_p(request.sampling.min_p);
  sampling.set_repetition_penalty(request.sampling.repetition_penalty);
  sampling.set_presence_penalty(request.sampling.presence_penalty);
  sampling.set_frequency_penalty(request.sampling.frequency_penalty);
  for (const auto& [token, bias] : request.sampling.logit_bias)
    (*sampling.mutable_logit_bias())[token] = bias;
  sampling.set_seed(request.sampling.seed);
  submit.set_max_tokens(request.max_tokens);
  submit.set_min_tokens(request.min_tokens);
  submit.mutable_stop_token_ids()->Add(request.stop_token_ids.begin(),
                                       request.stop_token_ids.end());
  submit.mutable_allowed_token_ids()->Add(request.allowed_token_ids.begin(),
                                          request.allowed_token_ids.end());
  for (const std::vector<int32_t>& word : request.bad_words)
    submit.add_bad_words()->mutable_ids()->Add(word.begin(), word.end());
  submit.set_grammar(request.grammar);
  if (request.thinking_budget.has_value()) {
    const ThinkingBudget& budget = *request.thinking_budget;
    v1::ThinkingBudget& thinking = *submit.mutable_thinking_budget();
    thinking.set_tokens(budget.tokens);
    thinking.mutable_opening_ids()->Add(budget.opening_ids.begin(), budget.opening_ids.end());
    thinking.set_closing_id(budget.closing_id);
    thinking.mutable_end_ids()->Add(budget.end_ids.begin(), budget.end_ids.end());
  }
  submit.set_final_rows(request.final_rows);
  submit.set_mean_rows(request.mean_rows);
  submit.set_ignore_eos(request.ignore_eos);
  submit.set_top_logprobs(request.top_logprobs);
  submit.set_prompt_logprobs(request.prompt_logprobs);
  submit.mutable_logprob_ids()->Add(request.logprob_ids.begin(), request.logprob_ids.end());
  submit.set_cache_salt(request.cache_salt);
  submit.set_priority(request.priority);
  submit.set_request_group(request.group);
  submit.set_turn(request.turn);
  return message;
}

}  // namespace tessera::coordinator
