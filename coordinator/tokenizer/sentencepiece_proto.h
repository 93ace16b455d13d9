// The little that is done to the bytes of a SentencePiece model before the library reads them: the
// library ends the process on some malformed models, and has no setter for one of its options.
// Pure functions, thread-safe. Format: sentencepiece_model.proto (ModelProto).
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace tessera::coordinator {

// Appended to a serialized model, switches normalizer_spec.add_dummy_prefix off: protobuf merges a
// message field that is written twice.
inline constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

// The most bytes of text that a piece of the model may stand for; 0: no bound, since its normaliser
// changes the text or unknown characters are joined. Requires what CheckSentencePieceProto accepts.
int64_t MaxPieceBytes(std::string_view bytes);

// InvalidArgument where the bytes are no well-formed ModelProto, have no pieces, or hold a piece
// that is empty, too long or not UTF-8.
absl::Status CheckSentencePieceProto(std::string_view bytes);

}  // namespace tessera::coordinator
