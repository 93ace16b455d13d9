// KV handed over from an engine that prefills to one that decodes: whatever happens on the way, the
// tokens are those of one engine, each choice ends once, and every block returns on both sides.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/engine/scripted_executor.h"
#include "worker/engine/kv_mover.h"

namespace tessera::worker {
namespace {

// Keeps what it is asked for; the test decides what comes of it.
class HandMover final : public KvMover {
 public:
  void SetListener(KvMoverListener*) override {}
  void Expect(const KvPlace& place, const std::vector<kvcache::KvShare>&, double) override {
    REQUIRE(rooms.emplace(place.key, place).second);
    asked.push_back(place.key);
  }
  void Forget(const KvKey& key) override { REQUIRE(rooms.erase(key) == 1); }
  void Send(const KvKey& key, const v1::KvTarget&) override { REQUIRE(open.insert(key).second); }
  void Drop(const KvKey& key) override {
    if (open.erase(key) == 1) dropped.push_back(key);
  }

  std::map<KvKey, KvPlace> rooms;
  std::vector<KvKey> asked;    // rooms, since the test looked
  std::set<KvKey> open;        // that are sent and have no outcome
  std::vector<KvKey> dropped;  // of these, since the test looked
};

// One engine with its scripted workers.
struct Side {
  explicit Side(const EngineOptions& options, int lanes = 1) {
    auto executor = std::make_unique<ScriptedExecutor>(
        lanes, options.limits.total_blocks, options.limits.block_tokens, options.vocabulary);
    workers = executor.get();
    core = std::make_unique<EngineCore>(options, std::move(executor));
    core->SetMover(&mover);
  }
  void Begin() { core->BeginSteps(now += 1, &events); }
  void GoOn() {
    if (workers->waits()) workers->RunOldest();
    if (core->StepReady()) core->EndStep([this] { return now += 1; }, &events);
  }
  void RunAll() {
    for (int steps = 0; core->MayBegin() || workers->waits() || core->StepReady(); ++steps) {
      REQUIRE(steps < 10000);
      Begin();
      GoOn();
    }
  }
  void Cancel(uint64_t id) {
    v1::Cancel cancel;
    cancel.set_submission_id(id);
    cancel.set_attempt(1);
    cancel.set_choice(-1);
    core->Cancel(cancel, &events);
  }
  int32_t used() const { return core->load().kv_blocks_used(); }

  HandMover mover;  // outlives the core
  ScriptedExecutor* workers;
  std::unique_ptr<EngineCore> core;
  EngineCore::Events events;
  double now = 0;
};

EngineOptions Options(int64_t blocks = 40) {
  EngineOptions options = SmallOptions();
  options.limits.total_blocks = blocks;
  return options;
}

v1::Submit Wants(uint64_t id, int64_t prompt, int32_t tokens) {
  v1::Submit submit = MakeSubmit(id, Prompt(prompt, id), tokens);
  submit.set_ignore_eos(true);
  return submit;
}

v1::Reserve ReserveFor(const v1::Submit& submit) {
  v1::Reserve reserve;
  reserve.set_submission_id(submit.submission_id());
  reserve.set_attempt(1);
  *reserve.mutable_prompt_token_ids() = submit.prompt_token_ids();
  return reserve;
}

// A prefill and a decode engine, and the coordinator's part by hand.
struct Pair {
  explicit Pair(const EngineOptions& from = Options(), const EngineOptions& to = Options(),
                int lanes = 1)
      : prefill(from, lanes), decode(to, lanes) {}

