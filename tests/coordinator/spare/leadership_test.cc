// A coordinator's part among several: what it keeps for the next one, and what it reads of the
// last.
#include "coordinator/spare/leadership.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tests/coordinator/spare/fake_store.h"
#include "tests/logged_lines.h"

namespace tessera::coordinator {
namespace {

using Standing = Election::Standing;
using Values = Leadership::Values;

constexpr char kPrefix[] = "/tessera/test/", kKey[] = "/tessera/test/leader";

bool Eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 20'000 && !done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return done();
}

// Coordinator "a", with a store that lives until it is gone, in time that the test moves.
struct One {
  One() {
    auto owned = std::make_unique<FakeStore>();
    store = owned.get();
    LeadershipOptions options;
    options.prefix = kPrefix;
    options.election = {
        .key = "", .value = "a", .lease_seconds = 5, .is_gone = [](const auto&) { return false; }};
    options.step_seconds = 1e-3;
    options.now_seconds = [this] { return now.load(); };
    make = [options, store = std::make_shared<std::unique_ptr<FakeStore>>(std::move(owned))] {
      return std::make_unique<Leadership>(options, std::move(*store));
    };
  }
  void Lead() {
    leadership = make();
    REQUIRE(Eventually([&] { return leadership->standing() == Standing::kLeads; }));
  }
  // What the store has for the next one.
  Values Kept() {
    Values values;
    const std::string prefix = std::string(kPrefix) + "kept/";
    const auto found = store->Read(prefix);
    for (const auto& [key, value] : *found) values[key.substr(prefix.size())] = value.value;
    return values;
  }

  FakeStore* store = nullptr;
  std::atomic<double> now = 0;
  std::function<std::unique_ptr<Leadership>()> make;
  std::unique_ptr<Leadership> leadership;
};

// The store of another leadership, which outlives this.
class SharedStore final : public LeaderStore {
 public:
  explicit SharedStore(FakeStore& store) : store_(store) {}
  absl::StatusOr<Lease> Grant(double seconds) override { return store_.Grant(seconds); }
  absl::StatusOr<bool> Renew(const std::string& lease) override { return store_.Renew(lease); }
  absl::Status Revoke(const std::string& lease) override { return store_.Revoke(lease); }
  absl::StatusOr<std::map<std::string, StoredValue>> Read(const std::string& prefix) override {
    return store_.Read(prefix);
  }
  uint64_t revision() const override { return store_.revision(); }
  absl::StatusOr<uint64_t> Create(const std::string& key, const std::string& value,
                                  const std::string& lease) override {
    return store_.Create(key, value, lease);
  }
  absl::StatusOr<bool> WriteWhile(const std::string& guard, uint64_t created,
                                  const std::string& key,
                                  const std::optional<std::string>& value) override {
    return store_.WriteWhile(guard, created, key, value);
  }

 private:
  FakeStore& store_;
};

}  // namespace

TEST_CASE("what a leader keeps is the next one's, and no deposed one writes it") {
  One one;
  FakeStore& store = *one.store;
  // Before there is a leader.
  const uint64_t before = store.PassOn(kKey, "before");
  CHECK(*store.WriteWhile(kKey, before, "/tessera/test/kept/plans", "p"));
  CHECK(*store.WriteWhile(kKey, before, "/tessera/test/kept/workers/w", "w"));
  CHECK_FALSE(*store.WriteWhile(kKey, before + 1, "/tessera/test/kept/plans", "q"));
  CHECK(store.Revoke(store.Read(kKey)->begin()->second.lease).ok());
  store.writes = 0;
  one.Lead();
  CHECK(one.leadership->kept() == Values{{"plans", "p"}, {"workers/w", "w"}});
  one.leadership->Keep({{"plans", "p"}, {"workers/v", "v"}});
  REQUIRE(Eventually([&] { return store.writes == 2; }));  // one new, one gone, one the same
  one.leadership->Resign();
  CHECK(store.Read(kKey)->empty());
  CHECK(one.Kept() == Values{{"plans", "p"}, {"workers/v", "v"}});
}

