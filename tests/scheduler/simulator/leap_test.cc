// Leaping against stepping: the same tokens in the same order at the same times.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "scheduler/simulator/arrivals.h"
#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::Random;
using scheduler::ReplicaSetup;
using scheduler::RequestOutcome;
using scheduler::Role;
using scheduler::ScheduledChange;
using scheduler::SimulationResult;
using scheduler::SimulationSetup;

class TokenLog : public scheduler::TokenObserver {
 public:
  struct Token {
    double seconds;
    int replica;
    int64_t order;  // within the replica
    int32_t request;
  };
  void OnToken(int replica, int32_t request, double now) override {
    tokens_.push_back({now, replica, static_cast<int64_t>(tokens_.size()), request});
  }
  std::vector<Token> Sorted() {
    std::sort(tokens_.begin(), tokens_.end(), [](const Token& a, const Token& b) {
      return std::tie(a.seconds, a.replica, a.order) < std::tie(b.seconds, b.replica, b.order);
    });
    return tokens_;
  }

 private:
  std::vector<Token> tokens_;
};

ReplicaSetup RandomReplica(Random& random, int index, Role role) {
  PlainFigures figures;
  figures.base = 0.002 + 0.01 * random.Uniform();
  figures.per_prefill_token = 0.0001 * random.Uniform();
  figures.per_row = 0.0005 * random.Uniform();
  figures.per_context_token = 2e-6 * random.Uniform();
  figures.hop = 0.001 * random.Uniform();
  figures.stages = static_cast<int>(random.Integer(1, 3));
  figures.linear = random.Uniform() < 0.7;
  ReplicaSetup setup = PlainReplica("r" + std::to_string(index), figures);
  setup.role = role;
  setup.micro_batches = static_cast<int>(random.Integer(1, figures.stages));
  setup.limits.max_batched_tokens = random.Integer(20, 300);
  setup.limits.max_sequences = random.Integer(2, 24);
  setup.limits.max_logit_rows = random.Integer(4, 40);
  setup.limits.block_tokens = random.Integer(1, 16);
  setup.limits.total_blocks =
      random.Integer(250, 1200) / setup.limits.block_tokens + 1;  // short: sequences are preempted
  return setup;
}

SimulationSetup RandomSetup(uint64_t seed) {
  Random random(seed);
  SimulationSetup setup;
  setup.check_invariants = true;
  const int replicas = static_cast<int>(random.Integer(1, 4));
  const bool split = replicas > 1 && random.Uniform() < 0.4;
  for (int r = 0; r < replicas; ++r) {
    const Role role = !split ? Role::kBoth : r % 2 == 0 ? Role::kPrefill : Role::kDecode;
    setup.replicas.push_back(RandomReplica(random, r, role));
  }
  std::vector<scheduler::RequestLengths> lengths;
  for (int i = 0; i < 8; ++i) {
    lengths.push_back({static_cast<double>(random.Integer(1, 180)),
                       static_cast<double>(random.Integer(1, 60)), random.Uniform()});
  }
  const double rate = replicas * (1 + 12 * random.Uniform());
  const double cached = random.Uniform() < 0.3 ? 0.5 : 0;
  for (scheduler::RequestLengths& one : lengths) one.prefix_hit_rate = cached;
  setup.requests = RequestsFromProcess({rate, 2 * random.Uniform(), 120, seed}, lengths);
  for (auto& request : setup.requests) {
    if (random.Uniform() < 0.2) request.rank = -random.Uniform();
    if (random.Uniform() < 0.5) request.max_tokens = request.output_tokens + 20;
  }
  if (split && random.Uniform() < 0.7) {  // all that one prefill replica sends shares a link
    setup.transfers.layers = static_cast<int>(random.Integer(1, 4));
    setup.transfers.routes.resize(static_cast<size_t>(replicas * replicas));
    for (int p = 0; p < replicas; ++p) setup.transfers.links.push_back({"", 1e5});
    for (int p = 0; p < replicas; ++p) {
      for (int d = 0; d < replicas; ++d) {
        setup.transfers.routes[static_cast<size_t>(p * replicas + d)] = {
            {200 * random.Uniform(), 0.001 * random.Uniform(), {p}}};
      }
    }
  }
  const double span = setup.requests.back().arrival_seconds;
  for (int i = 0; i < 3 && random.Uniform() < 0.5; ++i) {
    ScheduledChange change;
    change.at_seconds = span * random.Uniform();
    change.replica = static_cast<int>(random.Integer(0, replicas - 1));
    change.kind = ScheduledChange::Kind::kSlow;
    change.factor = 1 + 2 * random.Uniform();
    if (random.Uniform() < 0.5) {
      change.kind = ScheduledChange::Kind::kLose;
      setup.changes.push_back(change);
      change.kind = ScheduledChange::Kind::kRecover;
      change.at_seconds += 1;
    }
    setup.changes.push_back(change);
  }
  return setup;
}

