// What a prompt leaves behind that goes from the replica that computed it to the one that answers.
// Thread rule: pure functions.
#pragma once

#include "scheduler/cost/model_shape.h"

namespace tessera::scheduler {

// A sequence's states in all layers, once, on its way. They leave behind the last layer of the
// last step, so nothing hides them.
double StateBytesHandedOver(const ModelShape& model);

// Its keys, values and states, on average for prompts of so many tokens.
double HandOverBytes(const ModelShape& model, double prompt_tokens);

}  // namespace tessera::scheduler
