// What a rehearsal reads of the coordinator's answers, however they are cut.
#include "deploy/rehearsal/completion_reader.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

namespace tessera::deploy {
namespace {

std::string Chunk(const std::string& event) {
  const std::string data = "data: " + event + "\n\n";
  char size[16];
  std::snprintf(size, sizeof size, "%zx", data.size());
  return std::string(size) + "\r\n" + data + "\r\n";
}

const std::string kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const std::string kToken = Chunk(R"({"choices":[{"index":0,"text":"a"}],"usage":null})");
const std::string kEnd =
    Chunk(R"({"choices":[],"usage":{"completion_tokens":3}})") + Chunk("[DONE]") + "0\r\n\r\n";

}  // namespace

TEST_CASE("an answer's tokens are counted once, wherever its bytes are cut") {
  const std::string answer = kHead + kToken + "4\r\n:\n\n\n\r\n" + kToken + kToken + kEnd;
  for (size_t piece = 1; piece <= answer.size(); piece += piece < 40 ? 1 : 50) {
    CompletionReader reader;
    CHECK(reader.untouched());
    int64_t pieces = 0;
    for (size_t at = 0; at < answer.size(); at += piece) {
      CHECK_FALSE(reader.over());
      pieces += reader.Take(std::string_view(answer).substr(at, piece));
    }
    CHECK(pieces == 3);
    CHECK(reader.over());
    CHECK(reader.tokens() == 3);
    CHECK(reader.error().empty());
    CHECK_FALSE(reader.untouched());
  }
}

TEST_CASE("a refusal, and an answer that breaks off, say why") {
  const std::string body = R"({"error":{"message":"the queues are full","code":null}})";
  CompletionReader refused;
  refused.Take("HTTP/1.1 429 Too Many Requests\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  CHECK(refused.over());
  CHECK(refused.error() == "the queues are full");

  CompletionReader bare;
  bare.Take("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
  CHECK(bare.over());
  CHECK(bare.error() == "HTTP/1.1 502 Bad Gateway");

  CompletionReader broken;
  CHECK(broken.Take(kHead + kToken + Chunk(R"({"error":{"message":"it is gone"}})")) == 1);
  CHECK(broken.error() == "it is gone");
  CHECK_FALSE(broken.over());
  broken.Take("0\r\n\r\n");
  CHECK(broken.over());
  CHECK(broken.tokens() == -1);
}

}  // namespace tessera::deploy
