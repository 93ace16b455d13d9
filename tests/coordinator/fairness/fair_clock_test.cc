#include "coordinator/fairness/fair_clock.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/fairness/client_limits.h"
#include "coordinator/fairness/retry_after.h"

namespace tessera::coordinator {
namespace {

// One replica that serves one request after the other, by turn, then arrival.
class Replica {
 public:
  explicit Replica(FairClock& clock) : clock_(clock) {}

  void Take(const FairTicket& ticket, double tokens) {
    waiting_.push_back({ticket, tokens, arrivals_++});
  }
  // Serves the next one: its key.
  std::string Serve() {
    const auto next =
        std::min_element(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
          return std::pair(a.ticket.turn, a.arrival) < std::pair(b.ticket.turn, b.arrival);
        });
    const Waiting one = *next;
    waiting_.erase(next);
    clock_.Begin(one.ticket);
    clock_.End(one.ticket, one.tokens);
    served_[one.ticket.key + "/" + one.ticket.user] += one.tokens;
    return one.ticket.key + "/" + one.ticket.user;
  }
  double served(const std::string& client) { return served_[client]; }
  bool waits() const { return !waiting_.empty(); }

 private:
  struct Waiting {
    FairTicket ticket;
    double tokens;
    int arrival;
  };
  FairClock& clock_;
  std::vector<Waiting> waiting_;
  int arrivals_ = 0;
  std::map<std::string, double> served_;
};

}  // namespace

TEST_CASE("a client that comes later goes before what a heavy one has waiting") {
  FairClock clock;
  Replica replica(clock);
  for (int i = 0; i < 1000; ++i) replica.Take(clock.Enter("heavy", "", 1, 100), 100);
  for (int i = 0; i < 5; ++i) CHECK(replica.Serve() == "heavy/");
  replica.Take(clock.Enter("light", "", 1, 100), 100);
  std::vector<std::string> next;
  for (int i = 0; i < 3; ++i) next.push_back(replica.Serve());
  CHECK(std::find(next.begin(), next.end(), "light/") != next.end());
}

TEST_CASE("keys share by their weights, whatever the sizes of their requests") {
  FairClock clock;
  Replica replica(clock);
  std::mt19937 random(7);
  std::uniform_int_distribution<int> small(10, 50), large(200, 2000);
  for (int i = 0; i < 20000; ++i) {
    const double tokens = small(random);
    replica.Take(clock.Enter("a", "", 1, tokens), tokens);
  }
  for (int i = 0; i < 2000; ++i) {
    const double tokens = large(random);
    replica.Take(clock.Enter("b", "", 3, tokens), tokens);
  }
  for (int i = 0; i < 6000; ++i) replica.Serve();
  CHECK(replica.served("b/") / replica.served("a/") == Approx(3).epsilon(0.05));
}

TEST_CASE("the users of a key share its part, and a second user does not double it") {
  FairClock clock;
  Replica replica(clock);
  for (int i = 0; i < 3000; ++i) {
    replica.Take(clock.Enter("one", "x", 1, 100), 100);
    replica.Take(clock.Enter("two", "y", 1, 100), 100);
    replica.Take(clock.Enter("two", "z", 1, 100), 100);
  }
  for (int i = 0; i < 3000; ++i) replica.Serve();
  CHECK(replica.served("one/x") == Approx(150000).epsilon(0.05));
  CHECK(replica.served("two/y") == Approx(75000).epsilon(0.1));
  CHECK(replica.served("two/z") == Approx(75000).epsilon(0.1));
}

TEST_CASE("what a request took counts, not what was expected of it") {
  FairClock clock;
  Replica replica(clock);
  // Both ask one at a time for as much; one of them takes three times of what it said.
  const auto ask = [&](const char* key, double tokens) {
    replica.Take(clock.Enter(key, "", 1, 100), tokens);
  };
  ask("long", 300);
  ask("short", 100);
  for (int i = 0; i < 4000; ++i) {
    const bool was_long = replica.Serve() == "long/";
    ask(was_long ? "long" : "short", was_long ? 300 : 100);
  }
  CHECK(replica.served("long/") / replica.served("short/") == Approx(1).epsilon(0.05));
}

