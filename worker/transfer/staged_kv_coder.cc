#include "worker/transfer/staged_kv_coder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/kv_rows.h"
#include "third_party/absl/str_cat.h"
#include "worker/transfer/kv_codec.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::KvWireCoding;
using kernels::TensorView;

constexpr int64_t kSlotBytes = StagedKvCoder::kMaxPassTokens * int64_t{sizeof(int32_t)};

KvWireCoding CodingOf(v1::KvCodec codec) {
  if (codec == v1::KV_CODEC_INT8) return KvWireCoding::kInt8;
  return codec == v1::KV_CODEC_INT4 ? KvWireCoding::kInt4 : KvWireCoding::kRaw;
}

// Whether kernels turn the pool's rows into these bytes, and the reverse. Of codes with scales they
// move whole rows; the host turns these into anything else.
bool OnDevice(const kvcache::KvPool& pool, v1::KvCodec codec, kernels::DType type) {
  const bool codes = kernels::HasKvScales(pool.type) || kernels::HasKvScales(type);
  return !codes || (CodingOf(codec) == KvWireCoding::kRaw && type == pool.type);
}

// Elements of the pool's type in a row that kernels take.
int64_t RowElements(const kvcache::KvPool& pool) {
  return kernels::KvRowElements(pool.type, pool.head_dim);
}

// Memory of the host for the rows of a part's tokens: raw bytes of the wire, and a pool as well.
struct Rows {
  Rows(const kvcache::KvPool& of, const kvcache::KvShare& part,
       std::span<const kvcache::SlotRun> of_slots)
      : pool(of) {
    int64_t tokens = 0;
    for (const kvcache::SlotRun& run : of_slots) tokens += run.tokens;
    slots = {{0, tokens}};
    pool.share = part;
    pool.blocks = 1;
    pool.block_tokens = tokens;
    pool.windowed.clear();
    bytes.resize(static_cast<size_t>(pool.bytes()));
    pool.memory = bytes.data();
  }

  kvcache::KvPool pool;
  std::vector<kvcache::SlotRun> slots;
  std::vector<std::byte> bytes;
};

