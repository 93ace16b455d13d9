// Fitting the cost model to measured layer times.
//
// Problem: a vendor sheet says what a card could do; what a forward pass reaches differs by up to
// 2x between kinds. Idea: per card kind one compute efficiency, one memory efficiency and one
// overhead per layer; per multi-card link one (alpha, beta); one context for all decode rows (where
// unpublished). These are found by a pattern search (Hooke-Jeeves, in logarithms) on the mean
// absolute relative error, from fixed starting points. Deterministic. Cost: some 10^4 evaluations
// per kind; well under a second for 100 points. Thread rule: pure functions; observations borrow
// their model.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/cost/cost_model.h"

namespace tessera::scheduler {

// One measured layer on `devices` equal cards of one node.
struct LayerObservation {
  std::string model;
  std::string device;
  int devices = 1;
  bool decode = false;  // else prefill
  double size = 0;      // sequences that decode; or prompt tokens
  double seconds = 0;
};

// CSV with the header model,device,devices,phase,size,milliseconds_per_layer; '#' begins a comment
// line. InvalidArgument naming `file`, line and reason.
absl::StatusOr<std::vector<LayerObservation>> ParseLayerTimes(std::string_view text,
                                                              std::string_view file);

struct CalibrationInput {
  std::map<std::string, ModelShape> models;   // by LayerObservation::model
  std::map<std::string, DeviceSpec> devices;  // peaks; by LayerObservation::device
};

struct Calibration {
  std::map<std::string, DeviceSpec> devices;  // with fitted efficiencies and overhead
  std::map<std::string, LinkSpec> links;      // by "devices x kind", e.g. "4xT4"
  double decode_context_tokens = 0;
};

// Requires that every observation's model and device is in `input`. NotFound naming what is
// missing, InvalidArgument for no observations.
absl::StatusOr<Calibration> Fit(std::span<const LayerObservation> observations,
                                const CalibrationInput& input);

double PredictSeconds(const Calibration& calibration, const CalibrationInput& input,
                      const LayerObservation& observation);

// Mean of |predicted - measured| / measured; 0 for none.
double MeanAbsoluteError(const Calibration& calibration, const CalibrationInput& input,
                         std::span<const LayerObservation> observations);

}  // namespace tessera::scheduler
