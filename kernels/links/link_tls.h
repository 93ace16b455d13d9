// TLS 1.3 on a link's socket: both ends show a certificate that one authority of the cluster
// signed. It hides what a link carries; who the peer is, the handshake says (handshake.h).
//
// A session makes its TLS handshake inside the first calls that read or write. A frame begins a TLS
// record, so that where a frame ends nothing of the next one lies decrypted in the session, and
// poll(2) on the socket says whether there is more. Records are gathered on their way: several
// leave by one call of the system, and are read by one where the reader says how much a frame still
// has.
//
// Thread rule: LinkTlsContext is immutable, LinkTlsSource thread-safe. Of a session one thread may
// read while another writes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tessera::kernels {

// PEM text.
struct LinkCertificates {
  std::string chain;      // this end's certificate, then its intermediates
  std::string key;        // of the first of them
  std::string authority;  // which signed the other ends' certificates
  // Payload that one key encrypts before the next is agreed on: AES-GCM is safe for 2^24.5 records
  // (RFC 8446, 5.5).
  int64_t bytes_per_key = int64_t{64} << 30;
  bool allows_plain_nccl = false;  // between the ends of such a link; NCCL encrypts nothing
};

class LinkTlsContext {
 public:
  // INVALID_ARGUMENT: OpenSSL refuses one of them; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<const LinkTlsContext>> Make(
      const LinkCertificates& certificates);
  ~LinkTlsContext();
  LinkTlsContext(const LinkTlsContext&) = delete;
  LinkTlsContext& operator=(const LinkTlsContext&) = delete;

 private:
  friend class LinkTlsSession;
  LinkTlsContext() = default;

  ssl_ctx_st* connecting_ = nullptr;
  ssl_ctx_st* accepting_ = nullptr;
  int64_t bytes_per_key_ = 0;
  bool allows_plain_nccl_ = false;
};

// The context for links that begin now; certificates may change while a program runs.
class LinkTlsSource {
 public:
  explicit LinkTlsSource(std::shared_ptr<const LinkTlsContext> context)
      : context_(std::move(context)) {}
  std::shared_ptr<const LinkTlsContext> Now() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }
  void Replace(std::shared_ptr<const LinkTlsContext> context) {
    const std::lock_guard lock(mutex_);
    context_ = std::move(context);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const LinkTlsContext> context_;
};

class LinkTlsSession {
 public:
  enum class Side { kConnects, kAccepts };
  // What a call did; for a wait, what poll(2) waits for before the call is made again.
  struct Moved {
    size_t bytes = 0;  // > 0 where neither of the others is set
    short wait_for = 0;
    bool closed = false;       // the peer ended the connection
    std::string failure = {};  // final
  };

  // `socket` is non-blocking, a TCP socket, and outlives it. ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<LinkTlsSession>> Begin(
      std::shared_ptr<const LinkTlsContext> context, int socket, Side side);
  ~LinkTlsSession();
  LinkTlsSession(const LinkTlsSession&) = delete;
  LinkTlsSession& operator=(const LinkTlsSession&) = delete;

  // Encrypts at most kRecordBytes, and sends them with those before once these are many. After a
  // wait the next call has the same bytes.
  Moved Write(absl::Span<const std::byte> bytes);
  // Sends what Write left behind. Nothing moved and no wait: all is sent.
  Moved Flush();
  Moved Read(absl::Span<std::byte> bytes);
  // So many bytes of the frame that is being read are still to come: Read takes up to as many
  // records from the socket at once, and none behind the frame.
  void Expect(int64_t bytes);
  // Reads what is there and leaves it to be read.
  Moved Peek(absl::Span<std::byte> bytes);
  // Whether encrypted bytes wait to be sent, of which a part may have gone.
  bool has_unsent();
  bool allows_plain_nccl() const { return context_->allows_plain_nccl_; }

  static constexpr size_t kRecordBytes = 16 << 10;

 private:
  friend struct LinkTlsBio;
  LinkTlsSession(std::shared_ptr<const LinkTlsContext> context, int socket, ssl_st* session);
  Moved Outcome(int result);
  Moved Send();
  // The outcome of a call of OpenSSL that may have written parts of the handshake, which are sent.
  Moved Sent(Moved moved);

  const std::shared_ptr<const LinkTlsContext> context_;
  const int socket_;
  std::mutex mutex_;  // OpenSSL's session takes one call at a time
  ssl_st* const session_;
  int64_t bytes_left_of_key_;
  std::string failure_;
  std::vector<std::byte> outbound_;  // records; those before sent_ have gone
  size_t sent_ = 0;
  std::unique_ptr<std::byte[]> inbound_;  // from the socket; null: there was nothing to read ahead
  size_t inbound_bytes_ = 0;
  size_t read_ = 0;   // of those, with OpenSSL
  size_t ahead_ = 0;  // bytes of records that may be taken from the socket
};

}  // namespace tessera::kernels
