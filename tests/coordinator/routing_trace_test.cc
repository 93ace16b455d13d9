// The simulator routes as the daemon does: a trace of the daemon's decisions, replayed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/plan_pairs.h"
#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/dispatcher.h"
#include "tests/coordinator/flow_fixture.h"
#include "tests/fakes/uniform_model.h"

namespace tessera::coordinator {
namespace {

// By the index of kNames.
struct Decision {
  std::vector<scheduler::ReplicaLoad> loads;
  scheduler::RouteRequest asked;
  scheduler::Route route;
};

struct Pair {
  std::string prefill, decode;
  double share = 0;
  double kv_seconds_per_token = 0;
};

// Ways of unlike speed.
const std::vector<std::string> kNames = {"both", "d0", "d1", "p0", "p1"};
const std::vector<Pair> kPairs = {{"p0", "d0", 0.3, 1.0 / 4096},
                                  {"p0", "d1", 0.2, 1.0 / 64},
                                  {"p1", "d1", 0.3, 1.0 / 1024},
                                  {"both", "both", 0.2, 0}};
constexpr int kLayers = 6;

class Daemon {
 public:
  Daemon() : random_(3), flow_([this](RequestFlowOptions& options) { Adjust(options); }) {
    v1::DeploymentPlan plan;
    tests::SetLayers({.layers = kLayers}, plan.mutable_model());
    for (const Pair& pair : kPairs) {
      v1::RoutingShare& route = *plan.add_routing();
      route.set_prefill_replica(pair.prefill);
      route.set_decode_replica(pair.decode);
      route.set_share(pair.share);
      route.set_kv_codec("raw");
    }
    flow_.flow->SetPairs(PlanPairs(plan));
  }

  std::vector<Decision> Run() {
    // Each pair's way is measured once before: the simulator knows it from the start.
    for (const Pair& pair : kPairs) {
      if (pair.prefill == pair.decode) continue;
      Add(pair.prefill);
      Add(pair.decode);
      Start(50, 2);
      while (Step()) {
      }
      Lose(pair.prefill);
      Lose(pair.decode);
    }
    for (const std::string& name : kNames) Add(name);
    decisions_.clear();
    for (int i = 0; i < 3000; ++i) {
      flow_.now += 0.01 * random_.Uniform();
      const double what = random_.Uniform();
      if (what < 0.3) {
        Start(random_.Integer(1, 400), static_cast<int32_t>(random_.Integer(1, 30)));
      } else if (what < 0.95) {
        Step();
      } else if (links_.size() < kNames.size()) {
        AddMissing();
      } else if (what > 0.99) {
        Lose(kNames[static_cast<size_t>(random_.Integer(0, 4))]);
        Start(100, 10);  // who chooses sees that it is away
      }
    }
    while (Step()) {
    }
    return std::move(decisions_);
  }

 private:
  void Adjust(RequestFlowOptions& options) {
    options.max_model_len_tokens = 1000;
    options.max_requests = 10000;
    options.max_attempts = 1000;
    options.recovery_timeout_seconds = 1e6;
    options.on_route = [this](auto loads, const auto& asked, scheduler::Route route) {
      // The daemon's snapshot has no place for a replica that is away.
      Decision decision = {std::vector<scheduler::ReplicaLoad>(kNames.size()), asked, route};
      int at = 0;
      for (size_t i = 0; i < kNames.size(); ++i) {
        if (!links_.contains(kNames[i])) continue;
        decision.loads[i] = loads[static_cast<size_t>(at)];
        if (route.prefill_replica == at) decision.route.prefill_replica = static_cast<int>(i);
        if (route.decode_replica == at) decision.route.decode_replica = static_cast<int>(i);
        ++at;
      }
      decisions_.push_back(std::move(decision));
    };
  }

  void Add(const std::string& name) {
    auto link = std::make_shared<FakeLink>(name);
    link->SetPool(100, 16);
    links_[name] = {link};
    flow_.flow->OnLinkReady(link);
  }
  void AddMissing() {
    for (const std::string& name : kNames) {
      if (!links_.contains(name)) Add(name);
    }
  }
  void Lose(const std::string& name) {
    const auto link = links_.at(name).link;
    links_.erase(name);
    flow_.flow->OnLinkLost(link, absl::UnavailableError("gone"));
  }

  void Start(int64_t prompt_tokens, int32_t max_tokens) {
    GenerationRequest request;
    request.prompt_token_ids.assign(static_cast<size_t>(prompt_tokens), 5);
    request.max_tokens = max_tokens;
    flow_.Start(std::move(request));
  }

