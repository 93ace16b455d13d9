// How the KV of a rank is cut into blocks: derived here once, for workers and whoever plans for
// them.
//
// Layers that see all tokens of a sequence keep them in common blocks. Layers with a window may
// keep theirs apart, in blocks of a pool of their own, of which a sequence holds only what its next
// tokens see: a window includes the token itself, so token t sees t - window + 1 to t.
//
// Layers that keep a state instead (v1::GatedDelta) keep it in the sequence's seat: memory of a
// fixed size, in a pool of its own.
//
// Thread rule: pure functions of plain values.
#pragma once

#include <cstdint>

#include "proto/layers/layer_sizes.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera {

// Tokens that a layer with a window sees at most; 0: the model has no such layer.
int64_t LongestWindow(const v1::Model& model);

// Bytes of one block of each pool, in all layers that a rank holds.
struct KvBlockBytes {
  int64_t common = 0;
  int64_t window = 0;  // 0: windows are not kept apart, or no layer here has one
  int64_t seat = 0;    // of one seat; 0: no layer here keeps a state
};
// Counts the head for further tokens, too, where it is used, and the draft model, where the rank
// holds it: their layers have common blocks.
KvBlockBytes BlockBytesOf(const v1::Model& model, const v1::WorkerShare& share,
                          const KvElement& element, int64_t block_tokens, bool windows_apart);

// What a replica is to hold.
struct KvLimits {
  int64_t block_tokens = 0;
  int64_t window_tokens = 0;        // LongestWindow
  int64_t max_sequence_tokens = 0;  // of the longest sequence
  int64_t max_sequences = 0;        // that run at once
  int64_t max_step_tokens = 0;      // rows of one step
};

// Whether keeping windows apart saves anything: a sequence may be longer than the window.
bool MaySaveWindows(const KvLimits& limits);

// Window blocks that one sequence holds at most, beside those of the rows of a step: what it sees
// of the window may begin and end anywhere in a block.
int64_t WindowBlocksOf(int64_t window_tokens, int64_t block_tokens);

// Blocks of the window pool with which `sequences` sequences can run, however long they are.
int64_t WindowBlocksFor(int64_t sequences, const KvLimits& limits);

// The same with kKeptWindows windows more, which running sequences leave alone: what they gave back
// where prompts are likely to part is found there.
inline constexpr int64_t kKeptWindows = 1;
int64_t MaxUsefulWindowBlocks(const KvLimits& limits);

// Blocks of the two pools, and seats.
struct KvBlocks {
  // All blocks common where no others are given.
  KvBlocks(int64_t common, int64_t window = 0, int64_t seats = 0, int64_t snapshots = 0)
      : common(common), window(window), seats(seats), snapshots(snapshots) {}

  int64_t common;
  int64_t window;
  int64_t seats;
  int64_t snapshots;  // of seats, kept in host memory beside the pool

  bool operator==(const KvBlocks&) const = default;
};

// Bytes that they take.
int64_t BytesOf(const KvBlocks& blocks, const KvBlockBytes& block);

// Cuts `bytes` into common and window blocks and seats: window blocks and seats for as many
// sequences as can run with kTypicalWindows windows of common blocks each, or kTypicalTokens tokens
// where there are no windows, but no more than leave common blocks for the longest sequence, and
// for at least one; and kKeptWindows windows, where they leave as much. A pool that has no room for
// the longest sequence is cut for shorter ones; one that has none for a window and the rows of a
// step, for as many blocks of each pool. No blocks at all where there is no room for a seat.
inline constexpr int64_t kTypicalWindows = 8;
inline constexpr int64_t kTypicalTokens = 2048;
KvBlocks CutKv(int64_t bytes, const KvBlockBytes& block, const KvLimits& limits);

// Bytes beyond which a pool is of no use: all sequences are as long as they may be.
int64_t MaxUsefulKvBytes(const KvBlockBytes& block, const KvLimits& limits);

// Bytes that a sequence of so many tokens holds in all pools while it decodes.
int64_t SequenceKvBytes(int64_t tokens, const KvBlockBytes& block, const KvLimits& limits);

}  // namespace tessera
