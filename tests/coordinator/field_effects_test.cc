// The rule of the table of fields: a field of a request changes what is generated or answered, is
// refused by name, or is one of five that cannot change an answer. A field that is new in the table
// needs a line here, which says how it is seen.

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "coordinator/api/request_fields.h"
#include "coordinator/flow/submit_message.h"
#include "coordinator/grpc_door/inference_request.h"
#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

// All that a request says of its generation.
std::string Dump(GenerationRequest r) {
  r.request_id.clear();
  r.group = 0;
  Json rest = {{"choices", r.choice_count},
               {"stop", r.stop_strings},
               {"include_stop", r.include_stop_string},
               {"skip", r.skip_special_tokens},
               {"timings", r.show_timings},
               {"prompt_text", r.prompt_text}};
  return ToSubmit(r).DebugString() + rest.dump();
}

// A value of a field that must be seen, and fields without which the value has no meaning.
struct Shown {
  Json value;
  Json beside = Json::object();
};
using Effects = std::map<std::string, Shown>;

const Effects kOfGeneration = {
    {"model", {"another"}},
    {"temperature", {0.5}},
    {"top_p", {0.5}},
    {"min_p", {0.5}},
    {"top_k", {3}},
    {"repetition_penalty", {1.5}},
    {"presence_penalty", {0.5}},
    {"frequency_penalty", {0.5}},
    {"logit_bias", {{{"7", 1}}}},
    {"allowed_token_ids", {{7}}},
    {"bad_words", {"x"}},
    {"seed", {2}},
    {"n", {2}},
    {"best_of", {2}},
    {"stop", {"x"}},
    {"stop_token_ids", {{7}}},
    {"include_stop_str_in_output", {true}},
    {"skip_special_tokens", {false}},
    {"ignore_eos", {true}},
    {"max_tokens", {3}},
    {"min_tokens", {1}},
    {"truncate_prompt_tokens", {1}},
    {"cache_salt", {"x"}},
    {"priority", {1}},
    {"prompt_logprobs", {0}},
    {"return_token_ids", {true}},
    {"timings", {true}},
    {"stream", {true}},
    {"stream_options", {{{"include_usage", true}}, {{"stream", true}}}},
    {"response_format", {{{"type", "json_object"}}}},
    {"structured_outputs", {{{"regex", "[ab]"}}}},
    {"guided_json", {{{"type", "integer"}}}},
    {"guided_regex", {"[ab]"}},
    {"guided_choice", {{"a", "b"}}},
    {"guided_grammar", {"root ::= \"a\""}},
};

Effects WithGeneration(Effects own) {
  own.insert(kOfGeneration.begin(), kOfGeneration.end());
  return own;
}

// A template that shows what it is given.
std::shared_ptr<const ServedModel> ShowingModel() {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->chat_template = ChatTemplate::Parse(
                             "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
                             "{{ extra }}{{ enable_thinking }}{{ reasoning_effort }}{{ tools }}"
                             "{% if add_generation_prompt %}>{% endif %}{# <think> </think> #}")
                             .value();
  CHECK(FindAnswerFormats("hermes", *model).ok());
  return model;
}

class Endpoint {
 public:
  Endpoint(std::string path, Json base, std::shared_ptr<const ServedModel> model = ShowingModel())
      : door_({}, {}, std::move(model)), path_(std::move(path)), base_(std::move(base)) {
    const char* const call = "<tool_call>{\"name\": \"f\"}</tool_call>";
    door_.service.SetScript(Say({{"one", 40}, {call, 41}, {call, 42}}));
  }

  // Status and body, and what was to be generated; without what differs between equal requests.
  std::string Seen(const Json& fields) {
    Json body = base_;
    body.update(fields);
    const size_t before = door_.service.requests().size();
    const HttpReply reply = door_.Post(path_, body.dump());
    std::string seen = std::to_string(reply.status) + WithoutId(reply.body);
    const auto requests = door_.service.requests();
    for (size_t i = before; i < requests.size(); ++i) seen += Dump(requests[i]);
    return seen;
  }