  // What came since the last call, of both sides; the tokens of each choice are added up.
  void Collect() {
    for (Side* side : {&prefill, &decode}) {
      for (const v1::TokenEvent& event : side->events) {
        const uint64_t id = event.submission_id();
        auto& ends = side == &prefill ? prefill_ends : decode_ends;
        REQUIRE_FALSE(ends.contains(id));  // nothing after the end
        if (event.has_token()) {
          REQUIRE(event.position() ==
                  static_cast<int64_t>(lengths[id] + tokens[id].size()));  // none lost or doubled
          tokens[id].push_back(event.token_id());
        }
        if (event.finish() != v1::FINISH_REASON_UNSPECIFIED) ends[id] = event.finish();
      }
      side->events.clear();
    }
    // A sender that goes away breaks its connections.
    for (const KvKey& key : std::exchange(prefill.mover.dropped, {})) {
      std::erase_if(prefill.workers->pushed, [&](const auto& p) { return p.key == key; });
      if (!decode.mover.rooms.contains(key)) continue;
      decode.core->OnKvArrived(key, absl::UnavailableError("the sender went away"));
      CHECK_FALSE(decode.mover.rooms.contains(key));
    }
    for (const KvKey& key : std::exchange(decode.mover.asked, {})) {
      const auto room = decode.mover.rooms.find(key);
      if (room == decode.mover.rooms.end()) continue;
      v1::KvTarget target;
      target.set_ticket("room " + std::to_string(key.first));
      target.set_first_token(static_cast<int32_t>(room->second.first));
      decode.core->OnKvExpected(key, target);
    }
    for (v1::Reserved& answer : decode.core->TakeReserved()) {
      reserved[answer.submission_id()] = std::move(answer);
    }
  }
  void Reserve(const v1::Submit& submit) {
    lengths[submit.submission_id()] = submit.prompt_token_ids_size();
    decode.core->Reserve(ReserveFor(submit));
    decode.Begin();
    decode.GoOn();
    Collect();
  }
  void Prefill(v1::Submit submit) {
    const v1::Reserved& answer = reserved.at(submit.submission_id());
    REQUIRE(answer.has_target());
    *submit.mutable_kv_target() = answer.target();
    prefill.core->Submit(std::move(submit), prefill.now, &prefill.events);
    Collect();
  }
  void Decode(v1::Submit submit) {
    const uint64_t id = submit.submission_id();
    submit.mutable_output_token_ids()->Add(tokens[id].begin(), tokens[id].end());
    if (reserved.contains(id)) submit.set_kv_ticket(reserved.at(id).target().ticket());
    decode.core->Submit(std::move(submit), decode.now, &decode.events);
    Collect();
  }
  // A prompt all of which was pushed; none: {}.
  KvKey Pushed() const {
    for (const auto& pushed : prefill.workers->pushed) {
      if (pushed.end == pushed.prompt_tokens && prefill.mover.open.contains(pushed.key)) {
        return pushed.key;
      }
    }
    return {};
  }
  // It arrives, or does not.
  void Ship(const KvKey& key, bool arrives) {
    REQUIRE(prefill.mover.open.contains(key));
    const auto room = decode.mover.rooms.find(key);
    arrives &= room != decode.mover.rooms.end();
    std::vector<ScriptedExecutor::Pushed> pushed;
    for (const auto& one : prefill.workers->pushed) {
      if (one.key == key) pushed.push_back(one);
    }
    std::erase_if(prefill.workers->pushed, [&](const auto& one) { return one.key == key; });
    if (arrives) {
      const KvPlace place = room->second;
      decode.mover.rooms.erase(room);
      int64_t next = place.first;  // no gap, and nothing twice
      for (const auto& one : pushed) {
        REQUIRE(one.first == next);
        decode.workers->CopyKv(*prefill.workers, one.blocks, place.blocks, one.first, one.end);
        next = one.end;
      }
      REQUIRE(next == place.end);
      decode.core->OnKvArrived(key, absl::OkStatus());
      prefill.mover.open.erase(key);
    } else if (room != decode.mover.rooms.end()) {
      decode.core->OnKvArrived(key, absl::DataLossError("the link broke"));
      CHECK_FALSE(decode.mover.rooms.contains(key));
    }
    prefill.core->OnKvSent(key,
                           arrives ? absl::OkStatus() : absl::UnavailableError("the link broke"),
                           {}, prefill.now, &prefill.events);
    Collect();
  }
  void RunAll() {
    prefill.RunAll();
    decode.RunAll();
    Collect();
  }
  void CheckNothingHeld() {
    for (Side* side : {&prefill, &decode}) {
      CHECK(side->core->sequences() == 0);
      CHECK(side->used() == 0);
      CHECK(side->mover.rooms.empty());
      CHECK(side->mover.open.empty());
    }
  }
  std::vector<int32_t> Expected(uint64_t id, int64_t prompt, int64_t count) const {
    return prefill.workers->Expected(Prompt(prompt, id), 0, count);
  }

