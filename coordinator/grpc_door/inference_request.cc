#include "coordinator/grpc_door/inference_request.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/chat_request.h"
#include "coordinator/api/structured_output.h"
#include "coordinator/tokenizer/text/split_json.h"
#include "proto/sampling_ranges.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

absl::Status CheckRange(const char* field, double value, double lowest, double highest) {
  if (value >= lowest && value <= highest) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat(field, ": must be within ", lowest, " and ", highest, ", it is ", value));
}

absl::Status CheckNumber(const char* field, float value, const NumberRange& range) {
  if (!range.above_min || value > range.min) return CheckRange(field, value, range.min, range.max);
  return FieldError(field, absl::StrCat(field, ": must be above ", range.min, " and at most ",
                                        range.max, ", it is ", value));
}

absl::Status CheckIds(const char* field, const google::protobuf::RepeatedField<int32_t>& ids,
                      const ServedModel& model) {
  for (int32_t id : ids) {
    if (id >= 0 && id < model.tokenizer->vocabulary_size()) continue;
    return FieldError(field, absl::StrCat(field, ": ", id, " is not a token id below ",
                                          model.tokenizer->vocabulary_size()));
  }
  return absl::OkStatus();
}

// Value of an optional field, or the default that is there.
template <typename T, typename U>
void Take(bool given, T value, U& target) {
  if (given) target = static_cast<U>(value);
}

