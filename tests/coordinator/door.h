// The HTTP front door over a scripted service, on a real socket: what a client sends and sees.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/api/answer_formats.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http_door/http_api.h"
#include "tests/coordinator/http_client.h"
#include "tests/fakes/fake_generation_service.h"

namespace tessera::coordinator {

// The shipped model's tokenizer and chat template, with a context of 200 tokens.
std::shared_ptr<const ServedModel> DoorModel();

// The same with a template that writes tools, calls and thinking, in short, as Qwen's do, or with
// the one that is given; and with a context of 4000 tokens.
std::shared_ptr<const ServedModel> ToolModel(const char* chat_template = nullptr);

// DoorModel under another name, with a context of 4000 tokens, and a tokenizer that has these
// special tokens too.
std::shared_ptr<const ServedModel> ModelWithTokens(const std::string& name,
                                                   const std::vector<std::string>& tokens);

class Door {
 public:
  explicit Door(HttpApiOptions options = {}, HttpServerOptions server_options = {},
                std::shared_ptr<const ServedModel> model = DoorModel(),
                std::vector<ServedEntry> others = {});
  ~Door();

  HttpReply Get(std::string_view path, std::string_view headers = "");
  HttpReply Post(std::string_view path, std::string_view body, std::string_view headers = "");
  // The JSON of a reply of status 200.
  nlohmann::json Ask(std::string_view path, const nlohmann::json& body);
  // The JSON events of a stream that ends with [DONE].
  std::vector<nlohmann::json> Stream(std::string_view path, nlohmann::json body);
  // "status param message" of a reply that is an error in OpenAI's form.
  std::string Error(std::string_view path, const nlohmann::json& body);
  static std::string ErrorOf(const HttpReply& reply);

  uint16_t port() const { return server_->port(); }
  HttpApi& api() { return *api_; }
  void Stop() { server_->Stop(); }

  FakeGenerationService service;
  absl::Status readiness;
  std::function<HttpHeaders(const std::string& client)> limits;  // may not be set

 private:
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<HttpServer> server_;
};

// The events of a stream's body, without "[DONE]", which must be its last.
std::vector<nlohmann::json> EventsOf(const std::string& body);

// (name, data) of a stream whose events are named as the type in their data; comments aside.
std::vector<std::pair<std::string, nlohmann::ordered_json>> NamedEventsOf(const std::string& body);

// A script: says `text` a few bytes at a time.
FakeGenerationService::Script Says(const std::string& text, Finish finish = Finish::kStop,
                                   size_t piece_bytes = 3);

// The prompt of the last request, special tokens included.
std::string PromptOf(const Door& door);

}  // namespace tessera::coordinator
