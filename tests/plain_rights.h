// While it lives, its thread may do to files what their modes allow their owner, also where root
// runs the tests.
// Thread rule: one thread, which alone is changed.
#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera::tests {

class PlainRights {
 public:
  PlainRights() {
    if (syscall(SYS_capget, &header_, before_) != 0) std::abort();
    __user_cap_data_struct fewer[2] = {before_[0], before_[1]};
    fewer[0].effective &= ~((1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH));
    if (syscall(SYS_capset, &header_, fewer) != 0) std::abort();
  }
  ~PlainRights() {
    if (syscall(SYS_capset, &header_, before_) != 0) std::abort();
  }
  PlainRights(const PlainRights&) = delete;
  PlainRights& operator=(const PlainRights&) = delete;

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

}  // namespace tessera::tests