  Side prefill, decode;
  std::map<uint64_t, int64_t> lengths;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, v1::FinishReason> prefill_ends, decode_ends;
  std::map<uint64_t, v1::Reserved> reserved;
};

TEST_CASE("hand-over: the first token comes from prefill, the others from decode") {
  for (const bool early : {false, true}) {  // the submission before its KV, or behind it
    Pair pair;
    const v1::Submit submit = Wants(1, 21, 9);
    pair.Reserve(submit);
    pair.Prefill(submit);
    pair.prefill.RunAll();
    pair.Collect();
    CHECK(pair.tokens[1].size() == 1);
    CHECK(pair.prefill_ends.empty());
    CHECK(pair.prefill.used() == 6);  // until the KV is sent
    if (early) pair.Decode(submit);
    pair.Ship({1, 1}, true);
    CHECK(pair.prefill_ends[1] == v1::FINISH_REASON_HANDED_OVER);
    CHECK(pair.prefill.used() == 0);
    if (!early) pair.Decode(submit);
    pair.RunAll();
    CHECK(pair.tokens[1] == pair.Expected(1, 21, 9));
    CHECK(pair.decode_ends[1] == v1::FINISH_REASON_LENGTH);
    CHECK(pair.decode.core->load().prompt_tokens() == 0);  // it computed none
    pair.CheckNothingHeld();
  }
}

TEST_CASE("hand-over: what the decode side's prefix cache has is not sent") {
  Pair pair;
  pair.lengths[7] = 21;
  v1::Submit before = Wants(7, 21, 3);  // the same prompt, served there before
  pair.decode.core->Submit(before, 0, &pair.decode.events);
  pair.RunAll();
  const v1::Submit submit = Wants(7, 21, 9);
  pair.tokens.clear();
  pair.decode_ends.clear();
  pair.Reserve(submit);
  CHECK(pair.reserved[7].target().first_token() == 20);
  pair.Prefill(submit);
  pair.prefill.RunAll();
  pair.Collect();
  pair.Ship({7, 1}, true);
  pair.Decode(submit);
  pair.RunAll();
  CHECK(pair.tokens[7] == pair.Expected(7, 21, 9));
  pair.CheckNothingHeld();
}

TEST_CASE(
    "hand-over: KV that was rounded on its way is found by what may be rounded, and no other") {
  Pair pair;
  v1::Submit submit = Wants(1, 21, 3);
  v1::Reserve reserve = ReserveFor(submit);
  reserve.set_codec(v1::KV_CODEC_INT8);
  pair.lengths[1] = 21;
  pair.decode.core->Reserve(reserve);
  pair.decode.Begin();
  pair.Collect();
  pair.Prefill(submit);
  pair.prefill.RunAll();
  pair.Collect();
  pair.Ship({1, 1}, true);
  submit.set_kv_codec(v1::KV_CODEC_INT8);
  pair.Decode(submit);
  pair.RunAll();
  CHECK(pair.decode.core->load().prompt_tokens() == 0);

  // The same prompt: computed where exact KV is asked for, found where rounded KV may be.
  for (const auto& [id, codec, computed] : {std::tuple(uint64_t{2}, v1::KV_CODEC_UNSPECIFIED, 21),
                                            std::tuple(uint64_t{3}, v1::KV_CODEC_INT8, 22)}) {
    v1::Submit again = MakeSubmit(id, Prompt(21, 1), 2);
    again.set_ignore_eos(true);
    again.set_kv_codec(codec);
    pair.lengths[id] = 21;
    pair.decode.core->Submit(again, 0, &pair.decode.events);
    pair.RunAll();
    CHECK(pair.decode.core->load().prompt_tokens() == static_cast<uint64_t>(computed));
  }
  pair.CheckNothingHeld();
}

TEST_CASE("hand-over: KV that does not come is computed where it was expected") {
  for (const bool early : {false, true}) {
    Pair pair;
    const v1::Submit submit = Wants(1, 21, 9);
    pair.Reserve(submit);
    pair.Prefill(submit);
    pair.prefill.RunAll();
    pair.Collect();
    if (early) pair.Decode(submit);
    pair.Ship({1, 1}, false);
    CHECK(pair.prefill_ends[1] == v1::FINISH_REASON_ERROR);
    if (!early) pair.Decode(submit);
    pair.RunAll();
    CHECK(pair.tokens[1] == pair.Expected(1, 21, 9));
    CHECK(pair.decode.core->load().prompt_tokens() == 21);
    pair.CheckNothingHeld();
  }
}

TEST_CASE("hand-over: a first token that is the last is sent nowhere") {
  Pair pair;
  const v1::Submit submit = Wants(1, 21, 1);
  pair.Reserve(submit);
  CHECK(pair.decode.used() == 6);
  pair.Prefill(submit);
  pair.RunAll();
  CHECK(pair.prefill_ends[1] == v1::FINISH_REASON_LENGTH);
  CHECK(pair.prefill.mover.open.empty());
  pair.decode.Cancel(1);  // as the coordinator does
  pair.CheckNothingHeld();
}

TEST_CASE("hand-over: rooms are given in order, as blocks become free") {
  Pair pair(Options(), Options(14));
  for (const uint64_t id : {1, 2, 3}) pair.Reserve(Wants(id, 23, 5));  // six blocks each
  CHECK(pair.reserved.contains(1));
  CHECK(pair.reserved.contains(2));
  CHECK_FALSE(pair.reserved.contains(3));
  pair.Reserve(Wants(4, 2, 5));  // would fit, and waits its turn
  CHECK_FALSE(pair.reserved.contains(4));
  pair.decode.Cancel(1);
  pair.decode.RunAll();
  pair.Collect();
  CHECK(pair.reserved.contains(3));
  CHECK(pair.reserved.contains(4));
  for (const uint64_t id : {2, 3, 4}) pair.decode.Cancel(id);
  pair.CheckNothingHeld();
}

TEST_CASE("hand-over: the prompts of one request take turns with others for room") {
  Pair pair(Options(), Options(8));
  pair.Reserve(Wants(1, 23, 5));  // six blocks, as each of these
  const auto reserve = [&](uint64_t id, uint64_t group) {
    v1::Reserve reserve = ReserveFor(Wants(id, 23, 5));
    reserve.set_request_group(group);
    pair.decode.core->Reserve(reserve);
    pair.decode.RunAll();
    pair.Collect();
  };
  for (const uint64_t id : {2, 3, 4}) reserve(id, 7);
  reserve(5, 0);
  std::vector<uint64_t> order;
  for (const uint64_t first : {1, 2, 5, 3, 4}) {
    CHECK(pair.reserved.contains(first));
    order.push_back(first);
    pair.decode.Cancel(first);
    pair.decode.RunAll();
    pair.Collect();
    CHECK(pair.reserved.size() == std::min<size_t>(order.size() + 1, 5));
  }
  pair.CheckNothingHeld();
}

TEST_CASE("hand-over: room that cannot be is refused by name") {
  Pair pair(Options(), Options(4));
  pair.Reserve(Wants(1, 30, 5));
  CHECK_FALSE(pair.reserved[1].has_target());
  CHECK_THAT(pair.reserved[1].error(), Catch::Contains("30 tokens") && Catch::Contains("16"));
  pair.decode.core->SetMover(nullptr);
  pair.Reserve(Wants(2, 3, 5));
  CHECK_THAT(pair.reserved[2].error(), Catch::Contains("takes no KV"));
}

TEST_CASE(
    "hand-over: more prompts than may wait for room are refused, and the first ones keep it") {
  EngineOptions narrow = Options(8);
  narrow.max_waiting = 1;
  Pair pair(Options(), narrow);
  for (const uint64_t id : {1, 2, 3}) pair.Reserve(Wants(id, 23, 5));  // six blocks each
  CHECK(pair.reserved[1].has_target());
  CHECK_FALSE(pair.reserved.contains(2));
  CHECK_FALSE(pair.reserved[3].has_target());
  CHECK_THAT(pair.reserved[3].error(), Catch::Contains("1 prompts wait for room"));
  for (const uint64_t id : {1, 2}) pair.decode.Cancel(id);
  pair.CheckNothingHeld();
}

// One seed: many submissions, whose hand-overs meet cancels, losses and each other in random order.
class Storm {
 public:
  explicit Storm(uint32_t seed)
      : random_(seed), pair_(Options(From(14, 40)), Options(From(14, 40)), From(1, 2)) {}

