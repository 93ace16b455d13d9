#include "coordinator/api/responses_request.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"
#include "coordinator/api/dropped_turns.h"
#include "coordinator/api/responses_input.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr std::string_view kContextExceeded = "context_length_exceeded";

// Read as the chat's fields of the same names.
constexpr const char* kSameFields[] = {"temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "repetition_penalty",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "seed",
                                       "stop",
                                       "cache_salt",
                                       "priority",
                                       "stream",
                                       "parallel_tool_calls",
                                       "thinking_token_budget"};

// The chat that a body is, as ReadChatCall takes it.
struct Chat {
  nlohmann::json body;
  Ordered conversation;
  std::vector<std::string> ignored_fields;
  std::vector<std::string> not_enforced;
  ResponsesTerms terms;
  bool may_drop_turns = false;  // truncation: "auto"
};

class ToolReader {
 public:
  explicit ToolReader(Chat& chat) : chat_(chat) {}

  // `where` they stand.
  absl::Status Read(const std::string& where, const Ordered& tools) {
    if (tools.is_null()) return absl::OkStatus();
    if (!tools.is_array()) return Error(where, "an array is expected");
    for (size_t i = 0; i < tools.size(); ++i) {
      absl::Status read = Add(tools[i], absl::StrCat(where, "[", i, "]"), "");
      if (!read.ok()) return read;
    }
    return absl::OkStatus();
  }

  void Finish() {
    if (!functions_.empty()) chat_.conversation["tools"] = std::move(functions_);
  }

 private:
  static absl::Status Error(const std::string& where, std::string_view what) {
    const std::string field = where.substr(0, where.find('['));
    return FieldError(field, absl::StrCat(where, ": ", std::string(what)));
  }

  absl::Status Add(const Ordered& tool, const std::string& where, const std::string& space) {
    const Ordered& type = Member(tool, "type");
    if (!type.is_string()) return Error(where, "an object with a string type is expected");
    if (type == "namespace") return AddNamespace(tool, where);
    if (type == "tool_search" && Member(tool, "execution") == "client") return AddSearch(tool);
    if (type != "function" && type != "custom") {
      chat_.ignored_fields.push_back(absl::StrCat(where, ":", type.get<std::string>()));
      return absl::OkStatus();
    }
    const Ordered& name = Member(tool, "name");
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      return Error(where, "name: a string is expected");
    const std::string flat = FlatToolName(space, name.get<std::string>());
    // A search finds again what is known.
    if (!names_.insert(flat).second && where.starts_with("input")) return absl::OkStatus();
    if (type == "custom" || !space.empty())
      chat_.terms.tools[flat] = {name.get<std::string>(), space, type == "custom"};
    Ordered function = {{"name", flat}};
    if (type == "custom") {
      if (absl::Status s = AddInput(tool, where, function); !s.ok()) return s;
    } else {
      Copy(tool, function);
    }
    functions_.push_back({{"type", "function"}, {"function", std::move(function)}});
    return absl::OkStatus();
  }

  static void Copy(const Ordered& tool, Ordered& function) {
    for (const char* same : {"description", "parameters", "strict"}) {
      if (const Ordered& member = Member(tool, same); !member.is_null()) function[same] = member;
    }
  }

  absl::Status AddSearch(const Ordered& tool) {
    constexpr char kName[] = "tool_search";
    if (!names_.insert(kName).second) return absl::OkStatus();
    chat_.terms.tools[kName] = {.name = kName, .tool_namespace = "", .is_search = true};
    Ordered function = {{"name", kName}};
    Copy(tool, function);
    functions_.push_back({{"type", "function"}, {"function", std::move(function)}});
    return absl::OkStatus();
  }

