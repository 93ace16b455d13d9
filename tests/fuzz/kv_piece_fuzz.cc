// Any bytes as the pieces of one KV connection: a piece is written where it belongs, or refused
// with a reason and unwritten. Never a crash, never a byte outside the part that is expected.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "worker/transfer/kv_part_writer.h"

namespace {

constexpr std::byte kUntouched{0xee};

}  // namespace

// The first byte says the codec; then frames: two bytes of length, and so much payload.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace v1 = tessera::v1;
  if (size == 0) return 0;
  tessera::worker::KvPlaceOfPart place;
  place.pool = {nullptr, {{2, 5}, {0, 4}}, tessera::kernels::DType::kBF16, 6, 16, 2};
  place.part = {{3, 5}, {1, 3}};
  place.codec = static_cast<v1::KvCodec>(data[0] % 4);
  place.table = {5, 0, 3, 1, 4, 2};
  place.first = 3;
  place.end = 90;
  const auto pool_bytes = static_cast<std::size_t>(place.pool.bytes());
  std::vector<std::byte> memory(pool_bytes, kUntouched);
  place.pool.memory = memory.data();
  const tessera::kvcache::KvPool pool = place.pool;
  tessera::worker::KvPartWriter writer(place);
  for (std::size_t at = 1; at + 2 <= size && !writer.complete();) {
    const std::size_t length = std::min<std::size_t>(data[at] + 256u * data[at + 1], size - at - 2);
    const std::string payload(reinterpret_cast<const char*>(data) + at + 2, length);
    at += 2 + length;
    const std::vector<std::byte> before = memory;
    const auto framed = tessera::worker::SplitPiece(payload);
    absl::StatusOr<tessera::worker::KvPartWriter::Piece> piece =
        framed.ok() ? writer.Read(*framed) : framed.status();
    if (!piece.ok()) {
      if (piece.status().message().empty()) std::abort();
      return 0;
    }
    if (memory != before) std::abort();
    writer.Write(*piece);
  }
  for (std::int32_t layer = 2; layer < 5; ++layer) {
    for (std::int32_t head = 0; head < 4; ++head) {
      if (layer >= 3 && head >= 1 && head < 3) continue;
      for (const int plane : {0, 1}) {
        const std::byte* const begin = pool.At(layer, plane, head, 0);
        const std::byte* const end = begin + pool.blocks * pool.block_tokens * pool.head_dim * 2;
        if (std::any_of(begin, end, [](std::byte b) { return b != kUntouched; })) std::abort();
      }
    }
  }
  return 0;
}
