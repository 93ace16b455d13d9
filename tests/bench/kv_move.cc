// One prompt's keys and values from one worker to another over TCP on this machine: the 1.1B
// Llama's 22 layers, 4 kv heads of 64, bfloat16, 1,000 tokens. tests/bench/kv_transfer runs it.
//
//   kv_move [BITS_PER_SECOND]    of the link that the system shapes; 0: it does not
//
// Shaped: the rate against the link's. Unshaped: against a plain copy of as many bytes through a
// socket, in turn, inside TLS against what plain and the cipher allow one after the other, and
// shared memory against a Unix socket. And what is left to wait for behind the
// prompt's last layer where a prefill of twice the transfer's time pushes layer by layer, against
// sending all at its end.
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "kernels/links/link_tls.h"
#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::bench {
namespace {

using namespace worker;  // NOLINT: everything here is theirs
using Clock = std::chrono::steady_clock;

constexpr int32_t kLayers = 22, kHeads = 4;
constexpr int64_t kHeadDim = 64, kBlockTokens = 64, kTokens = 1000, kBlocks = 16;
constexpr int kRounds = 5;
constexpr double kShapedBar = 0.9, kUnshapedBar = 0.7, kWaitBar = 0.5, kMemoryBar = 1;
constexpr double kEncryptedBar = 0.85;

double Since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void Die(const std::string& reason) {
  std::fprintf(stderr, "kv_move: %s\n", reason.c_str());
  std::exit(2);
}

struct Pool {
  Pool() {
    view = {nullptr, {{0, kLayers}, {0, kHeads}}, kernels::DType::kBF16, kBlocks, kBlockTokens,
            kHeadDim};
    memory.assign(static_cast<size_t>(view.bytes()), std::byte{1});
    view.memory = memory.data();
    for (int32_t i = 0; i < kBlocks; ++i) table.push_back(i);
  }
  std::vector<std::byte> memory;
  kvcache::KvPool view;
  std::vector<int32_t> table;
};

int64_t KvBytes() { return int64_t{2} * 2 * kLayers * kHeads * kHeadDim * kTokens; }

class Workers {
 public:
  explicit Workers(KvTransport transport, const std::string& listen = "127.0.0.1:0",
                   std::shared_ptr<const kernels::LinkTlsSource> tls = nullptr)
      : outbox_({.cluster_token = "secret",
                 .incarnation = 1,
                 .tls = tls,
                 .wait_seconds = 60,
                 .transport = transport}) {
    auto started = KvInbox::Start(
        {.listen = {listen}, .cluster_token = "secret", .incarnation = 2, .tls = tls});
    if (!started.ok()) Die(started.status().ToString());
    inbox_ = *std::move(started);
  }

  // Adds layer i after i * prefill_seconds / layers; returns the seconds from the prompt's end, or
  // from the start where there is no prefill, until all has arrived.
  double Move(double prefill_seconds, bool at_the_end) {
    arrived_ = false;
    KvPartRoom room;
    room.place.pool = to_.view;
    room.place.part = to_.view.share;
    room.place.table = to_.table;
    room.place.end = kTokens;
    room.done = [this](const absl::Status& status) {
      if (!status.ok()) Die(status.ToString());
      std::lock_guard lock(mutex_);
      arrived_ = true;
      changed_.notify_all();
    };
    KvParcel parcel;
    parcel.route.set_ticket(inbox_->Expect(std::move(room)));
    parcel.route.add_addresses(inbox_->addresses()[0]);
    parcel.route.set_incarnation(2);
    parcel.route.mutable_part()->mutable_layers()->set_end(kLayers);
    parcel.route.mutable_part()->mutable_kv_heads()->set_end(kHeads);
    parcel.pool = from_.view;
    parcel.end = kTokens;
    parcel.done = [](const KvParcelOutcome&) {};
    Clock::time_point began = Clock::now();
    const auto id = outbox_.Open(std::move(parcel));
    const auto table = std::make_shared<const std::vector<int32_t>>(from_.table);
    const auto layer_time = std::chrono::duration<double>(prefill_seconds / kLayers);
    for (int32_t layer = 0; layer < kLayers && !at_the_end; ++layer) {
      std::this_thread::sleep_for(layer_time);
      outbox_.Add(id, layer, table, kTokens);
    }
    if (at_the_end) {
      std::this_thread::sleep_for(layer_time * kLayers);
      for (int32_t layer = 0; layer < kLayers; ++layer) outbox_.Add(id, layer, table, kTokens);
    }
    if (prefill_seconds > 0) began = Clock::now();
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(120), [this] { return arrived_; }))
      Die("nothing arrived within 120 s");
    return Since(began);
  }

 private:
  Pool from_, to_;
  std::unique_ptr<KvInbox> inbox_;
  KvOutbox outbox_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
};

