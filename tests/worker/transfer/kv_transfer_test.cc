// KV between two workers' pools over links: what arrives, and what is refused without writing.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/links/handshake.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/protocol.h"
#include "tests/temporary_folder.h"
#include "worker/transfer/kv_channel.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::worker {
namespace {

constexpr std::byte kUntouched{0xee};
constexpr uint64_t kReceiver = 77;
constexpr int64_t kBlocks = 8, kBlockTokens = 4, kHeadDim = 3;

struct Pool {
  explicit Pool(std::byte fill) {
    view = {nullptr, {{0, 2}, {0, 3}}, kernels::DType::kF32, kBlocks, kBlockTokens, kHeadDim};
    memory.assign(static_cast<size_t>(view.bytes()), fill);
    view.memory = memory.data();
  }
  std::vector<std::byte> memory;
  kvcache::KvPool view;
};

// What came of a room or a shipment.
class Outcome {
 public:
  std::function<void(const absl::Status&)> Setter() {
    return [promise = promise_](const absl::Status& status) { promise->set_value(status); };
  }
  absl::Status Wait() {
    REQUIRE(future_.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    return future_.get();
  }
  bool has_come() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::shared_ptr<std::promise<absl::Status>> promise_ =
      std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future_ = promise_->get_future();
};

struct Ends {
  explicit Ends(const std::string& token = "secret",
                std::optional<KvTransport> transport = std::nullopt,
                const std::vector<std::string>& listen = {"127.0.0.1:0"}) {
    auto started = KvInbox::Start({listen, token, kReceiver});
    REQUIRE(started.ok());
    inbox = *std::move(started);
    outbox = std::make_unique<KvOutbox>(KvOutboxOptions{
        .cluster_token = token, .incarnation = 5, .wait_seconds = 5, .transport = transport});
    for (size_t i = 0; i < from.memory.size(); ++i) from.memory[i] = static_cast<std::byte>(i * 7);
  }
  // Tokens 5 to 17 of a sequence, all layers and heads.
  v1::KvRoute Expect(Outcome* outcome, double lease_seconds = 30) {
    return Expect(outcome->Setter(), lease_seconds);
  }
  v1::KvRoute Expect(std::function<void(const absl::Status&)> done, double lease_seconds = 30) {
    KvPartRoom room;
    room.place.pool = to.view;
    room.place.part = to.view.share;
    room.place.table = to_table;
    room.place.first = 5;
    room.place.end = 18;
    room.lease_seconds = lease_seconds;
    room.done = std::move(done);
    v1::KvRoute route = RouteTo(inbox->addresses());
    route.set_ticket(inbox->Expect(std::move(room)));
    return route;
  }
  static v1::KvRoute RouteTo(const std::vector<std::string>& addresses) {
    v1::KvRoute route;
    for (const std::string& address : addresses) route.add_addresses(address);
    route.set_incarnation(kReceiver);
    route.mutable_part()->mutable_layers()->set_end(2);
    route.mutable_part()->mutable_kv_heads()->set_end(3);
    return route;
  }
  KvOutbox::ParcelId Open(const v1::KvRoute& route, Outcome* outcome) {
    KvParcel parcel;
    parcel.route = route;
    parcel.pool = from.view;
    parcel.first = 5;
    parcel.end = 18;
    parcel.done = [set = outcome->Setter()](const KvParcelOutcome& o) { set(o.status); };
    return outbox->Open(std::move(parcel));
  }
  void Add(KvOutbox::ParcelId id, int32_t layer, int64_t end) {
    outbox->Add(id, layer, std::make_shared<const std::vector<int32_t>>(from_table), end);
  }
  KvOutbox::ParcelId Send(const v1::KvRoute& route, Outcome* outcome) {
    const KvOutbox::ParcelId id = Open(route, outcome);
    for (const int32_t layer : {0, 1}) Add(id, layer, 18);
    return id;
  }
  // What refuses says so to its peer before it counts.
  bool RefusesInTime(int64_t count) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (inbox->refused() < count && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return inbox->refused() == count;
  }
  bool untouched() const {
    return std::all_of(to.memory.begin(), to.memory.end(),
                       [](std::byte b) { return b == kUntouched; });
  }

