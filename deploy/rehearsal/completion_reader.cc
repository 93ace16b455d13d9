#include "deploy/rehearsal/completion_reader.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace tessera::deploy {
namespace {

constexpr char kLineEnd[] = "\r\n";
constexpr std::string_view kData = "data: ";

// The length that a header names; 0 where it names none.
size_t ContentLength(const std::string& head) {
  constexpr std::string_view kName = "\r\nContent-Length: ";
  const size_t at = head.find(kName);
  size_t bytes = 0;
  if (at != std::string::npos)
    std::from_chars(head.data() + at + kName.size(), head.data() + head.size(), bytes);
  return bytes;
}

std::string MessageOf(const nlohmann::json& body) {
  const auto error = body.is_object() ? body.find("error") : body.end();
  if (error == body.end() || !error->is_object()) return "";
  return error->value("message", "");
}

}  // namespace

int64_t CompletionReader::Take(std::string_view bytes) {
  untouched_ = untouched_ && bytes.empty();
  buffer_ += bytes;
  pieces_ = 0;
  bool more = true;
  while (more) {
    switch (state_) {
      case State::kHead: more = TakeHead(); break;
      case State::kChunkSize: more = TakeChunkSize(); break;
      case State::kChunk: more = TakeChunk(); break;
      case State::kBody: more = TakeBody(); break;
      case State::kOver: more = false; break;
    }
  }
  return pieces_;
}

bool CompletionReader::TakeHead() {
  const size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  status_ = head.substr(0, head.find(kLineEnd));
  const bool chunked = head.find("\r\nTransfer-Encoding: chunked\r\n") != std::string::npos;
  left_bytes_ = ContentLength(head);
  state_ = chunked ? State::kChunkSize : State::kBody;
  return true;
}

bool CompletionReader::TakeChunkSize() {
  const size_t end = buffer_.find(kLineEnd);
  if (end == std::string::npos) return false;
  left_bytes_ = 0;
  std::from_chars(buffer_.data(), buffer_.data() + end, left_bytes_, 16);
  buffer_.erase(0, end + 2);
  state_ = State::kChunk;
  return true;
}

// An empty chunk is the last one.
bool CompletionReader::TakeChunk() {
  if (buffer_.size() < left_bytes_ + 2) return false;
  events_.append(buffer_, 0, left_bytes_);
  buffer_.erase(0, left_bytes_ + 2);
  state_ = left_bytes_ == 0 ? State::kOver : State::kChunkSize;
  TakeEvents();
  return true;
}

bool CompletionReader::TakeBody() {
  if (buffer_.size() < left_bytes_) return false;
  Refused();
  state_ = State::kOver;
  return true;
}

void CompletionReader::Refused() {
  const auto body = nlohmann::json::parse(buffer_.substr(0, left_bytes_), nullptr, false);
  const std::string message = MessageOf(body);
  error_ = message.empty() ? status_ : message;
  buffer_.erase(0, left_bytes_);
}

void CompletionReader::TakeEvents() {
  size_t at = 0;
  for (size_t end = 0; (end = events_.find("\n\n", at)) != std::string::npos; at = end + 2) {
    std::string_view event = std::string_view(events_).substr(at, end - at);
    while (event.starts_with('\n')) event.remove_prefix(1);
    if (event.starts_with(kData)) TakeEvent(event.substr(kData.size()));
  }
  events_.erase(0, at);
}

// Looks for what matters alone: most events are one more token.
void CompletionReader::TakeEvent(std::string_view data) {
  if (data.find("\"choices\":[{") != std::string_view::npos) {
    ++pieces_;
    return;
  }
  const auto event = nlohmann::json::parse(data, nullptr, false);
  if (!event.is_object()) return;  // [DONE]
  if (event.contains("error")) error_ = MessageOf(event);
  const auto usage = event.find("usage");
  if (usage != event.end() && usage->is_object()) tokens_ = usage->value("completion_tokens", -1);
}

}  // namespace tessera::deploy