// Pipelines' hops over the links that KV takes, or over one of their own.
void ShareHops(uint64_t seed, SimulationSetup* setup) {
  Random random(seed);
  if (random.Uniform() < 0.4) return;
  std::vector<scheduler::SharedLink>& links = setup->transfers.links;
  if (links.empty()) links.push_back({"", 1e5});
  if (random.Uniform() < 0.3) {
    links[0].incast_threshold = 1;
    links[0].incast_seconds_per_byte = 5e-6;
  }
  for (ReplicaSetup& replica : setup->replicas) {
    for (int j = 0; j + 1 < replica.cost->stages(); ++j) {
      replica.hop_links.push_back(
          {static_cast<int>(random.Integer(0, static_cast<int64_t>(links.size()) - 1))});
    }
    replica.hop_bytes_per_row = 300 * random.Uniform();
  }
}

// Conversations: who finished asks again, with what was said as a prompt of which ever more is
// cached.
class NextCalls : public scheduler::RequestSource {
 public:
  void OnEnd(int32_t request, const scheduler::SimulatedRequest& what,
             const RequestOutcome& outcome,
             std::vector<scheduler::SimulatedRequest>* arrivals) override {
    const int turn = what.request_class;
    if (outcome.fate != scheduler::Fate::kFinished || turn >= kTurns) return;
    scheduler::SimulatedRequest next = what;
    next.request_class = turn + 1;
    next.arrival_seconds = outcome.finished_seconds + 0.03 * (request % 5);
    next.prompt_tokens = what.prompt_tokens + what.output_tokens;
    next.output_tokens = 1 + (what.output_tokens * 7 + request) % 40;
    next.cached_prompt_tokens = next.prompt_tokens * turn / (kTurns + 1);
    arrivals->push_back(next);
    ++calls_;
  }
  int64_t calls() const { return calls_; }

 private:
  static constexpr int kTurns = 3;
  int64_t calls_ = 0;
};

// Re-planning by what it is told of the replicas: the busiest gets one more beside it, and is slow
// until that is there.
class Replanner {
 public:
  explicit Replanner(const SimulationSetup& setup) : like_(setup.replicas.front()) {}

  std::vector<ScheduledChange> At(double now, std::span<const scheduler::ReplicaLoad> loads) {
    if (added_ == 2 || like_.role != Role::kBoth) return {};
    size_t busiest = 0;
    for (size_t r = 0; r < loads.size(); ++r) {
      if (loads[r].running_sequences > loads[busiest].running_sequences) busiest = r;
    }
    if (loads[busiest].running_sequences < 2) return {};
    ScheduledChange slow, comes, again;
    slow.kind = again.kind = ScheduledChange::Kind::kSlow;
    slow.replica = again.replica = static_cast<int>(busiest);
    slow.at_seconds = now;
    slow.factor = 1.5;
    comes.kind = ScheduledChange::Kind::kAdd;
    comes.at_seconds = again.at_seconds = now + 0.4;
    comes.added = like_;
    comes.added->name += "+" + std::to_string(++added_);
    return {slow, comes, again};
  }
  int added() const { return added_; }

 private:
  ReplicaSetup like_;
  int added_ = 0;
};

// How much of what only some cases have there was.
struct Beside {
  int64_t calls = 0, added = 0;
};