  absl::Status AddNamespace(const Ordered& tool, const std::string& where) {
    const Ordered& name = Member(tool, "name");
    const Ordered& tools = Member(tool, "tools");
    if (!name.is_string() || !tools.is_array())
      return Error(where, "namespace: a name and an array of tools are expected");
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string inner = absl::StrCat(where, ".tools[", i, "]");
      if (Member(tools[i], "type") == "namespace")
        return Error(inner, "a namespace within a namespace is not supported yet");
      if (absl::Status s = Add(tools[i], inner, name.get<std::string>()); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // A custom tool takes free text, which may have to follow a grammar: the model is shown it.
  absl::Status AddInput(const Ordered& tool, const std::string& where, Ordered& function) {
    const Ordered& text = Member(tool, "description");
    if (!text.is_null() && !text.is_string())
      return Error(where, "description: a string is expected");
    std::string description = text.is_string() ? text.get<std::string>() : "";
    const Ordered& format = Member(tool, "format");
    const Ordered& definition = Member(format, "definition");
    if (definition.is_string()) {
      const Ordered& syntax = Member(format, "syntax");
      absl::StrAppend(&description, "\n\nThe input follows this grammar",
                      syntax.is_string() ? absl::StrCat(" (", syntax.get<std::string>(), ")") : "",
                      ":\n", definition.get<std::string>());
      chat_.not_enforced.push_back(absl::StrCat(where, ".format"));
    }
    function["description"] = std::move(description);
    function["parameters"] = {{"type", "object"},
                              {"properties", {{"input", {{"type", "string"}}}}},
                              {"required", Ordered::array({"input"})}};
    return absl::OkStatus();
  }

  Chat& chat_;
  Ordered functions_ = Ordered::array();
  std::set<std::string> names_;
};

absl::Status AddToolChoice(const Ordered& choice, Chat& chat) {
  if (choice.is_null()) return absl::OkStatus();
  const Ordered& type = Member(choice, "type");
  const Ordered& name = Member(choice, "name");
  Ordered to;
  if (choice == "auto" || choice == "none" || choice == "required") {
    to = choice;
  } else if ((type == "function" || type == "custom") && name.is_string()) {
    const Ordered& space = Member(choice, "namespace");
    const std::string flat =
        FlatToolName(space.is_string() ? space.get<std::string>() : "", name.get<std::string>());
    to = {{"type", "function"}, {"function", {{"name", flat}}}};
  } else if (type == "allowed_tools") {
    to = choice;
  } else {
    return FieldError("tool_choice",
                      "tool_choice: \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                      "\"name\": ...} is expected; other kinds are not supported yet");
  }
  // A choice among tools that were all skipped says nothing.
  if (chat.conversation.contains("tools")) chat.conversation["tool_choice"] = std::move(to);
  return absl::OkStatus();
}

// text.format is a chat's response_format without the schema's wrapping.
void ReadText(BodyReader& reader, const Ordered& text, Chat& chat) {
  reader.Object("text");
  if (!Member(text, "verbosity").is_null()) chat.not_enforced.emplace_back("text.verbosity");
  const Ordered& format = Member(text, "format");
  if (format.is_null()) return;
  Ordered wrapped = format;
  if (Member(format, "type") == "json_schema") {
    Ordered schema = format;
    schema.erase("type");
    wrapped = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  }
  chat.body["response_format"] = wrapped;
  chat.conversation["response_format"] = std::move(wrapped);
}

void ReadReasoning(BodyReader& reader, Chat& chat) {
  const nlohmann::json reasoning = reader.Object("reasoning");
  if (const auto effort = reasoning.find("effort"); effort != reasoning.end())
    chat.body["reasoning_effort"] = *effort;
  // Reasoning comes as it is, not summed up.
  if (!reasoning.value("summary", nlohmann::json()).is_null())
    chat.not_enforced.emplace_back("reasoning.summary");
}

void ReadOptions(BodyReader& reader, Chat& chat) {
  chat.ignored_fields = reader.Ignored();
  reader.CheckUnread();
  chat.body["model"] = reader.String("model").value_or("");
  chat.body["messages"] = nlohmann::json::array();  // those of the conversation
  for (const char* name : kSameFields) {
    if (const nlohmann::json* value = reader.Find(name)) chat.body[name] = *value;
  }
  if (const auto max_tokens = reader.Integer("max_output_tokens"))
    chat.body["max_completion_tokens"] = *max_tokens;
  reader.Integer("max_tool_calls");  // of tools that a server runs
  if (reader.Integer("top_logprobs").value_or(0) != 0)
    reader.Fail("top_logprobs", "not supported yet");
  if (reader.Bool("store").value_or(false)) {
    reader.Fail("store",
                "responses are not stored here: leave it out or say false, and send the whole "
                "conversation as input");
  }
  const std::string truncation = reader.String("truncation").value_or("disabled");
  if (truncation != "auto" && truncation != "disabled")
    reader.Fail("truncation", "\"auto\" or \"disabled\" is expected");
  chat.may_drop_turns = truncation == "auto";
  for (const std::string& what : reader.Strings("include")) {
    if (what == "message.output_text.logprobs")
      reader.Fail("include", absl::StrCat(what, " is not supported yet"));
  }
}

// Members of every response that repeat the request.
Ordered Echo(const nlohmann::json& body, const Ordered& conversation, const OpenAiCall& call) {
  const auto sent = [&](const char* name, Ordered otherwise) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? otherwise : Ordered(*found);
  };
  Ordered text = Member(conversation, "text");
  if (!text.is_object()) text = Ordered::object();
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  Ordered tools = Member(conversation, "tools");
  if (!tools.is_array()) tools = Ordered::array();
  for (Ordered& tool : tools) {
    if (Member(tool, "type") == "function" && Member(tool, "strict").is_null())
      tool["strict"] = false;
  }
  const Ordered& choice = Member(conversation, "tool_choice");
  const SamplingOptions& sampling = call.prompts[0].sampling;
  return {{"instructions", sent("instructions", nullptr)},
          {"max_output_tokens", sent("max_output_tokens", nullptr)},
          {"max_tool_calls", sent("max_tool_calls", nullptr)},
          {"parallel_tool_calls", sent("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"prompt_cache_key", sent("prompt_cache_key", nullptr)},
          {"reasoning", sent("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"safety_identifier", sent("safety_identifier", nullptr)},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", sent("temperature", sampling.temperature)},
          {"text", std::move(text)},
          {"tool_choice", choice.is_null() ? Ordered("auto") : choice},
          {"tools", std::move(tools)},
          {"top_logprobs", 0},
          {"top_p", sent("top_p", sampling.top_p)},
          {"truncation", sent("truncation", "disabled")},
          {"user", sent("user", nullptr)},
          {"metadata", sent("metadata", Ordered::object())}};
}

// The place in a chat's response_format is one in text.format.
std::string InNamesOfHere(std::string message) {
  for (const std::string_view from : {"response_format.json_schema", "response_format"}) {
    if (message.starts_with(from)) return message.replace(0, from.size(), "text.format");
  }
  return message;
}

// An error of the chat, by the name that its field has here.
absl::Status Renamed(absl::Status status) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"messages", "input"},
      {"prompt", "input"},
      {"max_tokens", "max_output_tokens"},
      {"max_completion_tokens", "max_output_tokens"},
      {"response_format", "text"},
      {"reasoning_effort", "reasoning"}};
  const std::string field = FieldOf(status);
  for (const auto& [from, to] : kNames) {
    if (field != from) continue;
    absl::Status renamed = FieldError(to, InNamesOfHere(std::string(status.message())));
    const std::string code = ErrorCodeOf(status);
    return code.empty() ? renamed : WithErrorCode(std::move(renamed), code);
  }
  return status;
}

absl::StatusOr<Chat> ReadChat(const nlohmann::json& body, const Ordered& conversation) {
  BodyReader reader(body, ResponsesFields());
  Chat chat;
  chat.conversation = Ordered::object();
  ReadOptions(reader, chat);
  ReadText(reader, Member(conversation, "text"), chat);
  ReadReasoning(reader, chat);
  reader.Object("chat_template_kwargs");
  const std::string instructions = reader.String("instructions").value_or("");
  if (!reader.status().ok()) return reader.status();
  absl::StatusOr<ResponsesInput> input =
      ReadResponsesInput(instructions, Member(conversation, "input"));
  if (!input.ok()) return input.status();
  chat.conversation["messages"] = std::move(input->messages);
  chat.ignored_fields.insert(chat.ignored_fields.end(), input->skipped.begin(),
                             input->skipped.end());
  if (const Ordered& variables = Member(conversation, "chat_template_kwargs"); !variables.is_null())
    chat.conversation["chat_template_kwargs"] = variables;
  ToolReader tools(chat);
  absl::Status read = tools.Read("tools", Member(conversation, "tools"));
  for (const auto& [where, more] : input->tools) {
    if (read.ok()) read = tools.Read(where, more);
  }
  tools.Finish();
  const Ordered& sent = Member(conversation, "tools");
  if (read.ok() && (sent.is_null() || sent.empty()) && input->tools.empty() &&
      !chat.conversation.contains("tools") && Member(conversation, "tool_choice") == "required") {
    return FieldError("tool_choice", "tool_choice: \"required\" needs tools");
  }
  if (read.ok()) read = AddToolChoice(Member(conversation, "tool_choice"), chat);
  if (!read.ok()) return read;
  return chat;
}

// The chats that are left of one which does not fit, when its oldest parts go.
class ShorterChats {
 public:
  ShorterChats(const Chat& chat, const ServedModel& model, int64_t now_unix_seconds)
      : chat_(chat),
        model_(model),
        now_unix_seconds_(now_unix_seconds),
        turns_(Member(chat.conversation, "messages")) {}

