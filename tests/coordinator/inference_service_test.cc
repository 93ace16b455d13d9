// The gRPC door over a scripted service, in process: calls, streams, errors, keys, cancellation.

#include "coordinator/grpc_door/inference_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "tests/catch_skip.h"
#include "tests/coordinator/door.h"
#include "tests/coordinator/grpc_door_fixture.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;
using grpc::StatusCode;

v1::CompletionRequest Completion(const std::string& text = "What") {
  v1::CompletionRequest request;
  request.set_text(text);
  return request;
}

v1::ChatRequest Chat(const std::string& role = "user") {
  v1::ChatRequest request;
  v1::ChatMessage& message = *request.add_messages();
  message.set_role(role);
  message.set_content("What");
  return request;
}

grpc::Status Complete(GrpcDoor& door, const v1::CompletionRequest& request,
                      v1::CompletionReply* reply = nullptr, const std::string& key = "") {
  grpc::ClientContext context;
  if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
  v1::CompletionReply unused;
  return door.stub->Complete(&context, request, reply == nullptr ? &unused : reply);
}

// Everything a script needs to go on until it is cancelled.
void UntilCancelled(const GenerationRequest&, GenerationSink& sink,
                    const std::function<bool()>& cancelled) {
  for (int i = 0; i < 2000 && !cancelled(); ++i) {
    ChoiceEvent event;
    event.text = std::string(1000, 'x');
    sink.OnChoice(std::move(event));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

TEST_CASE("a deadline comes in metadata, and so does the client's trace") {
  GrpcDoor door;
  grpc::ClientContext context;
  context.AddMetadata("x-request-deadline", "3");
  context.AddMetadata("x-workflow-id", "flow-1");
  context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  v1::CompletionReply reply;
  REQUIRE(door.stub->Complete(&context, Completion(), &reply).ok());
  CHECK(door.service.last_request().deadline_seconds == 3);
  CHECK(door.service.last_request().workflow == "flow-1");
  CHECK(door.service.last_request().traceparent ==
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  for (const std::string value : {"soon", "", "0x10", "twice"}) {
    grpc::ClientContext asked;
    for (int i = value == "twice" ? 0 : 1; i < 2; ++i)
      asked.AddMetadata("x-request-deadline", value == "twice" ? "5" : value);
    CHECK_THAT(door.stub->Complete(&asked, Completion(), &reply).error_message(),
               Catch::Contains("x-request-deadline: \""));
  }
}

TEST_CASE("a unary completion and a unary chat") {
  GrpcDoor door;
  v1::CompletionRequest request = Completion();
  request.mutable_options()->set_n(2);
  request.mutable_options()->set_logprobs(1);
  request.mutable_options()->set_prompt_logprobs(0);
  request.set_echo(true);
  v1::CompletionReply reply;
  REQUIRE(Complete(door, request, &reply).ok());
  REQUIRE(reply.choices_size() == 2);
  CHECK(reply.choices(1).text() == "Whatone two");
  CHECK(reply.choices(1).finish_reason() == "stop");
  CHECK(reply.choices(1).token_ids_size() == 2);
  CHECK(reply.choices(0).logprobs(0).chosen().logprob() == -0.5f);
  CHECK(reply.prompt_logprobs_size() == reply.usage().prompt_tokens());
  CHECK_FALSE(reply.prompt_logprobs(0).has_chosen());
  CHECK(reply.usage().completion_tokens() == 4);
  CHECK(reply.model() == "org/demo");
  CHECK(reply.replica() == "r0");
  CHECK(door.service.last_request().max_tokens == 16);
  CHECK(door.service.last_request().sampling.temperature == 0.25f);

  grpc::ClientContext context;
  v1::CompletionReply chat;
  REQUIRE(door.stub->Chat(&context, Chat(), &chat).ok());
  CHECK(chat.choices(0).text() == "one two");
  CHECK_FALSE(chat.has_timings());
  grpc::ClientContext again;
  v1::ChatRequest timed = Chat();
  timed.mutable_options()->set_timings(true);
  REQUIRE(door.stub->Chat(&again, timed, &chat).ok());
  CHECK(chat.timings().prefill_replica() == "r1");
  CHECK(chat.timings().kv_transfer().bytes() == 4096);
  CHECK(chat.timings().decode_replica() == "r0");
  CHECK(door.service.last_request().prompt_token_ids.back() == 4);  // <|assistant|>
}

TEST_CASE("a chat with tools and thinking, whole and as a stream") {
  GrpcDoor door({}, ToolModel());
  const std::string call =
      "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"a\"}}\n</tool_call>";
  door.service.SetScript(Says("<think>\nHm.\n</think>\n\nI look.\n" + call));
  v1::ChatRequest request = Chat();
  v1::FunctionTool& tool = *request.add_tools();
  tool.set_name("clock");
  tool.set_parameters(R"({"type": "object", "properties": {"zone": {"type": "string"}}})");
  grpc::ClientContext context;
  v1::CompletionReply whole;
  REQUIRE(door.stub->Chat(&context, request, &whole).ok());
  const v1::Choice& choice = whole.choices(0);
  CHECK(choice.reasoning() == "Hm.");
  CHECK(choice.text() == "I look.");
  CHECK(choice.finish_reason() == "tool_calls");
  REQUIRE(choice.tool_calls_size() == 1);
  CHECK(choice.tool_calls(0).name() == "clock");
  CHECK(choice.tool_calls(0).arguments() == "{\"zone\": \"a\"}");
  CHECK_THAT(choice.tool_calls(0).id(), Catch::StartsWith("call_"));

  grpc::ClientContext streaming;
  const auto reader = door.stub->StreamChat(&streaming, request);
  v1::CompletionChunk chunk;
  std::string text, reasoning, arguments, names, finish;
  while (reader->Read(&chunk)) {
    text += chunk.choice().text();
    reasoning += chunk.choice().reasoning();
    finish += chunk.choice().finish_reason();
    for (const v1::ToolCall& piece : chunk.choice().tool_calls()) {
      arguments += piece.arguments();
      names += piece.name();
    }
  }
  REQUIRE(reader->Finish().ok());
  CHECK(text == "I look.");
  CHECK(reasoning == "Hm.");
  CHECK(names == "clock");
  CHECK(arguments == "{\"zone\": \"a\"}");
  CHECK(finish == "tool_calls");

  // The history goes to the template as it came.
  v1::ChatMessage& answer = *request.add_messages();
  answer.set_role("assistant");
  v1::ToolCall& made = *answer.add_tool_calls();
  made.set_id("call_1");
  made.set_name("clock");
  made.set_arguments(R"({"zone": "b", "a": 1})");
  v1::ChatMessage& result = *request.add_messages();
  result.set_role("tool");
  result.set_content("noon");
  result.set_tool_call_id("call_1");
  request.set_tool_choice("clock");
  grpc::ClientContext again;
  REQUIRE(door.stub->Chat(&again, request, &whole).ok());
  const std::string prompt = ToolModel()->tokenizer->Decode(
      door.service.last_request().prompt_token_ids, /*skip_special_tokens=*/false);
  CHECK_THAT(prompt,
             Contains("{\"name\": \"clock\", \"arguments\": {\"zone\": \"b\", \"a\": 1}}"
                      "\n</tool_call>[tool]noon[assistant]<tool_call>\n{\"name\": \"clock\""));

  const auto refused = [&](const char* parameters) {
    v1::ChatRequest bad = request;
    bad.mutable_tools(0)->set_parameters(parameters);
    grpc::ClientContext last;
    return door.stub->Chat(&last, bad, &whole).error_message();
  };
  CHECK_THAT(refused("{"), Contains("tools[0].parameters"));
  CHECK_THAT(refused("5"), Contains("tools[0].parameters: an object as JSON is expected"));
  CHECK_THAT(refused("{}, \"x\": {}"), Contains("tools[0].parameters: an object as JSON"));
}

TEST_CASE("an echo is the prompt as sent; without a prompt a document begins") {
  GrpcDoor door;
  const auto told = [&](v1::CompletionRequest request) {
    request.set_echo(true);
    v1::CompletionReply reply;
    REQUIRE(Complete(door, request, &reply).ok());
    std::string streamed;
    grpc::ClientContext context;
    auto stream = door.stub->StreamComplete(&context, request);
    for (v1::CompletionChunk chunk; stream->Read(&chunk);) streamed += chunk.choice().text();
    CHECK(stream->Finish().ok());
    CHECK(streamed == reply.choices(0).text());
    return reply.choices(0).text();
  };
  v1::CompletionRequest request;
  CHECK(told(request) == "one two");
  CHECK(door.service.last_request().prompt_token_ids == std::vector<int32_t>{0});
  request.set_text("");
  CHECK(told(request) == "one two");
  request.set_text("<|user|>x<|end|>");
  CHECK(told(request) == "<|user|>x<|end|>one two");
  request.mutable_tokens()->add_ids(0);
  request.mutable_tokens()->add_ids(3);
  CHECK(told(request) == "<|begin|><|user|>one two");
}

TEST_CASE("a prompt of token ids") {
  GrpcDoor door;
  v1::CompletionRequest request;
  for (int32_t id : {7, 8, 9}) request.mutable_tokens()->add_ids(id);
  REQUIRE(Complete(door, request).ok());
  CHECK(door.service.last_request().prompt_token_ids == std::vector<int32_t>{7, 8, 9});
}

TEST_CASE("streams bring every token once and end with usage") {
  GrpcDoor door;
  for (const bool is_chat : {false, true}) {
    grpc::ClientContext context;
    v1::CompletionRequest request = Completion();
    v1::ChatRequest chat = Chat();
    request.mutable_options()->set_n(2);
    chat.mutable_options()->set_n(2);
    chat.mutable_options()->set_timings(true);
    auto stream = is_chat ? door.stub->StreamChat(&context, chat)
                          : door.stub->StreamComplete(&context, request);
    std::string texts[2];
    v1::CompletionChunk chunk;
    v1::CompletionChunk last;
    while (stream->Read(&chunk)) {
      if (chunk.has_choice()) texts[chunk.choice().index()] += chunk.choice().text();
      last = chunk;
    }
    CHECK(stream->Finish().ok());
    CHECK(texts[0] == "one two");
    CHECK(texts[1] == "one two");
    CHECK(last.usage().completion_tokens() == 4);
    CHECK(last.replica() == "r0");
    CHECK(last.has_timings() == is_chat);
    if (is_chat) CHECK(last.timings().kv_transfer().hidden_share() == 0.75);
  }
}

TEST_CASE("models, tokenize, detokenize") {
  GrpcDoor door;
  {
    grpc::ClientContext context;
    v1::ListModelsReply models;
    REQUIRE(door.stub->ListModels(&context, {}, &models).ok());
    CHECK(models.models(0).id() == "org/demo");
    CHECK(models.models(0).max_model_len_tokens() == 200);
  }
  v1::TokenizeRequest text;
  text.set_text("What is");
  v1::TokenizeReply ids;
  {
    grpc::ClientContext context;
    REQUIRE(door.stub->Tokenize(&context, text, &ids).ok());
  }
  v1::DetokenizeRequest back;
  *back.mutable_ids() = ids.ids();
  v1::DetokenizeReply decoded;
  {
    grpc::ClientContext context;
    REQUIRE(door.stub->Detokenize(&context, back, &decoded).ok());
    CHECK(decoded.text() == "<|begin|>What is");
  }
  back.add_ids(99999999);
  grpc::ClientContext context;
  const grpc::Status wrong = door.stub->Detokenize(&context, back, &decoded);
  CHECK(wrong.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(wrong.error_message(), Contains("99999999"));
}

TEST_CASE("of several models the one that a call names answers it") {
  FakeGenerationService other;
  other.SetScript(Say({{"other", 40}}));
  auto second = std::make_shared<ServedModel>(*DoorModel());
  second->name = "second";
  second->other_names.clear();
  GrpcDoor door({}, DoorModel(), {{.model = second, .service = &other}});
  v1::CompletionRequest request = Completion();
  v1::CompletionReply reply;
  request.set_model("second");
  REQUIRE(Complete(door, request, &reply).ok());
  CHECK(reply.model() == "second");
  CHECK(reply.choices(0).text() == "other");
  request.set_model("third");
  const grpc::Status unknown = Complete(door, request);
  CHECK(unknown.error_code() == StatusCode::NOT_FOUND);
  CHECK_THAT(unknown.error_message(), Contains("'org/demo'") && Contains("'second'"));
  CHECK(Complete(door, Completion()).error_code() == StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  v1::ListModelsReply models;
  REQUIRE(door.stub->ListModels(&context, {}, &models).ok());
  CHECK(models.models_size() == 3);
  CHECK(models.models(2).id() == "second");
}

TEST_CASE("errors carry a code and name the thing") {
  GrpcDoor door;
  const auto refused = [&](const v1::CompletionRequest& request, StatusCode code,
                           const std::string& part) {
    const grpc::Status status = Complete(door, request);
    INFO(status.error_message());
    CHECK(status.error_code() == code);
    CHECK_THAT(status.error_message(), Contains(part));
  };
  v1::CompletionRequest request = Completion();
  request.set_model("gpt-9");
  refused(request, StatusCode::NOT_FOUND, "gpt-9");
  request = Completion();
  request.mutable_options()->set_temperature(-1);
  refused(request, StatusCode::INVALID_ARGUMENT, "temperature");
  request = Completion();
  request.mutable_options()->set_n(0);
  refused(request, StatusCode::INVALID_ARGUMENT, "n: ");
  request = Completion();
  request.mutable_options()->add_stop("");
  refused(request, StatusCode::INVALID_ARGUMENT, "stop");
  request = Completion();
  (*request.mutable_options()->mutable_logit_bias())[-1] = 1;
  refused(request, StatusCode::INVALID_ARGUMENT, "logit_bias");
  request = Completion();
  request.mutable_options()->set_max_tokens(-1);
  refused(request, StatusCode::INVALID_ARGUMENT, "max_tokens");
  request.mutable_options()->set_max_tokens(0);
  CHECK(Complete(door, request).ok());
  request = Completion();
  request.mutable_options()->add_allowed_token_ids(512);
  refused(request, StatusCode::INVALID_ARGUMENT, "allowed_token_ids: 512");
  request = Completion();
  request.mutable_options()->add_bad_words(" ");
  refused(request, StatusCode::INVALID_ARGUMENT, "bad_words");
  request = Completion();
  request.mutable_options()->set_truncate_prompt_tokens(0);
  refused(request, StatusCode::INVALID_ARGUMENT, "truncate_prompt_tokens");
  request = Completion();
  request.set_text(std::string(1 << 20, 'a'));
  refused(request, StatusCode::INVALID_ARGUMENT, "1048576 bytes is at least");
  request.mutable_options()->set_truncate_prompt_tokens(3);
  CHECK(Complete(door, request).ok());
  request = Completion();
  request.mutable_options()->add_stop_token_ids(-1);
  refused(request, StatusCode::INVALID_ARGUMENT, "stop_token_ids");
  request.mutable_options()->set_stop_token_ids(0, 512);
  refused(request, StatusCode::INVALID_ARGUMENT, "stop_token_ids: 512");
  request = Completion();
  request.mutable_options()->set_repetition_penalty(1e-9f);
  refused(request, StatusCode::INVALID_ARGUMENT, "repetition_penalty");
  request = Completion();
  request.mutable_options()->set_top_k(-1);
  CHECK(Complete(door, request).ok());
  CHECK(door.service.last_request().sampling.top_k == 0);
  request = Completion();
  request.mutable_options()->set_prompt_logprobs(1);
  grpc::ClientContext stream_context;
  auto stream = door.stub->StreamComplete(&stream_context, request);
  v1::CompletionChunk chunk;
  CHECK_FALSE(stream->Read(&chunk));
  CHECK_THAT(stream->Finish().error_message(), Contains("prompt_logprobs"));
  request = v1::CompletionRequest();
  request.mutable_tokens();
  refused(request, StatusCode::INVALID_ARGUMENT, "prompt");
  request.mutable_tokens()->add_ids(-5);
  refused(request, StatusCode::INVALID_ARGUMENT, "-5");
  request = v1::CompletionRequest();
  for (int i = 0; i < 201; ++i) request.mutable_tokens()->add_ids(7);
  refused(request, StatusCode::INVALID_ARGUMENT, "201");
  refused(request, StatusCode::INVALID_ARGUMENT, "200");
  door.service.Refuse(absl::ResourceExhaustedError("the queue is full"));
  refused(Completion(), StatusCode::RESOURCE_EXHAUSTED, "the queue is full");
  door.service.Refuse(absl::UnavailableError("no replica"));
  refused(Completion(), StatusCode::UNAVAILABLE, "no replica");

  grpc::ClientContext context;
  v1::CompletionReply reply;
  const grpc::Status role = door.stub->Chat(&context, Chat("nobody"), &reply);
  CHECK(role.error_code() == StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(role.error_message(), Contains("the roles are"));
}

TEST_CASE("a generation that fails midway ends its call with the reason") {
  GrpcDoor door;
  door.service.SetScript([](const GenerationRequest&, GenerationSink& sink, const auto&) {
    ChoiceEvent event;
    event.text = "so far";
    sink.OnChoice(event);
    sink.OnEnd(absl::InternalError("a step failed"), {}, "r0");
  });
  CHECK(Complete(door, Completion()).error_message() == "a step failed");
  grpc::ClientContext context;
  auto stream = door.stub->StreamComplete(&context, Completion());
  v1::CompletionChunk chunk;
  REQUIRE(stream->Read(&chunk));
  CHECK(chunk.choice().text() == "so far");
  CHECK_FALSE(stream->Read(&chunk));
  const grpc::Status status = stream->Finish();
  CHECK(status.error_code() == StatusCode::INTERNAL);
  CHECK(status.error_message() == "a step failed");
}

TEST_CASE("bans, truncation and a continued message are those of the HTTP door") {
  GrpcDoor door;
  v1::ChatRequest request = Chat("developer");
  v1::ChatMessage& last = *request.add_messages();
  last.set_role("assistant");
  last.set_content("3 4");
  request.set_continue_final_message(true);
  request.mutable_options()->add_allowed_token_ids(7);
  request.mutable_options()->add_bad_words("What");
  request.mutable_options()->set_truncate_prompt_tokens(2);
  grpc::ClientContext context;
  v1::CompletionReply reply;
  REQUIRE(door.stub->Chat(&context, request, &reply).ok());
  const GenerationRequest given = door.service.last_request();
  CHECK(given.allowed_token_ids == std::vector<int32_t>{7});
  CHECK(given.bad_words.size() >= 1);
  CHECK(given.prompt_token_ids.size() == 2);
  CHECK(DoorModel()->tokenizer->Decode(given.prompt_token_ids, false).ends_with("4"));
  CHECK(reply.system_fingerprint() == "fp_of_the_door");
  request.set_add_generation_prompt(true);
  grpc::ClientContext both;
  CHECK_THAT(door.stub->Chat(&both, request, &reply).error_message(),
             Contains("continue_final_message"));
  grpc::ClientContext streamed;
  auto stream = door.stub->StreamChat(&streamed, Chat());
  v1::CompletionChunk chunk;
  while (stream->Read(&chunk)) CHECK(chunk.system_fingerprint() == "fp_of_the_door");
  CHECK(stream->Finish().ok());
}

TEST_CASE("the form of an answer is that of the HTTP door") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  GrpcDoor door({}, ToolModel());
  const char* const schema = R"({"type": "object", "properties": {"a": {"type": "integer"}}})";
  v1::CompletionReply reply;
  v1::CompletionRequest completion = Completion();
  v1::ChatRequest chat = Chat();
  // The grammars of a completion and of a chat; "": both are refused, which `refusal` says.
  std::string refusal;
  const auto grammars = [&](const v1::StructuredOutputs& form) {
    *completion.mutable_options()->mutable_structured_outputs() = form;
    *chat.mutable_options()->mutable_structured_outputs() = form;
    grpc::ClientContext first, second;
    const bool completed = door.stub->Complete(&first, completion, &reply).ok();
    std::string text = completed ? door.service.last_request().grammar : "";
    const grpc::Status chatted = door.stub->Chat(&second, chat, &reply);
    REQUIRE(chatted.ok() == completed);
    refusal = chatted.error_message();
    return chatted.ok() ? text + "|" + door.service.last_request().grammar : "";
  };
  v1::StructuredOutputs form;
  CHECK(grammars(form) == "|");
  form.set_json(schema);
  CHECK_THAT(grammars(form), Contains("\"\\\"a\\\"\""));
  form.set_regex("[ab]{2}");
  CHECK_THAT(grammars(form), Contains("[a-b]"));
  form.mutable_choice()->add_texts("yes");
  form.mutable_choice()->add_texts("no");
  CHECK_THAT(grammars(form), Contains("\"yes\" | \"no\""));
  form.set_grammar("root ::= \"a\"");
  CHECK_THAT(grammars(form), Contains("root ::= \"a\""));
  form.set_json_object(true);
  CHECK(grammars(form).size() > 10);
  form.set_json("{");
  CHECK(grammars(form).empty());
  CHECK_THAT(refusal, Contains("structured_outputs.json"));
  form.set_json(R"({"type": "array", "uniqueItems": true})");
  CHECK(grammars(form).empty());
  CHECK_THAT(refusal, Contains("structured_outputs.json: "));
}

TEST_CASE("functions that are strict are held, or the answer names them") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  GrpcDoor door({}, ToolModel());
  v1::ChatRequest request = Chat();
  v1::FunctionTool& tool = *request.add_tools();
  tool.set_name("clock");
  tool.set_parameters(R"({"type": "object", "properties": {"zone": {"type": "string"}}})");
  tool.set_strict(true);
  request.set_tool_choice("required");
  grpc::ClientContext context;
  v1::CompletionReply reply;
  REQUIRE(door.stub->Chat(&context, request, &reply).ok());
  CHECK_THAT(door.service.last_request().grammar, Contains("zone"));
  CHECK(reply.not_enforced().empty());
}

TEST_CASE("refused requests to generate are counted by their reason") {
  std::vector<absl::StatusCode> refused;
  InferenceServiceOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"key", ""}});
  options.refused = [&](absl::StatusCode code) { refused.push_back(code); };
  GrpcDoor door(std::move(options));
  Complete(door, Completion());
  v1::CompletionRequest request = Completion();
  request.set_model("gpt-9");
  Complete(door, request, nullptr, "key");
  CHECK(Complete(door, Completion(), nullptr, "key").ok());
  CHECK(refused == std::vector{absl::StatusCode::kUnauthenticated, absl::StatusCode::kNotFound});
}

TEST_CASE("with API keys every call needs one") {
  GrpcDoor door({.keys = KeyRing(std::vector<ApiKey>{{"first", ""}, {"second", ""}})});
  CHECK(Complete(door, Completion()).error_code() == StatusCode::UNAUTHENTICATED);
  CHECK(Complete(door, Completion(), nullptr, "third").error_code() == StatusCode::UNAUTHENTICATED);
  CHECK(Complete(door, Completion(), nullptr, "second").ok());
  CHECK(door.service.last_request().client == "key-2");
  const auto refused = [](const grpc::Status& status) {
    CHECK(status.error_code() == StatusCode::UNAUTHENTICATED);
  };
  grpc::ClientContext models, tokenize, detokenize, chat, stream;
  v1::ListModelsReply models_reply;
  v1::TokenizeReply tokenize_reply;
  v1::DetokenizeReply detokenize_reply;
  v1::CompletionReply chat_reply;
  v1::CompletionChunk chunk;
  refused(door.stub->ListModels(&models, {}, &models_reply));
  refused(door.stub->Tokenize(&tokenize, {}, &tokenize_reply));
  refused(door.stub->Detokenize(&detokenize, {}, &detokenize_reply));
  refused(door.stub->Chat(&chat, Chat(), &chat_reply));
  auto reader = door.stub->StreamComplete(&stream, Completion());
  CHECK_FALSE(reader->Read(&chunk));
  refused(reader->Finish());
}

TEST_CASE("large requests wait for a thread of their own, in bounded number, and can be left") {
  GrpcDoor full({.large_bodies = {.from_bytes = 1000, .max_waiting = 0}});
  const std::string large(2000, 'a');
  CHECK(Complete(full, Completion(large)).error_code() == StatusCode::UNAVAILABLE);
  grpc::ClientContext tokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text(large);
  v1::TokenizeReply ids;
  CHECK(full.stub->Tokenize(&tokenize_context, tokenize, &ids).error_code() ==
        StatusCode::UNAVAILABLE);
  CHECK(Complete(full, Completion()).ok());

  GrpcDoor door({.large_bodies = {.from_bytes = 1000}});
  grpc::ClientContext again_context;
  CHECK(door.stub->Tokenize(&again_context, tokenize, &ids).ok());
  CHECK(ids.ids_size() > 0);
  CHECK_THAT(Complete(door, Completion(large)).error_message(), Contains("200"));
  // Some of these deadlines end while their request waits to be read.
  std::vector<std::thread> clients;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&door, &refused, i] {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(10 * i));
      v1::CompletionReply reply;
      const v1::CompletionRequest request = Completion(std::string(4 << 20, 'a'));
      refused += !door.stub->Complete(&context, request, &reply).ok();
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(refused == 16);
  CHECK(Complete(door, Completion()).ok());
}

TEST_CASE("a client that cancels, and one that does not read, have their work cancelled") {
  GrpcDoor door;
  door.service.SetScript(UntilCancelled);
  {
    grpc::ClientContext context;
    auto stream = door.stub->StreamComplete(&context, Completion());
    v1::CompletionChunk chunk;
    REQUIRE(stream->Read(&chunk));
    context.TryCancel();
    while (stream->Read(&chunk)) {
    }
    CHECK(stream->Finish().error_code() == StatusCode::CANCELLED);
    CHECK(door.service.WaitForCancelled(1));
  }
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    v1::CompletionReply reply;
    CHECK(door.stub->Complete(&context, Completion(), &reply).error_code() ==
          StatusCode::DEADLINE_EXCEEDED);
    CHECK(door.service.WaitForCancelled(2));
  }
  grpc::ClientContext context;
  auto unread = door.stub->StreamComplete(&context, Completion());
  CHECK(door.service.WaitForCancelled(3));
  context.TryCancel();
}

}  // namespace tessera::coordinator
