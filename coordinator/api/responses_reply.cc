#include "coordinator/api/responses_reply.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/http/http_status.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;
using Kind = MessageDelta::Kind;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The names that Responses' clients branch on; most go on trying at any other.
std::string FailureCode(const absl::Status& status) {
  std::string code = ErrorCodeOf(status);
  if (!code.empty()) return code;
  return ToHttpError(status.code()).status == 429 ? "rate_limit_exceeded" : "server_error";
}

Json TextPart(Kind kind, const std::string& text) {
  if (kind == Kind::kThinking) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"annotations", Json::array()},
          {"logprobs", Json::array()},
          {"text", text}};
}

// What a custom tool takes: the one string of the function that the model called.
std::string CustomInput(const std::string& arguments) {
  const Json read = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  const auto input = read.find("input");
  return input != read.end() && input->is_string() ? input->get<std::string>() : arguments;
}

}  // namespace

ResponsesReply::ResponsesReply(const ServedModel& model, const OpenAiCall& call,
                               int64_t created_unix_seconds)
    : model_(model),
      call_(call),
      id_(call.DrawAnswerId("resp_")),
      created_unix_seconds_(created_unix_seconds),
      message_(call.answer_format) {}

Json ResponsesReply::UsageJson() const {
  return {{"input_tokens", usage_.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", usage_.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage_.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage_.thinking_tokens}}},
          {"total_tokens", usage_.prompt_tokens + usage_.completion_tokens}};
}

Json ResponsesReply::ResponseJson(const char* status, Json output) const {
  const bool cut = status == std::string_view("incomplete");
  Json response = {{"id", id_},
                   {"object", "response"},
                   {"created_at", created_unix_seconds_},
                   {"status", status},
                   {"background", false},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", model_.name},
                   {"output", std::move(output)}};
  if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response.update(call_.responses->echo);
  const bool over = finish_ != Finish::kNone;
  response["usage"] = over ? UsageJson() : Json(nullptr);
  return response;
}

std::string ResponsesReply::Event(const char* type, Json members) {
  Json json = {{"type", type}, {"sequence_number", events_++}};
  json.update(members);
  return absl::StrCat("event: ", type, "\ndata: ", Dump(json), "\n\n");
}

std::string ResponsesReply::ItemEvent(const char* type, Json members) {
  Json json = {{"item_id", items_.back().json["id"]}, {"output_index", items_.size() - 1}};
  json.update(members);
  return Event(type, std::move(json));
}

std::string ResponsesReply::ResponseEvent(const char* type, Json response) {
  return Event(type, {{"response", std::move(response)}});
}

std::string ResponsesReply::Open(const MessageDelta& delta, Item item) {
  std::string events = Close();
  item.kind = delta.kind;
  items_.push_back(std::move(item));
  open_ = true;
  return events + Event("response.output_item.added",
                        {{"output_index", items_.size() - 1}, {"item", items_.back().json}});
}

std::string ResponsesReply::OpenText(const MessageDelta& delta) {
  Item item;
  if (delta.kind == Kind::kThinking) {
    item.json = {{"id", absl::StrCat("rs_", DrawId())},
                 {"type", "reasoning"},
                 {"summary", Json::array()},
                 {"content", Json::array()},
                 {"encrypted_content", nullptr},
                 {"status", "in_progress"}};
  } else {
    item.json = {{"id", absl::StrCat("msg_", DrawId())},
                 {"type", "message"},
                 {"status", "in_progress"},
                 {"role", "assistant"},
                 {"content", Json::array()}};
  }
  const std::string events = Open(delta, std::move(item));
  return events + ItemEvent("response.content_part.added",
                            {{"content_index", 0}, {"part", TextPart(delta.kind, "")}});
}

std::string ResponsesReply::OpenCall(const MessageDelta& delta) {
  const auto& tools = call_.responses->tools;
  const auto tool = tools.find(delta.text);
  Item item;
  item.is_custom = tool != tools.end() && tool->second.is_custom;
  item.is_search = tool != tools.end() && tool->second.is_search;
  if (item.is_search) {
    item.json = {{"id", absl::StrCat("tsc_", DrawId())},
                 {"type", "tool_search_call"},
                 {"execution", "client"},
                 {"status", "in_progress"},
                 {"call_id", delta.id},
                 {"arguments", Json::object()}};
    return Open(delta, std::move(item));
  }
  item.json = {{"id", absl::StrCat(item.is_custom ? "ctc_" : "fc_", DrawId())},
               {"type", item.is_custom ? "custom_tool_call" : "function_call"},
               {"status", "in_progress"},
               {"call_id", delta.id},
               {"name", tool == tools.end() ? delta.text : tool->second.name}};
  if (tool != tools.end() && !tool->second.tool_namespace.empty())
    item.json["namespace"] = tool->second.tool_namespace;
  item.json[item.is_custom ? "input" : "arguments"] = "";
  return Open(delta, std::move(item));
}

std::string ResponsesReply::Events(const MessageDelta& delta) {
  std::string events;
  if (delta.kind == Kind::kCall) return OpenCall(delta);
  if (delta.kind != Kind::kArguments && (!open_ || items_.back().kind != delta.kind))
    events = OpenText(delta);
  Item& item = items_.back();
  item.text += delta.text;
  // What they take is known once the arguments are whole.
  if (item.is_custom || item.is_search) return events;
  if (delta.kind == Kind::kArguments) {
    return ItemEvent("response.function_call_arguments.delta", {{"delta", delta.text}});
  }
  if (delta.kind == Kind::kThinking) {
    return events + ItemEvent("response.reasoning_text.delta",
                              {{"content_index", 0}, {"delta", delta.text}});
  }
  return events +
         ItemEvent("response.output_text.delta",
                   {{"content_index", 0}, {"delta", delta.text}, {"logprobs", Json::array()}});
}

std::string ResponsesReply::CloseText(Item& item) {
  Json part = TextPart(item.kind, item.text);
  const bool thinking = item.kind == Kind::kThinking;
  Json done = {{"content_index", 0}, {"text", item.text}};
  if (!thinking) done["logprobs"] = Json::array();
  std::string events =
      ItemEvent(thinking ? "response.reasoning_text.done" : "response.output_text.done", done);
  events += ItemEvent("response.content_part.done", {{"content_index", 0}, {"part", part}});
  item.json["content"].push_back(std::move(part));
  return events;
}

std::string ResponsesReply::CloseCall(Item& item) {
  if (item.is_search) {
    const Json arguments = Json::parse(item.text, nullptr, /*allow_exceptions=*/false);
    if (arguments.is_object()) item.json["arguments"] = arguments;
    return "";
  }
  if (!item.is_custom) {
    item.json["arguments"] = item.text;
    return ItemEvent("response.function_call_arguments.done",
                     {{"name", item.json["name"]}, {"arguments", item.text}});
  }
  const std::string input = CustomInput(item.text);
  item.json["input"] = input;
  const std::string events = ItemEvent("response.custom_tool_call_input.delta", {{"delta", input}});
  return events + ItemEvent("response.custom_tool_call_input.done", {{"input", input}});
}

std::string ResponsesReply::Close(bool cut) {
  if (!std::exchange(open_, false)) return "";
  Item& item = items_.back();
  std::string events;
  if (item.kind == Kind::kCall) {
    const std::vector<ToolCall>& calls = message_.message().calls;
    item.is_broken = std::none_of(calls.begin(), calls.end(), [&](const ToolCall& call) {
      return call.id == item.json["call_id"];
    });
    events = CloseCall(item);
  } else {
    events = CloseText(item);
  }
  item.json["status"] = cut || item.is_broken ? "incomplete" : "completed";
  return events + Event("response.output_item.done",
                        {{"output_index", items_.size() - 1}, {"item", item.json}});
}

std::string ResponsesReply::Chunk(int, const ChoiceEvent& event) {
  std::string events;
  for (const MessageDelta& delta : message_.Append(event.text)) events += Events(delta);
  if (event.finish == Finish::kNone) return events;
  finish_ = event.finish;
  const bool cut = finish_ == Finish::kLength;
  for (const MessageDelta& delta : message_.Finish(cut ? AnswerEnd::kCut : AnswerEnd::kStop))
    events += Events(delta);
  return events + Close(cut);
}

std::string ResponsesReply::Body() const {
  Json output = Json::array();
  for (const Item& item : items_) {
    if (!item.is_broken) output.push_back(item.json);
  }
  return Dump(
      ResponseJson(finish_ == Finish::kLength ? "incomplete" : "completed", std::move(output)));
}

std::string ResponsesReply::OpeningChunks() {
  const Json response = ResponseJson("in_progress", Json::array());
  const std::string created = ResponseEvent("response.created", response);
  return created + ResponseEvent("response.in_progress", response);
}

std::string ResponsesReply::ClosingChunks() {
  Json output = Json::array();
  for (const Item& item : items_) output.push_back(item.json);
  if (finish_ == Finish::kLength) {
    return ResponseEvent("response.incomplete", ResponseJson("incomplete", std::move(output)));
  }
  return ResponseEvent("response.completed", ResponseJson("completed", std::move(output)));
}

std::string ResponsesReply::ErrorChunk(const absl::Status& status) const {
  Json output = Json::array();
  for (const Item& item : items_) output.push_back(item.json);
  Json response = ResponseJson("failed", std::move(output));
  response["error"] = {{"code", FailureCode(status)}, {"message", std::string(status.message())}};
  const Json event = {
      {"type", "response.failed"}, {"sequence_number", events_}, {"response", std::move(response)}};
  return absl::StrCat("event: response.failed\ndata: ", Dump(event), "\n\n");
}

}  // namespace tessera::coordinator