absl::Status CheckOptions(const v1::GenerationOptions& o, const GenerationRequest& r,
                          const ServedModel& model) {
  constexpr double kHuge = 1e30;
  const SamplingOptions& s = r.sampling;
  for (const absl::Status& status : {
           CheckNumber("temperature", s.temperature, kTemperatureRange),
           CheckNumber("top_p", s.top_p, kTopPRange),
           CheckNumber("min_p", s.min_p, kMinPRange),
           CheckRange("top_k", s.top_k, 0, kHuge),
           CheckNumber("repetition_penalty", s.repetition_penalty, kRepetitionPenaltyRange),
           CheckNumber("presence_penalty", s.presence_penalty, kPenaltyRange),
           CheckNumber("frequency_penalty", s.frequency_penalty, kPenaltyRange),
           CheckRange("n", r.choice_count, 1, kMaxChoices),
           CheckRange("logprobs", r.top_logprobs, -1, kMaxTopLogprobs),
           CheckRange("prompt_logprobs", r.prompt_logprobs, -1, kMaxTopLogprobs),
           CheckRange("min_tokens", r.min_tokens, 0, kHuge),
           CheckRange("max_tokens", o.max_tokens(), 0, kHuge),
           CheckRange("stop", o.stop_size(), 0, kMaxStopStrings),
           CheckRange("bad_words", o.bad_words_size(), 0, kMaxBadWords),
           CheckIds("stop_token_ids", o.stop_token_ids(), model),
           CheckIds("allowed_token_ids", o.allowed_token_ids(), model),
       }) {
    if (!status.ok()) return status;
  }
  for (const std::string& stop : o.stop()) {
    if (stop.empty()) return FieldError("stop", "stop: a stop string is empty");
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationRequest> ReadOptions(const v1::GenerationOptions& o,
                                              const ServedModel& model) {
  GenerationRequest r;
  SamplingOptions& s = r.sampling;
  s = DefaultSampling(model.defaults);
  Take(o.has_temperature(), o.temperature(), s.temperature);
  Take(o.has_top_p(), o.top_p(), s.top_p);
  Take(o.has_top_k(), o.top_k() == -1 ? 0 : o.top_k(), s.top_k);
  Take(o.has_min_p(), o.min_p(), s.min_p);
  Take(o.has_presence_penalty(), o.presence_penalty(), s.presence_penalty);
  Take(o.has_frequency_penalty(), o.frequency_penalty(), s.frequency_penalty);
  Take(o.has_repetition_penalty(), o.repetition_penalty(), s.repetition_penalty);
  s.seed = o.has_seed() ? o.seed() : DrawSeed();
  s.seed_given = o.has_seed();
  for (const auto& [id, bias] : o.logit_bias()) {
    if (id < 0 || id >= model.tokenizer->vocabulary_size() || !(bias >= -100 && bias <= 100)) {
      return FieldError("logit_bias",
                        absl::StrCat("logit_bias: token id ", id, " with ", bias,
                                     ": ids are within the vocabulary, values from -100 to 100"));
    }
    s.logit_bias.emplace_back(id, bias);
  }
  Take(o.has_n(), o.n(), r.choice_count);
  r.stop_strings.assign(o.stop().begin(), o.stop().end());
  r.stop_token_ids.assign(o.stop_token_ids().begin(), o.stop_token_ids().end());
  r.allowed_token_ids.assign(o.allowed_token_ids().begin(), o.allowed_token_ids().end());
  Take(o.has_logprobs(), o.logprobs(), r.top_logprobs);
  Take(o.has_prompt_logprobs(), o.prompt_logprobs(), r.prompt_logprobs);
  r.ignore_eos = o.ignore_eos();
  r.min_tokens = o.min_tokens();
  Take(o.has_skip_special_tokens(), o.skip_special_tokens(), r.skip_special_tokens);
  r.include_stop_string = o.include_stop_string();
  r.cache_salt = o.cache_salt();
  r.priority = o.priority();
  r.show_timings = o.timings();
  if (absl::Status status = CheckOptions(o, r, model); !status.ok()) return status;
  BanSuppressed(model, r);
  for (const std::string& word : o.bad_words()) {
    if (absl::Status status = AddBadWord(model, word, r); !status.ok()) return status;
  }
  return r;
}

// truncate_prompt_tokens, then the check against the context.
absl::Status FitPrompt(const v1::GenerationOptions& o, const ServedModel& model,
                       std::optional<int64_t> max_tokens, GenerationRequest& request) {
  if (o.has_max_tokens()) max_tokens = o.max_tokens();
  if (o.has_truncate_prompt_tokens()) {
    absl::Status cut =
        TruncatePrompt(model, o.truncate_prompt_tokens(), max_tokens, request.prompt_token_ids);
    if (!cut.ok()) return cut;
  }
  return FitToContext(model, max_tokens, request);
}

// An object that a field has as JSON text, members in its order; null where it is empty.
absl::StatusOr<Ordered> ReadObject(const std::string& text, const char* field,
                                   const std::string& where) {
  if (text.empty()) return Ordered();
  absl::StatusOr<SplitJson> read =
      ParseSplit(absl::StrCat("{\"object\":", text, "}"), where,
                 {.values = 1 << 20, .containers = 100'000, .strings = 500'000}, {"object"});
  if (!read.ok()) return FieldError(field, std::string(read.status().message()));
  if (read->all.size() == 1 && read->ordered["object"].is_object())
    return std::move(read->ordered["object"]);
  return FieldError(field, absl::StrCat(where, ": an object as JSON is expected"));
}

Ordered ReadMessage(const v1::ChatMessage& message) {
  Ordered read = {{"role", message.role()}, {"content", message.content()}};
  if (!message.reasoning().empty()) read["reasoning_content"] = message.reasoning();
  if (!message.tool_call_id().empty()) read["tool_call_id"] = message.tool_call_id();
  for (const v1::ToolCall& call : message.tool_calls()) {
    read["tool_calls"].push_back(
        {{"id", call.id()},
         {"type", "function"},
         {"function", {{"name", call.name()}, {"arguments", call.arguments()}}}});
  }
  return read;
}

// As the HTTP field of the same name is read.
absl::StatusOr<StructuredOutput> ReadForm(const v1::GenerationOptions& options) {
  const v1::StructuredOutputs& form = options.structured_outputs();
  Ordered given = Ordered::object();
  switch (form.form_case()) {
    case v1::StructuredOutputs::kJson: given["json"] = form.json(); break;
    case v1::StructuredOutputs::kRegex: given["regex"] = form.regex(); break;
    case v1::StructuredOutputs::kChoice:
      given["choice"] = Ordered::array();
      for (const std::string& text : form.choice().texts()) given["choice"].push_back(text);
      break;
    case v1::StructuredOutputs::kGrammar: given["grammar"] = form.grammar(); break;
    case v1::StructuredOutputs::kJsonObject: given["json_object"] = form.json_object(); break;
    case v1::StructuredOutputs::FORM_NOT_SET: break;
  }
  const Ordered body = {{"structured_outputs", std::move(given)}};
  const nlohmann::json unordered = body;
  BodyReader reader(unordered, CompletionFields());
  return ReadStructuredOutput(reader, body);
}

// The chat as an HTTP body has it.
absl::StatusOr<Ordered> ReadConversation(const v1::ChatRequest& request) {
  Ordered conversation = {{"messages", Ordered::array()}};
  for (const v1::ChatMessage& message : request.messages())
    conversation["messages"].push_back(ReadMessage(message));
  for (int i = 0; i < request.tools_size(); ++i) {
    const v1::FunctionTool& tool = request.tools(i);
    Ordered function = {{"name", tool.name()}};
    if (!tool.description().empty()) function["description"] = tool.description();
    absl::StatusOr<Ordered> parameters =
        ReadObject(tool.parameters(), "tools", absl::StrCat("tools[", i, "].parameters"));
    if (!parameters.ok()) return parameters.status();
    if (!parameters->is_null()) function["parameters"] = *std::move(parameters);
    if (tool.strict()) function["strict"] = true;
    conversation["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  const std::string& choice = request.tool_choice();
  if (choice == "none" || choice == "auto" || choice == "required") {
    conversation["tool_choice"] = choice;
  } else if (!choice.empty()) {
    conversation["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice}}}};
  }
  constexpr char kVariables[] = "chat_template_kwargs";
  absl::StatusOr<Ordered> variables =
      ReadObject(request.chat_template_kwargs(), kVariables, kVariables);
  if (!variables.ok()) return variables.status();
  if (!variables->is_null()) conversation[kVariables] = *std::move(variables);
  return conversation;
}

}  // namespace

absl::StatusOr<InferenceCall> ReadCompletion(const v1::CompletionRequest& request,
                                             const ServedModel& model) {
  if (absl::Status s = CheckModelName(model, request.model()); !s.ok()) return s;
  absl::StatusOr<GenerationRequest> r = ReadOptions(request.options(), model);
  if (!r.ok()) return r.status();
  const absl::StatusOr<StructuredOutput> form = ReadForm(request.options());
  if (!form.ok()) return form.status();
  if (form->grammar.has_value()) r->grammar = form->grammar->Text();
  std::optional<std::string> text;
  if (request.has_tokens()) {
    r->prompt_token_ids.assign(request.tokens().ids().begin(), request.tokens().ids().end());
  } else {
    text = request.text();
    if (!request.options().has_truncate_prompt_tokens()) {
      if (absl::Status s = CheckMayFit(model, "text", request.text()); !s.ok()) return s;
    }
    absl::StatusOr<std::vector<int32_t>> ids =
        EncodePrompt(model, text, /*add_special_tokens=*/true);
    if (!ids.ok()) return FieldError("text", std::string(ids.status().message()));
    r->prompt_token_ids = *std::move(ids);
  }
  r->request_id = RequestIdOr(request.request_id());
  const size_t sent_tokens = r->prompt_token_ids.size();
  if (absl::Status s = FitPrompt(request.options(), model, 16, *r); !s.ok()) return s;
  if (request.echo()) {
    r->prompt_text =
        EchoedPrompt(model, text, r->prompt_token_ids, r->prompt_token_ids.size() < sent_tokens);
  }
  return InferenceCall{*std::move(r), nullptr, {}};
}

absl::StatusOr<InferenceCall> ReadChat(const v1::ChatRequest& request, const ServedModel& model,
                                       int64_t now_unix_seconds) {
  if (absl::Status s = CheckModelName(model, request.model()); !s.ok()) return s;
  absl::StatusOr<GenerationRequest> r = ReadOptions(request.options(), model);
  if (!r.ok()) return r.status();
  absl::StatusOr<Ordered> conversation = ReadConversation(request);
  if (!conversation.ok()) return conversation.status();
  std::optional<bool> add_generation_prompt;
  if (request.has_add_generation_prompt()) add_generation_prompt = request.add_generation_prompt();
  absl::StatusOr<ChatPromptOptions> prompt =
      ReadChatPromptOptions(add_generation_prompt, request.continue_final_message(), std::nullopt);
  if (!prompt.ok()) return prompt.status();
  ChatRequest chat;
  chat.prompt = *prompt;
  chat.prompt.must_fit = !request.options().has_truncate_prompt_tokens();
  if (request.has_enable_thinking()) chat.prompt.enable_thinking = request.enable_thinking();
  if (!request.reasoning_effort().empty())
    chat.prompt.reasoning_effort = request.reasoning_effort();
  if (request.has_parallel_tool_calls()) chat.parallel_tool_calls = request.parallel_tool_calls();
  if (request.has_thinking_token_budget()) {
    chat.thinking_token_budget = request.thinking_token_budget();
    absl::Status fits = CheckRange("thinking_token_budget", request.thinking_token_budget(), 0,
                                   std::numeric_limits<int32_t>::max());
    if (!fits.ok()) return fits;
  }
  const absl::StatusOr<StructuredOutput> form = ReadForm(request.options());
  if (!form.ok()) return form.status();
  chat.has_form = form->grammar.has_value();
  chat.has_own_grammar = chat.has_form && form->grammar->is_own();
  absl::StatusOr<PreparedChat> prepared =
      PrepareChat(model, *conversation, std::move(chat), now_unix_seconds, *r);
  if (!prepared.ok()) return prepared.status();
  if (form->grammar.has_value() && !prepared->demands_call)
    r->grammar = form->grammar->Text(prepared->start);
  r->request_id = RequestIdOr(request.request_id());
  if (absl::Status s = FitPrompt(request.options(), model, std::nullopt, *r); !s.ok()) return s;
  return InferenceCall{*std::move(r), std::move(prepared->answer_format),
                       std::move(prepared->not_enforced)};
}

}  // namespace tessera::coordinator
