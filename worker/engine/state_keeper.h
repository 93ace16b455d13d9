// Which states of prompts are kept, from where sequences go on, and when: the leader's decisions
// about snapshots (kvcache/snapshot_index.h), which its steps carry out on every worker.
//
// A prompt has at most kMaxSaves kept, chosen when its sequence is admitted, in this order: at
// its end; at the end of its last message, because what thinking leaves behind that is dropped from
// the next turn's prompt; where that message begins, if kSharedBlocks blocks are computed before
// it, because other conversations may begin alike; where more of its blocks were found than have a
// state behind them, which is where prompts branch; and half way through the longest part without
// any, if that is long. All are at ends of blocks. A chunk of the prompt ends there. Of an answer
// the newest is kept that is at a multiple of kAnswerBlocks blocks.
//
// Thread rule: one thread (the engine's). Borrows the memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache/prefix_index.h"
#include "worker/engine/engine_step.h"
#include "worker/engine/kv_memory.h"
#include "worker/engine/sequence.h"

namespace tessera::worker {

class StateKeeper {
 public:
  static constexpr size_t kMaxSaves = 4;
  static constexpr int64_t kAnswerBlocks = 4;
  // Fewer are computed again as fast as a further step takes.
  static constexpr int64_t kSharedBlocks = 8;
  // A part of a prompt is long from so many tokens on.
  static constexpr int64_t kLongTokens = 4096;

  explicit StateKeeper(KvMemory* memory) : memory_(*memory) {}

  // Where states are kept of a waiting sequence that starts behind `match`: tokens from its start,
  // ascending. None where states are not kept.
  std::vector<int64_t> StopsOf(const Sequence& sequence, const kvcache::PrefixMatch& match) const;
  // How many tokens may be tried behind the known ones of a running sequence: its states are kept
  // only behind tokens that one step ends with for certain.
  int64_t DraftRows(const Sequence& sequence) const;
  // Rows that a chunk may have which starts behind `computed` tokens.
  static int64_t ChunkRows(const std::vector<int64_t>& stops, int64_t computed);

  // `sequence` starts behind `match`, which it has adopted.
  void Start(Sequence* sequence, const kvcache::PrefixMatch& match,
             std::vector<int64_t> stops) const;
  // What `step`, whose arrays are filled, does with states.
  void AddCopies(EngineStep* step) const;
  // The step that holds `scheduled` came back, and the blocks that it computed are in the index.
  void Keep(EngineStep::Scheduled* scheduled) const;

 private:
  bool keeps() const { return memory_.has_seats() && memory_.snapshots().places() > 0; }
  bool KeepsBehind(const Sequence& sequence, int64_t tokens) const;

  KvMemory& memory_;
};

}  // namespace tessera::worker
