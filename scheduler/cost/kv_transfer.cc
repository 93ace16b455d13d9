#include <algorithm>

#include "scheduler/cost/cost_model.h"

namespace tessera::scheduler {

std::string_view Name(KvCodec codec) {
  switch (codec) {
    case KvCodec::kRaw: return "raw";
    case KvCodec::kInt8: return "int8";
    case KvCodec::kInt4: return "int4";
  }
  return "?";
}

double KvCodecRatio(KvCodec codec, double element_bytes) {
  constexpr double kGroup = 64, kGroupBits = 32;
  switch (codec) {
    case KvCodec::kRaw: return 1;
    case KvCodec::kInt8: return (8 + kGroupBits / kGroup) / (8 * element_bytes);
    case KvCodec::kInt4: return (4 + kGroupBits / kGroup) / (8 * element_bytes);
  }
  return 1;
}

double WireBytes(const RawKv& raw, KvCodec codec) {
  return raw.bytes * KvCodecRatio(codec, raw.element_bytes) + raw.state_bytes;
}

void KvCodecRates::Limit(double measured_bytes_per_second) {
  if (measured_bytes_per_second <= 0) return;
  encode_bytes_per_second = std::min(encode_bytes_per_second, measured_bytes_per_second);
  decode_bytes_per_second = std::min(decode_bytes_per_second, measured_bytes_per_second);
}

KvTransfer TransferKv(const RawKv& raw, const LinkSpec& link, int layers, double prefill_seconds,
                      KvCodec codec, const KvCodecRates& rates) {
  // Encode, wire and decode work on different layers at once: the slowest sets the rate, in raw
  // bytes.
  double rate = link.bytes_per_second / KvCodecRatio(codec, raw.element_bytes);
  if (codec != KvCodec::kRaw)
    rate = std::min({rate, rates.encode_bytes_per_second, rates.decode_bytes_per_second});
  KvTransfer transfer;
  transfer.codec = codec;
  transfer.seconds = link.latency_seconds + raw.bytes / rate;
  const double x = transfer.seconds;
  transfer.unhidden_seconds = std::max(x / layers, x - (1.0 - 1.0 / layers) * prefill_seconds);
  if (raw.state_bytes > 0) {
    const double states = raw.state_bytes / link.bytes_per_second;
    transfer.seconds += states;
    transfer.unhidden_seconds += states;
  }
  return transfer;
}

KvTransfer BestKvTransfer(const RawKv& raw, const LinkSpec& link, int layers,
                          double prefill_seconds, const KvCodecRates& rates) {
  KvTransfer best = TransferKv(raw, link, layers, prefill_seconds, KvCodec::kRaw, rates);
  for (const KvCodec codec : {KvCodec::kInt8, KvCodec::kInt4}) {
    if (codec > rates.strongest) break;
    const KvTransfer other = TransferKv(raw, link, layers, prefill_seconds, codec, rates);
    if (other.unhidden_seconds < best.unhidden_seconds) best = other;
  }
  return best;
}

}  // namespace tessera::scheduler
