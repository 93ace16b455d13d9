// Which plan a balanced choice gives way to: each condition by itself, which one of several, and
// what is simulated for it.
#include "scheduler/planner/giving_way.h"

#include <catch2/catch.hpp>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::scheduler {
namespace {

// As simulated, and what simulations say when they are asked again.
struct Plan {
  Choosable known;
  double ttft_at_rate = 0, tpot_at_rate = 0;
  std::optional<Choosable> in_full = std::nullopt;  // absent: it was simulated in full
  bool ends = true;                                 // of simulations
};

// 10 requests/s in time, and after a loss as well.
Plan Given() {
  Plan plan;
  plan.known.figures.requests_per_second = 10;
  plan.known.figures.ttft_seconds = 1;
  plan.known.figures.tpot_seconds = 0.1;
  plan.known.requests_per_second_after_loss = 5;
  return plan;
}

// Twice as many with steps twice as long and a little more, and as soon at the first one's rate.
Plan More() {
  Plan plan = Given();
  plan.known.figures.requests_per_second = 20;
  plan.known.figures.tpot_seconds = 0.22;
  plan.ttft_at_rate = 1;
  plan.tpot_at_rate = 0.1;
  return plan;
}

Preference Usual() {
  Preference preference = UsualPreference();
  preference.full_ttft_seconds = 0;
  return preference;
}

// The first of these is the choice.
struct Asked {
  explicit Asked(std::vector<Plan> given) : plans(std::move(given)) {
    SimulatedPlans all;
    all.count = plans.size();
    all.known = [&](size_t i) -> const Choosable& { return plans[i].known; };
    all.at_rate = [&](size_t i, double rate) {
      at_rates.push_back(rate);
      std::optional<PlanFigures> seen;
      if (!plans[i].ends) return seen;
      seen.emplace();
      seen->ttft_seconds = plans[i].ttft_at_rate;
      seen->tpot_seconds = plans[i].tpot_at_rate;
      return seen;
    };
    all.see_in_full = [&](size_t i) {
      in_full.push_back(i);
      if (plans[i].in_full) plans[i].known = *plans[i].in_full;
      return plans[i].ends;
    };
    to = GivenWayTo(all, 0, /*load=*/0.75, Usual());
  }
  Asked(const Asked&) = delete;

  std::vector<Plan> plans;
  std::vector<double> at_rates;
  std::vector<size_t> in_full;
  size_t to = 0;
};

bool GivesWay(const Plan& given, const Plan& other) { return Asked({given, other}).to == 1; }

template <typename Change>
Plan Changed(Plan plan, const Change& change) {
  change(plan);
  return plan;
}

TEST_CASE("a choice gives way to twice the rate at the same latencies") {
  const Asked asked({Given(), More()});
  CHECK(asked.to == 1);
  // At the load that the first one's figures are of.
  CHECK(asked.at_rates == std::vector<double>{7.5});
  CHECK(asked.in_full == std::vector<size_t>{1});
}

TEST_CASE("it does not for less than half as many requests more") {
  for (const auto& [rate, gives] : {std::pair(15.1, true), {14.9, false}}) {
    INFO(rate);
    CHECK(GivesWay(Given(), Changed(More(), [&, rate = rate](Plan& plan) {
                     plan.known.figures.requests_per_second = rate;
                     plan.known.figures.tpot_seconds = 0.16;
                   })) == gives);
  }
}

TEST_CASE("nor for what is worth a fifth less") {
  for (const auto& [tpot, gives] : {std::pair(0.249, true), {0.251, false}}) {
    INFO(tpot);
    CHECK(GivesWay(Given(), Changed(More(), [tpot = tpot](Plan& plan) {
                     plan.known.figures.tpot_seconds = tpot;
                   })) == gives);
  }
}

TEST_CASE("nor for what misses a limit that it keeps") {
  // A miss of so little costs hardly any value.
  v1::MissedLimit missed;
  missed.set_limit(v1::LATENCY_LIMIT_TTFT);
  missed.set_limit_seconds(1);
  missed.set_seconds(1.0001);
  const auto misses = [&](Plan& plan) { plan.known.figures.missed = {missed}; };
  CHECK_FALSE(GivesWay(Given(), Changed(More(), misses)));
  CHECK(GivesWay(Changed(Given(), misses), Changed(More(), misses)));
  CHECK(GivesWay(Changed(Given(), misses), More()));
}

TEST_CASE("nor for what a machine's loss stops, where it serves on itself") {
  const auto stops = [](Plan& plan) { plan.known.requests_per_second_after_loss = 0; };
  CHECK_FALSE(GivesWay(Given(), Changed(More(), stops)));
  CHECK(GivesWay(Changed(Given(), stops), Changed(More(), stops)));
  CHECK(GivesWay(Changed(Given(), stops), More()));
}

TEST_CASE("nor for what answers later at its load, or nobody knows when") {
  CHECK(GivesWay(Given(), Changed(More(), [](Plan& plan) { plan.ttft_at_rate = 1.01; })));
  CHECK_FALSE(GivesWay(Given(), Changed(More(), [](Plan& plan) { plan.ttft_at_rate = 1.03; })));
  CHECK(GivesWay(Given(), Changed(More(), [](Plan& plan) { plan.tpot_at_rate = 0.101; })));
  CHECK_FALSE(GivesWay(Given(), Changed(More(), [](Plan& plan) { plan.tpot_at_rate = 0.103; })));
  CHECK_FALSE(GivesWay(Given(), Changed(More(), [](Plan& plan) { plan.ends = false; })));
}

TEST_CASE("what was simulated with few requests is judged by a full simulation") {
  const auto brief = [](double rate_in_full) {
    return Changed(More(), [&](Plan& plan) {
      plan.in_full = plan.known;
      plan.in_full->figures.requests_per_second = rate_in_full;
    });
  };
  const Asked holds({Given(), brief(19)});
  CHECK(holds.to == 1);
  CHECK(holds.plans[1].known.figures.requests_per_second == 19);
  CHECK(Asked({Given(), brief(14)}).to == 0);
  CHECK(Asked({Given(),
               Changed(brief(19), [](Plan& plan) { plan.in_full->figures.tpot_seconds = 0.3; })})
            .to == 0);
}

TEST_CASE("of several the most valuable is taken, and others are not simulated in vain") {
  const auto worth = [](double rate) {
    return Changed(More(), [&](Plan& plan) { plan.known.figures.requests_per_second = rate; });
  };
  const Asked asked({Given(), worth(19), worth(21), worth(20), worth(12)});
  CHECK(asked.to == 2);
  CHECK(asked.at_rates.size() == 2);
  CHECK(asked.in_full == std::vector<size_t>{1, 2});
  CHECK(Asked({Given(), worth(19), Changed(worth(21), [](Plan& plan) { plan.ends = false; })}).to ==
        1);
}

// Nothing can be simulated at its rate.
TEST_CASE("what serves nothing gives way to nothing") {
  const Asked asked({Changed(Given(),
                             [](Plan& plan) {
                               plan.known.figures.requests_per_second = 0;
                               plan.known.requests_per_second_after_loss = 0;
                               plan.known.figures.ttft_seconds =
                                   std::numeric_limits<double>::infinity();
                             }),
                     More()});
  CHECK(asked.to == 0);
  CHECK(asked.at_rates.empty());
}

}  // namespace
}  // namespace tessera::scheduler
