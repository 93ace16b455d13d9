#include "worker/transfer/kv_outbox.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "kernels/links/handshake.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/engine/kv_messages.h"
#include "worker/transfer/device_offer.h"
#include "worker/transfer/device_transport.h"
#include "worker/transfer/kv_codec.h"
#include "worker/transfer/kv_ends.h"
#include "worker/transfer/kv_frame.h"
#include "worker/transfer/shared_memory_transport.h"
#include "worker/transfer/socket_transport.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kConnectSeconds = 5;

// What was asked for and cannot be had.
absl::Status NotToBeHad(KvTransport asked, const v1::KvRoute& route, std::string_view why) {
  std::string addresses;
  for (const std::string& address : route.addresses())
    addresses += StrCat(addresses.empty() ? "" : ", ", address);
  return absl::UnavailableError(
      StrCat("KV over ", Name(asked), " was asked for (--kv-transport), and ", why,
             "; the receiver can be reached at ", addresses, ": ask for auto, or for another one"));
}

// Whether a transport goes to an address of this kind.
bool Suits(std::optional<KvTransport> asked, const kernels::LinkAddress& address) {
  if (!asked.has_value() || *asked == KvTransport::kNccl) return true;
  return address.is_unix() == (*asked != KvTransport::kTcp);
}

// For a part that goes one way.
bool HoldsStates(const v1::KvShare& part) { return part.key_groups().end() > 0; }

absl::Status Stopped() { return absl::CancelledError("the KV is not wanted any more"); }

}  // namespace

struct KvOutbox::Parcel {
  ParcelId id = 0;
  KvParcel order;
  // Used by the thread that ships it.
  std::unique_ptr<kernels::Link> link;
  std::unique_ptr<KvSendChannel> channel;
  int64_t timed_bytes = 0;  // of large pieces
  std::chrono::nanoseconds timed{0};

  // With mutex_ held.
  std::condition_variable changed;
  std::deque<Ready> ready;
  std::map<int32_t, int64_t> next;     // by layer: the first token that is not in `ready` yet
  kernels::Link* live_link = nullptr;  // to shut down
  bool stopped = false;
  bool reading = false;        // the pool
  bool exchanging = false;     // with the peer's device, which would fail with the link
  bool reporting = false;      // `done` is being called
  int64_t missing_tokens = 0;  // layers times tokens that were not added
};

KvOutbox::KvOutbox(KvOutboxOptions options) : options_(std::move(options)) {
  threads_.emplace_back([this] { Run(); });
}

KvOutbox::~KvOutbox() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, parcel] : parcels_) {
      if (parcel->live_link != nullptr) {
        parcel->live_link->Shutdown(absl::CancelledError("the worker is shutting down"));
      }
      parcel->changed.notify_all();
    }
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

KvOutbox::ParcelId KvOutbox::Open(KvParcel order) {
  auto parcel = std::make_shared<Parcel>();
  parcel->order = std::move(order);
  const IndexRange layers = ToIndexRange(parcel->order.route.part().layers());
  for (int32_t layer = layers.begin; layer < layers.end; ++layer)
    parcel->missing_tokens += parcel->order.end - parcel->order.FirstOf(layer);
  std::lock_guard lock(mutex_);
  parcel->id = ++last_id_;
  parcels_.emplace(parcel->id, parcel);
  waiting_.push_back(parcel);
  if (idle_threads_ < static_cast<int>(waiting_.size()) &&
      static_cast<int>(threads_.size()) < kMaxParcelsAtOnce) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {  // no more threads: those that there are take it in turn
    }
  }
  changed_.notify_one();
  return parcel->id;
}

void KvOutbox::Add(ParcelId id, int32_t layer, std::shared_ptr<const std::vector<int32_t>> table,
                   int64_t end) {
  std::lock_guard lock(mutex_);
  const auto found = parcels_.find(id);
  if (found == parcels_.end() || found->second->stopped) return;
  Parcel& parcel = *found->second;
  const KvParcel& order = parcel.order;
  const int64_t first = order.FirstOf(layer);
  int64_t& next = parcel.next.try_emplace(layer, first).first->second;
  const int64_t group = TokensPerGroup(order.codec);
  const int64_t whole = end == order.end ? end : end - (end - first) % group;
  if (whole <= next) return;
  parcel.ready.push_back({layer, std::move(table), next, whole});
  parcel.missing_tokens -= whole - next;
  next = whole;
  parcel.changed.notify_all();
}