  // `elsewhere`: fields that have a meaning only in another form of the request.
  void Check(std::span<const RequestField> table, const Effects& effects,
             const std::set<std::string>& elsewhere = {}) {
    std::set<std::string> no_effect;
    for (const RequestField& field : table) {
      const std::string name(field.name);
      if (elsewhere.contains(name)) continue;
      INFO(path_ << ": " << name);
      if (field.kind == FieldKind::kRefused) {
        Json body = base_;
        body[name] = {{"x", 1}};
        CHECK_THAT(door_.Error(path_, body), StartsWith("400 " + name + " "));
      } else if (field.no_effect) {
        no_effect.insert(name);
        const Json value = field.kind == FieldKind::kString ? Json("x")
                           : field.kind == FieldKind::kBool ? Json(true)
                                                            : Json{{"x", "y"}};
        CHECK(Seen({{name, value}}) == Seen(Json::object()));
      } else {
        const auto effect = effects.find(name);
        REQUIRE(effect != effects.end());  // a new field: add a line that shows its effect
        Json with = effect->second.beside;
        with[name] = effect->second.value;
        CHECK(Seen(with) != Seen(effect->second.beside));
      }
    }
    for (const std::string& name : no_effect)
      CHECK(
          std::set<std::string>{"user", "metadata", "store", "service_tier", "prediction"}.contains(
              name));
  }

 private:
  static std::string WithoutId(std::string body) {
    for (size_t at = body.find("\"id\":\""); at != std::string::npos;
         at = body.find("\"id\":\"", at))
      body.erase(at, body.find(',', at) - at);
    return body;
  }

  Door door_;
  const std::string path_;
  const Json base_;
};

Json Messages(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }

const Json kTools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};

}  // namespace

TEST_CASE("every field of a completion has an effect, or is refused") {
  Endpoint("/v1/completions", {{"prompt", "What is"}, {"seed", 1}})
      .Check(CompletionFields(),
             WithGeneration({{"prompt", {"other"}},
                             {"suffix", {"end"}},
                             {"echo", {true}},
                             {"logprobs", {1}},
                             {"add_special_tokens", {false}},
                             {"return_tokens_as_token_ids", {true, {{"logprobs", 1}}}}}));
}

TEST_CASE("every field of Mistral's fill in the middle has an effect, or is refused") {
  Endpoint("/v1/fim/completions", {{"prompt", "What is"}, {"seed", 1}})
      .Check(FimFields(),
             WithGeneration({{"prompt", {"other"}},
                             {"suffix", {"end"}},
                             {"random_seed", {5}},
                             {"add_special_tokens", {false}}}),
             {"return_tokens_as_token_ids"});
}

TEST_CASE("every field of a chat has an effect, or is refused") {
  Endpoint("/v1/chat/completions", {{"messages", Messages("What is")}, {"seed", 1}})
      .Check(ChatFields(),
             WithGeneration({{"messages", {Messages("other")}},
                             {"chat_template_kwargs", {{{"extra", "x"}}}},
                             {"tools", {kTools}},
                             {"tool_choice", {"none", {{"tools", kTools}}}},
                             {"parallel_tool_calls", {false, {{"tools", kTools}}}},
                             {"enable_thinking", {true}},
                             {"thinking_token_budget", {5}},
                             {"reasoning_effort", {"high"}},
                             {"add_generation_prompt", {false}},
                             {"continue_final_message", {true}},
                             {"add_special_tokens", {true}},
                             {"logprobs", {true}},
                             {"top_logprobs", {1, {{"logprobs", true}}}},
                             {"max_completion_tokens", {3}},
                             {"return_tokens_as_token_ids", {true, {{"logprobs", true}}}}}));
}

