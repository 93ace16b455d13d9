#include "coordinator/flow/submit_message.h"

#include <catch2/catch.hpp>

namespace tessera::coordinator {
namespace {

int32_t MessageEnd(int64_t prompt_tokens, int32_t opening_tokens) {
  GenerationRequest request;
  request.prompt_token_ids.resize(static_cast<size_t>(prompt_tokens));
  request.opening_tokens = opening_tokens;
  return ToSubmit(request).submit().message_end_tokens();
}

TEST_CASE("a worker hears where the last message of a prompt begins and ends, if that is known") {
  CHECK(MessageEnd(100, 7) == 93);
  CHECK(MessageEnd(100, 0) == 0);
  CHECK(MessageEnd(5, 7) == 0);  // what was cut away held all messages
  GenerationRequest request;
  request.prompt_token_ids.resize(100);
  CHECK(ToSubmit(request).submit().message_begin_tokens() == 0);
  request.last_message_tokens = 30;
  CHECK(ToSubmit(request).submit().message_begin_tokens() == 70);
  request.last_message_tokens = 100;
  CHECK(ToSubmit(request).submit().message_begin_tokens() == 0);
}

}  // namespace
}  // namespace tessera::coordinator
