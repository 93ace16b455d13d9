// One running call against an exchange that the test plays: what happens between threads.

#include "coordinator/http_door/openai_call.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

// What outlives the exchange, so that the test can say when it went.
struct Seen {
  std::promise<void> asked;  // OnGone was entered
  std::promise<void> ended;  // the generation ended, and the call let go of the exchange
  std::atomic<bool> destroyed = false;
  bool destroyed_while_asked = false;
  bool timed_out = false;
  std::atomic<bool> answered = false;
};

// Stays inside OnGone until the generation has ended on its own thread.
class AskedExchange final : public HttpExchange {
 public:
  explicit AskedExchange(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  ~AskedExchange() override { seen_->destroyed = true; }
  HttpRequest& request() override { return request_; }
  void Respond(HttpResponse response) override { seen_->answered = response.status == 200; }
  void BeginStream(HttpHeaders) override {}
  bool Write(std::string_view) override { return true; }
  void End() override { seen_->answered = true; }
  void OnGone(std::function<void()>) override {
    const std::shared_ptr<Seen> seen = seen_;  // nothing of this object is touched from here on
    seen->asked.set_value();
    seen->timed_out =
        seen->ended.get_future().wait_for(std::chrono::seconds(10)) != std::future_status::ready;
    seen->destroyed_while_asked = seen->destroyed;
  }

 private:
  const std::shared_ptr<Seen> seen_;
  HttpRequest request_;
};

OpenAiCall CallOf(bool stream) {
  OpenAiCall call;
  call.stream = stream;
  GenerationRequest request;
  request.prompt_token_ids = {7};
  call.prompts.push_back(std::move(request));
  return call;
}

}  // namespace

TEST_CASE("an end on another thread leaves the exchange whole while it is asked for departures") {
  for (const bool stream : {false, true}) {
    auto seen = std::make_shared<Seen>();
    FakeGenerationService service;
    service.SetScript(
        [&](const GenerationRequest& request, GenerationSink& sink, const auto& cancelled) {
          seen->asked.get_future().wait();
          Say({{"x", 40}})(request, sink, cancelled);
          seen->ended.set_value();
        });
    StartOpenAiCall(CallOf(stream), "id", DoorModel(), service, 0,
                    std::make_shared<AskedExchange>(seen));
    CHECK_FALSE(seen->timed_out);
    CHECK_FALSE(seen->destroyed_while_asked);
    CHECK(seen->answered);
    CHECK(seen->destroyed);  // and let go of after
  }
}

TEST_CASE("the prompts of one request are a group of their own, led by the first") {
  Door door;
  const auto requests = [&](const nlohmann::json& prompt) {
    const size_t before = door.service.requests().size();
    door.Ask("/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}});
    std::vector<GenerationRequest> all = door.service.requests();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(before));
    return all;
  };
  const auto many = requests({"a", "b", "c"});
  REQUIRE(many.size() == 3);
  CHECK(many[0].group != 0);
  for (size_t i = 0; i < many.size(); ++i) {
    CHECK(many[i].group == many[0].group);
    CHECK(many[i].leads_group == (i == 0));
  }
  CHECK(requests({"a", "b"})[0].group != many[0].group);
  const auto one = requests("a");
  CHECK(one[0].group == 0);
  CHECK(one[0].leads_group);
}

}  // namespace tessera::coordinator
