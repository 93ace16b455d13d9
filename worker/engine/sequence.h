// What the engine knows about work in progress: a submission (one prompt) and its sequences (its
// choices).
//
// A submission starts as one sequence. Its other choices are held until that one has computed the
// prompt; then they wait like any other sequence and find the prompt's full blocks in the prefix
// index, so blocks are shared without copying. The partial last block is computed again by each
// choice, in a block of its own, which is why no block is ever written by two sequences. Where the
// prefix cache is off or may not be used, the index is asked under a salt that only this submission
// knows. Layers that keep a state of a sequence have it in a seat, which nobody shares: a choice
// gets a copy of what was kept of the prompt's states (kvcache/snapshot_index.h), or computes the
// prompt where nothing was.
//
// Thread rule: plain data of one thread (the engine's).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvcache/block_pool.h"
#include "kvcache/prefix_index.h"
#include "kvcache/seat_pool.h"
#include "kvcache/snapshot_index.h"
#include "proto/worker.pb.h"
#include "third_party/xgrammar/token_grammar.h"
#include "worker/drafts/drafter.h"
#include "worker/engine/kv_mover.h"
#include "worker/engine/token_bans.h"
#include "worker/step/sampler.h"

namespace tessera::worker {

// Rank: priority first, then turn (fair_turns.h), then arrival.
struct SequenceRank {
  int32_t priority = 0;
  uint64_t turn = 0;
  uint64_t arrival = 0;
  int32_t choice = 0;

  auto operator<=>(const SequenceRank&) const = default;
};

// Where a sequence stands (legal transitions: sequence_table.h).
enum class SequenceState : uint8_t {
  kHeld,     // waits for its grammar, or for another choice of its submission to compute the prompt
  kWaiting,  // in the queue; holds no blocks
  kArriving,  // another replica computes its prompt; the room for its KV has the blocks
  kJoining,   // its KV arrived; no lane has taken it yet
  kRunning,   // of a lane
  kSent,      // its prompt is computed and its KV on the way to another replica
  kEnded,     // finished, failed or cancelled; kept only while steps in flight compute its rows
};

struct Sequence;

// How a prompt's KV was handed over.
struct KvHandOver {
  absl::Status status;  // OK: the receivers have all of it
  v1::KvTransfer transfer;
};

struct Submission {
  v1::Submit request;    // as sent; unset penalties and top_p made "off"
  uint64_t arrival = 0;  // counts submissions; also names it uniquely
  uint64_t turn = 0;     // among the waiting ones
  int64_t prompt_tokens = 0;
  std::vector<int32_t>
      stop_ids;  // that end a choice, sorted, each once, eos included unless ignored
  TokenBans bans;
  bool awaits_grammar = false;  // its choices are held until it is compiled
  double submitted_seconds = 0;
  double deadline_seconds = std::numeric_limits<double>::infinity();  // to be started by

  std::string salt;              // under which its blocks stand in the prefix index
  int64_t indexed_tokens = 0;    // from the start, that may stand there; 0: none
  bool counts_as_cache = false;  // the prefix cache proper: shown in cached_tokens and in the load

  std::vector<v1::PositionLogprobs>
      prompt_logprobs;  // entry i: of prompt token i; the first is empty
  bool prompt_logprobs_told = false;
  std::vector<double> row_sum;  // of mean_rows: of the prompt's rows so far, but for its last one
  int32_t cached_tokens = 0;    // of the choice that computed the prompt
  std::vector<std::unique_ptr<Sequence>> held;  // choices that wait for the prompt, last first
  int32_t open_choices = 0;                     // held ones included
  kvcache::SnapshotHold prompt_state;           // which they go on from
  bool started = false;                         // one of its choices was admitted
  std::optional<KvHandOver> handed_over;        // of its kv_target; none: not yet

