// Reads the answer to a streamed request for a completion (POST /v1/completions, with usage asked
// for) from the bytes of its HTTP connection.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::deploy {

class CompletionReader {
 public:
  // Takes bytes as they come; returns how many pieces of the answer they hold: one for each token.
  // Nothing is taken once the answer is over.
  int64_t Take(std::string_view bytes);

  // The answer has ended, and the connection may carry the next request.
  bool over() const { return state_ == State::kOver; }
  // No byte of it has come.
  bool untouched() const { return untouched_; }
  // The tokens that its usage tells; -1: it has not come.
  int64_t tokens() const { return tokens_; }
  // What the server refused or broke off with; empty: nothing.
  const std::string& error() const { return error_; }

 private:
  enum class State { kHead, kChunkSize, kChunk, kBody, kOver };

  // Each takes what it can from `buffer_`; false: more bytes are needed.
  bool TakeHead();
  bool TakeChunkSize();
  bool TakeChunk();
  bool TakeBody();
  void TakeEvents();
  void TakeEvent(std::string_view data);
  // "HTTP/1.1 503 ...: message of the body".
  void Refused();

  State state_ = State::kHead;
  bool untouched_ = true;
  std::string buffer_;     // not taken yet
  std::string status_;     // the first line
  std::string events_;     // the end of what chunks have held, without the events that are whole
  size_t left_bytes_ = 0;  // of the chunk, or of the body
  int64_t pieces_ = 0;     // since Take began
  int64_t tokens_ = -1;
  std::string error_;
};

}  // namespace tessera::deploy
