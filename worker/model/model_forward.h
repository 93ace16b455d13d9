// The ops of a forward pass, in their order: embedding, layers, head. Each is enqueued on its own,
// so that a stage which lacks one of them starts or ends with `hidden` instead.
//
// After a block its output is in `block_out`, not yet added to `hidden`: the next norm adds
// both in one pass. That is also where ranks of a stage sum their parts. Nothing is allocated.
// On the last stage, rows whose logits were not asked for are dropped after attention: of a prompt
// mostly all but the last one, of a piece of a prompt all.
// Thread rule: one thread. Borrows everything it is given.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "proto/layers/layers.h"
#include "worker/model/model.h"
#include "worker/model/model_buffers.h"
#include "worker/model/model_rope.h"
#include "worker/model/per_layer_pass.h"
#include "worker/weights/weights.h"

namespace tessera::worker {

// What a layer keeps in seats; empty where it attends.
struct LayerStates {
  kernels::TensorView conv;   // [seats, taps - 1, channels] f32
  kernels::TensorView delta;  // [seats, value heads, key_dim, value_dim] f32
};

class ForwardPass {
 public:
  ForwardPass(const ModelOptions& options, const ModelWeights& weights, const ModelBuffers& buffers,
              const std::vector<kernels::KvCacheView>& kv, const std::vector<LayerStates>& states,
              const kernels::TensorView& attention_workspace, kernels::Ops& ops)
      : model_(options.model),
        share_(options.share),
        weights_(weights),
        buffers_(buffers),
        kv_(kv),
        states_(states),
        attention_workspace_(attention_workspace),
        products_(options.product_dtype),
        keeps_rows_(HoldsDraftHead(options.model, options.share)),
        ropes_(RopesOf(options.model)),
        ops_(ops),
        per_layer_(options, weights, buffers, ops) {}

  // See Model::JoinRanks.
  absl::Status JoinRanks(kernels::Group* group, kernels::Stream& stream);
  absl::Status Embed(const StepInputs& step, kernels::Stream& stream);
  // Rotations of this step's positions, which all layers use.
  absl::Status PrepareRotation(const StepInputs& step, kernels::Stream& stream);
  // `index` counts from this share's first layer. The last one before a head leaves the rows of
  // step.logit_rows alone.
  absl::Status Layer(int64_t index, const StepInputs& step, kernels::Stream& stream);
  absl::Status Head(const StepInputs& step, kernels::Stream& stream);
  // For a pass over a head for further tokens: what its layer begins with, from step.token_ids,
  // which are those behind each row, and from the rows `before`. `fused`: memory for [rows, 2 *
  // hidden].
  absl::Status FuseDrafts(const StepInputs& step, const kernels::TensorView& before,
                          const kernels::TensorView& fused, kernels::Stream& stream);
  // All rows of a step behind the final norm, which stay until the next step; where a head for
  // further tokens goes on from them.
  kernels::TensorView NormedRows(int64_t rows) const;
  // The keys and values of a layer are written.
  absl::Status TellKvListener(int64_t index, const StepInputs& step, kernels::Stream& stream);
  // What Head multiplies by the head's matrix.
  kernels::TensorView FinalRows(int64_t rows) const;
  // Instead of the head: leaves the whole residual stream in `hidden`, by the addition that the
  // next layer's norm would have done.
  absl::Status EndStage(const StepInputs& step, kernels::Stream& stream);

 private:
  // Rows of the residual stream that are worked on, each [rows, hidden].
  struct Residual {
    kernels::TensorView hidden;
    kernels::TensorView normed;     // input of a block
    kernels::TensorView block_out;  // output of a block, not yet added
  };
  // What a layer's attention projects its input to: columns of one matrix.
  struct Projections {
    kernels::TensorView all;      // [tokens, outputs of the projection]
    kernels::TensorView q, k, v;  // [tokens, heads, head_dim]
    // Where heads are gated: their gates, and columns behind these for what they read.
    kernels::TensorView gated = {};  // [tokens, 2 * heads * head_dim]
    kernels::TensorView read = {};   // [tokens, heads, head_dim]
  };