void KvOutbox::Stop(ParcelId id) {
  std::unique_lock lock(mutex_);
  const auto found = parcels_.find(id);
  if (found == parcels_.end()) return;
  const std::shared_ptr<Parcel> parcel = found->second;
  parcel->stopped = true;
  if (parcel->live_link != nullptr && !parcel->exchanging) parcel->live_link->Shutdown(Stopped());
  parcel->changed.notify_all();
  parcel->changed.wait(lock, [&] { return !parcel->reading && !parcel->reporting; });
}

std::vector<v1::LinkCounters> KvOutbox::counters() const {
  std::lock_guard lock(mutex_);
  std::vector<v1::LinkCounters> all;
  for (const auto& [key, counters] : counters_) all.push_back(counters);
  return all;
}

void KvOutbox::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_threads_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_threads_;
    if (waiting_.empty()) return;
    const std::shared_ptr<Parcel> parcel = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const KvParcelOutcome outcome = Ship(*parcel);
    lock.lock();
    parcel->live_link = nullptr;
    Count(*parcel, outcome);
    if (!parcel->stopped) {
      parcel->reporting = true;
      lock.unlock();
      parcel->order.done(outcome);
      lock.lock();
      parcel->reporting = false;
    }
    parcels_.erase(parcel->id);
    parcel->changed.notify_all();
  }
}

KvParcelOutcome KvOutbox::Ship(Parcel& parcel) {
  KvParcelOutcome outcome;
  outcome.status = Dial(parcel);
  if (outcome.status.ok()) outcome.status = OpenChannel(parcel);
  outcome.staged = CoderOf(parcel.order.pool, options_.coder).stages() &&
                   !(parcel.channel != nullptr && parcel.channel->on_device());
  if (outcome.status.ok()) outcome.status = SendAll(parcel);
  if (outcome.status.ok()) {
    const absl::StatusOr<bool> staged = parcel.channel->AwaitComplete(options_.wait_seconds);
    outcome.status = staged.status();
    outcome.staged |= staged.value_or(false);
  }
  if (parcel.channel != nullptr) {
    outcome.bytes = parcel.channel->bytes_sent();
    outcome.transport = parcel.channel->transport();
    parcel.channel.reset();  // and with it the turn of its pair
  } else if (parcel.link != nullptr) {
    outcome.bytes = parcel.link->counters().bytes_sent;
    outcome.transport = parcel.link->is_unix() ? KvTransport::kUnix : KvTransport::kTcp;
  }
  return outcome;
}

void KvOutbox::Count(const Parcel& parcel, const KvParcelOutcome& outcome) {
  const uint64_t peer = parcel.order.route.incarnation();
  v1::LinkCounters& counters = counters_[{peer, outcome.transport}];
  counters.set_kind(v1::LINK_KIND_KV);
  counters.set_transport(std::string(Name(outcome.transport)));
  counters.set_peer_incarnation(peer);
  counters.set_bytes_sent(counters.bytes_sent() + static_cast<uint64_t>(outcome.bytes));
  counters.set_timed_bytes(counters.timed_bytes() + static_cast<uint64_t>(parcel.timed_bytes));
  counters.set_timed_seconds(counters.timed_seconds() +
                             std::chrono::duration<double>(parcel.timed).count());
  if (!outcome.status.ok() && !parcel.stopped) counters.set_failures(counters.failures() + 1);
}

