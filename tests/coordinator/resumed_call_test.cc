// What both doors make of x-tessera-resume, and of streams that may be resumed later.
#include <catch2/catch.hpp>
#include <string>

#include "tests/coordinator/door.h"
#include "tests/coordinator/grpc_door_fixture.h"

namespace tessera::coordinator {
namespace {

constexpr char kHeader[] = "x-tessera-resume: cmpl-1\r\n";

std::string Body(const std::string& more) { return R"({"prompt": "x")" + more + "}"; }

TEST_CASE("a stream of one answer is kept under the id of its events") {
  Door door;
  door.service.SetScript(Says("one two"));
  const auto events = door.Stream("/v1/completions", {{"prompt", "x"}});
  GenerationRequest asked = door.service.last_request();
  CHECK(asked.answer_id == events.at(0)["id"]);
  CHECK_FALSE(asked.resumes);
  CHECK_FALSE(asked.sampling.seed_given);
  for (const char* more : {"", R"(, "stream": true, "n": 2)", R"(, "stream": true, "logprobs": 1)",
                           R"(, "stream": true, "prompt": ["x", "y"])"}) {
    CHECK(door.Post("/v1/completions", Body(more)).status == 200);
    CHECK(door.service.last_request().answer_id.empty());
  }
  CHECK(door.Post("/v1/completions", Body(R"(, "seed": 4)")).status == 200);
  CHECK(door.service.last_request().sampling.seed_given);
}

TEST_CASE("a header names the answer that goes on, under its own id, as a stream and whole") {
  Door door;
  door.service.SetScript(Says("one two"));
  const HttpReply stream = door.Post("/v1/completions", Body(R"(, "stream": true)"), kHeader);
  CHECK(EventsOf(stream.body).at(0)["id"] == "cmpl-1");
  CHECK(door.service.last_request().resumes);
  CHECK(door.service.last_request().answer_id == "cmpl-1");
  const HttpReply whole = door.Post("/v1/completions", Body(""), kHeader);
  CHECK(nlohmann::json::parse(whole.body)["id"] == "cmpl-1");
  CHECK(door.service.last_request().answer_id == "cmpl-1");
  const HttpReply message = door.Post(
      "/v1/messages",
      R"({"model": "org/demo", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})",
      kHeader);
  CHECK(nlohmann::json::parse(message.body)["id"] == "cmpl-1");
  // Whoever looks for it refuses these.
  CHECK(door.Post("/v1/completions", Body(R"(, "n": 2)"), kHeader).status == 200);
  CHECK(door.service.last_request().resumes);
}

TEST_CASE("gRPC has the same in metadata") {
  GrpcDoor door;
  v1::CompletionRequest request;
  request.set_text("x");
  const auto stream = [&](const char* id) {
    grpc::ClientContext context;
    if (*id != 0) context.AddMetadata("x-tessera-resume", id);
    const auto reader = door.stub->StreamComplete(&context, request);
    v1::CompletionChunk chunk;
    std::string said;
    while (reader->Read(&chunk)) said = chunk.id();
    CHECK(reader->Finish().ok());
    return said;
  };
  const std::string drawn = stream("");
  CHECK(drawn == door.service.last_request().answer_id);
  CHECK_FALSE(door.service.last_request().resumes);
  CHECK(stream("cmpl-7") == "cmpl-7");
  CHECK(door.service.last_request().resumes);
  CHECK(door.service.last_request().answer_id == "cmpl-7");

  grpc::ClientContext context;
  v1::CompletionReply reply;
  CHECK(door.stub->Complete(&context, request, &reply).ok());
  CHECK(door.service.last_request().answer_id.empty());
}

}  // namespace
}  // namespace tessera::coordinator
