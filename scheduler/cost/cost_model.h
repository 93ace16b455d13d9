// Seconds and bytes of one stage, of what passes between stages, and of KV that travels between
// replicas.
//
// A step is described by what runs in it (StepWork), a stage by its ranks and layers (StageSpec);
// every figure is a pure function of the two, so planner, simulator and tests see the same numbers.
//
// Stage time, per layer, of the slowest rank:
//   max(prefill FLOPs / (e_c*c), (weights + prefill KV bytes) / (e_m*m))    prefill hides its
//   weight reads
//   + decode FLOPs / (e_c*c) + decode KV read / (e_m*m) + overhead + 2 all-reduces
// Rows of drafts decode, but read no KV of their own. What proposes drafts passes over all rows of
// a step, and over one row of each sequence for each further draft: the head as a layer of the last
// stage, a draft model whole on the first rank of it, each with the logits of one row a sequence.
// Without prefill rows that is the decode sum, without decode rows the prefill maximum; a mixed
// step reads its weights once. Where a device hides decoding (CPUs), products of decode rows stand
// with those of prefill rows inside the maximum; their attention does not. The last stage adds the
// head. Efficiencies are those of the device (DeviceSpec). Where a device's products with the
// model's type of weights were measured, they take what SecondsPerByte says of all rows of the
// step, in place of weight bytes and FLOPs. Thread rule: pure functions; StageSpec borrows its
// devices, which must outlive it. Units: bytes, seconds, tokens. Requires: layers within the model,
// at least one rank, finite non-zero rates (the readers of input check that).
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "proto/kv_blocks.h"
#include "scheduler/batcher.h"
#include "scheduler/cost/collectives.h"
#include "scheduler/cost/hardware.h"
#include "scheduler/cost/model_shape.h"

namespace tessera::scheduler {

// What one step of a replica computes. Token counts are doubles: the planner works with averages.
struct StepWork {
  double decode_rows = 0;            // sequences that decode one token
  double decode_context_tokens = 0;  // sum of their contexts
  double prefill_tokens = 0;         // rows of prompt chunks
  double prefill_attention_pairs =
      0;                             // sum over chunks of q*c + q^2/2: q rows after c cached tokens
  double prefill_cached_tokens = 0;  // sum over chunks of c: KV that is read
  double sampled_rows = 0;           // rows whose logits are computed
  // Rows behind those that decode: of drafts, and of drafts of the step before that stood and are
  // computed again. And passes of what proposes the next drafts, of each sequence.
  double draft_rows = 0;
  int draft_passes = 0;
  // Such steps follow each other, so that each sequence may have drafts (PeriodOf).
  bool may_draft = false;

  double rows() const { return decode_rows + draft_rows + prefill_tokens; }
};

// `rows` sequences that decode one token each, step by step.
StepWork DecodeWork(double rows, double mean_context_tokens);
// One chunk of `tokens` prompt tokens after `cached_tokens`; `last`: it ends its prompt, so one row
// is sampled.
StepWork PrefillWork(double tokens, double cached_tokens, bool last = true);
// Such a step may have no drafts beside those that it has.
StepWork operator+(const StepWork& a, const StepWork& b);

struct StageSpec {
  absl::InlinedVector<const DeviceSpec*, 8> ranks;  // in rank order, borrowed; as many as wide
  std::vector<RankShare> shares;                    // of each rank; empty: the stage is cut evenly
  std::vector<std::string> rank_names;  // "machine/index" for messages; empty: kinds are shown
  Communicator communicator;            // joins the ranks; Ranks(communicator) == ranks.size()
  int first_layer = 0;
  int layers = 0;
  bool holds_embedding = false;  // first stage
  bool holds_head = false;       // last stage

