#include "worker/transfer/kv_ends.h"

#include <cstring>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

template <typename T>
absl::Span<const std::byte> BytesOf(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

}  // namespace

absl::Status KvSendChannel::SendFrame(KvFrame type, const v1::KvPiece& piece,
                                      absl::Span<const std::byte> rest, double timeout_seconds) {
  const std::string header = piece.SerializeAsString();
  const auto length = static_cast<uint32_t>(header.size());
  const absl::Span<const std::byte> parts[] = {
      BytesOf(length), {reinterpret_cast<const std::byte*>(header.data()), header.size()}, rest};
  return link_->Send(FrameType(type), absl::MakeConstSpan(parts), timeout_seconds);
}

absl::Status KvSendChannel::SendPiece(const v1::KvPiece& piece,
                                      absl::Span<const std::byte> elements,
                                      double timeout_seconds) {
  return SendFrame(KvFrame::kPiece, piece, elements, timeout_seconds);
}

absl::Status KvSendChannel::SendElsewhere(KvFrame type, const v1::KvPiece& piece, size_t bytes,
                                          double timeout_seconds) {
  elsewhere_bytes_ += static_cast<int64_t>(bytes);
  const auto count = static_cast<uint32_t>(bytes);
  return SendFrame(type, piece, BytesOf(count), timeout_seconds);
}

absl::StatusOr<bool> KvSendChannel::AwaitComplete(double timeout_seconds) {
  std::string staged;
  for (;;) {
    const auto type = link_->ReceiveAny(1, &staged, timeout_seconds);
    if (!type.ok()) return type.status();
    if (*type == FrameType(KvFrame::kComplete)) return !staged.empty();
    // What was still on its way when the last piece went.
    if (*type != FrameType(KvFrame::kSlotFree)) return Misplaced(*type);
  }
}

absl::Status Misplaced(uint16_t type) {
  return absl::InvalidArgumentError(StrCat("a frame of type ", type, " among KV"));
}

absl::StatusOr<KvFramedPiece> PieceElsewhere(const std::string& payload, const std::byte* memory,
                                             int64_t max_bytes) {
  absl::StatusOr<KvFramedPiece> piece = SplitPiece(payload);
  if (!piece.ok()) return piece;
  uint32_t bytes = 0;
  const bool whole = piece->elements.size() == sizeof bytes;
  if (whole) std::memcpy(&bytes, piece->elements.data(), sizeof bytes);
  if (!whole || bytes > max_bytes) {
    return absl::InvalidArgumentError(
        StrCat("a KV piece of ", bytes, " bytes in memory that has ", max_bytes));
  }
  piece->elements = {reinterpret_cast<const char*>(memory), bytes};
  return piece;
}

}  // namespace tessera::worker
