// Deadlines: what headers say of them, and the turns that they give.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "coordinator/fairness/asked_deadline.h"
#include "coordinator/fairness/fair_service.h"
#include "scheduler/deadline_order.h"
#include "tests/coordinator/answered_flow.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

// Every request takes `expected` seconds once it has begun.
struct Front {
  explicit Front(double expected_seconds = 1)
      : service(FairService::Make(
            {.queue_places = [] { return int64_t{1000}; },
             .now_seconds = [this] { return now; },
             .expected_seconds = [expected_seconds](double, double) { return expected_seconds; }},
            flow)) {}
  GenerationRequest& Ask(const std::string& client, std::optional<double> deadline = std::nullopt,
                         const std::string& workflow = "", int32_t stages_left = 1) {
    GenerationRequest request;
    request.client = client;
    request.prompt_token_ids.assign(100, 1);
    request.max_tokens = 10;
    request.deadline_seconds = deadline;
    request.workflow = workflow;
    request.workflow_stages_left = stages_left;
    handles.push_back(service->Start(std::move(request), std::make_shared<IgnoringSink>()).value());
    return flow.requests.back();
  }
  uint64_t Turn(const std::string& client, std::optional<double> deadline = std::nullopt,
                const std::string& workflow = "", int32_t stages_left = 1) {
    return Ask(client, deadline, workflow, stages_left).turn;
  }
  double now = 50;
  AnsweredFlow flow;
  std::unique_ptr<FairService> service;
  std::vector<std::unique_ptr<GenerationHandle>> handles;
};

}  // namespace