  int width() const { return static_cast<int>(ranks.size()); }
};

// --- Time ---

// Bytes of the layers' matrices that a device reads per second for one row, and FLOP/s with many
// rows, measured or of its data sheet.
double WeightsReadRate(const ModelShape& model, const DeviceSpec& device);
double ProductFlops(const ModelShape& model, const DeviceSpec& device);

// One layer on one rank kind, collectives included; `share` = FullestShare(model, width).
double LayerSeconds(const ModelShape& model, const DeviceSpec& device, const RankShare& share,
                    const Communicator& communicator, const StepWork& work, int layer);

// Embedding is free; head, sampling gather: what the last stage adds per step.
double HeadSeconds(const ModelShape& model, const DeviceSpec& device, const RankShare& share,
                   const Communicator& communicator, const StepWork& work);

// The whole stage: the slowest rank's layers, head where held, and the per-step overhead. Of one
// that is cut unevenly each block (attention, ffn) takes as long as its slowest rank, since ranks
// wait for each other after both.
double StageSeconds(const ModelShape& model, const StageSpec& stage, const StepWork& work);

// The part of it in which ranks sum activations up, after attention and ffn of every layer.
double StageSumSeconds(const ModelShape& model, const StageSpec& stage, const StepWork& work);

// The same of the stages of a replica, one after the other. Many of them are joined alike, whose
// layers need be timed once. Borrows what it is given, the last stage too. One thread.
class StepTimer {
 public:
  StepTimer(const ModelShape& model, const StepWork& work) : model_(model), work_(work) {}

  double StageSeconds(const StageSpec& stage);

 private:
  const ModelShape& model_;
  const StepWork& work_;
  const StageSpec* last_ = nullptr;     // timed before
  RankShare share_;                     // of its ranks
  const DeviceSpec* device_ = nullptr;  // one of them of which this is known, or none
  double layer_seconds_ = 0;            // of models whose layers are alike
};

// Activations of `rows` rows over the leader pair's link, and their spread inside the next stage.
double HopSeconds(const ModelShape& model, const LinkSpec& link, const Communicator& next_stage,
                  double rows);

// --- Memory ---

struct MemoryOptions {
  double utilisation = 0.9;                     // of what a device offers
  double runtime_reserve_bytes = 1073741824.0;  // context, libraries, fragmentation
  // Rows of the largest step; sizes activations.
  int64_t max_step_tokens = BatchLimits().max_batched_tokens;
  int64_t max_logit_rows = BatchLimits().max_logit_rows;  // rows whose logits exist at once
  int64_t context_tokens = 0;                             // of the longest sequence; 0: the model's
  int64_t block_tokens = kDefaultBlockTokens;             // of KV
};

// The memory of one rank. Ranks of a stage that is cut evenly are all charged the fullest share.
struct RankMemory {
  double weight_bytes = 0;
  double activation_bytes = 0;     // A
  double communication_bytes = 0;  // C: all-reduce and hop buffers
  double reserve_bytes = 0;        // R
  double budget_bytes = 0;         // memory * utilisation
  double kv_bytes_per_token = 0;   // layers of the stage that keep every token of a sequence
  // What layers keep of a sequence however long it is, and of how many sequences: with each come
  // kTypicalTokens of KV (proto/layers/kv_sizes.h). 0: they keep nothing.
  double state_bytes = 0;
  int64_t seats = 0;
  // For layers with a window: bytes of a block; and how a worker cuts what it has free into such
  // blocks and those of the other layers. 0: there are none.
  double window_block_bytes = 0;
  int64_t window_blocks = 0, other_blocks = 0;
  int64_t block_tokens = kDefaultBlockTokens;
  double free_bytes() const {  // for KV and states; negative: does not fit
    return budget_bytes - weight_bytes - activation_bytes - communication_bytes - reserve_bytes;
  }
  // Whole tokens of KV that fit, 0 where nothing does.
  double kv_tokens() const;
  // Bytes of so many tokens of KV, states of sequences and blocks of layers with a window.
  double KeptBytes(double tokens, double sequences, double windows) const {
    return tokens * kv_bytes_per_token + sequences * state_bytes + windows * window_block_bytes;
  }
};

// Weights of a rank with that share.
double StageWeightBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share);
double StageWeightBytes(const ModelShape& model, const StageSpec& stage);  // cut evenly: per rank