std::vector<int32_t> SlotsOf(std::span<const kvcache::SlotRun> runs) {
  std::vector<int32_t> slots;
  for (const kvcache::SlotRun& run : runs) {
    for (int64_t i = 0; i < run.tokens; ++i) slots.push_back(static_cast<int32_t>(run.slot + i));
  }
  return slots;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedKvCoder>> StagedKvCoder::Create(kernels::Device* device) {
  std::unique_ptr<StagedKvCoder> coder(new StagedKvCoder(device));
  for (int i = 0; i < kLanes; ++i) {
    auto stream = device->CreateStream();
    if (!stream.ok()) return stream.status();
    auto memory = device->Allocate(kStagingBytes / kLanes);
    if (!memory.ok()) return memory.status();
    auto host = device->AllocateHost(kStagingBytes / kLanes);
    if (!host.ok()) return host.status();
    coder->lanes_.push_back({*std::move(stream), *std::move(memory), *std::move(host)});
  }
  for (Lane& lane : coder->lanes_) coder->free_.push_back(&lane);
  return coder;
}

StagedKvCoder::Work StagedKvCoder::Encoding(v1::KvCodec codec, const kvcache::KvPool& pool,
                                            const kvcache::KvShare& part,
                                            std::span<const kvcache::SlotRun> slots) {
  Work work = Decoding(codec, pool.type, part, slots, pool);
  work.encodes = true;
  return work;
}

StagedKvCoder::Work StagedKvCoder::Decoding(v1::KvCodec codec, kernels::DType wire_type,
                                            const kvcache::KvShare& part,
                                            std::span<const kvcache::SlotRun> slots,
                                            const kvcache::KvPool& pool) {
  return {.pool = pool,
          .part = part,
          .coding = CodingOf(codec),
          .wire_type = wire_type,
          .slots = SlotsOf(slots)};
}

absl::Status StagedKvCoder::Encode(v1::KvCodec codec, const kvcache::KvPool& pool,
                                   const kvcache::KvShare& part,
                                   std::span<const kvcache::SlotRun> slots,
                                   std::span<std::byte> out) {
  if (!OnDevice(pool, codec, pool.type)) {
    Rows rows(pool, part, slots);
    absl::Status status = Encode(v1::KV_CODEC_RAW, pool, part, slots, rows.bytes);
    if (status.ok()) EncodeKv(codec, rows.pool, part, rows.slots, out.data());
    return status;
  }
  Work work = Encoding(codec, pool, part, slots);
  work.out = out.data();
  return Run(work);
}

absl::Status StagedKvCoder::Decode(v1::KvCodec codec, std::span<const std::byte> in,
                                   kernels::DType type, const kvcache::KvShare& part,
                                   std::span<const kvcache::SlotRun> slots,
                                   const kvcache::KvPool& pool) {
  if (!OnDevice(pool, codec, type)) {
    Rows rows(pool, part, slots);
    DecodeKv(codec, in, type, part, rows.slots, rows.pool);
    return Decode(v1::KV_CODEC_RAW, rows.bytes, pool.type, part, slots, pool);
  }
  Work work = Decoding(codec, type, part, slots, pool);
  work.in = in.data();
  return Run(work);
}

absl::Status StagedKvCoder::EncodeOnDevice(v1::KvCodec codec, const kvcache::KvPool& pool,
                                           const kvcache::KvShare& part,
                                           std::span<const kvcache::SlotRun> slots,
                                           std::span<std::byte> out) {
  if (!OnDevice(pool, codec, pool.type)) {
    std::vector<std::byte> wire(out.size());
    absl::Status status = Encode(codec, pool, part, slots, wire);
    return status.ok() ? Copy(out.data(), wire.data(), out.size(), /*to_device=*/true) : status;
  }
  Work work = Encoding(codec, pool, part, slots);
  work.on_device = out.data();
  return Run(work);
}

absl::Status StagedKvCoder::DecodeOnDevice(v1::KvCodec codec, std::span<const std::byte> in,
                                           kernels::DType type, const kvcache::KvShare& part,
                                           std::span<const kvcache::SlotRun> slots,
                                           const kvcache::KvPool& pool) {
  if (!OnDevice(pool, codec, type)) {
    std::vector<std::byte> wire(in.size());
    absl::Status status = Copy(wire.data(), in.data(), in.size(), /*to_device=*/false);
    return status.ok() ? Decode(codec, wire, type, part, slots, pool) : status;
  }
  Work work = Decoding(codec, type, part, slots, pool);
  work.on_device = const_cast<std::byte*>(in.data());  // a tensor view has no const one
  return Run(work);
}

absl::Status StagedKvCoder::Copy(std::byte* to, const std::byte* from, size_t bytes,
                                 bool to_device) {
  Lane& lane = TakeLane();
  const auto count = static_cast<int64_t>(bytes);
  absl::Status status = to_device ? lane.stream->CopyToDevice(to, from, count)
                                  : lane.stream->CopyToHost(to, from, count);
  status.Update(lane.stream->Synchronize());
  GiveLane(lane);
  return status;
}

absl::Status StagedKvCoder::Run(const Work& work) {
  const Pass all = {.planes = work.pool.planes * work.part.layers.size(),
                    .heads = work.part.kv_heads.size(),
                    .tokens = static_cast<int64_t>(work.slots.size())};
  if (BytesOf(work, all) == 0) return absl::OkStatus();
  Lane& lane = TakeLane();
  absl::Status status = RunPass(work, all, 0, lane);
  GiveLane(lane);
  return status;
}

int64_t StagedKvCoder::BytesOf(const Work& work, const Pass& pass) {
  const auto bytes = [&](bool values_first, int64_t planes) {
    return kernels::KvPlanesBytes(values_first, planes, pass.heads, pass.tokens,
                                  RowElements(work.pool), work.coding,
                                  kernels::SizeInBytes(work.wire_type));
  };
  if (work.pool.planes == 1) return pass.planes * bytes(false, 1);
  return bytes(pass.first_plane % 2 == 1, pass.planes);
}

// The wire has plane by plane, in a plane head by head, in a head group by group: so its halves are
// cut between planes, else between heads, else between groups.
absl::Status StagedKvCoder::RunPass(const Work& work, const Pass& pass, int64_t at, Lane& lane) {
  const int64_t bytes = BytesOf(work, pass);
  // Ops take keys and values by turns: of planes of one kind, one at a time.
  const bool by_turns = work.pool.planes == kvcache::kKvPlanes || pass.planes == 1;
  if (by_turns && bytes <= kMaxPassBytes && pass.tokens <= kMaxPassTokens)
    return Move(work, pass, at, bytes, lane);
  Pass first = pass, rest = pass;
  if (pass.planes > 1) {
    first.planes = pass.planes / 2;
    rest.first_plane += first.planes;
    rest.planes -= first.planes;
  } else if (pass.heads > 1) {
    first.heads = pass.heads / 2;
    rest.first_head += first.heads;
    rest.heads -= first.heads;
  } else if (pass.tokens > kernels::kKvGroup) {
    const int64_t groups = (pass.tokens + kernels::kKvGroup - 1) / kernels::kKvGroup;
    first.tokens = (groups + 1) / 2 * kernels::kKvGroup;
    rest.first_token += first.tokens;
    rest.tokens -= first.tokens;
  } else {
    return absl::InvalidArgumentError(StrCat("KV of ", pass.tokens, " tokens of one head takes ",
                                             bytes, " bytes; a GPU's worker stages at most ",
                                             kMaxPassBytes));
  }
  absl::Status status = RunPass(work, first, at, lane);
  return status.ok() ? RunPass(work, rest, at + BytesOf(work, first), lane) : status;
}

absl::Status StagedKvCoder::Move(const Work& work, const Pass& pass, int64_t at, int64_t bytes,
                                 Lane& lane) {
  const kvcache::KvPool& pool = work.pool;
  // Layers of a part have the same blocks (kv_part_writer.h).
  const int64_t slots = pool.SlotsOf(work.part.layers.begin);
  std::byte* const first =
      pool.At(work.part.layers.begin + static_cast<int32_t>(pass.first_plane / pool.planes),
              static_cast<int>(pass.first_plane % pool.planes),
              work.part.kv_heads.begin + static_cast<int32_t>(pass.first_head), 0);
  TensorView cache(first, pool.type, {pass.planes, pass.heads, slots, RowElements(pool)});
  cache.row_stride = pool.share.kv_heads.size() * slots * RowElements(pool);
  const kernels::KvWireArgs args = {
      .cache = cache,
      .values_first = pass.first_plane % pool.planes == 1,
      .slots = TensorView(lane.device.data(), DType::kI32, {pass.tokens}),
      .wire = TensorView(
          work.on_device == nullptr ? lane.device.data() + kSlotBytes : work.on_device + at,
          DType::kI8, {bytes}),
      .coding = work.coding,
      .wire_dtype = work.wire_type};
  std::memcpy(lane.host.data(), work.slots.data() + pass.first_token,
              static_cast<size_t>(pass.tokens) * sizeof(int32_t));
  kernels::Stream& stream = *lane.stream;
  kernels::Ops& ops = device_->ops();
  std::byte* const wire = lane.host.data() + kSlotBytes;
  absl::Status status = stream.CopyToDevice(args.slots.data, lane.host.data(),
                                            pass.tokens * int64_t{sizeof(int32_t)});
  if (work.in != nullptr) {
    std::memcpy(wire, work.in + at, static_cast<size_t>(bytes));
    if (status.ok()) status = stream.CopyToDevice(args.wire.data, wire, bytes);
  }
  if (status.ok()) status = work.encodes ? ops.EncodeKv(args, stream) : ops.DecodeKv(args, stream);
  if (work.out != nullptr && status.ok()) status = stream.CopyToHost(wire, args.wire.data, bytes);
  // Also after a failure: what was enqueued still uses the lane.
  status.Update(stream.Synchronize());
  if (status.ok() && work.out != nullptr)
    std::memcpy(work.out + at, wire, static_cast<size_t>(bytes));
  return status;
}

StagedKvCoder::Lane& StagedKvCoder::TakeLane() {
  std::unique_lock lock(mutex_);
  given_.wait(lock, [this] { return !free_.empty(); });
  Lane* const lane = free_.back();
  free_.pop_back();
  return *lane;
}

void StagedKvCoder::GiveLane(Lane& lane) {
  {
    std::lock_guard lock(mutex_);
    free_.push_back(&lane);
  }
  given_.notify_one();
}

}  // namespace tessera::worker
