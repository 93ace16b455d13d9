#include "coordinator/fairness/fair_service.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/fairness/retry_after.h"
#include "tests/coordinator/answered_flow.h"

namespace tessera::coordinator {
namespace {

struct Front {
  explicit Front(std::map<std::string, ClientPolicy> policies = {}, int64_t places = 1000)
      : service(FairService::Make({.policies = std::move(policies),
                                   .queue_places = [places] { return places; },
                                   .now_seconds = [this] { return now; }},
                                  flow)) {}

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Ask(const std::string& client,
                                                        const std::string& user = "",
                                                        size_t prompt = 100) {
    GenerationRequest request;
    request.client = client;
    request.user = user;
    request.prompt_token_ids.assign(prompt, 1);
    request.max_tokens = 10;
    return service->Start(std::move(request), std::make_shared<IgnoringSink>());
  }
  uint64_t TurnOfNext(const std::string& client, const std::string& user = "") {
    handles.push_back(Ask(client, user).value());
    return flow.requests.back().turn;
  }

  double now = 0;
  AnsweredFlow flow;
  std::unique_ptr<FairService> service;
  std::vector<std::unique_ptr<GenerationHandle>> handles;
};

}  // namespace

TEST_CASE("a client's requests have later and later turns, and another's begins now") {
  Front front;
  const uint64_t first = front.TurnOfNext("a"), second = front.TurnOfNext("a");
  CHECK(first >= 1);
  CHECK(second >= first + 100);
  CHECK(front.TurnOfNext("b") == first);
  CHECK(front.TurnOfNext("a", "somebody") == first);
  front.flow.Token(1);  // the second has begun: that is now
  CHECK(front.TurnOfNext("c") == second);
}

TEST_CASE("prompts of one request go in turns with other requests that name nobody") {
  Front front;
  const auto ask = [&](uint64_t group) {
    GenerationRequest request;
    request.prompt_token_ids.assign(100, 1);
    request.group = group;
    front.handles.push_back(
        front.service->Start(std::move(request), std::make_shared<IgnoringSink>()).value());
    return front.flow.requests.back().turn;
  };
  const uint64_t first = ask(7);
  for (int i = 0; i < 100; ++i) ask(7);
  CHECK(ask(0) == first);
}

TEST_CASE("tokens that the prefix cache held cost nothing") {
  Front front;
  const uint64_t begin = front.TurnOfNext("a");
  front.flow.Token(0);
  front.flow.End(0, 100, 5, /*cached=*/96);
  CHECK(front.TurnOfNext("a") == begin + 9);
}

TEST_CASE("a request that was refused or cut off gives back its turn and its place") {
  Front front({{"a", {.limits = {.concurrent_requests = 1}}}});
  const uint64_t begin = front.TurnOfNext("a");
  CHECK(absl::IsResourceExhausted(front.Ask("a").status()));
  front.handles.clear();
  front.flow.refusal = absl::UnavailableError("no replica");
  CHECK(absl::IsUnavailable(front.Ask("a").status()));
  front.flow.refusal = absl::OkStatus();
  CHECK(front.TurnOfNext("a") == begin);
  front.handles.back()->Cancel();
  CHECK(front.Ask("a").ok());
}

TEST_CASE("tokens a minute are counted as they were taken") {
  Front front({{"a", {.limits = {.tokens_per_minute = 60}}}});
  front.TurnOfNext("a");
  front.flow.Token(0);
  front.flow.End(0, 100, 20);
  const absl::Status refused = front.Ask("a").status();
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(RetryAfterSeconds(refused) == 60);
  const std::vector<ClientUse> uses = front.service->uses();
  REQUIRE(uses.size() == 1);
  CHECK(uses[0].client == "a");
  CHECK(uses[0].requests == 1);
  CHECK(uses[0].refused == 1);
  CHECK(uses[0].waiting == 0);
  CHECK(uses[0].tokens == 120);
  front.now = 61;
  CHECK(front.Ask("a").ok());
}

TEST_CASE("a key that floods the queues leaves room for another, and for one that may come") {
  Front front({{"heavy", {}}, {"light", {}}}, /*places=*/90);
  int64_t taken = 0;
  while (true) {
    auto handle = front.Ask("heavy");
    if (!handle.ok()) {
      CHECK(absl::IsResourceExhausted(handle.status()));
      CHECK(RetryAfterSeconds(handle.status()).has_value());
      break;
    }
    front.handles.push_back(*std::move(handle));
    REQUIRE(++taken <= 90);
  }
  CHECK(taken == 45);
  front.TurnOfNext("light");
  front.flow.Token(0);                   // one begins: it waits no more
  CHECK_FALSE(front.Ask("heavy").ok());  // two keys want places now: a third of them is its part
  Front alone({{"only", {}}}, /*places=*/2);
  for (int i = 0; i < 10; ++i) alone.TurnOfNext("only");
}

}  // namespace tessera::coordinator