  // What MoeRoute makes of a step's rows.
  struct Routing {
    kernels::TensorView weights, slots;  // [tokens, per token]
    kernels::TensorView source_rows;     // [tokens * per token]
    kernels::TensorView offsets;         // [experts + 1]
  };
  // Where a step's rows stand in the cache of a layer.
  struct StepBlocks {
    const kernels::TensorView &slots, &tables;
  };

  // Multiplies rows, in place, by a factor that is 1 where it is 0.
  absl::Status Scale(const kernels::TensorView& rows, double factor, kernels::Stream& stream);
  // Sums, in place, what the ranks of the stage have computed.
  absl::Status Sum(const kernels::TensorView& rows, kernels::Stream& stream);
  // Rank 0's numbers on every rank: those that ranks compute each by itself, and that decide.
  absl::Status FollowRank0(const kernels::TensorView& rows, kernels::Stream& stream);
  // Multiplies and caps logits as the model does.
  absl::Status FinishLogits(const kernels::TensorView& logits, kernels::Stream& stream);

  // Rows of a buffer as the linear reads them with least work: f32, or in that memory of 16 bits.
  kernels::TensorView InputsFor(const kernels::PackedWeights& weights,
                                const kernels::TensorView& buffer, int64_t rows,
                                int64_t columns) const;
  StepBlocks BlocksOf(int64_t index, const StepInputs& step) const;
  Residual RowsOf(const kernels::TensorView& hidden, int64_t rows) const;
  Projections ProjectionsOf(int64_t index, int64_t tokens) const;
  // What layer `index` of this share is, and the part of it that this rank holds.
  const v1::LayerKind& Kind(int64_t index) const;
  const v1::LayerShare& Held(int64_t index) const;
  // Projects, rotates, and puts keys and values into the cache.
  absl::Status WriteKv(int64_t index, const StepInputs& step, const Residual& rows,
                       kernels::Stream& stream);
  // What lies between the projections and the attention.
  absl::Status PrepareAttention(int64_t index, const StepInputs& step, const Projections& projected,
                                kernels::Stream& stream);
  // Weights of the norms of q and k.
  struct QkNorms {
    kernels::TensorView q, k;
  };
  QkNorms HeadNorms(int64_t index) const;
  // Latent attention in two halves, as WriteKv and Attend: queries of the latent itself, which is
  // in the cache in place of keys and values, then values made of what they read there.
  struct LatentRows {
    kernels::TensorView in;        // [tokens, columns]: the rotated key, the latent, query's vector
    kernels::TensorView queries;   // [tokens, heads * query_dim]
    kernels::TensorView absorbed;  // [tokens, heads, head_dim]: rotated part, then the rest
    kernels::TensorView read;      // the same shape; in the place of in and queries
  };
  LatentRows LatentRowsOf(int64_t index, int64_t tokens) const;
  absl::Status WriteLatent(int64_t index, const StepInputs& step, const kernels::TensorView& in,
                           kernels::Stream& stream);
  absl::Status ProjectQueries(int64_t index, const LatentRows& rows,
                              const kernels::TensorView& query_in, kernels::Stream& stream);
  absl::Status AttendLatent(int64_t index, const StepInputs& step, kernels::Stream& stream,
                            kernels::TensorView* attended);
  // The norm of q and k; over their full width the ranks' squares are summed, for which the memory
  // of block_out is used.
  absl::Status NormHeads(int64_t index, const Projections& projected, kernels::Stream& stream);
  absl::Status NormFullWidth(int64_t index, const Projections& projected, kernels::Stream& stream);
  // A gated delta net: `mixed` is what its output projection takes. States are written in any case.
  absl::Status MixDelta(int64_t index, const StepInputs& step, const Residual& rows,
                        kernels::Stream& stream, kernels::TensorView* mixed);
  absl::Status Attend(int64_t index, const StepInputs& step, kernels::Stream& stream,
                      kernels::TensorView* attended);
  // Leaves of both only the rows whose logits are wanted.
  absl::Status KeepLogitRows(const StepInputs& step, kernels::Stream& stream, Residual* rows,
                             kernels::TensorView* attended);
  absl::Status DenseFfn(int64_t index, const kernels::TensorView& in, kernels::Stream& stream);
  Routing RoutingOf(const v1::Experts& experts, int64_t tokens) const;
  // Which experts compute which rows, equal on all ranks.
  absl::Status Route(int64_t index, const kernels::TensorView& in, const Routing& routing,
                     kernels::Stream& stream);
  // To the slots of a rank's experts, whose offsets are `held`; none where there are no biases.
  absl::Status AddExpertBias(const kernels::TensorView& biases, const kernels::TensorView& held,
                             const kernels::TensorView& out, kernels::Stream& stream);
  // Rows of experts, each [rows, hidden].
  struct ExpertRows {
    kernels::TensorView in;
    kernels::TensorView router_in;
    kernels::TensorView out;
    kernels::TensorView shared;  // added to them, may be `out`; empty: nothing
  };
  absl::Status ExpertFfn(int64_t index, const ExpertRows& rows, kernels::Stream& stream);
  // v1::Ffn::normed_apart, up to the norm of the sum; `in` is the dense ffn's input.
  absl::Status ApartFfn(int64_t index, const kernels::TensorView& in, const Residual& rows,
                        kernels::Stream& stream);
  // In the place of `in`, the rows times the weight of their one expert.
  absl::Status ScaleExpertInput(const Routing& routing, kernels::TensorView* in,
                                kernels::Stream& stream);
  absl::Status Activate(const v1::Ffn& ffn, const kernels::TensorView& wide,
                        const kernels::TensorView& inner, kernels::Stream& stream);
  absl::Status HeadLinear(absl::Span<const kernels::PackedWeights> heads,
                          const kernels::TensorView& in, const kernels::TensorView& out,
                          kernels::Stream& stream);
  absl::Status Norm(const NormWeights& norm, const kernels::TensorView& in,
                    const kernels::TensorView& residual, const kernels::TensorView& out,
                    kernels::Stream& stream);
  absl::Status Linear(const kernels::PackedWeights& weights, const kernels::TensorView& bias,
                      const kernels::TensorView& in, const kernels::TensorView& out,
                      kernels::Stream& stream);
  // Input of a block. Where `pending`, what the block before left is added to `hidden` first.
  absl::Status BeginBlock(const BlockNorms& norms, bool pending, const Residual& rows,
                          kernels::Stream& stream, kernels::TensorView* in);
  // Whether `hidden` is whole behind a layer.
  bool EndsWhole(int64_t index) const;
  // Adds and multiplies what follows a layer's ffn where EndsWhole; `numbers`: which of the step's
  // rows these are.
  absl::Status FinishLayer(int64_t index, const kernels::TensorView& numbers, const Residual& rows,
                           kernels::Stream& stream);
  // Sums block_out over the ranks, and does what follows the block.
  absl::Status EndBlock(const BlockNorms& norms, const Residual& rows, kernels::Stream& stream);
  // The same of what is summed already.
  absl::Status FinishBlock(const BlockNorms& norms, const Residual& rows, kernels::Stream& stream);
  // Input of an ffn whose layer is parallel, in `normed`: of `hidden` before the attention is added
  // to it.
  absl::Status BeginParallelBlock(const BlockNorms& norms, const Residual& rows,
                                  kernels::Stream& stream);
  // Whether a block with these norms leaves block_out to be added to `hidden`.
  static bool LeavesPending(const BlockNorms& norms);
  // The same of the layer before `index`.
  bool PendingBefore(int64_t index) const;

  const v1::Model& model_;
  const v1::WorkerShare& share_;
  const ModelWeights& weights_;
  const ModelBuffers& buffers_;
  const std::vector<kernels::KvCacheView>& kv_;
  const std::vector<LayerStates>& states_;
  const kernels::TensorView& attention_workspace_;
  const kernels::DType products_;
  const bool keeps_rows_;  // behind the final norm, also of those whose logits nobody asked for
  const Ropes ropes_;
  kernels::Ops& ops_;
  PerLayerPass per_layer_;
  kernels::Group* group_ = nullptr;        // null: this worker is the whole stage
  std::vector<int64_t> vocabulary_parts_;  // ids that each rank's head has, on the last stage
};

}  // namespace tessera::worker