  // Prompt tokens whose logprobs are still to be computed exist.
  bool NeedsScores() const {
    return request.prompt_logprobs() >= 0 &&
           static_cast<int64_t>(prompt_logprobs.size()) < prompt_tokens;
  }
};

// The sending of a sequence's KV, which reads its blocks: it ends with this object.
class KvSending {
 public:
  // `mover`: where the engine keeps it; null there: it has ended what it did.
  KvSending(KvMover* const* mover, const KvKey& key) : mover_(mover), key_(key) {}
  ~KvSending() {
    if (*mover_ != nullptr) (*mover_)->Drop(key_);
  }
  KvSending(const KvSending&) = delete;
  KvSending& operator=(const KvSending&) = delete;

 private:
  KvMover* const* const mover_;
  const KvKey key_;
};

// Where the blocks of sequences come from.
struct KvPools {
  kvcache::BlockPool* blocks = nullptr;
  kvcache::BlockPool* window_blocks = nullptr;  // null: windows are not kept apart
  kvcache::SeatPool* seats = nullptr;           // null: layers keep no states
};

// What is kept of the states of a sequence (worker/engine/state_keeper.h).
struct SequenceStates {
  kvcache::SnapshotHold source;  // that its next step restores; none: they are in its seat
  std::vector<int64_t> stops;    // tokens of the prompt behind which its states are kept, ascending
  kvcache::PrefixNode kept = 0;  // the last node on its way that they were kept of
  kvcache::PrefixNode of_answer = 0;  // likewise, behind the prompt
  // Where they are on their way: to another replica, or, where `arrived`, from there, so that its
  // next step restores them.
  kvcache::Seat exchange{nullptr};
  bool arrived = false;
};

struct Sequence {
  explicit Sequence(const KvPools& pools)
      : blocks(pools.blocks), window_blocks(pools.window_blocks), seat(pools.seats) {}

  std::shared_ptr<Submission> submission;
  SequenceRank rank;
  SequenceState state = SequenceState::kHeld;  // changed by SequenceTable alone
  int32_t lane = -1;                           // that runs it, or ran it last
  std::vector<int32_t> tokens;                 // prompt, then output
  int64_t computed_tokens = 0;                 // whose keys and values are in `blocks`
  kvcache::BlockTable blocks;
  // Blocks of layers with a window: as many entries as `blocks`, of which those are freed that no
  // later token sees. Empty where windows are not kept apart.
  kvcache::BlockTable window_blocks;
  // Where its states are, which stand behind computed_tokens. None while it waits, or without
  // states.
  kvcache::Seat seat;
  SequenceStates states;
  std::unique_ptr<KvSending> sending;  // ends before the blocks return; null: nothing reads them
  int64_t pushed_tokens = 0;           // of kv_target
  kvcache::PrefixNode node = 0;        // of the last indexed block
  int64_t indexed_blocks = 0;
  int64_t shared_tokens = 0;  // from its start, that stood in the index when it was admitted
  std::unique_ptr<TokenHistory> history;  // null: no penalty is on
  std::unique_ptr<TokenMatcher> matcher;  // behind the output; null: it has no grammar
  std::unique_ptr<Drafter> drafter;       // null: nothing was drafted yet
  bool started = false;                   // was admitted before
  double started_seconds = 0;
  bool told = false;  // its first event was sent
  // Steps in flight, all of its lane, that compute rows of it.
  int32_t steps_in_flight = 0;
  // What these steps add to computed_tokens and to the tokens, and which draw of its step the last
  // of those tokens is.
  int64_t rows_in_flight = 0;
  int32_t draws_in_flight = 0;
  int32_t last_draw = 0;

  int64_t known_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t output_tokens() const { return known_tokens() - submission->prompt_tokens; }
  // Behind the steps in flight.
  int64_t tokens_then() const { return known_tokens() + draws_in_flight; }
  int64_t output_then() const { return output_tokens() + draws_in_flight; }
  int64_t computed_then() const { return computed_tokens + rows_in_flight; }
};

}  // namespace tessera::worker