  void Run() {
    for (int i = 0; i < 200; ++i) Act();
    for (int i = 0; i < 2000 && !Over(); ++i) {
      pair_.RunAll();
      StartReserved();
      if (const KvKey key = pair_.Pushed(); key != KvKey()) pair_.Ship(key, true);
    }
    for (const auto& [id, submit] : submits_) {
      INFO("submission " << id);
      CHECK(pair_.tokens[id] ==
            pair_.Expected(id, submit.prompt_token_ids_size(), pair_.tokens[id].size()));
      if (cancelled_.contains(id)) continue;
      CHECK(static_cast<int32_t>(pair_.tokens[id].size()) == submit.max_tokens());
    }
    pair_.CheckNothingHeld();
  }

 private:
  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  void Act() {
    switch (From(0, 9)) {
      case 0: return Ask();
      case 1: return Cancel();
      case 2: return StartReserved();
      case 3:
        if (const KvKey key = pair_.Pushed(); key != KvKey()) {
          pair_.Ship(key, From(0, 3) > 0);
        } else if (!pair_.prefill.mover.open.empty() && From(0, 3) == 0) {
          pair_.Ship(*pair_.prefill.mover.open.begin(), false);  // in the middle of its prompt
        }
        return;
      case 4:
      case 5: return Begin();
      default: return GoOn();
    }
  }
  void Ask() {
    const uint64_t id = ++last_id_;
    submits_[id] = Wants(id, From(1, 30), From(1, 10));
    pair_.Reserve(submits_[id]);
  }
  // As the coordinator: prefill when there is room, decode when the first token is there.
  void StartReserved() {
    for (const auto& [id, answer] : pair_.reserved) {
      if (cancelled_.contains(id) || !started_.insert(id).second) continue;
      pair_.Prefill(submits_[id]);
    }
    for (const auto& [id, tokens] : pair_.tokens) {
      if (cancelled_.contains(id) || tokens.size() != 1 || decoding_.contains(id)) continue;
      decoding_.insert(id);
      if (pair_.prefill_ends.contains(id) && pair_.prefill_ends[id] == v1::FINISH_REASON_LENGTH) {
        pair_.decode.Cancel(id);
      } else {
        pair_.Decode(submits_[id]);
      }
    }
  }
  void Cancel() {
    if (last_id_ == 0) return;
    const auto id = static_cast<uint64_t>(From(1, static_cast<int>(last_id_)));
    cancelled_.insert(id);
    pair_.prefill.Cancel(id);
    pair_.decode.Cancel(id);
    pair_.Collect();
  }
  void Begin() {
    (From(0, 1) == 0 ? pair_.prefill : pair_.decode).Begin();
    pair_.Collect();
  }
  void GoOn() {
    (From(0, 1) == 0 ? pair_.prefill : pair_.decode).GoOn();
    pair_.Collect();
  }
  bool Over() {
    return pair_.prefill.core->sequences() == 0 && pair_.decode.core->sequences() == 0 &&
           std::all_of(submits_.begin(), submits_.end(), [&](const auto& entry) {
             return cancelled_.contains(entry.first) || decoding_.contains(entry.first);
           });
  }

  std::mt19937 random_;
  Pair pair_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, v1::Submit> submits_;
  std::set<uint64_t> cancelled_, started_, decoding_;
};

TEST_CASE("hand-over: cancels, losses and short pools in random order") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Storm(seed).Run();
  }
}

}  // namespace
}  // namespace tessera::worker