TEST_CASE("a client that was away is owed nothing") {
  FairClock clock;
  Replica replica(clock);
  replica.Take(clock.Enter("returns", "", 1, 100), 100);
  replica.Serve();
  for (int i = 0; i < 500; ++i) {
    replica.Take(clock.Enter("stays", "", 1, 100), 100);
    replica.Serve();
  }
  for (int i = 0; i < 100; ++i) {
    replica.Take(clock.Enter("returns", "", 1, 100), 100);
    replica.Take(clock.Enter("stays", "", 1, 100), 100);
  }
  const double before = replica.served("returns/");
  for (int i = 0; i < 100; ++i) replica.Serve();
  CHECK(replica.served("returns/") - before == Approx(5000).margin(300));
}

TEST_CASE("a key has so many users, and what it knows of clients is bounded") {
  FairClock clock;
  for (size_t i = 0; i < kMaxUsers; ++i)
    CHECK(clock.Enter("key", std::to_string(i), 1, 1).user == std::to_string(i));
  CHECK(clock.Enter("key", "further", 1, 1).user == clock.Enter("key", "another", 1, 1).user);
  CHECK(clock.open("key") == kMaxUsers + 2);
  CHECK(clock.busy_keys() == 1);
  // Users that have gone make room.
  FairClock gone;
  for (int i = 0; i < 100000; ++i) {
    const FairTicket ticket = gone.Enter("key" + std::to_string(i % 500), std::to_string(i), 1, 1);
    gone.Begin(ticket);
    gone.End(ticket, 1);
  }
  CHECK(gone.busy_keys() == 0);
  CHECK(gone.Enter("key0", "new", 1, 1).user == "new");
}

TEST_CASE("a key's limits refuse by name and say when to come again") {
  const auto why = [](const absl::Status& status) { return std::string(status.message()); };
  ClientBudget requests({.requests_per_minute = 2}, 0);
  CHECK(requests.Enter(0).ok());
  CHECK(requests.Enter(0).ok());
  const absl::Status third = requests.Enter(15);
  CHECK(absl::IsResourceExhausted(third));
  CHECK(why(third).find("2 requests a minute") != std::string::npos);
  CHECK(RetryAfterSeconds(third) == 15);
  CHECK(requests.Enter(30).ok());

  ClientBudget tokens({.tokens_per_minute = 600}, 0);
  CHECK(tokens.Enter(0).ok());
  tokens.Leave(700, 0);  // overdrawn by 100: ten seconds' worth
  CHECK(RetryAfterSeconds(tokens.Enter(1)) == 9);
  CHECK(tokens.Enter(10.1).ok());

  ClientBudget at_a_time({.concurrent_requests = 1}, 0);
  CHECK(at_a_time.Enter(0).ok());
  CHECK(why(at_a_time.Enter(0)).find("1 requests at a time") != std::string::npos);
  at_a_time.Leave(5, 0);
  CHECK(at_a_time.Enter(0).ok());

  ClientBudget free({}, 0);
  for (int i = 0; i < 1000; ++i) CHECK(free.Enter(0).ok());
  CHECK_FALSE(RetryAfterSeconds(absl::ResourceExhaustedError("")).has_value());
  CHECK(RetryAfterSeconds(RetryAfter(1e9, absl::ResourceExhaustedError(""))) == 60);
}

TEST_CASE("what is left of a limit is said as OpenAI says it") {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  ClientBudget free({.concurrent_requests = 3}, 0);
  CHECK(free.Headers(0).empty());
  ClientBudget both({.requests_per_minute = 30, .tokens_per_minute = 600}, 0);
  CHECK(both.Headers(0) == Headers{{"x-ratelimit-limit-requests", "30"},
                                   {"x-ratelimit-remaining-requests", "30"},
                                   {"x-ratelimit-reset-requests", "0ms"},
                                   {"x-ratelimit-limit-tokens", "600"},
                                   {"x-ratelimit-remaining-tokens", "600"},
                                   {"x-ratelimit-reset-tokens", "0ms"}});
  CHECK(both.Enter(0).ok());
  both.Leave(1250, 0);
  const Headers after = both.Headers(0.5);
  REQUIRE(after.size() == 6);
  CHECK(after[1].second == "29");
  CHECK(after[2].second == "2s");  // one request: 2 s, of which half a second has passed
  CHECK(after[4].second == "0");
  CHECK(after[5].second == "2m5s");
  CHECK(both.Headers(1.9)[2].second == "100ms");
}

}  // namespace tessera::coordinator