TEST_CASE("every field of the other endpoints has an effect, or is refused") {
  const Json chat = {{"messages", Messages("What is")}};
  const Effects effects = {
      {"model", {"another"}},
      {"prompt", {"other"}},
      {"messages", {Messages("x")}},
      {"return_token_strs", {true}},
      {"add_generation_prompt", {false}},
      {"continue_final_message", {true}},
      {"chat_template_kwargs", {{{"extra", "x"}}}},
      {"tools", {kTools}},
      {"tool_choice", {"none", {{"tools", kTools}}}},
      {"enable_thinking", {true}},
      {"reasoning_effort", {"high"}},
      {"add_special_tokens", {true}},
  };
  Endpoint("/apply-template", chat).Check(ApplyTemplateFields(), effects);
  Endpoint("/tokenize", chat).Check(TokenizeFields(), effects);
  Endpoint("/v1/embeddings", {{"input", "What is"}})
      .Check(EmbeddingsFields(), {{"model", {"another"}},
                                  {"input", {"other"}},
                                  {"dimensions", {1}},
                                  {"encoding_format", {"base64"}},
                                  {"truncate_prompt_tokens", {1}},
                                  {"add_special_tokens", {false}},
                                  {"cache_salt", {"x"}},
                                  {"priority", {1}}});
  const auto reranker = ModelWithTokens("a-reranker", {"<|im_start|>", "<|im_end|>", "yes", "no"});
  Effects of_ranking = {
      {"model", {"another"}}, {"instruction", {"x"}}, {"truncate_prompt_tokens", {1}},
      {"cache_salt", {"x"}},  {"priority", {1}},      {"query", {"other"}},
      {"documents", {{"c"}}}, {"top_n", {1}},         {"return_documents", {false}},
      {"text_1", {"other"}},  {"text_2", {"other"}}};
  Endpoint("/v1/rerank", {{"query", "q"}, {"documents", {"a", "b"}}}, reranker)
      .Check(RerankFields(), of_ranking);
  Endpoint("/v1/score", {{"text_1", "q"}, {"text_2", "a"}}, reranker)
      .Check(ScoreFields(), of_ranking);
  Effects of_text = effects;
  of_text["add_special_tokens"] = {false};
  Endpoint("/tokenize", {{"prompt", "What is"}})
      .Check(TokenizeFields(), of_text,
             {"add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools",
              "tool_choice", "enable_thinking", "reasoning_effort"});
  Endpoint("/detokenize", {{"tokens", {7, 8}}})
      .Check(DetokenizeFields(), {{"model", {"another"}}, {"tokens", {{9}}}});

  // Of stream_options.
  Endpoint stream("/v1/completions", {{"prompt", "What is"}, {"seed", 1}, {"stream", true}});
  const Effects options = {{"include_usage", {true}},
                           {"continuous_usage_stats", {true, {{"include_usage", true}}}}};
  for (const RequestField& field : StreamOptionFields()) {
    const auto effect = options.find(std::string(field.name));
    INFO(field.name);
    REQUIRE(effect != options.end());
    Json with = effect->second.beside;
    with[std::string(field.name)] = effect->second.value;
    CHECK(stream.Seen({{"stream_options", with}}) !=
          stream.Seen({{"stream_options", effect->second.beside}}));
  }
}

TEST_CASE("of two fields that say different things neither is dropped in silence") {
  Door door({}, {}, ShowingModel());
  const Json both = {{"messages", Messages("x")}, {"max_tokens", 3}, {"max_completion_tokens", 4}};
  CHECK_THAT(door.Error("/v1/chat/completions", both),
             StartsWith("400 max_tokens ") && Contains("max_completion_tokens"));
  Json equal = both;
  equal["max_tokens"] = 4;
  door.Ask("/v1/chat/completions", equal);
  CHECK(door.service.last_request().max_tokens == 4);
  CHECK_THAT(door.Error("/tokenize", {{"prompt", "x"}, {"messages", Messages("x")}}),
             StartsWith("400 prompt ") && Contains("messages"));
}

TEST_CASE("a field that no table has is named in a header") {
  Door door;
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize"}) {
    const Json body = std::string(path).ends_with("chat/completions")
                          ? Json{{"messages", Messages("x")}, {"typical_p", 0.5}}
                          : Json{{"prompt", "x"}, {"typical_p", 0.5}};
    CHECK_THAT(door.Post(path, body.dump()).head,
               Contains("x-tessera-ignored-fields: typical_p\r\n"));
  }
}