  // The longest whose cut is one of a few places. What goes is a multiple of a quarter of the room,
  // counted from the begin: the next turns find the same cut, and the same prefix cached, until the
  // context is full again. Where a multiple is more than may go, no more goes than must.
  absl::StatusOr<OpenAiCall> Longest() const {
    absl::StatusOr<OpenAiCall> best = Without(turns_.count());
    if (!best.ok()) return best;
    const absl::StatusOr<OpenAiCall> whole =
        ReadChatCall(chat_.body, chat_.conversation, model_, now_unix_seconds_, PromptFit::kAny);
    if (!whole.ok()) return whole;
    const int64_t all = TokensOf(*whole);
    const int64_t room = Room(*best);
    const int64_t excess = std::max<int64_t>(all - room, 1);
    const int64_t block = std::max<int64_t>(room / kBlocksOfRoom, 1);
    int64_t goes = (excess + block - 1) / block * block;
    if (all - TokensOf(*best) < goes) goes = excess;
    // With many parts, cuts lie at each second one, or fourth: as before while their number grows.
    size_t stride = 1;
    while (turns_.count() / stride > kMaxCuts) stride *= 2;
    size_t too_few = 0, enough = (turns_.count() + stride - 1) / stride;
    while (enough - too_few > 1) {
      const size_t middle = (too_few + enough) / 2;
      absl::StatusOr<OpenAiCall> call = Without(middle * stride);
      if (call.ok() && all - TokensOf(*call) >= goes) {
        best = std::move(call);
        enough = middle;
      } else {
        too_few = middle;
      }
    }
    return best;
  }

