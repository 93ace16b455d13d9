// Whatever dies, stalls or is slow while a prompt is handed over, at whichever phase: every stream
// goes on with the tokens of one undisturbed engine, none lost or doubled, within the bounds of the
// waits on its way; every block returns on both sides, and nobody counts anything any more.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "tests/hand_over/virtual_cluster.h"

namespace tessera::tests {
namespace {

enum class Fault {
  kKillSender,
  kKillReceiver,
  kPauseSender,
  kPauseReceiver,
  kSlowSender,
  kSlowReceiver,
  kBreakSenderSession,
  kBreakReceiverSession,
  kStallSenderSession,
  kStallReceiverSession,
  kBreakKv,
  kStallKv,
  kSlowKv,
  kRestartCoordinator,
  kCancel,
  kEndLease,
};
constexpr int kFaults = 16;
constexpr int kPhases = 5;

// Longest time that a stream may stand still: a process that is not answering is noticed, then what
// was going on without it is given up, then it waits for room, or for a replica.
constexpr double kMaxGapSeconds =
    VirtualCluster::kHeartbeatSeconds + VirtualCluster::kPieceSeconds +
    2 * VirtualCluster::kRecoverySeconds + VirtualCluster::kRestartSeconds + 5;

class Run {
 public:
  explicit Run(uint32_t seed)
      : random_(seed),
        fault_(static_cast<Fault>(seed % kFaults)),
        phase_(static_cast<Phase>(seed / kFaults % kPhases)),
        cluster_({.prefills = From(1, 2),
                  .decodes = From(1, 2),
                  .prefill_blocks = From(16, 64),
                  .decode_blocks = From(16, 64),
                  .lanes = From(1, 2)}),
        before_(From(0, 3)) {}

  // Whether the phase was reached. Adds up the prompts whose KV arrived, and did not.
  bool Go(int64_t* hand_overs, int64_t* failed) {
    cluster_.on_phase = [this](Phase phase, size_t client) {
      if (phase != phase_ || --before_ >= 0 || done_) return;
      done_ = true;
      cluster_.At(cluster_.now() + 0.01 * From(0, 10), [this, client] { Inject(client); });
    };
    for (int i = 0; i < 12; ++i) {
      cluster_.At(0.1 + 0.01 * From(0, 300),
                  [this] { cluster_.Ask(From(10, 30), From(1, 20), From(0, 5) == 0 ? 2 : 1); });
    }
    // Some clients leave by themselves.
    if (From(0, 2) == 0) {
      cluster_.At(1 + 0.01 * From(0, 300), [this] {
        if (!cluster_.clients().empty()) cluster_.Cancel(cluster_.clients().size() / 2);
      });
    }
    while (!cluster_.Idle()) {
      cluster_.Advance();
      REQUIRE(cluster_.now() < 300);
    }
    Check();
    *hand_overs += cluster_.hand_overs();
    *failed += cluster_.failed_hand_overs();
    return done_;
  }

 private:
  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }

  void Inject(size_t index) {
    const Client& client = *cluster_.clients()[index];
    const int sender = std::max(0, client.prefill);
    const int receiver = client.decode;
    const double seconds = From(0, 2) * 7 + 2;  // not noticed, noticed, long
    switch (fault_) {
      case Fault::kKillSender: return cluster_.Kill(sender);
      case Fault::kKillReceiver: return cluster_.Kill(receiver);
      case Fault::kPauseSender: return cluster_.Pause(sender, seconds);
      case Fault::kPauseReceiver: return cluster_.Pause(receiver, seconds);
      case Fault::kSlowSender: return cluster_.Slow(sender, From(5, 50), seconds);
      case Fault::kSlowReceiver: return cluster_.Slow(receiver, From(5, 50), seconds);
      case Fault::kBreakSenderSession: return cluster_.BreakSession(sender, seconds);
      case Fault::kBreakReceiverSession: return cluster_.BreakSession(receiver, seconds);
      case Fault::kStallSenderSession: return cluster_.StallSession(sender, seconds);
      case Fault::kStallReceiverSession: return cluster_.StallSession(receiver, seconds);
      case Fault::kBreakKv: return cluster_.BreakKv(seconds);
      case Fault::kStallKv: return cluster_.StallKv(seconds);
      case Fault::kSlowKv: return cluster_.SlowKv(0.02, seconds);
      case Fault::kRestartCoordinator: return cluster_.RestartCoordinator();
      case Fault::kCancel: return cluster_.Cancel(index);
      // Its step takes longer than the lease.
      case Fault::kEndLease:
        return cluster_.Slow(
            sender, 2.4 * VirtualCluster::kRecoverySeconds / VirtualCluster::kStepSeconds, 1);
    }
  }

  void Check() {
    int answered = 0;
    for (size_t i = 0; i < cluster_.clients().size(); ++i) {
      const Client& client = *cluster_.clients()[i];
      INFO("client " << i << ": " << client.status.ToString());
      for (int32_t choice = 0; choice < client.choices; ++choice) {
        const auto& tokens = client.tokens[static_cast<size_t>(choice)];
        CHECK(tokens == cluster_.Expected(client, choice, static_cast<int64_t>(tokens.size())));
        if (client.cancelled || client.lost) continue;
        CHECK(tokens.size() == static_cast<size_t>(client.max_tokens));
      }
      if (client.cancelled || client.lost) continue;
      CHECK(client.status.ok());
      CHECK(client.ends == 1);
      CHECK(client.longest_gap_seconds <= kMaxGapSeconds);
      ++answered;
    }
    CHECK(answered > 0);
    cluster_.CheckNothingHeld();
  }

  std::mt19937 random_;
  const Fault fault_;
  const Phase phase_;
  VirtualCluster cluster_;
  int before_;  // prompts that reach the phase undisturbed
  bool done_ = false;
};

}  // namespace

TEST_CASE("nothing goes wrong: every prompt is handed over") {
  VirtualCluster cluster({});
  for (int i = 0; i < 20; ++i) {
    cluster.At(0.2 * i, [&] { cluster.Ask(20, 10, 1); });
  }
  do {
    cluster.Advance();
    REQUIRE(cluster.now() < 60);
  } while (!cluster.Idle());
  CHECK(cluster.hand_overs() == 20);
  CHECK(cluster.failed_hand_overs() == 0);
  for (const auto& client : cluster.clients()) {
    CHECK(client->tokens[0] == cluster.Expected(*client, 0, 10));
    CHECK(client->longest_gap_seconds < 1);
  }
  cluster.CheckNothingHeld();
}

TEST_CASE("200 faults: no token lost or doubled, no block, no wait without end") {
  int reached = 0;
  int64_t hand_overs = 0, failed = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed << ", fault " << seed % kFaults << ", phase " << seed / kFaults % kPhases);
    reached += Run(seed).Go(&hand_overs, &failed);
  }
  CHECK(reached >= 190);
  CHECK(hand_overs > 1000);
  CHECK(failed > 50);
}

}  // namespace tessera::tests
