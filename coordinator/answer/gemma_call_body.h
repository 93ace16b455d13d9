// A body as Gemma 4 writes it: call:NAME{KEY:VALUE,...}, with bare keys, strings between <|"|>, and
// objects and lists of the same within; then <tool_call|>.
//
// A call comes out when it is whole. Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "coordinator/answer/call_body.h"

namespace tessera::coordinator {

std::unique_ptr<CallBody> MakeGemmaCallBody();

}  // namespace tessera::coordinator