absl::Status KvOutbox::Dial(Parcel& parcel) {
  const v1::KvRoute& route = parcel.order.route;
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(options_.incarnation);
  identity.set_peer_incarnation(route.incarnation());
  identity.set_kind(v1::LINK_KIND_KV);
  identity.set_ticket(route.ticket());
  kernels::HandshakeOptions handshake;
  handshake.token = options_.cluster_token;
  handshake.identity = identity.SerializeAsString();
  handshake.timeout_seconds = kConnectSeconds;
  handshake.verify = [&route](std::string_view text) {
    v1::LinkIdentity peer;
    if (peer.ParseFromString(std::string(text)) && peer.incarnation() == route.incarnation()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError("another process than the KV is for answers there");
  };
  absl::Status last = absl::UnavailableError("it named no address for KV");
  const auto over = [&] {
    std::lock_guard lock(mutex_);
    return stopping_ || parcel.stopped;
  };
  bool tried = false;
  for (const std::string& text : route.addresses()) {
    if (over()) return Stopped();
    const auto address = kernels::ParseLinkAddress(text);
    if (!address.ok()) return address.status();
    if (!Suits(options_.transport, *address)) {
      if (!tried) last = NotToBeHad(*options_.transport, route, "the receiver has no such address");
      continue;
    }
    tried = true;
    auto link = kernels::ConnectLink(*address, kConnectSeconds, options_.tls.get());
    if (!link.ok()) {
      last = options_.transport.has_value()
                 ? NotToBeHad(*options_.transport, route, StdView(link.status().message()))
                 : link.status();
      continue;
    }
    parcel.link = *std::move(link);
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || parcel.stopped) return Stopped();
      parcel.live_link = parcel.link.get();
    }
    return HandshakeAsClient(*parcel.link, handshake).status();  // the ticket is spent
  }
  return last;
}

absl::StatusOr<std::shared_ptr<PairedDevice>> KvOutbox::FindDevice(Parcel& parcel) {
  const v1::KvRoute& route = parcel.order.route;
  OfferedDevice offered = {nullptr, "this worker's device has no NCCL"};
  if (options_.pairs != nullptr) {
    auto answered = OfferDevice(*parcel.link, *options_.pairs, route.incarnation(), [&] {
      std::lock_guard lock(mutex_);
      return stopping_ || parcel.stopped;
    });
    if (!answered.ok()) return answered.status();
    offered = *std::move(answered);
  }
  if (offered.device == nullptr && options_.transport.has_value())
    return NotToBeHad(*options_.transport, route, offered.why_not);
  std::lock_guard lock(mutex_);
  std::string& logged = through_host_[route.incarnation()];
  if (logged != offered.why_not) {
    logged = offered.why_not;
    Logger("worker").info(
        "KV to {} goes {}", parcel.link->peer(),
        logged.empty() ? "from device to device again" : StrCat("through the hosts: ", logged));
  }
  return offered.device;
}

absl::Status KvOutbox::OpenChannel(Parcel& parcel) {
  if (parcel.order.pool.in_host_memory) return OpenHostChannel(parcel);
  const bool insists = options_.transport == KvTransport::kNccl;
  if (insists || (options_.pairs != nullptr && !options_.transport.has_value())) {
    auto device = FindDevice(parcel);
    if (!device.ok()) return device.status();
    if (*device != nullptr) {
      parcel.channel = OpenDeviceChannel(parcel.link.get(), *std::move(device));
      return absl::OkStatus();
    }
  }
  return OpenHostChannel(parcel);
}

// Unless it was asked for by name, memory that cannot be had leaves the socket.
absl::Status KvOutbox::OpenHostChannel(Parcel& parcel) const {
  const std::optional<KvTransport>& asked = options_.transport;
  const bool shares_memory =
      asked.has_value() ? *asked == KvTransport::kSharedMemory : parcel.link->is_unix();
  if (shares_memory) {
    auto shared = OpenSharedMemoryChannel(parcel.link.get(), options_.wait_seconds);
    if (shared.ok()) {
      parcel.channel = *std::move(shared);
      return absl::OkStatus();
    }
    if (!absl::IsResourceExhausted(shared.status())) return shared.status();
    if (asked.has_value())
      return NotToBeHad(*asked, parcel.order.route, StdView(shared.status().message()));
  }
  parcel.channel = OpenSocketChannel(parcel.link.get());
  return absl::OkStatus();
}

