// A model's layers dealt to the stages of a pipeline so that the slowest is as fast as it can be,
// or so that all of them together take the least time within a limit of each.
//
// Idea: layers go one by one to the stage that would be done first with one more. All that are done
// before the time at which all layers would be done if they could be cut are dealt at once; the few
// that are left go one by one. Thread rule: pure function. Deterministic. Units: seconds.
#pragma once

#include <vector>

namespace tessera::scheduler {

struct DealtStage {
  double fixed = 0;  // seconds, whatever its layers
  double layer = 0;  // seconds per layer; above 0
  int most = 0;      // layers that it can hold
  int layers = 0;    // out
};

// How long the slowest takes at least, one layer each and whatever they can hold. 0: not known.
double LeastSlowestSeconds(int layers, const std::vector<DealtStage>& stages);
// At least one layer each. False: they do not fit. `least_seconds`: that of these stages, from who
// knows it.
bool DealLayersEvenly(int layers, std::vector<DealtStage>* stages);
bool DealLayersEvenly(int layers, double least_seconds, std::vector<DealtStage>* stages);
// No stage of more than one layer takes more than `seconds`; the sum of their seconds is least.
bool DealLayersWithin(int layers, double seconds, std::vector<DealtStage>* stages);

}  // namespace tessera::scheduler
