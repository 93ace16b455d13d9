#include "coordinator/grpc_door/inference_reply.h"

#include <catch2/catch.hpp>

namespace tessera::coordinator {

TEST_CASE("a reply says what was drafted, where anything was") {
  GenerationTimings timings;
  timings.decode_tokens = 20;
  CHECK_FALSE(ToProto(timings).has_drafts());
  timings.drafts = {.steps = 4, .tokens = 11, .accepted_tokens = 9};
  const v1::Timings said = ToProto(timings);
  CHECK(said.decode_tokens() == 20);
  CHECK(said.drafts().steps() == 4);
  CHECK(said.drafts().tokens() == 11);
  CHECK(said.drafts().accepted_tokens() == 9);
}

}  // namespace tessera::coordinator
