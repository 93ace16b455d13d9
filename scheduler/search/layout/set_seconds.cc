#include "scheduler/search/layout/set_seconds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/search/layout/mixed_stages.h"

namespace tessera::scheduler {
namespace {

// Parts of the model for which unlike devices are cut: memory binds more or less.
constexpr double kParts[] = {0.05, 0.25, 0.5, 0.75};
constexpr double kAlike = 0.01;  // fractions that differ by less are one cut

StageSpec Range(StageSpec set, const ModelShape& model, int first, int layers) {
  set.first_layer = first;
  set.layers = layers;
  set.holds_embedding = first == 0;
  set.holds_head = first + layers == model.layers;
  return set;
}

class Room {
 public:
  Room(const LayoutProblem& layout, StageSpec set)
      : layout_(layout),
        set_(std::move(set)),
        kv_tokens_(std::max(1.0, LeastKvTokens(Role::kBoth, layout.lengths, layout.options))) {}

  bool For(int first, int end) {
    set_ = Range(std::move(set_), *layout_.model, first, end - first);
    const size_t ranks = set_.shares.empty() ? 1 : set_.ranks.size();
    for (size_t rank = 0; rank < ranks; ++rank) {
      const RankMemory memory =
          MemoryOfRank(*layout_.model, set_, rank, layout_.options.memory, /*pipeline=*/true);
      if (memory.free_bytes() <= 0 || memory.kv_tokens() < kv_tokens_) return false;
    }
    return true;
  }

 private:
  const LayoutProblem& layout_;
  StageSpec set_;
  const double kv_tokens_;
};

std::vector<std::vector<double>> CutsOf(const LayoutProblem& layout, const StageSpec& set) {
  const double kv_tokens = LeastKvTokens(Role::kBoth, layout.lengths, layout.options);
  std::vector<std::vector<double>> cuts;
  for (const double part : kParts) {
    for (std::vector<double>& cut :
         MixedFractions(*layout.model, set.ranks, layout.options.memory, kv_tokens, part)) {
      const bool known = std::any_of(cuts.begin(), cuts.end(), [&](const auto& other) {
        return std::equal(cut.begin(), cut.end(), other.begin(),
                          [](double a, double b) { return std::abs(a - b) < kAlike; });
      });
      if (!known) cuts.push_back(std::move(cut));
    }
  }
  return cuts;
}

}  // namespace

AnswerWork::AnswerWork(const LengthMoments& lengths, const MemoryOptions& memory)
    : decode_(DecodeWork(1, lengths.mean_decode_context())), decode_steps_(lengths.decode_steps) {
  const double tokens = lengths.uncached_prompt_tokens;
  if (tokens <= 0) return;
  prompt_steps_ = std::ceil(tokens / static_cast<double>(memory.max_step_tokens));
  const double each = tokens / prompt_steps_;
  prompt_ = PrefillWork(each, lengths.prompt_tokens - tokens + (tokens - each) / 2);
}

double AnswerWork::StageSeconds(const ModelShape& model, const StageSpec& stage) const {
  double seconds = 0;
  if (decode_steps_ > 0) seconds += decode_steps_ * scheduler::StageSeconds(model, stage, decode_);
  if (prompt_steps_ > 0) seconds += prompt_steps_ * scheduler::StageSeconds(model, stage, prompt_);
  return seconds;
}

double AnswerWork::HopSeconds(const ModelShape& model, const LinkSpec& link,
                              const Communicator& next_stage) const {
  return decode_steps_ * scheduler::HopSeconds(model, link, next_stage, decode_.rows()) +
         prompt_steps_ * scheduler::HopSeconds(model, link, next_stage, prompt_.rows());
}

double AnswerWork::WayBackSeconds(const LinkSpec& link) const {
  return Steps() * TransferSeconds(link, kTokenIdBytes);
}

SetSeconds::SetSeconds(const LayoutProblem& layout, const AnswerWork& work, StageSpec set,
                       bool mixed, int layer_step)
    : layers_(layout.model->layers) {
  std::vector<std::vector<double>> cuts(1);  // evenly
  if (mixed) cuts = CutsOf(layout, set);
  for (std::vector<double>& cut : cuts) AddCut(layout, work, set, std::move(cut), layer_step);
  best_.resize(static_cast<size_t>(layers_ * (layers_ + 1)));
  for (int first = 0; first < layers_; first += layer_step) {
    for (int end = first + layer_step; end < layers_ + layer_step; end += layer_step) {
      const int last = std::min(end, layers_);
      best_[static_cast<size_t>(first * (layers_ + 1) + last)] = Best(first, last);
    }
  }
}

void SetSeconds::AddCut(const LayoutProblem& layout, const AnswerWork& work, StageSpec set,
                        std::vector<double> fractions, int layer_step) {
  const ModelShape& model = *layout.model;
  if (!fractions.empty()) set.shares = SharesBy(model, fractions);
  Cut cut;
  cut.fractions = std::move(fractions);
  for (const DeviceSpec* rank : set.ranks)
    cut.fixed = std::max(cut.fixed, work.Steps() * rank->step_overhead_seconds);
  const auto seconds = [&](int layer, bool head) {
    StageSpec stage = Range(set, model, layer, 1);
    stage.holds_head = head;
    return work.StageSeconds(model, stage);
  };
  std::vector<double> of_kind(model.kinds.size(), 0);
  cut.until.assign(static_cast<size_t>(layers_) + 1, 0);
  for (int layer = 0; layer < layers_; ++layer) {
    double& like = of_kind[static_cast<size_t>(model.kind_index(layer))];
    if (like == 0) like = seconds(layer, false) - cut.fixed;
    fastest_layer_ = std::min(fastest_layer_, like);
    cut.until[static_cast<size_t>(layer) + 1] = cut.until[static_cast<size_t>(layer)] + like;
  }
  cut.head = seconds(layers_ - 1, true) - seconds(layers_ - 1, false);

  Room room(layout, std::move(set));
  cut.end.assign(static_cast<size_t>(layers_), 0);
  int end = 0;
  for (int first = 0; first < layers_; first += layer_step) {
    if (first <= layer_step) end = first;  // behind the embedding there may be room for more
    end = std::max(end, first);
    while (end + layer_step < layers_ && room.For(first, end + layer_step)) end += layer_step;
    cut.end[static_cast<size_t>(first)] = end;
  }
  cut.head_from = (layers_ - 1) / layer_step * layer_step + layer_step;
  while (cut.head_from > layer_step && room.For(cut.head_from - layer_step, layers_))
    cut.head_from -= layer_step;
  cuts_.push_back(std::move(cut));
}

SetSeconds::Timed SetSeconds::Best(int first, int end) const {
  Timed best;
  const bool last = end == layers_;
  for (size_t c = 0; c < cuts_.size(); ++c) {
    const Cut& cut = cuts_[c];
    if (last ? first < cut.head_from : end > cut.end[static_cast<size_t>(first)]) continue;
    const double seconds = cut.fixed + cut.until[static_cast<size_t>(end)] -
                           cut.until[static_cast<size_t>(first)] + (last ? cut.head : 0);
    if (seconds < best.seconds) best = {seconds, static_cast<int>(c)};
  }
  return best;
}

}  // namespace tessera::scheduler
