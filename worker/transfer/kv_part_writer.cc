#include "worker/transfer/kv_part_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "third_party/absl/str_cat.h"
#include "worker/engine/kv_messages.h"
#include "worker/transfer/kv_codec.h"

namespace tessera::worker {

KvPartWriter::KvPartWriter(KvPlaceOfPart place, KvCoder* coder)
    : place_(std::move(place)), coder_(coder) {
  const kvcache::KvShare& part = place_.part;
  missing_ = part.layers.size() * part.kv_heads.size();
  for (int32_t layer = part.layers.begin; layer < part.layers.end; ++layer)
    next_.insert(next_.end(), static_cast<size_t>(part.kv_heads.size()), place_.FirstOf(layer));
}

int64_t KvPartWriter::At(int64_t layer, int64_t head) const {
  return (layer - place_.part.layers.begin) * place_.part.kv_heads.size() +
         (head - place_.part.kv_heads.begin);
}

const v1::Range& KvPartWriter::HeadsOf(const v1::KvPiece& piece) const {
  return place_.states ? piece.key_groups() : piece.kv_heads();
}

absl::StatusOr<KvFramedPiece> SplitPiece(std::string_view payload) {
  uint32_t header = 0;
  if (payload.size() < sizeof header) return absl::InvalidArgumentError("a KV piece is cut short");
  std::memcpy(&header, payload.data(), sizeof header);
  payload.remove_prefix(sizeof header);
  if (header > payload.size()) return absl::InvalidArgumentError("a KV piece is cut short");
  return KvFramedPiece{.header = payload.substr(0, header), .elements = payload.substr(header)};
}

absl::StatusOr<KvPartWriter::Piece> KvPartWriter::Read(const KvFramedPiece& framed) const {
  Piece piece;
  if (!piece.header.ParseFromArray(framed.header.data(), static_cast<int>(framed.header.size())))
    return absl::InvalidArgumentError("the header of a KV piece cannot be read");
  piece.elements = framed.elements;
  piece.on_device = framed.on_device;
  const absl::Status checked = Check(piece.header, static_cast<int64_t>(piece.elements.size()));
  if (!checked.ok()) return checked;
  return piece;
}

absl::Status KvPartWriter::Check(const v1::KvPiece& piece, int64_t bytes) const {
  const kvcache::KvShare& share = place_.part;
  const auto inside = [](const v1::Range& part, const IndexRange& whole) {
    return part.begin() >= whole.begin && part.begin() < part.end() && part.end() <= whole.end;
  };
  const bool one_kind =
      place_.pool.windowed.empty() || int64_t{piece.layers().end()} - piece.layers().begin() == 1;
  if (!inside(piece.layers(), share.layers) || !inside(HeadsOf(piece), share.kv_heads) ||
      !one_kind ||
      piece.first_token() < place_.FirstOf(static_cast<int32_t>(piece.layers().begin())) ||
      piece.first_token() >= piece.end_token() || piece.end_token() > place_.end) {
    return absl::InvalidArgumentError(
        StrCat("a KV piece of layers ", piece.layers().begin(), " to ", piece.layers().end(),
               place_.states ? ", key groups " : ", heads ", HeadsOf(piece).begin(), " to ",
               HeadsOf(piece).end(), ", tokens ", piece.first_token(), " to ", piece.end_token(),
               " lies outside what is expected"));
  }
  const auto type = ToDType(piece.dtype());
  if (!type.has_value()) {
    return absl::InvalidArgumentError(StrCat("KV of type ", v1::DataType_Name(piece.dtype())));
  }
  if (std::max(piece.codec(), v1::KV_CODEC_RAW) != std::max(place_.codec, v1::KV_CODEC_RAW)) {
    return absl::InvalidArgumentError(StrCat("a KV piece in ", v1::KvCodec_Name(piece.codec()),
                                             "; expected is ", v1::KvCodec_Name(place_.codec)));
  }
  const int64_t group = TokensPerGroup(place_.codec);
  const int64_t first = place_.FirstOf(static_cast<int32_t>(piece.layers().begin()));
  if ((piece.first_token() - first) % group != 0 ||
      ((piece.end_token() - first) % group != 0 && piece.end_token() != place_.end)) {
    return absl::InvalidArgumentError(StrCat("a KV piece of tokens ", piece.first_token(), " to ",
                                             piece.end_token(), " cuts a group of ", group));
  }
  const kvcache::KvShare part = {ToIndexRange(piece.layers()), ToIndexRange(HeadsOf(piece))};
  const int64_t wanted =
      KvPieceBytes(place_.codec, part, piece.end_token() - piece.first_token(), place_.pool, *type);
  if (bytes != wanted) {
    return absl::InvalidArgumentError(
        StrCat("a KV piece of ", bytes, " bytes; its elements take ", wanted));
  }
  for (int32_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
    for (int32_t head = part.kv_heads.begin; head < part.kv_heads.end; ++head) {
      const int64_t next = next_[static_cast<size_t>(At(layer, head))];
      if (next == piece.first_token()) continue;
      return absl::InvalidArgumentError(StrCat("a KV piece of layer ", layer, ", head ", head,
                                               " begins at token ", piece.first_token(),
                                               "; the next one expected is ", next));
    }
  }
  return absl::OkStatus();
}

absl::Status KvPartWriter::Write(const Piece& piece) {
  const v1::KvPiece& header = piece.header;
  const kvcache::KvShare part = {ToIndexRange(header.layers()), ToIndexRange(HeadsOf(header))};
  const auto slots = kvcache::SlotRuns(
      place_.pool.IsWindowed(part.layers.begin) ? place_.window_table : place_.table,
      place_.pool.block_tokens, header.first_token(), header.end_token());
  const std::span<const std::byte> bytes = {
      reinterpret_cast<const std::byte*>(piece.elements.data()), piece.elements.size()};
  const kernels::DType type = *ToDType(header.dtype());
  absl::Status written =
      piece.on_device ? coder_->DecodeOnDevice(place_.codec, bytes, type, part, slots, place_.pool)
                      : coder_->Decode(place_.codec, bytes, type, part, slots, place_.pool);
  if (!written.ok()) return written;
  for (int32_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
    for (int32_t head = part.kv_heads.begin; head < part.kv_heads.end; ++head) {
      next_[static_cast<size_t>(At(layer, head))] = header.end_token();
      if (header.end_token() == place_.end) --missing_;
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
