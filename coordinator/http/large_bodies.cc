#include "coordinator/http/large_bodies.h"

#include <malloc.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

namespace tessera::coordinator {

struct LargeBodies::Thread {
  std::atomic<size_t> waiting = 0;
  boost::asio::thread_pool pool{1};
};

LargeBodies::LargeBodies(LargeBodiesOptions options)
    : options_(options), large_(std::make_unique<Thread>()), huge_(std::make_unique<Thread>()) {}

LargeBodies::~LargeBodies() {
  large_->pool.join();
  huge_->pool.join();
}

absl::Status LargeBodies::Read(size_t body_bytes, std::function<void()> read) {
  const auto bytes = static_cast<int64_t>(body_bytes);
  if (bytes < options_.from_bytes) {
    read();
    return absl::OkStatus();
  }
  const bool huge = bytes >= options_.huge_from_bytes;
  Thread& thread = huge ? *huge_ : *large_;
  if (thread.waiting.fetch_add(1) >= options_.max_waiting) {
    --thread.waiting;
    return absl::UnavailableError("too many large requests are waiting to be read");
  }
  boost::asio::post(thread.pool, [&thread, huge, read = std::move(read)]() mutable {
    std::exchange(read, nullptr)();
    // JSON is many small pieces, which the allocator keeps for the next ones.
    if (huge) malloc_trim(0);
    --thread.waiting;
  });
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