 private:
  static constexpr int64_t kShareOfAnswer = 8;  // an eighth, where the client sets no limit
  static constexpr int64_t kBlocksOfRoom = 4;
  static constexpr size_t kMaxCuts = 64;  // six calls are read to find one

  static int64_t TokensOf(const OpenAiCall& call) {
    return static_cast<int64_t>(call.prompts[0].prompt_token_ids.size());
  }

  // Tokens that the prompt may have.
  int64_t Room(const OpenAiCall& call) const {
    const bool limited = chat_.body.contains("max_completion_tokens");
    const int64_t context = model_.max_model_len_tokens;
    return context - (limited ? call.prompts[0].max_tokens : context / kShareOfAnswer);
  }

  absl::StatusOr<OpenAiCall> Without(size_t dropped) const {
    Ordered shorter = chat_.conversation;
    shorter["messages"] = turns_.Without(dropped, Member(chat_.conversation, "messages"));
    return ReadChatCall(chat_.body, shorter, model_, now_unix_seconds_);
  }

  const Chat& chat_;
  const ServedModel& model_;
  const int64_t now_unix_seconds_;
  const DroppedTurns turns_;
};

// The call of the whole chat, or of what is left when turns go that must.
absl::StatusOr<OpenAiCall> ReadFittingCall(const Chat& chat, const ServedModel& model,
                                           int64_t now_unix_seconds) {
  absl::StatusOr<OpenAiCall> whole =
      ReadChatCall(chat.body, chat.conversation, model, now_unix_seconds);
  if (whole.ok() || !chat.may_drop_turns) return whole;
  if (ErrorCodeOf(whole.status()) != kContextExceeded) return whole;
  return ShorterChats(chat, model, now_unix_seconds).Longest();
}

}  // namespace

absl::StatusOr<OpenAiCall> ReadResponsesCall(const nlohmann::json& body,
                                             const Ordered& conversation, const ServedModel& model,
                                             int64_t now_unix_seconds) {
  absl::StatusOr<Chat> read = ReadChat(body, conversation);
  if (!read.ok()) return read.status();
  Chat chat = *std::move(read);
  absl::StatusOr<OpenAiCall> call = ReadFittingCall(chat, model, now_unix_seconds);
  if (!call.ok()) return Renamed(call.status());
  call->form = AnswerForm::kResponses;
  call->ignored_fields = std::move(chat.ignored_fields);
  call->not_enforced.insert(call->not_enforced.end(), chat.not_enforced.begin(),
                            chat.not_enforced.end());
  chat.terms.echo = Echo(body, conversation, *call);
  call->responses = std::make_shared<const ResponsesTerms>(std::move(chat.terms));
  return call;
}

absl::StatusOr<int64_t> CountResponsesTokens(const nlohmann::json& body,
                                             const Ordered& conversation, const ServedModel& model,
                                             int64_t now_unix_seconds) {
  const absl::StatusOr<Chat> chat = ReadChat(body, conversation);
  if (!chat.ok()) return chat.status();
  const absl::StatusOr<OpenAiCall> call =
      ReadChatCall(chat->body, chat->conversation, model, now_unix_seconds, PromptFit::kAny);
  if (!call.ok()) return Renamed(call.status());
  return static_cast<int64_t>(call->prompts[0].prompt_token_ids.size());
}

}  // namespace tessera::coordinator