int Blocking(const kernels::Link& link) {
  const int flags = fcntl(link.socket(), F_GETFL);
  if (fcntl(link.socket(), F_SETFL, flags & ~O_NONBLOCK) != 0) Die("fcntl failed");
  return link.socket();
}

// Seconds for as many bytes through a TCP connection, from memory to memory.
double PlainCopy() {
  auto listener = kernels::LinkListener::Listen(*kernels::ParseLinkAddress("127.0.0.1:0"));
  if (!listener.ok()) Die(listener.status().ToString());
  std::vector<std::byte> from(static_cast<size_t>(KvBytes()), std::byte{1}), to(from.size());
  std::thread sends([&] {
    auto link = kernels::ConnectLink((*listener)->address(), 10);
    if (!link.ok()) Die(link.status().ToString());
    const int socket = Blocking(**link);
    for (size_t at = 0; at < from.size();) {
      const ssize_t sent = send(socket, from.data() + at, from.size() - at, 0);
      if (sent <= 0) Die("send failed");
      at += static_cast<size_t>(sent);
    }
    char last = 0;
    if (recv(socket, &last, 1, MSG_WAITALL) != 1) Die("recv failed");
  });
  auto link = (*listener)->Accept(10);
  if (!link.ok()) Die(link.status().ToString());
  const int socket = Blocking(**link);
  const Clock::time_point began = Clock::now();
  for (size_t at = 0; at < to.size();) {
    const ssize_t got = recv(socket, to.data() + at, to.size() - at, 0);
    if (got <= 0) Die("recv failed");
    at += static_cast<size_t>(got);
  }
  const double seconds = Since(began);
  const char last = 0;
  if (send(socket, &last, 1, 0) != 1) Die("send failed");
  sends.join();
  return seconds;
}

bool Bar(const char* what, double value, double bar, bool at_most) {
  const bool missed = at_most ? value > bar : value < bar;
  std::printf("  %s: %.3f (bar %s %.2f)%s\n", what, value, at_most ? "<=" : ">=", bar,
              missed ? ": MISSED" : "");
  return !missed;
}

// Shared memory against the Unix socket, in turn.
bool CompareOnOneMachine() {
  const tests::TemporaryFolder folder;
  Workers memory(KvTransport::kSharedMemory, "unix:" + (folder.path() / "shm").string());
  Workers socket(KvTransport::kUnix, "unix:" + (folder.path() / "unix").string());
  memory.Move(0, true);
  socket.Move(0, true);
  std::vector<double> in_memory, over_socket;
  for (int i = 0; i < 3 * kRounds; ++i) {
    in_memory.push_back(memory.Move(0, true));
    over_socket.push_back(socket.Move(0, true));
  }
  const double megabytes = static_cast<double>(KvBytes()) / 1e6;
  std::printf("one machine: shared memory %.1f MB/s, Unix socket %.1f MB/s\n",
              megabytes / Median(in_memory), megabytes / Median(over_socket));
  return Bar("of the Unix socket's rate", Median(over_socket) / Median(in_memory), kMemoryBar,
             false);
}

