// The answers of gpt-oss, in OpenAI's Harmony format: messages with a channel each.
//
//   <|channel|>analysis<|message|>thinking<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.NAME
//   <|constrain|>json<|message|>{..}<|call|>
//   <|start|>assistant<|channel|>final<|message|>text<|return|>
//
// Read leniently: the recipient may stand before or behind the channel, on any channel, with any
// constraint; a message ends with its own marker, with the next message or with the answer. A
// message to anything but functions.NAME is thinking.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "coordinator/answer/call_parser.h"

namespace tessera::coordinator {

std::unique_ptr<CallParser> MakeHarmonyParser();

}  // namespace tessera::coordinator
