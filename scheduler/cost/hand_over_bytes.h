// What a prompt leaves behind that goes from the replica that computed it to the one that answers.
// Thread rule: pure functions.
#pragma once

#include "scheduler/cost/cost_model.h"

namespace tessera::scheduler {

// A sequence's states in all layers, once, on its way.
double StateBytesHandedOver(const ModelShape& model);

// Keys, values and states of a prompt of so many tokens.
RawKv HandedOver(const ModelShape& model, double prompt_tokens);

}  // namespace tessera::scheduler