TEST_CASE("less slack goes first, what cannot make it goes behind") {
  const auto rank = [](double deadline, double stages, double expected) {
    return scheduler::DeadlineRank({deadline, stages, expected}, 100);
  };
  CHECK(rank(110, 1, 2) == 108);
  CHECK(rank(110, 1, 2) < rank(111, 1, 2));
  CHECK(rank(110, 1, 3) < rank(110, 1, 2));
  CHECK(rank(110, 2, 2) == 103);  // half of the ten seconds is its part
  CHECK(scheduler::CanMakeIt({102, 1, 2}, 100));
  CHECK_FALSE(scheduler::CanMakeIt({101, 1, 2}, 100));
  CHECK(rank(101, 1, 2) > rank(100'000, 1, 2));
  CHECK(scheduler::DeadlineRank({90, 1, 2}, 100) < scheduler::DeadlineRank({90, 1, 2}, 101));
}

TEST_CASE("a request with less slack gets a turn before those of its client that wait") {
  Front front;
  const uint64_t first = front.Turn("a", 60);
  const uint64_t second = front.Turn("a", 70);
  const uint64_t urgent = front.Turn("a", 20);
  const uint64_t middle = front.Turn("a", 65);
  const uint64_t none = front.Turn("a");
  CHECK(urgent < first);
  CHECK(first < middle);
  CHECK(middle < second);
  CHECK(second < none);
  // Another client's requests are not looked at.
  CHECK(front.Turn("b", 90) == first);
  // What has begun does not wait: nothing goes before it.
  front.flow.Token(0);
  front.flow.Token(2);
  CHECK(front.Turn("a", 30) < middle);
}

TEST_CASE("a request says until when it may begin, and its turn behind that") {
  Front front(/*expected_seconds=*/2);
  const GenerationRequest in_time = front.Ask("a", 10);
  REQUIRE(in_time.begin_within_seconds.has_value());
  CHECK(*in_time.begin_within_seconds == Approx(8));
  CHECK(in_time.late_turn > in_time.turn + 1000);
  const GenerationRequest late = front.Ask("a", 1);  // it takes two seconds
  CHECK(late.turn > front.Turn("a") + 1000);
  CHECK_FALSE(late.begin_within_seconds.has_value());
  CHECK_FALSE(front.Ask("a").begin_within_seconds.has_value());
}

TEST_CASE("calls of a workflow share its deadline, each with its part") {
  Front front;
  const GenerationRequest first = front.Ask("a", 40, "w", 4);
  CHECK(*first.begin_within_seconds == Approx(9));
  front.now += 10;
  CHECK(*front.Ask("a", std::nullopt, "w", 2).begin_within_seconds == Approx(14));
  CHECK_FALSE(front.Ask("a", std::nullopt, "other").begin_within_seconds.has_value());
  CHECK_FALSE(front.Ask("b", std::nullopt, "w").begin_within_seconds.has_value());
  front.Ask("a", 100, "w");  // a new one replaces it
  CHECK(*front.Ask("a", std::nullopt, "w").begin_within_seconds == Approx(99));
}

TEST_CASE("requests that end behind their deadlines are counted") {
  Front front;
  front.Ask("a", 10);
  front.Ask("a", 100);
  front.Ask("a");
  front.now += 20;
  for (size_t i = 0; i < 3; ++i) {
    front.flow.Token(i);
    front.flow.End(i, 100, 10);
  }
  const std::vector<ClientUse> uses = front.service->uses();
  REQUIRE(uses.size() == 1);
  CHECK(uses[0].with_deadline == 2);
  CHECK(uses[0].late == 1);
}

// A replica with one place, which goes by turns as a worker does, at nine tenths of what it can do.
TEST_CASE("at nine tenths of the load fewer requests are late than in order of arrival") {
  struct Waiting {
    size_t request;
    double arrival, seconds, deadline;
    uint64_t turn;
  };
  const auto late_of = [](uint64_t seed, bool by_deadline) {
    Front front;
    std::mt19937_64 random(seed);
    const auto draw = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    std::vector<Waiting> queue;
    double free_at = front.now, next = front.now;
    int late = 0, asked = 0;
    while (asked < 3000 || !queue.empty()) {
      if (asked < 3000 && (queue.empty() || next <= free_at)) {
        front.now = next;
        const double seconds = 0.5 + draw(), slack = 2 + 18 * draw();
        const auto deadline = by_deadline ? std::optional(slack) : std::nullopt;
        const uint64_t turn = front.Turn("a", deadline);
        queue.push_back(
            {front.flow.requests.size() - 1, front.now, seconds, front.now + slack, turn});
        next -= std::log(1 - draw()) / 0.9;
        ++asked;
        continue;
      }
      front.now = std::max(free_at, front.now);
      for (Waiting& waiting : queue) {  // as a worker's queue timeout, and the flow behind it
        const GenerationRequest& request = front.flow.requests[waiting.request];
        if (request.begin_within_seconds.has_value() &&
            front.now > waiting.arrival + *request.begin_within_seconds) {
          waiting.turn = request.late_turn;
        }
      }
      const auto first =
          std::min_element(queue.begin(), queue.end(), [](const Waiting& a, const Waiting& b) {
            return std::pair(a.turn, a.arrival) < std::pair(b.turn, b.arrival);
          });
      free_at = front.now + first->seconds;
      front.flow.Token(first->request);
      late += free_at > first->deadline ? 1 : 0;
      front.flow.End(first->request, 100, 10);
      queue.erase(first);
    }
    return late;
  };
  for (const uint64_t seed : {1, 2, 3}) {
    const int by_deadline = late_of(seed, true), by_arrival = late_of(seed, false);
    INFO("seed " << seed << ": " << by_deadline << " late, by arrival " << by_arrival);
    CHECK(by_arrival > 100);
    CHECK(by_deadline < 0.7 * by_arrival);
  }
}

TEST_CASE("a deadline is seconds from now or a time, and what is wrong is named") {
  const auto seconds = [](const std::string& text, double now = 1'000'000'000) {
    const auto asked = ReadDeadline({.deadline = text}, now);
    return asked.ok() && asked->seconds.has_value() ? *asked->seconds : NAN;
  };
  CHECK(seconds("2.5") == 2.5);
  CHECK(seconds("2.5s") == 2.5);
  CHECK(seconds("1500ms") == 1.5);
  CHECK(seconds("2001-09-09T01:46:45Z") == 5);  // 10^9 seconds is 01:46:40
  CHECK(seconds("2001-09-09T01:46:30Z") == -10);
  for (const char* wrong : {"soon", "3601", "1e9", "nan", "inf", "2h", "2001-09-09", " ", "5 5",
                            "0", "-1", "-5s", "0s", "0x10", "1,5", "5, 6"}) {
    INFO(wrong);
    const absl::Status status = ReadDeadline({.deadline = wrong}, 1'000'000'000).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains("x-request-deadline"));
  }
  CHECK_FALSE(ReadDeadline({}, 0)->seconds.has_value());
  const auto all = ReadDeadline({"5", "flow-1", "3"}, 0);
  REQUIRE(all.ok());
  GenerationRequest request;
  all->ApplyTo(request);
  CHECK(request.deadline_seconds == 5);
  CHECK(request.workflow == "flow-1");
  CHECK(request.workflow_stages_left == 3);
  CHECK_FALSE(ReadDeadline({.workflow = "two words"}, 0).ok());
  CHECK_FALSE(ReadDeadline({.workflow = std::string(129, 'x')}, 0).ok());
  for (const char* wrong : {"0", "-1", "1001", "many", "1.5"})
    CHECK_FALSE(ReadDeadline({.stages_left = wrong}, 0).ok());
}

TEST_CASE("turns follow slack, whatever the order in which requests come") {
  Front front;
  std::vector<std::pair<double, uint64_t>> turns;  // deadline, turn
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const double deadline = std::uniform_int_distribution<int>(100, 3000)(random);
    turns.emplace_back(deadline, front.Turn("client", deadline));
  }
  const uint64_t urgent = front.Turn("client", 60);
  std::sort(turns.begin(), turns.end());
  for (size_t i = 0; i < turns.size(); ++i) {
    CHECK(urgent < turns[i].second);
    if (i > 0 && turns[i - 1].first < turns[i].first) CHECK(turns[i - 1].second <= turns[i].second);
  }
}

}  // namespace tessera::coordinator
