// What a stage of one device kind costs, whatever layers it holds: tables for searches that price
// many layouts.
//
// A stage shape is (device kind, link inside its machine, width). Its seconds are affine in its
// layers: step overhead + layers * seconds per layer (+ the head); so is its memory: room - layers
// * (weights + KV tokens * KV bytes). Where layers differ (dense layers before expert layers,
// delta nets before one that attends) the cheapest layer stands for all, so figures are never above
// the truth: fit for bounds, and exact for uniform models. Or the mean layer does, with its part of
// a sequence's states: near the truth, to deal layers by. Thread rule: not thread-safe (seconds are
// computed on demand and kept). Units: bytes, seconds.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "scheduler/cost/replica_cost.h"

namespace tessera::scheduler {

// Where a stage stands in its pipeline. kOnly: the replica has one stage.
enum class StagePlace { kInner, kFirst, kLast, kOnly };
StagePlace PlaceOf(size_t index, size_t stages);

struct StageShape {
  const DeviceSpec* spec = nullptr;
  LinkSpec inside;
  int width = 1;
  double room_bytes[4] = {};  // by StagePlace: for layers and their KV
  double layer_bytes = 0;     // weights of a layer
  double kv_token_bytes = 0;  // KV of a token in a layer

  double room(StagePlace place) const { return room_bytes[static_cast<int>(place)]; }
  // Most layers that leave room for the KV of `kv_tokens` tokens.
  double MemoryLayers(StagePlace place, double kv_tokens) const {
    return room(place) / (layer_bytes + kv_tokens * kv_token_bytes);
  }
};

// Seconds of one shape for a given step.
struct ShapeSeconds {
  double fixed = 0;   // per step
  double layer = 0;   // per layer
  double head = 0;    // more, where the head stands
  double spread = 0;  // of activations that arrive, to all ranks
};

// Which layer stands for all, where they differ.
enum class OneLayer { kCheapest, kMean };

class StageShapes {
 public:
  // Borrows model and options.
  StageShapes(const ModelShape& model, const LengthMoments& lengths, const ReplicaOptions& options,
              OneLayer one_layer = OneLayer::kCheapest)
      : model_(model), lengths_(lengths), options_(options), one_layer_(one_layer) {}

  // Index of a shape, new or known.
  int Intern(const DeviceSpec& spec, const LinkSpec& inside, int width);
  const StageShape& operator[](int shape) const { return shapes_[static_cast<size_t>(shape)]; }
  int size() const { return static_cast<int>(shapes_.size()); }

  // Seconds of all shapes, in a step of `rows` decode rows in a role. The reference lives until
  // Intern.
  const std::vector<ShapeSeconds>& SecondsAt(Role role, double rows);
  // Rows of activations in that step, and bytes of a row.
  double RowsAt(Role role, double rows) const { return WorkAt(role, rows).rows(); }
  double row_bytes() const {
    return static_cast<double>(model_.hidden) * model_.wire_bytes_per_element;
  }

  const ModelShape& model() const { return model_; }
  const LengthMoments& lengths() const { return lengths_; }
  const ReplicaOptions& options() const { return options_; }

 private:
  StepWork WorkAt(Role role, double rows) const;
  // Figures of the layer that stands for all, where `of` says one layer's.
  double OfOneLayer(const std::function<double(int layer)>& of) const;
  ShapeSeconds Measure(const StageShape& shape, const StepWork& work) const;

  const ModelShape& model_;
  const LengthMoments lengths_;
  const ReplicaOptions& options_;
  const OneLayer one_layer_;
  std::vector<StageShape> shapes_;
  absl::node_hash_map<std::pair<int, double>, std::vector<ShapeSeconds>>
      seconds_;  // by role and rows
};

}  // namespace tessera::scheduler
