#include "scheduler/search/layout/stage_shapes.h"

#include <algorithm>
#include <limits>

#include "scheduler/cost/layer_sums.h"

namespace tessera::scheduler {
namespace {

// Room of a rank before any layer stands on it.
double RoomOf(const ModelShape& model, const StageShape& shape, StagePlace place,
              const MemoryOptions& options) {
  StageSpec stage;
  stage.ranks.assign(static_cast<size_t>(shape.width), shape.spec);
  stage.holds_embedding = place == StagePlace::kFirst || place == StagePlace::kOnly;
  stage.holds_head = place == StagePlace::kLast || place == StagePlace::kOnly;
  return MemoryOfRank(model, stage, 0, options, place != StagePlace::kOnly).free_bytes();
}

}  // namespace

StagePlace PlaceOf(size_t index, size_t stages) {
  if (stages == 1) return StagePlace::kOnly;
  if (index == 0) return StagePlace::kFirst;
  return index + 1 == stages ? StagePlace::kLast : StagePlace::kInner;
}

int StageShapes::Intern(const DeviceSpec& spec, const LinkSpec& inside, int width) {
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const StageShape& known = shapes_[i];
    if (known.spec == &spec && known.width == width && (width == 1 || known.inside == inside)) {
      return static_cast<int>(i);
    }
  }
  StageShape shape;
  shape.spec = &spec;
  shape.inside = inside;
  shape.width = width;
  for (const StagePlace place :
       {StagePlace::kInner, StagePlace::kFirst, StagePlace::kLast, StagePlace::kOnly}) {
    shape.room_bytes[static_cast<int>(place)] = RoomOf(model_, shape, place, options_.memory);
  }
  const RankShare share = FullestShare(model_, width);
  shape.layer_bytes = OfOneLayer([&](int layer) { return LayerWeightBytes(model_, share, layer); });
  const bool mean = one_layer_ == OneLayer::kMean;
  shape.kv_token_bytes = OfOneLayer([&](int layer) {
    const double states =
        mean ? StateBytesPerLayer(model_, share, layer) / TypicalTokens(model_) : 0;
    return EndlessKvBytesPerTokenLayer(model_, share, layer) + states;
  });
  shapes_.push_back(shape);
  seconds_.clear();
  return size() - 1;
}

ShapeSeconds StageShapes::Measure(const StageShape& shape, const StepWork& work) const {
  const RankShare share = FullestShare(model_, shape.width);
  const Communicator inside = {{shape.width, shape.inside, false}};
  ShapeSeconds seconds;
  seconds.fixed = shape.spec->step_overhead_seconds;
  seconds.layer = OfOneLayer(
      [&](int layer) { return LayerSeconds(model_, *shape.spec, share, inside, work, layer); });
  seconds.head = HeadSeconds(model_, *shape.spec, share, inside, work);
  seconds.spread = BroadcastSeconds(inside, work.rows() * row_bytes());
  return seconds;
}

double StageShapes::OfOneLayer(const std::function<double(int layer)>& of) const {
  if (model_.uniform()) return of(0);
  double least = std::numeric_limits<double>::infinity();
  const double sum = SumOverLayers(model_, 0, model_.layers, [&](int layer) {
    const double figure = of(layer);
    least = std::min(least, figure);
    return figure;
  });
  return one_layer_ == OneLayer::kMean ? sum / model_.layers : least;
}

StepWork StageShapes::WorkAt(Role role, double rows) const {
  return SteadyWork(role, lengths_, rows, options_);
}

const std::vector<ShapeSeconds>& StageShapes::SecondsAt(Role role, double rows) {
  const auto [at, fresh] = seconds_.try_emplace({static_cast<int>(role), rows});
  if (!fresh) return at->second;
  const StepWork work = WorkAt(role, rows);
  at->second.reserve(shapes_.size());
  for (const StageShape& shape : shapes_) at->second.push_back(Measure(shape, work));
  return at->second;
}

}  // namespace tessera::scheduler