// What a rank of the stage holds.
RankShare ShareOfRank(const ModelShape& model, const StageSpec& stage, size_t rank);

// `pipeline`: the replica has more than one stage, so hop buffers exist.
RankMemory MemoryOfRank(const ModelShape& model, const StageSpec& stage, size_t rank,
                        const MemoryOptions& options, bool pipeline);

// KV tokens that come with the states, or the windows, of a sequence at least.
double TypicalTokens(const ModelShape& model);

// What the tightest ranks of all stages have room for.
struct KvCapacity {
  double tokens = std::numeric_limits<double>::infinity();  // of KV; 0: some rank has no room
  double seats = std::numeric_limits<double>::infinity();   // for states; infinite: there are none
  int limiting_stage = 0;                                   // whose room for tokens that is
};
KvCapacity KvCapacityOf(const ModelShape& model, std::span<const StageSpec> stages,
                        const MemoryOptions& options);

// Whole tokens of KV that fit into `free_bytes` beside seats, as workers cut their memory
// (CutKv of proto/layers/kv_sizes.h), and how many seats those are.
struct SeatedKv {
  double tokens = 0;
  int64_t seats = 0;
};
SeatedKv CutSeats(const ModelShape& model, const MemoryOptions& options, double free_bytes,
                  double kv_bytes_per_token, double state_bytes);

// ResourceExhausted naming every rank without room for `kv_tokens` tokens, what it needs and the
// GiB missing.
absl::Status CheckMemory(const ModelShape& model, std::span<const StageSpec> stages,
                         const MemoryOptions& options, double kv_tokens);

// --- KV between replicas ---

enum class KvCodec { kRaw, kInt8, kInt4 };
std::string_view Name(KvCodec codec);

// How fast this machine's kernels encode and decode KV, bytes of raw KV per second; raw needs
// neither.
struct KvCodecRates {
  double encode_bytes_per_second = 20e9;
  double decode_bytes_per_second = 20e9;
  KvCodec strongest = KvCodec::kInt8;  // that may be chosen: a stronger one loses more

  // To what was measured; 0: nothing was.
  void Limit(double measured_bytes_per_second);
};

// Bytes on the wire per byte of KV whose elements have `element_bytes`, groups of 64 with one
// 16-bit scale and zero each: of 16-bit KV 1, 0.53, 0.28. Above 1: the codec makes it larger.
double KvCodecRatio(KvCodec codec, double element_bytes);

// What a prompt leaves behind, as a replica holds it.
struct RawKv {
  double bytes = 0;  // of KV
  double element_bytes = 2;
  // Bytes of states, which no codec makes smaller, and which leave behind the last layer of the
  // last step, so that nothing hides them.
  double state_bytes = 0;

  bool empty() const { return bytes + state_bytes <= 0; }
};
// Bytes on the wire.
double WireBytes(const RawKv& raw, KvCodec codec);

struct KvTransfer {
  double seconds = 0;  // X, as if nothing were hidden
  double unhidden_seconds =
      0;  // what layer-wise push leaves after the prefill ended; delays the second token
  KvCodec codec = KvCodec::kRaw;
};

// `raw` over `link` (already the receiver's part of what it shares), while a prefill of
// `prefill_seconds` over `layers` layers computes them.
KvTransfer TransferKv(const RawKv& raw, const LinkSpec& link, int layers, double prefill_seconds,
                      KvCodec codec, const KvCodecRates& rates);
// The codec that leaves the least unhidden time; raw on ties.
KvTransfer BestKvTransfer(const RawKv& raw, const LinkSpec& link, int layers,
                          double prefill_seconds, const KvCodecRates& rates);

}  // namespace tessera::scheduler