  Pool from{std::byte{0}}, to{kUntouched};
  std::vector<int32_t> from_table = {7, 0, 1, 5, 2}, to_table = {3, 4, 6, 0, 1};
  std::unique_ptr<KvInbox> inbox;
  std::unique_ptr<KvOutbox> outbox;
};

// A connection that is past its handshake.
std::unique_ptr<kernels::Link> Connect(const v1::KvRoute& route, const std::string& token) {
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(5);
  identity.set_peer_incarnation(route.incarnation());
  identity.set_kind(v1::LINK_KIND_KV);
  identity.set_ticket(route.ticket());
  auto link = kernels::ConnectLink(*kernels::ParseLinkAddress(route.addresses(0)), 5);
  REQUIRE(link.ok());
  kernels::HandshakeOptions handshake;
  handshake.token = token;
  handshake.identity = identity.SerializeAsString();
  return HandshakeAsClient(**link, handshake).ok() ? *std::move(link) : nullptr;
}

v1::KvPiece Piece(int64_t first, int64_t end) {
  v1::KvPiece piece;
  piece.mutable_layers()->set_begin(0);
  piece.mutable_layers()->set_end(1);
  piece.mutable_kv_heads()->set_begin(0);
  piece.mutable_kv_heads()->set_end(3);
  piece.set_first_token(static_cast<int32_t>(first));
  piece.set_end_token(static_cast<int32_t>(end));
  piece.set_dtype(v1::DATA_TYPE_FLOAT32);
  return piece;
}

void SendPiece(kernels::Link* link, const v1::KvPiece& piece, int64_t bytes) {
  const std::string header = piece.SerializeAsString();
  const auto length = static_cast<uint32_t>(header.size());
  std::string payload(reinterpret_cast<const char*>(&length), sizeof length);
  payload += header;
  payload.append(static_cast<size_t>(bytes), '\1');
  const auto* data = reinterpret_cast<const std::byte*>(payload.data());
  REQUIRE(link->Send(static_cast<uint16_t>(KvFrame::kPiece),
                     absl::Span<const std::byte>(data, payload.size()), 5)
              .ok());
}

constexpr int64_t PieceBytes(int64_t tokens) { return 2 * 3 * tokens * kHeadDim * 4; }

TEST_CASE("KV arrives in the blocks that were kept for it, whatever the transport") {
  const tests::TemporaryFolder folder;
  struct Case {
    std::optional<KvTransport> asked;
    bool one_machine;
    std::string used;
  };
  const auto one = GENERATE(
      Case{{}, false, "tcp"}, Case{{}, true, "shm"}, Case{KvTransport::kTcp, true, "tcp"},
      Case{KvTransport::kUnix, true, "unix"}, Case{KvTransport::kSharedMemory, true, "shm"});
  INFO(one.used);
  std::vector<std::string> listen = {"127.0.0.1:0"};
  if (one.one_machine) listen.insert(listen.begin(), "unix:" + (folder.path() / "kv").string());
  Ends ends("secret", one.asked, listen);
  for (const bool in_chunks : {false, true}) {
    Outcome arrived, sent;
    const KvOutbox::ParcelId id = ends.Open(ends.Expect(&arrived), &sent);
    if (in_chunks) {
      for (const int32_t layer : {0, 1}) ends.Add(id, layer, 9);
      for (const int32_t layer : {0, 1}) ends.Add(id, layer, 10);
    }
    ends.Add(id, 0, 18);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(sent.has_come());
    CHECK_FALSE(arrived.has_come());
    ends.Add(id, 1, 18);
    CHECK(sent.Wait().ok());
    CHECK(arrived.Wait().ok());
  }
  const auto slot = [](const std::vector<int32_t>& table, int64_t t) {
    return table[t / kBlockTokens] * kBlockTokens + t % kBlockTokens;
  };
  for (int32_t layer = 0; layer < 2; ++layer) {
    for (const int plane : {0, 1}) {
      for (int32_t head = 0; head < 3; ++head) {
        for (int64_t t = 0; t < 18; ++t) {
          const std::byte* got = ends.to.view.At(layer, plane, head, slot(ends.to_table, t));
          const std::byte* sent = ends.from.view.At(layer, plane, head, slot(ends.from_table, t));
          if (t >= 5) CHECK(std::memcmp(got, sent, kHeadDim * 4) == 0);
          if (t < 5)
            CHECK(std::all_of(got, got + kHeadDim * 4, [](auto b) { return b == kUntouched; }));
        }
      }
    }
  }
  const std::vector<v1::LinkCounters> counted = ends.outbox->counters();
  REQUIRE(counted.size() == 1);
  CHECK(counted[0].peer_incarnation() == kReceiver);
  CHECK(counted[0].transport() == one.used);
  CHECK(counted[0].bytes_sent() > uint64_t{2 * 2 * PieceBytes(13)});
  CHECK(counted[0].failures() == 0);
  CHECK(ends.inbox->refused() == 0);
}

TEST_CASE("layers with a window send what is still seen, into blocks of their own") {
  constexpr int64_t kWindowFirst = 8;
  Ends ends;
  Pool from(std::byte{1}), to(kUntouched);
  for (Pool* pool : {&from, &to}) {  // layer 0 has the window
    pool->view.windowed = {true, false};
    pool->view.window_blocks = 3;
    pool->memory.resize(static_cast<size_t>(pool->view.bytes()));
    pool->view.memory = pool->memory.data();
  }
  REQUIRE(from.view.bytes() == 2 * 3 * (kBlocks + 3) * kBlockTokens * kHeadDim * 4);
  for (size_t i = 0; i < from.memory.size(); ++i) from.memory[i] = static_cast<std::byte>(i * 7);
  const std::vector<int32_t> from_window = {-1, -1, 2, 0, 1}, to_window = {-1, -1, 1, 2, 0};
  Outcome arrived, sent;
  KvPartRoom room;
  room.place = {to.view, to.view.share, v1::KV_CODEC_RAW, ends.to_table, 5,
                18,      to_window,     kWindowFirst};
  room.done = arrived.Setter();
  KvParcel parcel;
  parcel.route = Ends::RouteTo(ends.inbox->addresses());
  parcel.route.set_ticket(ends.inbox->Expect(std::move(room)));
  parcel.pool = from.view;
  parcel.first = 5;
  parcel.end = 18;
  parcel.window_first = kWindowFirst;
  parcel.done = [set = sent.Setter()](const KvParcelOutcome& o) { set(o.status); };
  const KvOutbox::ParcelId id = ends.outbox->Open(std::move(parcel));
  const auto add = [&](int32_t layer, const std::vector<int32_t>& table, int64_t end) {
    ends.outbox->Add(id, layer, std::make_shared<const std::vector<int32_t>>(table), end);
  };
  for (const int64_t end : {6, 13, 18}) {
    add(0, from_window, end);
    add(1, ends.from_table, end);
  }
  CHECK(sent.Wait().message() == "");
  CHECK(arrived.Wait().message() == "");
  size_t written = 0;
  for (const int32_t layer : {0, 1}) {
    const auto& of_from = layer == 0 ? from_window : ends.from_table;
    const auto& of_to = layer == 0 ? to_window : ends.to_table;
    for (int64_t token = layer == 0 ? kWindowFirst : 5; token < 18; ++token) {
      const auto slot = [&](const std::vector<int32_t>& table) {
        return table[token / kBlockTokens] * kBlockTokens + token % kBlockTokens;
      };
      for (const int plane : {0, 1}) {
        for (const int32_t head : {0, 1, 2}) {
          CHECK(std::memcmp(to.view.At(layer, plane, head, slot(of_to)),
                            from.view.At(layer, plane, head, slot(of_from)), kHeadDim * 4) == 0);
          written += kHeadDim * 4;
        }
      }
    }
  }
  const auto untouched = std::count(to.memory.begin(), to.memory.end(), kUntouched);
  CHECK(static_cast<size_t>(untouched) + written >= to.memory.size());
}

TEST_CASE("strangers that connect and say nothing do not hold up KV") {
  Ends ends;
  const auto address = kernels::ParseLinkAddress(ends.inbox->addresses()[0]);
  std::vector<std::unique_ptr<kernels::Link>> strangers;
  for (int i = 0; i < 64; ++i) {
    auto link = kernels::ConnectLink(*address, 30);
    REQUIRE(link.ok());
    strangers.push_back(*std::move(link));
  }
  const auto begin = std::chrono::steady_clock::now();
  Outcome arrived, sent;
  ends.Send(ends.Expect(&arrived), &sent);
  CHECK(sent.Wait().ok());
  CHECK(arrived.Wait().ok());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
}

TEST_CASE("a transport that was asked for and cannot be had is an error that names both") {
  for (const KvTransport asked : {KvTransport::kSharedMemory, KvTransport::kUnix}) {
    Ends ends("secret", asked);
    Outcome arrived, sent;
    const v1::KvRoute route = ends.Expect(&arrived);
    ends.Send(route, &sent);
    const absl::Status refused = sent.Wait();
    CHECK(absl::IsUnavailable(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains(std::string(Name(asked))) &&
                                                   Catch::Contains(ends.inbox->addresses()[0]) &&
                                                   Catch::Contains("--kv-transport"));
    CHECK(ends.untouched());
    ends.inbox->Forget(route.ticket());
  }
  const tests::TemporaryFolder folder;
  Ends ends("secret", KvTransport::kTcp, {"unix:" + (folder.path() / "kv").string()});
  Outcome arrived, sent;
  const v1::KvRoute route = ends.Expect(&arrived);
  ends.Send(route, &sent);
  CHECK_THAT(std::string(sent.Wait().message()), Catch::Contains("tcp was asked for"));
  ends.inbox->Forget(route.ticket());
}

TEST_CASE("a ticket that is used, unknown or another worker's opens nothing") {
  Ends ends;
  Outcome arrived, sent, again, made_up, other;
  const v1::KvRoute route = ends.Expect(&arrived);
  ends.Send(route, &sent);
  CHECK(sent.Wait().ok());
  const std::vector<std::byte> after = ends.to.memory;
  std::fill(ends.from.memory.begin(), ends.from.memory.end(), std::byte{1});
  ends.Send(route, &again);
  CHECK(absl::IsFailedPrecondition(again.Wait()));
  v1::KvRoute invented = route;
  invented.set_ticket("0123456789abcdef");
  ends.Send(invented, &made_up);
  const absl::Status refused = made_up.Wait();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("ticket is not known here"));
  Outcome waits;
  v1::KvRoute elsewhere = ends.Expect(&waits);
  elsewhere.set_incarnation(kReceiver + 1);
  ends.Send(elsewhere, &other);
  CHECK_FALSE(other.Wait().ok());
  CHECK(ends.to.memory == after);
  CHECK(ends.RefusesInTime(3));
  CHECK_FALSE(waits.has_come());
  ends.inbox->Forget(elsewhere.ticket());
}

TEST_CASE("who has not the cluster's token is refused, and its ticket stays good") {
  Ends ends;
  Outcome arrived;
  const v1::KvRoute route = ends.Expect(&arrived);
  CHECK(Connect(route, "guess") == nullptr);
  CHECK(ends.untouched());
  Outcome sent;
  ends.Send(route, &sent);
  CHECK(sent.Wait().ok());
  CHECK(arrived.Wait().ok());
}

TEST_CASE("strangers that connect and say nothing hold no KV up") {
  Ends ends;
  std::vector<std::unique_ptr<kernels::Link>> strangers;
  for (int i = 0; i < 10; ++i) {
    auto link = kernels::ConnectLink(*kernels::ParseLinkAddress(ends.inbox->addresses()[0]), 30);
    REQUIRE(link.ok());
    strangers.push_back(*std::move(link));
  }
  Outcome arrived, sent;
  ends.Send(ends.Expect(&arrived), &sent);
  CHECK(sent.Wait().ok());
}

TEST_CASE("an outcome that is being reported is heard before Forget returns") {
  Ends ends;
  std::promise<void> reporting;
  std::atomic<bool> reported = false;
  const v1::KvRoute route = ends.Expect([&](const absl::Status&) {
    reporting.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    reported = true;
  });
  Outcome sent;
  ends.Send(route, &sent);
  reporting.get_future().wait();
  ends.inbox->Forget(route.ticket());
  CHECK(reported);
  CHECK(sent.Wait().ok());
}

TEST_CASE("pieces outside their room, out of order or of a wrong size are refused unwritten") {
  struct Case {
    std::string what;
    v1::KvPiece piece;
    int64_t bytes;
  };
  std::vector<Case> cases = {{"an early token", Piece(4, 7), PieceBytes(3)},
                             {"a late token", Piece(5, 19), PieceBytes(14)},
                             {"a gap", Piece(6, 8), PieceBytes(2)},
                             {"too few bytes", Piece(5, 8), PieceBytes(3) - 1},
                             {"too many bytes", Piece(5, 8), PieceBytes(3) + 4},
                             {"a backward range", Piece(8, 5), 0}};
  cases.push_back({"a layer too many", Piece(5, 8), 2 * PieceBytes(3)});
  cases.back().piece.mutable_layers()->set_begin(1);
  cases.back().piece.mutable_layers()->set_end(3);
  cases.push_back({"a huge head", Piece(5, 8), PieceBytes(3)});
  cases.back().piece.mutable_kv_heads()->set_end(int64_t{1} << 40);
  cases.push_back({"another type", Piece(5, 8), PieceBytes(3)});
  cases.back().piece.set_dtype(v1::DATA_TYPE_INT8);
  cases.push_back({"another codec", Piece(5, 8), PieceBytes(3)});
  cases.back().piece.set_codec(v1::KV_CODEC_INT8);
  Ends ends;
  for (const Case& one : cases) {
    INFO(one.what);
    Outcome arrived;
    const auto link = Connect(ends.Expect(&arrived), "secret");
    REQUIRE(link != nullptr);
    SendPiece(link.get(), one.piece, one.bytes);
    CHECK(absl::IsInvalidArgument(arrived.Wait()));
    CHECK(ends.untouched());
  }
  CHECK(ends.RefusesInTime(static_cast<int64_t>(cases.size())));
}

TEST_CASE("a sender that dies, or says nothing, ends its room in bounded time") {
  Ends ends;
  Outcome dies, silent, unused;
  auto link = Connect(ends.Expect(&dies), "secret");
  SendPiece(link.get(), Piece(5, 8), PieceBytes(3));
  link.reset();
  CHECK(absl::IsUnavailable(dies.Wait()));
  const auto waits = Connect(ends.Expect(&silent, 0.2), "secret");
  ends.Expect(&unused, 0.2);
  CHECK(absl::IsDeadlineExceeded(silent.Wait()));
  CHECK(absl::IsDeadlineExceeded(unused.Wait()));
}

TEST_CASE("every piece that comes begins its room's lease anew") {
  Ends ends;
  Outcome arrived;
  const auto link = Connect(ends.Expect(&arrived, 3), "secret");
  for (const int layer : {0, 1}) {
    for (int token = 5; token < 18; ++token) {  // longer than the lease, all together
      CHECK_FALSE(arrived.has_come());
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      v1::KvPiece piece = Piece(token, token + 1);
      piece.mutable_layers()->set_begin(layer);
      piece.mutable_layers()->set_end(layer + 1);
      SendPiece(link.get(), piece, PieceBytes(1));
    }
  }
  CHECK(arrived.Wait().ok());
}

TEST_CASE("nothing is written behind Forget, and nothing is sent behind Stop") {
  Ends ends;
  Outcome forgotten;
  const v1::KvRoute route = ends.Expect(&forgotten);
  const auto link = Connect(route, "secret");
  ends.inbox->Forget(route.ticket());
  SendPiece(link.get(), Piece(5, 8), PieceBytes(3));
  CHECK(link->Receive(static_cast<uint16_t>(KvFrame::kComplete), absl::Span<std::byte>(), 10)
            .status()
            .code() == absl::StatusCode::kUnavailable);
  CHECK(ends.untouched());
  CHECK_FALSE(forgotten.has_come());

  Outcome arrived, stopped;
  const KvOutbox::ParcelId id = ends.Open(ends.Expect(&arrived, 1), &stopped);
  ends.Add(id, 0, 18);
  ends.outbox->Stop(id);
  ends.Add(id, 1, 18);
  CHECK_FALSE(arrived.Wait().ok());  // the connection ends; where there was none yet, the lease
  CHECK_FALSE(stopped.has_come());
}

TEST_CASE("a receiver that answers nothing holds up no other, and its parcel can be stopped") {
  Ends ends;
  auto deaf = kernels::LinkListener::Listen(*kernels::ParseLinkAddress("127.0.0.1:0"));
  REQUIRE(deaf.ok());
  const v1::KvRoute nowhere = Ends::RouteTo({(*deaf)->address().ToString()});
  Outcome first, second, others, arrived;
  const KvOutbox::ParcelId stopped = ends.Send(nowhere, &first);
  ends.Send(nowhere, &second);
  ends.Send(ends.Expect(&arrived), &others);
  CHECK(others.Wait().ok());
  CHECK(arrived.Wait().ok());
  ends.outbox->Stop(stopped);
  CHECK_FALSE(second.Wait().ok());  // within the handshake's bound
  CHECK_FALSE(first.has_come());
  CHECK(ends.outbox->counters().back().failures() == 1);
}

TEST_CASE("KV that is not computed in time ends its parcel, and its room") {
  Ends ends;
  ends.outbox = std::make_unique<KvOutbox>(
      KvOutboxOptions{.cluster_token = "secret", .incarnation = 5, .idle_seconds = 0.2});
  Outcome arrived, sent;
  const KvOutbox::ParcelId id = ends.Open(ends.Expect(&arrived), &sent);
  ends.Add(id, 0, 9);
  CHECK(absl::IsDeadlineExceeded(sent.Wait()));
  CHECK(absl::IsUnavailable(arrived.Wait()));
}

TEST_CASE("more parcels at once than threads all arrive") {
  Ends ends;
  std::vector<std::unique_ptr<Outcome>> outcomes;
  std::vector<KvOutbox::ParcelId> ids;
  for (int i = 0; i < KvOutbox::kMaxParcelsAtOnce + 6; ++i) {
    Outcome& arrived = *outcomes.emplace_back(std::make_unique<Outcome>());
    Outcome& sent = *outcomes.emplace_back(std::make_unique<Outcome>());
    ids.push_back(ends.Open(ends.Expect(&arrived), &sent));
  }
  for (const KvOutbox::ParcelId id : ids) {
    for (const int32_t layer : {0, 1}) ends.Add(id, layer, 18);
  }
  for (const auto& outcome : outcomes) CHECK(outcome->Wait().ok());
}

}  // namespace
}  // namespace tessera::worker
