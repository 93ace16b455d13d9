// The HTTP door over a scripted model that calls tools, for clients of other people:
// scripted_door MODEL_FOLDER. Prints its port and serves until its standard input ends.
//
// The first answer of a conversation thinks, then calls weather and clock; one behind their results
// repeats these.

#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "coordinator/api/answer_formats.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http_door/http_api.h"
#include "tests/fakes/fake_generation_service.h"

namespace tessera::coordinator {
namespace {

constexpr char kTemplate[] =
    "{%- for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{%- for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{%- for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{%- endfor %}{% endfor %}"
    "{%- if add_generation_prompt %}[assistant]{% endif %}"
    "{#- the model thinks between <think> and </think> #}";

constexpr char kCalls[] =
    "<think>\nBoth tools are needed.\n</think>\n\nOne moment.\n"
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich \\\"City\\\"\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";

std::string AnswerTo(const std::string& prompt) {
  constexpr char kResult[] = "[tool]";
  std::string answer;
  for (size_t at = prompt.find(kResult); at != std::string::npos; at = prompt.find(kResult, at)) {
    at += sizeof(kResult) - 1;
    if (!answer.empty()) answer += " and ";
    answer += prompt.substr(at, prompt.find('[', at) - at);
  }
  return answer.empty() ? kCalls : answer;
}

int Serve(const std::string& folder) {
  auto model = std::make_shared<ServedModel>();
  model->name = "scripted";
  model->max_model_len_tokens = 8000;
  model->tokenizer = Tokenizer::Load(folder).value();
  model->chat_template = ChatTemplate::Parse(kTemplate).value();
  if (!FindAnswerFormats("", *model).ok()) return 1;
  FakeGenerationService service;
  service.SetScript([&model](const GenerationRequest& request, GenerationSink& sink,
                             const std::function<bool()>& cancelled) {
    const std::string answer = AnswerTo(model->tokenizer->Decode(request.prompt_token_ids, false));
    std::vector<Piece> pieces;
    for (size_t at = 0; at < answer.size();) {
      size_t bytes = 4;  // whole characters
      while (at + bytes < answer.size() && (answer[at + bytes] & 0xC0) == 0x80) ++bytes;
      pieces.push_back({answer.substr(at, bytes), 40});
      at += bytes;
    }
    Say(std::move(pieces))(request, sink, cancelled);
  });
  HttpApiOptions options;
  options.readiness = [] { return absl::OkStatus(); };
  options.load = [] { return int64_t{0}; };
  options.metrics = [] { return std::string(); };
  options.now_unix_seconds = [] {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const auto api = HttpApi::Make(std::move(options), {model, service});
  HttpServerOptions http;
  http.admit = [&api](const HttpRequest& header) { return HttpAdmission{api->Admit(header), {}}; };
  auto server = HttpServer::Start(
      http, [&api](std::shared_ptr<HttpExchange> exchange) { api->Handle(std::move(exchange)); });
  if (!server.ok()) return 1;
  std::cout << (*server)->port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  (*server)->Stop();
  return 0;
}

}  // namespace
}  // namespace tessera::coordinator

int main(int argc, char** argv) { return argc == 2 ? tessera::coordinator::Serve(argv[1]) : 2; }