std::shared_ptr<const kernels::LinkTlsSource> LinkTls() {
  const Issued authority = tests::IssueAuthority(), own = tests::Issue(authority);
  auto context = kernels::LinkTlsContext::Make(
      {.chain = own.certificate, .key = own.key, .authority = authority.certificate});
  if (!context.ok()) Die(context.status().ToString());
  return std::make_shared<const kernels::LinkTlsSource>(*std::move(context));
}

// Seconds in which one core encrypts as many bytes in records as links have, by AES-128-GCM.
double CipherTime() {
  EVP_CIPHER_CTX* const cipher = EVP_CIPHER_CTX_new();
  const std::vector<unsigned char> record(kernels::LinkTlsSession::kRecordBytes, 1);
  std::vector<unsigned char> encrypted(record.size() + 16);
  const std::vector<unsigned char> key(16, 2), nonce(12, 3);
  EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nullptr, key.data(), nonce.data());
  const Clock::time_point began = Clock::now();
  for (int64_t done = 0; done < KvBytes(); done += static_cast<int64_t>(record.size())) {
    int size = 0;
    EVP_EncryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data());
    EVP_EncryptUpdate(cipher, encrypted.data(), &size, record.data(),
                      static_cast<int>(record.size()));
    EVP_EncryptFinal_ex(cipher, encrypted.data() + size, &size);
  }
  const double seconds = Since(began);
  EVP_CIPHER_CTX_free(cipher);
  return seconds;
}

// Inside TLS against plain, in turn.
bool CompareEncrypted(Workers& plain) {
  Workers encrypted(KvTransport::kTcp, "127.0.0.1:0", LinkTls());
  encrypted.Move(0, true);
  std::vector<double> in_tls, in_the_open, cipher;
  for (int i = 0; i < 3 * kRounds; ++i) {
    in_tls.push_back(encrypted.Move(0, true));
    in_the_open.push_back(plain.Move(0, true));
    cipher.push_back(CipherTime());
  }
  const double megabytes = static_cast<double>(KvBytes()) / 1e6;
  std::printf("inside TLS %.1f MB/s, plain %.1f MB/s, the cipher %.1f MB/s\n",
              megabytes / Median(in_tls), megabytes / Median(in_the_open),
              megabytes / Median(cipher));
  return Bar("of plain and cipher one after the other",
             (Median(in_the_open) + Median(cipher)) / Median(in_tls), kEncryptedBar, false);
}

int Run(double bits_per_second) {
  Workers workers(KvTransport::kTcp);
  workers.Move(0, true);  // memory is touched
  std::vector<double> moves, copies;
  for (int i = 0; i < kRounds; ++i) {
    moves.push_back(workers.Move(0, true));
    if (bits_per_second == 0) copies.push_back(PlainCopy());
  }
  const double move = Median(moves);
  const double megabytes = static_cast<double>(KvBytes()) / 1e6;
  std::printf("%s: %.1f MB in %.4f s, %.1f MB/s\n",
              bits_per_second > 0 ? "shaped link" : "unshaped", megabytes, move, megabytes / move);
  bool held = true;
  if (bits_per_second > 0) {
    held &= Bar("of the link's rate", 8e6 * megabytes / move / bits_per_second, kShapedBar, false);
    std::vector<double> pushed, at_end;
    for (int i = 0; i < 3; ++i) {
      pushed.push_back(workers.Move(2 * move, false));
      at_end.push_back(workers.Move(2 * move, true));
    }
    std::printf(
        "  wait behind a prefill of %.3f s: %.4f s layer by layer, %.4f s sent at its end\n",
        2 * move, Median(pushed), Median(at_end));
    held &= Bar("of the wait", Median(pushed) / Median(at_end), kWaitBar, true);
  } else {
    std::printf("  a plain copy takes %.4f s\n", Median(copies));
    held &= Bar("of a plain copy's rate", Median(copies) / move, kUnshapedBar, false);
    held &= CompareEncrypted(workers);
    held &= CompareOnOneMachine();
  }
  return held ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Run(argc > 1 ? std::atof(argv[1]) : 0); }
