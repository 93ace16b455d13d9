#include "coordinator/api/messages_reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>
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

// The event's name is its type.
std::string Event(const Json& json) {
  return absl::StrCat("event: ", json["type"].get<std::string>(), "\ndata: ", Dump(json), "\n\n");
}

std::string_view ErrorType(int http_status) {
  switch (http_status) {
    case 400: return "invalid_request_error";
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return "api_error";
  }
}

Json ToolUse(const ToolCall& call) {
  Json input = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  if (!input.is_object()) input = Json::object();  // of an answer that was cut
  return {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}};
}

Json Thinking(const std::string& text) {
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}

Json Text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

}  // namespace

std::string MessagesError(const absl::Status& status) {
  const std::string field = FieldOf(status);
  const std::string code = ErrorCodeOf(status);
  return Dump({{"type", "error"},
               {"error",
                {{"type", std::string(ErrorType(ToHttpError(status.code()).status))},
                 {"message", std::string(status.message())},
                 {"param", field.empty() ? Json(nullptr) : Json(field)},
                 {"code", code.empty() ? Json(nullptr) : Json(code)}}}});
}

MessagesReply::MessagesReply(const ServedModel& model, const OpenAiCall& call)
    : model_(model), call_(call), id_(call.DrawAnswerId("msg_")), message_(call.answer_format) {
  usage_.prompt_tokens = static_cast<int64_t>(call.prompts[0].prompt_token_ids.size());
}

std::vector<MessageDelta> MessagesReply::Read(const ChoiceEvent& event) {
  std::vector<MessageDelta> deltas = message_.Append(event.text);
  if (event.finish == Finish::kNone) return deltas;
  finish_ = event.finish;
  stop_reason_ = event.stop_reason;
  const AnswerEnd end = finish_ == Finish::kLength ? AnswerEnd::kCut : AnswerEnd::kStop;
  for (MessageDelta& delta : message_.Finish(end)) deltas.push_back(std::move(delta));
  return deltas;
}

void MessagesReply::Add(int, const ChoiceEvent& event) { Read(event); }

Json MessagesReply::StopSequence() const {
  const std::vector<std::string>& stops = call_.prompts[0].stop_strings;
  const bool is_stop = std::find(stops.begin(), stops.end(), stop_reason_) != stops.end();
  return finish_ == Finish::kStop && is_stop ? Json(stop_reason_) : Json(nullptr);
}

Json MessagesReply::StopReason() const {
  if (finish_ == Finish::kLength)
    return call_.fills_context ? "model_context_window_exceeded" : "max_tokens";
  if (!StopSequence().is_null()) return "stop_sequence";
  return message_.message().calls.empty() ? "end_turn" : "tool_use";
}

Json MessagesReply::UsageJson() const {
  return {{"input_tokens", usage_.prompt_tokens - usage_.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage_.cached_tokens},
          {"output_tokens", usage_.completion_tokens}};
}

Json MessagesReply::MessageJson(Json content) const {
  const bool ended = finish_ != Finish::kNone;
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_.name},
          {"content", std::move(content)},
          {"stop_reason", ended ? StopReason() : Json(nullptr)},
          {"stop_sequence", ended ? StopSequence() : Json(nullptr)},
          {"usage", UsageJson()}};
}

std::string MessagesReply::Body() const {
  const AnswerMessage& message = message_.message();
  Json content = Json::array();
  if (!message.thinking.empty()) content.push_back(Thinking(message.thinking));
  if (!message.text.empty()) content.push_back(Text(message.text));
  for (const ToolCall& call : message.calls) content.push_back(ToolUse(call));
  return Dump(MessageJson(std::move(content)));
}

std::string MessagesReply::OpeningChunks() {
  return Event({{"type", "message_start"}, {"message", MessageJson(Json::array())}});
}

std::string MessagesReply::OpenBlock(Kind kind, Json block) {
  std::string events = CloseBlock();
  open_ = kind;
  return events + Event({{"type", "content_block_start"},
                         {"index", blocks_++},
                         {"content_block", std::move(block)}});
}

std::string MessagesReply::CloseBlock() {
  if (!std::exchange(open_, std::nullopt).has_value()) return "";
  return Event({{"type", "content_block_stop"}, {"index", blocks_ - 1}});
}

std::string MessagesReply::Events(const MessageDelta& delta) {
  std::string events;
  Json piece;
  switch (delta.kind) {
    case Kind::kThinking:
      if (open_ != Kind::kThinking) events = OpenBlock(delta.kind, Thinking(""));
      piece = {{"type", "thinking_delta"}, {"thinking", delta.text}};
      break;
    case Kind::kText:
      if (open_ != Kind::kText) events = OpenBlock(delta.kind, Text(""));
      piece = {{"type", "text_delta"}, {"text", delta.text}};
      break;
    case Kind::kCall:
      events =
          OpenBlock(delta.kind, ToolUse({.id = delta.id, .name = delta.text, .arguments = ""}));
      piece = {{"type", "input_json_delta"}, {"partial_json", ""}};
      break;
    case Kind::kArguments:
      piece = {{"type", "input_json_delta"}, {"partial_json", delta.text}};
      break;
  }
  return events + Event({{"type", "content_block_delta"},
                         {"index", blocks_ - 1},
                         {"delta", std::move(piece)}});
}

std::string MessagesReply::Chunk(int, const ChoiceEvent& event) {
  std::string events;
  for (const MessageDelta& delta : Read(event)) events += Events(delta);
  return events;
}

std::string MessagesReply::ClosingChunks() {
  return CloseBlock() +
         Event({{"type", "message_delta"},
                {"delta", {{"stop_reason", StopReason()}, {"stop_sequence", StopSequence()}}},
                {"usage", UsageJson()}}) +
         Event({{"type", "message_stop"}});
}

std::string MessagesReply::ErrorChunk(const absl::Status& status) const {
  return absl::StrCat("event: error\ndata: ", MessagesError(status), "\n\n");
}

std::string MessagesReply::Ping() const { return Event({{"type", "ping"}}); }

}  // namespace tessera::coordinator
