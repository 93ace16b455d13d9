#include "scheduler/pair_router.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/cost/cost_model.h"

namespace tessera::scheduler {
namespace {

ReplicaLoad Replica(double speed = 1) {
  ReplicaLoad replica;
  replica.ready = true;
  replica.prefill_tokens_per_second = 1000 * speed;
  replica.decode_tokens_per_second = 50 * speed;
  replica.max_sequences = 16;
  return replica;
}

using Places = std::pair<int, int>;

Places Choose(const std::vector<ReplicaLoad>& replicas, const std::vector<PairLoad>& pairs,
              const RouteRequest& request = {1000, 100}) {
  const Route route = ChoosePair(replicas, pairs, request);
  return {route.prefill_replica, route.decode_replica};
}

// What `requests` requests get, all else staying as it is.
std::map<Places, int> Serve(const std::vector<ReplicaLoad>& replicas, std::vector<PairLoad>& pairs,
                            int requests) {
  std::map<Places, int> got;
  for (int i = 0; i < requests; ++i) {
    const Route route = ChoosePair(replicas, pairs, {1000, 100});
    ++got[{route.prefill_replica, route.decode_replica}];
    NoteRouted(route.pair, pairs);
  }
  return got;
}

}  // namespace

TEST_CASE("traffic keeps the shares whatever the load says, among those that can serve") {
  std::vector<ReplicaLoad> replicas = {Replica(10), Replica(), Replica()};
  std::vector<PairLoad> pairs = {// a fifth is shed
                                 {.prefill = 0, .decode = 0, .share = 0.1},
                                 {.prefill = 1, .decode = 1, .share = 0.6},
                                 {.prefill = 2, .decode = 2, .share = 0.1}};
  std::map<Places, int> got = Serve(replicas, pairs, 1000);
  CHECK(std::abs(got[{0, 0}] - 125) <= 20);
  CHECK(std::abs(got[{1, 1}] - 750) <= 40);
  CHECK(std::abs(got[{2, 2}] - 125) <= 20);
  replicas[1].ready = false;
  got = Serve(replicas, pairs, 200);
  CHECK(std::abs(got[{0, 0}] - 100) <= 10);
  CHECK(got[{1, 1}] == 0);
}

TEST_CASE("within the slack the load decides") {
  const std::vector<ReplicaLoad> replicas = {Replica(2), Replica()};
  std::vector<PairLoad> pairs = {{.prefill = 0, .decode = 0, .share = 0.5},
                                 {.prefill = 1, .decode = 1, .share = 0.5}};
  NoteRouted(0, pairs);
  CHECK(Choose(replicas, pairs) == Places{0, 0});
  for (int i = 0; i < 3; ++i) NoteRouted(0, pairs);
  CHECK(Choose(replicas, pairs) == Places{1, 1});
}

TEST_CASE("no share: nothing while others can serve, everything when alone") {
  std::vector<ReplicaLoad> replicas = {Replica(10), Replica(), Replica(10)};  // the last: no pair
  std::vector<PairLoad> pairs = {{.prefill = 0, .decode = 0, .share = 0},
                                 {.prefill = 1, .decode = 1, .share = 0.5}};
  CHECK(Serve(replicas, pairs, 50)[{1, 1}] == 50);
  replicas[1].ready = false;
  CHECK(Choose(replicas, pairs) == Places{0, 0});
  replicas[0].ready = false;
  CHECK(Choose(replicas, pairs) == Places{2, 2});
  replicas[2].ready = false;
  CHECK(Choose(replicas, pairs) == Places{-1, -1});
  pairs = {{.prefill = -1, .decode = -1, .share = 1}};  // not there yet
  CHECK(Choose({}, pairs) == Places{-1, -1});
}

TEST_CASE("a slow link costs what prefill does not hide of it") {
  std::vector<ReplicaLoad> replicas = {Replica(), Replica(), Replica()};
  std::vector<PairLoad> pairs = {
      {.prefill = 0, .decode = 1, .share = 0.5, .kv_seconds_per_token = 2e-3, .layers = 10},
      {.prefill = 0, .decode = 2, .share = 0.5, .kv_seconds_per_token = 2e-6, .layers = 10}};
  CHECK(Choose(replicas, pairs) == Places{0, 2});
  const Route route = ChoosePair(replicas, pairs, {1000, 100});
  CHECK(route.expected_first_token_seconds == Approx(1));
  CHECK(route.expected_kv_seconds == Approx(2e-4));  // one layer's
  SECTION("which load may outweigh") {
    replicas[2].running_sequences = 16;
    replicas[2].outstanding_output_tokens = 1600;
    CHECK(Choose(replicas, pairs) == Places{0, 1});
    CHECK(ChoosePair(replicas, pairs, {1000, 100}).expected_kv_seconds == Approx(2 - 0.9));
  }
  SECTION("and what the decode side has is not sent") {
    replicas[1].cached_prefix_tokens = 1000;
    CHECK(Choose(replicas, pairs) == Places{0, 1});
  }
  SECTION("and a slow prefill hides it: one layer of the faster way decides") {
    replicas[0].prefill_tokens_per_second = 100;
    replicas[2].outstanding_output_tokens = 1600;
    CHECK(ChoosePair(replicas, pairs, {1000, 100}).expected_kv_seconds == Approx(0.2));
    CHECK(Choose(replicas, pairs) == Places{0, 1});
  }
  SECTION("one that was never measured is taken as the best that is known") {
    pairs[0].kv_seconds_per_token = 0;
    CHECK(Choose(replicas, pairs) == Places{0, 1});
    CHECK(ChoosePair(replicas, pairs, {1000, 100}).expected_kv_seconds == Approx(2e-4));
  }
  SECTION("and the shares hold against it") {
    for (int i = 0; i < 5; ++i) NoteRouted(1, pairs);
    CHECK(Choose(replicas, pairs) == Places{0, 1});
  }
}

TEST_CASE("what is exposed is the cost model's") {
  for (const double prefill : {0.0, 0.1, 1.0, 10.0}) {
    for (const int layers : {1, 2, 80}) {
      LinkSpec link;
      link.bytes_per_second = 1e6;
      link.latency_seconds = 0;
      const KvTransfer model =
          TransferKv({.bytes = 3e6, .element_bytes = 2}, link, layers, prefill, KvCodec::kRaw, {});
      CHECK(UnhiddenKvSeconds(1000, 3e-3, layers, prefill) == Approx(model.unhidden_seconds));
    }
  }
}

TEST_CASE("a pair that is left out: others of its replicas, else each of them alone") {
  std::vector<ReplicaLoad> replicas = {Replica(), Replica(), Replica()};
  std::vector<PairLoad> pairs = {{.prefill = 0, .decode = 1, .share = 0.5},
                                 {.prefill = 0, .decode = 2, .share = 0.5}};
  pairs[0].left_out = true;
  CHECK(Serve(replicas, pairs, 20)[{0, 2}] == 20);
  replicas[2].running_sequences = 16;  // by load, for it has no share of that
  replicas[2].outstanding_output_tokens = 1600;
  CHECK(Serve(replicas, pairs, 20)[{1, 1}] == 20);
  replicas[1].ready = false;
  CHECK(Serve(replicas, pairs, 20)[{0, 2}] == 20);
  replicas[2].ready = false;
  CHECK(Choose(replicas, pairs) == Places{0, 0});
  replicas[1].ready = true;
  CHECK(Choose(replicas, pairs) == Places{0, 0});  // both as fast: who prefills goes first
  replicas[0].queued_prompt_tokens = 100;
  CHECK(Choose(replicas, pairs) == Places{1, 1});
  replicas[0].ready = false;
  CHECK(Choose(replicas, pairs) == Places{1, 1});  // with one role left alone it serves both
}

TEST_CASE("what a pool cannot hold is not sent there") {
  std::vector<ReplicaLoad> replicas = {Replica(), Replica()};
  const std::vector<PairLoad> pairs = {{.prefill = 0, .decode = 1, .share = 1}};
  replicas[0].kv_tokens = 4000;
  replicas[1].kv_tokens = 1100;
  CHECK(Choose(replicas, pairs, {1000, 100}) == Places{0, 1});
  CHECK(Choose(replicas, pairs, {1000, 101}) == Places{0, 0});  // it may become as long there
  CHECK(Choose(replicas, pairs,
               {.prompt_tokens = 1000, .expected_output_tokens = 200, .choices = 2}) ==
        Places{0, 1});
  replicas[0].kv_tokens = 1050;
  CHECK(Choose(replicas, pairs, {1000, 500}) == Places{0, 1});  // nowhere longer
  replicas[0].kv_tokens = 999;
  CHECK(Choose(replicas, pairs, {1000, 100}) == Places{1, 1});  // computed where it is decoded
  replicas[1].kv_tokens = 900;
  CHECK(Choose(replicas, pairs, {1000, 100}) == Places{0, 0});  // which will say why not
}

TEST_CASE("what is left after a failure is one replica's: prefill's, or with output decode's") {
  std::vector<ReplicaLoad> replicas = {Replica(), Replica(), Replica(2)};
  const std::vector<PairLoad> pairs = {{.prefill = 0, .decode = 1, .share = 0.5},
                                       {.prefill = 0, .decode = 2, .share = 0.5}};
  CHECK(Choose(replicas, pairs, {.prompt_tokens = 10, .alone = true}) == Places{0, 0});
  CHECK(Choose(replicas, pairs, {.prompt_tokens = 10, .alone = true, .begun = true}) ==
        Places{2, 2});
  replicas[1].ready = replicas[2].ready = false;
  CHECK(Choose(replicas, pairs, {.prompt_tokens = 10, .alone = true, .begun = true}) ==
        Places{0, 0});
}

TEST_CASE("any snapshot: one that can serve, none better among those within their shares") {
  std::mt19937 bits(7);
  const auto draw = [&](int most) { return static_cast<int>(bits() % (most + 1)); };
  int apart = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<ReplicaLoad> replicas(static_cast<size_t>(1 + draw(5)));
    bool any = false;
    for (ReplicaLoad& replica : replicas) {
      replica = Replica(1 + draw(3));
      replica.ready = draw(4) > 0;
      any |= replica.ready;
      replica.queued_prompt_tokens = draw(5000);
      replica.running_sequences = draw(16);
      replica.outstanding_output_tokens = 100 * replica.running_sequences;
    }
    std::vector<PairLoad> pairs(static_cast<size_t>(1 + draw(7)));
    for (PairLoad& pair : pairs) {
      pair.prefill = draw(static_cast<int>(replicas.size())) - 1;
      pair.decode = draw(2) == 0 ? pair.prefill : draw(static_cast<int>(replicas.size())) - 1;
      pair.share = draw(3) / 3.0;
      pair.count = draw(20);
      pair.left_out = draw(5) == 0;
      pair.kv_seconds_per_token = draw(3) * 1e-3;
    }
    const Route route = ChoosePair(replicas, pairs, {1000, 100});
    REQUIRE((route.prefill_replica >= 0) == any);
    if (!any) continue;
    REQUIRE(replicas[static_cast<size_t>(route.prefill_replica)].ready);
    REQUIRE(replicas[static_cast<size_t>(route.decode_replica)].ready);
    if (route.prefill_replica == route.decode_replica) continue;
    ++apart;
    const PairLoad& chosen = pairs[static_cast<size_t>(route.pair)];
    REQUIRE(chosen.prefill == route.prefill_replica);
    REQUIRE(chosen.decode == route.decode_replica);
    REQUIRE_FALSE(chosen.left_out);
    // Alone it would be chosen at the same cost; any cheaper one is beyond its share.
    const Route again = ChoosePair(replicas, pairs, {1000, 100});
    REQUIRE(again.pair == route.pair);
    std::vector<PairLoad> cheaper = pairs;
    cheaper[static_cast<size_t>(route.pair)].kv_seconds_per_token /= 2;
    if (chosen.kv_seconds_per_token > 1e-3) {
      REQUIRE(ChoosePair(replicas, cheaper, {1000, 100}).pair == route.pair);
    }
  }
  CHECK(apart > 500);
}

TEST_CASE("what moving KV took follows what is seen") {
  PairLoad pair;
  pair.layers = 10;
  NoteKvMoved(100, 5, 5, &pair);  // nothing was hidden
  CHECK(pair.kv_seconds_per_token == Approx(0.05));
  NoteKvMoved(100, 5, 0.01, &pair);  // nearly all was: its way took ten layers of 0.01 s at most
  CHECK(pair.kv_seconds_per_token == Approx(0.8 * 0.05 + 0.2 * 0.001));
  const double before = pair.kv_seconds_per_token;
  NoteKvMoved(0, 5, 1, &pair);  // the decode side had it
  NoteKvMoved(100, 0, 0, &pair);
  CHECK(pair.kv_seconds_per_token == before);
}

}  // namespace tessera::scheduler