TEST_CASE("every option of a gRPC generation has an effect") {
  const auto model = DoorModel();
  const auto seen = [&](const v1::CompletionRequest& request) {
    const absl::StatusOr<InferenceCall> read = ReadCompletion(request, *model);
    return read.ok() ? Dump(read->request) : read.status().ToString();
  };
  v1::CompletionRequest base;
  base.set_text("What is");
  base.set_request_id("id");
  base.mutable_options()->set_seed(1);
  const std::string without = seen(base);
  const auto* options = v1::GenerationOptions::descriptor();
  for (int i = 0; i < options->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = options->field(i);
    INFO(field->name());
    v1::CompletionRequest request = base;
    v1::GenerationOptions* set = request.mutable_options();
    const google::protobuf::Reflection* reflection = set->GetReflection();
    if (field->is_map()) {
      (*set->mutable_logit_bias())[7] = 1;
      REQUIRE(field->name() == "logit_bias");
    } else if (field->is_repeated() &&
               field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      reflection->AddString(set, field, "x");
    } else if (field->is_repeated()) {
      reflection->AddInt32(set, field, 7);
    } else {
      switch (field->cpp_type()) {
        case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
          reflection->SetInt32(set, field, 2);
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_UINT64:
          reflection->SetUInt64(set, field, 2);
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_FLOAT:
          reflection->SetFloat(set, field, 0.5f);
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
          reflection->SetBool(set, field, field->name() != "skip_special_tokens");
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
          set->mutable_structured_outputs()->set_json_object(true);
          REQUIRE(field->name() == "structured_outputs");
          break;
        default: reflection->SetString(set, field, "x");
      }
    }
    CHECK(seen(request) != without);
  }
}

TEST_CASE("every field of a gRPC chat has an effect") {
  const auto model = ShowingModel();
  const auto seen = [&](const v1::ChatRequest& request) {
    const absl::StatusOr<InferenceCall> read = ReadChat(request, *model, 1700000000);
    if (!read.ok()) return read.status().ToString();
    const auto& format = read->answer_format;
    return Dump(read->request) + (format != nullptr && format->one_call ? "one call" : "");
  };
  v1::ChatRequest base;
  v1::ChatMessage& user = *base.add_messages();
  user.set_role("user");
  user.set_content("What is");
  base.add_tools()->set_name("f");
  base.mutable_options()->set_seed(1);
  std::map<std::string, std::function<void(v1::ChatRequest&)>> effects;
  using R = v1::ChatRequest;
  effects["model"] = [](R& r) { r.set_model("another"); };
  effects["messages"] = [](R& r) { r.mutable_messages(0)->set_content("other"); };
  effects["options"] = [](R& r) { r.mutable_options()->set_temperature(0.5f); };
  effects["add_generation_prompt"] = [](R& r) { r.set_add_generation_prompt(false); };
  effects["continue_final_message"] = [](R& r) { r.set_continue_final_message(true); };
  effects["tools"] = [](R& r) { r.mutable_tools(0)->set_parameters("{\"type\": \"object\"}"); };
  effects["tool_choice"] = [](R& r) { r.set_tool_choice("none"); };
  effects["parallel_tool_calls"] = [](R& r) { r.set_parallel_tool_calls(false); };
  effects["enable_thinking"] = [](R& r) { r.set_enable_thinking(true); };
  effects["reasoning_effort"] = [](R& r) { r.set_reasoning_effort("high"); };
  effects["chat_template_kwargs"] = [](R& r) { r.set_chat_template_kwargs("{\"extra\": 1}"); };
  effects["thinking_token_budget"] = [](R& r) { r.set_thinking_token_budget(5); };
  const auto* fields = v1::ChatRequest::descriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    const std::string name = fields->field(i)->name();
    if (name == "request_id") continue;
    INFO(name);
    const auto effect = effects.find(name);
    REQUIRE(effect != effects.end());  // a new field: add a line that shows its effect
    v1::ChatRequest request = base;
    effect->second(request);
    CHECK(seen(request) != seen(base));
  }
}

}  // namespace tessera::coordinator
