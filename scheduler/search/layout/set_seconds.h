// How long a stage over a set of devices works on one user's answer, for every range of layers.
//
// Unlike devices take the best cut that has room: steps that decode want parts by memory
// bandwidth, prompts by FLOPs, and long stages parts by memory. Ranges begin and end at multiples
// of a step, or at the last layer. Thread rule: immutable. Units: seconds, of the whole answer.
#pragma once

#include <limits>
#include <vector>

#include "scheduler/search/layout/stage_layout.h"

namespace tessera::scheduler {

// What an answer asks of the replica: the prompt's steps, and one step for each further token.
class AnswerWork {
 public:
  // Requests have mean length; a prompt is counted as equal steps.
  AnswerWork(const LengthMoments& lengths, const MemoryOptions& memory);

  double Steps() const { return prompt_steps_ + decode_steps_; }
  double StageSeconds(const ModelShape& model, const StageSpec& stage) const;
  // The hop into the stage, over that link.
  double HopSeconds(const ModelShape& model, const LinkSpec& link,
                    const Communicator& next_stage) const;
  // The way of the token ids from the last stage to the first.
  double WayBackSeconds(const LinkSpec& link) const;

 private:
  StepWork prompt_, decode_;
  double prompt_steps_ = 0, decode_steps_ = 0;
};

class SetSeconds {
 public:
  struct Timed {
    double seconds = std::numeric_limits<double>::infinity();  // infinite: no room
    int cut = 0;                                               // index for fractions()
  };

  // `set` has ranks and a communicator. Where `mixed`, its ranks are cut by fractions. Borrows
  // nothing after that.
  SetSeconds(const LayoutProblem& layout, const AnswerWork& work, StageSpec set, bool mixed,
             int layer_step);

  // A stage of a pipeline of several that holds `layers` layers from `first` on.
  const Timed& Of(int first, int layers) const {
    return best_[static_cast<size_t>(first * (layers_ + 1) + first + layers)];
  }
  // Seconds of the layer that takes least.
  double fastest_layer() const { return fastest_layer_; }
  // By which ranks are cut; empty: evenly.
  const std::vector<double>& fractions(int cut) const {
    return cuts_[static_cast<size_t>(cut)].fractions;
  }

 private:
  struct Cut {
    std::vector<double> fractions;
    std::vector<double> until;  // seconds of layers [0, l)
    double fixed = 0, head = 0;
    std::vector<int> end;  // by first layer: to where at most, the last layer left out
    int head_from = 0;     // with the head as many layers as from here on
  };

  void AddCut(const LayoutProblem& layout, const AnswerWork& work, StageSpec set,
              std::vector<double> fractions, int layer_step);
  Timed Best(int first, int end) const;

  int layers_ = 0;
  double fastest_layer_ = std::numeric_limits<double>::infinity();
  std::vector<Cut> cuts_;
  std::vector<Timed> best_;  // by first layer and end
};

}  // namespace tessera::scheduler