TEST_CASE("one that leads again writes over what another one has kept meanwhile") {
  One one;
  FakeStore& store = *one.store;
  one.Lead();
  one.leadership->Keep({{"plans", "a"}, {"workers/v", "v"}});
  REQUIRE(Eventually([&] { return store.writes == 2; }));
  const uint64_t term = one.leadership->term();
  // Its lease ends, another one leads, keeps its own, and is gone before this one hears of it.
  const uint64_t other = store.PassOn(kKey, "b");
  CHECK(*store.WriteWhile(kKey, other, "/tessera/test/kept/plans", "b"));
  CHECK(*store.WriteWhile(kKey, other, "/tessera/test/kept/workers/w", "w"));
  CHECK(*store.WriteWhile(kKey, other, "/tessera/test/kept/workers/v", std::nullopt));
  CHECK(store.Revoke(store.Read(kKey)->begin()->second.lease).ok());
  one.now = 2;
  REQUIRE(Eventually([&] { return one.leadership->term() > term; }));
  CHECK(Eventually([&] { return one.Kept() == Values{{"plans", "a"}, {"workers/v", "v"}}; }));
  CHECK(one.leadership->standing() == Standing::kLeads);
}

TEST_CASE("a store that takes nothing is named once in the log, and tried until it does") {
  One one;
  const tests::LoggedLines log("spare");
  one.Lead();
  one.store->keeps_nothing = true;
  one.leadership->Keep({{"plans", "a"}});
  const std::string line = "the store is down: a next leader would not find the plan in force";
  REQUIRE(Eventually([&] { return log.Count(line) == 1; }));
  one.leadership->Keep({{"plans", "b"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // some steps
  CHECK(log.Count(line) == 1);
  one.store->keeps_nothing = false;
  CHECK(Eventually([&] { return one.Kept() == Values{{"plans", "b"}}; }));
  // Next time it is said again.
  one.store->keeps_nothing = true;
  one.leadership->Keep({{"plans", "c"}});
  CHECK(Eventually([&] { return log.Count(line) == 2; }));
}

TEST_CASE("one that cannot read what the leader before has kept does not lead yet") {
  One one;
  one.store->keeps_nothing = true;
  one.leadership = one.make();
  REQUIRE(Eventually([&] { return !one.store->Read(kKey)->empty(); }));
  CHECK(one.leadership->standing() == Standing::kSpare);
  one.store->keeps_nothing = false;
  CHECK(Eventually([&] { return one.leadership->standing() == Standing::kLeads; }));
}

TEST_CASE(
    "after a store that has lost what it had the next leader's term is above the last one's") {
  One one;
  FakeStore& store = *one.store;
  for (int i = 0; i < 100; ++i) (void)store.Grant(1);
  one.Lead();
  one.leadership->Keep({{"plans", "p"}});
  REQUIRE(Eventually([&] { return one.Kept().size() == 1; }));
  const uint64_t term = one.leadership->term();
  REQUIRE(term > 100);
  store.Forget();
  one.now = 2;
  REQUIRE(Eventually([&] { return one.leadership->term() > term && one.Kept().size() == 1; }));
  const uint64_t risen = one.leadership->term();
  REQUIRE(Eventually(
      [&] { return store.Read("/tessera/test/term")->count("/tessera/test/term") == 1; }));
  CHECK(store.Read("/tessera/test/term")->at("/tessera/test/term").value == std::to_string(risen));
  // The key of the one that follows comes at a low revision.
  one.leadership->Resign();
  LeadershipOptions options;
  options.prefix = kPrefix;
  options.election = {
      .key = "", .value = "b", .lease_seconds = 5, .is_gone = [](const auto&) { return false; }};
  options.step_seconds = 1e-3;
  options.now_seconds = [] { return 3.0; };
  Leadership next(options, std::make_unique<SharedStore>(store));
  REQUIRE(Eventually([&] { return next.standing() == Standing::kLeads; }));
  CHECK(next.term() == risen + 1);
  CHECK(next.kept() == Values{{"plans", "p"}});
}

}  // namespace tessera::coordinator