SimulationResult RunBy(uint64_t seed, SimulationSetup setup, bool leaps, TokenLog* log,
                       Beside* beside) {
  setup.leaps = leaps;
  setup.tokens = log;
  NextCalls calls;
  Replanner replanner(setup);
  if (seed % 3 == 0) setup.source = &calls;
  if (seed % 4 < 2) {
    setup.replan = [&](double now, std::span<const scheduler::ReplicaLoad> loads) {
      return replanner.At(now, loads);
    };
  }
  auto dispatcher = scheduler::MakeRouterDispatcher();
  auto result = Simulate(setup, dispatcher.get());
  INFO(result.status());
  REQUIRE(result.ok());
  beside->calls += calls.calls();
  beside->added += replanner.added();
  return *std::move(result);
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), 1e-9); }

bool Same(const RequestOutcome& a, const RequestOutcome& b) {
  return a.fate == b.fate && a.output_tokens == b.output_tokens && a.attempts == b.attempts &&
         a.preemptions == b.preemptions && a.prefill_replica == b.prefill_replica &&
         a.decode_replica == b.decode_replica && Near(a.started_seconds, b.started_seconds) &&
         Near(a.first_token_seconds, b.first_token_seconds) &&
         Near(a.first_token_missed_seconds, b.first_token_missed_seconds) &&
         Near(a.last_token_missed_seconds, b.last_token_missed_seconds) &&
         Near(a.finished_seconds, b.finished_seconds);
}

}  // namespace

TEST_CASE("leaps change nothing but the work") {
  int64_t leapt = 0, steps = 0, preemptions = 0, retries = 0, plans = 0, plans_stepping = 0;
  int64_t missed = 0;
  Beside beside;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    SimulationSetup setup = RandomSetup(seed);
    ShareHops(seed, &setup);
    if (seed % 2 == 0) {
      setup.limits = {{0.1, 1}};
    }
    TokenLog stepped_log, leapt_log;
    const SimulationResult stepped = RunBy(seed, setup, false, &stepped_log, &beside);
    const SimulationResult leaping = RunBy(seed, setup, true, &leapt_log, &beside);
    REQUIRE(stepped.outcomes.size() == leaping.outcomes.size());
    const auto a = stepped_log.Sorted(), b = leapt_log.Sorted();
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i].replica == b[i].replica && a[i].request == b[i].request &&
          Near(a[i].seconds, b[i].seconds)) {
        continue;
      }
      FAIL("token " << i << ": request " << a[i].request << " at " << a[i].seconds << " by "
                    << setup.replicas[static_cast<size_t>(a[i].replica)].name << ", leaping "
                    << b[i].request << " at " << b[i].seconds << " by "
                    << setup.replicas[static_cast<size_t>(b[i].replica)].name);
    }
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < stepped.outcomes.size(); ++i) {
      INFO("request " << i);
      REQUIRE(Same(stepped.outcomes[i], leaping.outcomes[i]));
      missed += leaping.outcomes[i].last_token_missed_seconds >= 0 ? 1 : 0;
      retries += leaping.outcomes[i].attempts - 1;
    }
    // A step that a loss cut short is counted where it was planned, not where it was leapt.
    const bool lost = std::any_of(setup.changes.begin(), setup.changes.end(), [](const auto& c) {
      return c.kind == ScheduledChange::Kind::kLose;
    });
    for (size_t r = 0; r < stepped.counters.size(); ++r) {
      const auto& s = stepped.counters[r];
      const auto& l = leaping.counters[r];
      REQUIRE(s.steps == l.steps);
      REQUIRE(s.output_tokens == l.output_tokens);
      REQUIRE(l.plans + l.leapt_steps >= l.steps);
      const bool equal =
          lost || s.stage_busy_seconds[0] == Approx(l.stage_busy_seconds[0]).epsilon(1e-9);
      REQUIRE(equal);
      leapt += l.leapt_steps;
      steps += l.steps;
      preemptions += l.preemptions;
      plans += l.plans;
      plans_stepping += s.plans;
    }
  }
  CHECK(leapt * 3 > steps);  // the cases have leaps in them, and what stops leaps
  CHECK(plans * 3 < plans_stepping * 2);
  CHECK(preemptions > 400);
  CHECK(retries > 100);
  CHECK(missed > 1000);
  CHECK(beside.calls > 10000);
  CHECK(beside.added > 200);
}

}  // namespace tessera::tests