absl::StatusOr<KvOutbox::Ready> KvOutbox::Next(Parcel& parcel) {
  std::unique_lock lock(mutex_);
  // States come behind all keys and values, which are sent beside them and say if nothing comes.
  const double idle_seconds =
      HoldsStates(parcel.order.route.part()) ? kStatesSeconds : options_.idle_seconds;
  const bool comes =
      parcel.changed.wait_for(lock, std::chrono::duration<double>(idle_seconds),
                              [&] { return stopping_ || parcel.stopped || !parcel.ready.empty(); });
  if (!comes) {
    return absl::DeadlineExceededError(
        StrCat("no more KV to send was computed within ", idle_seconds, " s"));
  }
  if (stopping_ || parcel.stopped) return Stopped();
  Ready ready = std::move(parcel.ready.front());
  parcel.ready.pop_front();
  return ready;
}

absl::Status KvOutbox::SendAll(Parcel& parcel) {
  const auto has_all = [&] {
    std::lock_guard lock(mutex_);
    return parcel.missing_tokens <= 0 && parcel.ready.empty();
  };
  while (!has_all()) {
    const absl::StatusOr<Ready> ready = Next(parcel);
    if (!ready.ok()) return ready.status();
    const absl::Status sent = SendPieces(parcel, *ready);
    if (!sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status KvOutbox::SendPieces(Parcel& parcel, const Ready& ready) {
  const kvcache::KvPool& pool = parcel.order.pool;
  const v1::KvCodec codec = parcel.order.codec;
  const v1::KvShare& route = parcel.order.route.part();
  const bool states = HoldsStates(route);
  const v1::Range& heads = states ? route.key_groups() : route.kv_heads();
  const kvcache::KvShare part = {{ready.layer, ready.layer + 1}, ToIndexRange(heads)};
  v1::KvPiece piece;
  piece.set_dtype(ToProto(pool.type));
  piece.set_codec(codec);
  *(states ? piece.mutable_key_groups() : piece.mutable_kv_heads()) = heads;
  piece.mutable_layers()->set_begin(part.layers.begin);
  piece.mutable_layers()->set_end(part.layers.end);
  const int64_t group = TokensPerGroup(codec);
  const int64_t group_bytes = KvPieceBytes(codec, part, group, pool, pool.type);
  const int64_t most =
      group * std::max<int64_t>(1, parcel.channel->max_piece_bytes() / group_bytes);
  for (int64_t begin = ready.first; begin < ready.end; begin += most) {
    const int64_t end = std::min(begin + most, ready.end);
    const Clock::time_point began = Clock::now();
    const auto elements = parcel.channel->Prepare(
        KvPieceBytes(codec, part, end - begin, pool, pool.type), options_.wait_seconds);
    if (!elements.ok()) return elements.status();
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || parcel.stopped) return Stopped();
      parcel.reading = true;
    }
    const auto slots = kvcache::SlotRuns(*ready.table, pool.block_tokens, begin, end);
    KvCoder& coder = CoderOf(pool, options_.coder);
    const absl::Status encoded = parcel.channel->on_device()
                                     ? coder.EncodeOnDevice(codec, pool, part, slots, *elements)
                                     : coder.Encode(codec, pool, part, slots, *elements);
    {
      std::lock_guard lock(mutex_);
      parcel.reading = false;
      parcel.changed.notify_all();
    }
    if (!encoded.ok()) return encoded;
    piece.set_first_token(static_cast<int32_t>(begin));
    piece.set_end_token(static_cast<int32_t>(end));
    if (options_.pace) options_.pace(piece);
    if (absl::Status sent = SendPiece(parcel, piece); !sent.ok()) return sent;
    if (static_cast<int64_t>(elements->size()) < kernels::kTimedPayloadBytes) continue;
    parcel.timed += Clock::now() - began;
    parcel.timed_bytes += static_cast<int64_t>(elements->size());
  }
  return absl::OkStatus();
}

absl::Status KvOutbox::SendPiece(Parcel& parcel, const v1::KvPiece& piece) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || parcel.stopped) return Stopped();
    parcel.exchanging = parcel.channel->on_device();
  }
  absl::Status sent = parcel.channel->Send(piece, options_.wait_seconds);
  std::lock_guard lock(mutex_);
  parcel.exchanging = false;
  return parcel.stopped ? Stopped() : sent;
}

}  // namespace tessera::worker