  // One replica, drawn, does the next thing that it was asked for. False: nothing is left to do.
  bool Step() {
    std::vector<std::string> busy;
    for (const auto& [name, at] : links_) {
      if (at.reserve < at.link->reserves.size() || at.submit < at.link->submits.size())
        busy.push_back(name);
    }
    if (busy.empty()) return false;
    At& at = links_.at(
        busy[static_cast<size_t>(random_.Integer(0, static_cast<int64_t>(busy.size()) - 1))]);
    if (at.reserve < at.link->reserves.size()) {
      GiveRoom(at);
    } else {
      NextToken(at);
    }
    return true;
  }

  struct At {
    std::shared_ptr<FakeLink> link;
    size_t reserve = 0;  // to answer next
    size_t submit = 0;   // that runs
    int32_t tokens = 0;  // of it, so far
  };

  void GiveRoom(At& at) {
    const v1::Reserve reserve = at.link->reserves[at.reserve++];
    v1::SessionReply reply;
    v1::Reserved& answer = *reply.add_reserved();
    answer.set_submission_id(reserve.submission_id());
    answer.set_attempt(reserve.attempt());
    answer.mutable_target()->set_ticket(at.link->replica());
    flow_.flow->OnReply(at.link, reply);
  }

  void NextToken(At& at) {
    const std::shared_ptr<FakeLink> link = at.link;
    const size_t index = at.submit;
    const v1::Submit submit = link->submits[index];
    const int32_t before = submit.output_token_ids_size();
    const bool hands_over = submit.has_kv_target();
    const bool sent = hands_over && at.tokens == 1;
    const int32_t tokens = before + ++at.tokens;
    v1::TokenEvent event = link->Token(index, 0, 5, submit.prompt_token_ids_size() + tokens - 1);
    event.set_prefill_seconds(at.tokens == 1 ? 0.01 + 0.02 * random_.Uniform() : 0);
    const bool last = tokens == submit.max_tokens();
    if (last) event.set_finish(v1::FINISH_REASON_LENGTH);
    if (sent) {
      event.set_has_token(false);
      event.set_finish(v1::FINISH_REASON_HANDED_OVER);
      const double seconds = submit.prompt_token_ids_size() *
                             SecondsPerToken(link->replica(), submit.kv_target().ticket());
      event.mutable_kv_transfer()->set_seconds(seconds);
      event.mutable_kv_transfer()->set_exposed_seconds(seconds);
    }
    if (last || sent) {
      ++at.submit;
      at.tokens = 0;
    }
    flow_.Reply(link, event);
  }

  static double SecondsPerToken(const std::string& prefill, const std::string& decode) {
    for (const Pair& pair : kPairs) {
      if (pair.prefill == prefill && pair.decode == decode) return pair.kv_seconds_per_token;
    }
    return 0;
  }

  scheduler::Random random_;
  std::vector<Decision> decisions_;
  Flow flow_;
  std::map<std::string, At> links_;
};

}  // namespace

TEST_CASE("one trace of decisions, equal in daemon and simulator") {
  const std::vector<Decision> decisions = Daemon().Run();
  std::vector<scheduler::PairShare> pairs;
  for (const Pair& pair : kPairs) {
    const auto index = [](const std::string& name) {
      return static_cast<int>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
    };
    pairs.push_back(
        {index(pair.prefill), index(pair.decode), pair.share, pair.kv_seconds_per_token, kLayers});
  }
  const auto simulator = scheduler::MakePlanDispatcher({{0, pairs}});
  std::map<std::pair<int, int>, int> routes;
  int alone = 0;
  for (size_t i = 0; i < decisions.size(); ++i) {
    const Decision& decision = decisions[i];
    INFO("decision " << i);
    scheduler::SimulatedRequest request;
    request.prompt_tokens = decision.asked.prompt_tokens;
    request.output_tokens = decision.asked.expected_output_tokens;
    request.attempts = decision.asked.alone ? 1 : 0;
    request.emitted_tokens = decision.asked.begun ? 1 : 0;
    const scheduler::Route route = simulator->Choose(decision.loads, request, 0);
    REQUIRE(route.prefill_replica == decision.route.prefill_replica);
    REQUIRE(route.decode_replica == decision.route.decode_replica);
    ++routes[{route.prefill_replica, route.decode_replica}];
    alone += decision.asked.alone;
  }
  CHECK(decisions.size() > 700);
  CHECK(routes[{3, 1}] > 50);
  CHECK(routes[{3, 2}] > 30);
  CHECK(routes[{4, 2}] > 50);
  CHECK(routes[{0, 0}] > 50);
  CHECK(alone > 20);
}

}  // namespace tessera::coordinator
