#include "coordinator/tokenizer/sentencepiece_proto.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/token_limits.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr uint32_t kPiecesField = 1;     // ModelProto.pieces
constexpr uint32_t kPieceTextField = 1;  // SentencePiece.piece
constexpr uint32_t kTrainerField = 2;    // ModelProto.trainer_spec
constexpr uint32_t kNormalizerField = 3;
constexpr uint32_t kByteFallbackField = 35;  // of TrainerSpec
constexpr uint32_t kCharsMapField = 2;       // of NormalizerSpec
constexpr uint32_t kRemoveSpacesField = 4;

// Reads protobuf's wire format, field by field.
class WireReader {
 public:
  struct Field {
    uint32_t number = 0;
    std::string_view bytes;  // of a length-delimited field
    uint64_t value = 0;      // of a varint
  };

  explicit WireReader(std::string_view data) : data_(data) {}

  bool AtEnd() const { return data_.empty(); }

  bool Next(Field* field) {
    uint64_t key = 0;
    if (!Varint(&key) || key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) return false;
    field->number = static_cast<uint32_t>(key >> 3);
    field->bytes = {};
    field->value = 0;
    uint64_t length = 0;
    switch (key & 7) {
      case 0: return Varint(&field->value);
      case 1: return Skip(8);
      case 5: return Skip(4);
      case 2:
        if (!Varint(&length) || length > data_.size()) return false;
        field->bytes = data_.substr(0, length);
        return Skip(length);
      default: return false;
    }
  }

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70 && !data_.empty(); shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(data_.front());
      data_.remove_prefix(1);
      if (shift < 64) *value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Skip(uint64_t bytes) {
    if (bytes > data_.size()) return false;
    data_.remove_prefix(bytes);
    return true;
  }

  std::string_view data_;
};

absl::Status CheckPiece(std::string_view message, size_t index) {
  WireReader reader(message);
  std::string_view text;
  while (!reader.AtEnd()) {
    WireReader::Field field;
    if (!reader.Next(&field)) {
      return absl::InvalidArgumentError(StrCat("piece ", index, " is cut short"));
    }
    if (field.number == kPieceTextField) text = field.bytes;
  }
  if (text.empty() || text.size() > kMaxTokenBytes ||
      FindInvalidUtf8(text) != std::string_view::npos) {
    return absl::InvalidArgumentError(
        StrCat("piece ", index, " is empty, too long or not UTF-8: ", Excerpt(text)));
  }
  return absl::OkStatus();
}

// A line of base64 and a rank, as tiktoken writes a vocabulary. A ModelProto begins with a byte
// that no base64 has.
bool IsTiktoken(std::string_view bytes) {
  size_t at = 0;
  const auto skip = [&](const auto& allowed) {
    const size_t begin = at;
    while (at < bytes.size() && allowed(static_cast<unsigned char>(bytes[at]))) ++at;
    return at > begin;
  };
  const auto base64 = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '+' || c == '/' || c == '=';
  };
  if (!skip(base64) || at == bytes.size() || bytes[at++] != ' ') return false;
  return skip(absl::ascii_isdigit) &&
         (at == bytes.size() || bytes[at] == '\n' || bytes[at] == '\r');
}

// The last value of a varint field of a message.
uint64_t ValueOf(std::string_view message, uint32_t number, uint64_t otherwise) {
  WireReader reader(message);
  for (WireReader::Field field; !reader.AtEnd() && reader.Next(&field);) {
    if (field.number == number) otherwise = field.value;
  }
  return otherwise;
}

// The last text of a field of a message.
std::string_view TextOf(std::string_view message, uint32_t number) {
  WireReader reader(message);
  std::string_view text;
  for (WireReader::Field field; !reader.AtEnd() && reader.Next(&field);) {
    if (field.number == number) text = field.bytes;
  }
  return text;
}

}  // namespace

int64_t MaxPieceBytes(std::string_view bytes) {
  int64_t longest = 0;
  uint64_t byte_fallback = 0, removes_spaces = 1;
  bool maps = false;
  WireReader reader(bytes);
  for (WireReader::Field field; !reader.AtEnd() && reader.Next(&field);) {
    if (field.number == kPiecesField) {
      const auto piece = static_cast<int64_t>(TextOf(field.bytes, kPieceTextField).size());
      longest = std::max(longest, piece);
    } else if (field.number == kTrainerField) {
      byte_fallback = ValueOf(field.bytes, kByteFallbackField, byte_fallback);
    } else if (field.number == kNormalizerField) {
      removes_spaces = ValueOf(field.bytes, kRemoveSpacesField, removes_spaces);
      maps = maps || !TextOf(field.bytes, kCharsMapField).empty();
    }
  }
  return byte_fallback != 0 && removes_spaces == 0 && !maps ? longest : 0;
}

absl::Status CheckSentencePieceProto(std::string_view bytes) {
  if (IsTiktoken(bytes)) {
    return absl::InvalidArgumentError(
        "a tiktoken file, no SentencePiece model: not supported; put the tokenizer.json of the "
        "same "
        "model beside it (its Hugging Face form has one)");
  }
  WireReader reader(bytes);
  size_t pieces = 0;
  while (!reader.AtEnd()) {
    WireReader::Field field;
    if (!reader.Next(&field)) {
      return absl::InvalidArgumentError("not a SentencePiece model (malformed or cut short)");
    }
    if (field.number != kPiecesField) continue;
    if (auto status = CheckPiece(field.bytes, pieces); !status.ok()) return status;
    ++pieces;
  }
  if (pieces == 0) return absl::InvalidArgumentError("not a SentencePiece model: it has no pieces");
  if (pieces > static_cast<size_t>(kMaxTokenId)) {
    return absl::InvalidArgumentError(StrCat(pieces, " pieces; at most ", kMaxTokenId));
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
