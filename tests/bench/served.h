// A real coordinator as a process of its own, on the shipped model, for load measurements.
// Thread rule: one thread. The process ends with the object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deploy/processes/child_process.h"
#include "tests/temporary_folder.h"

namespace tessera {

// A file of the runfiles: where Bazel runs a test, or below $RUNFILES_DIR.
std::string Runfile(const std::string& path);

class Served {
 public:
  // Exits the process with a message where it cannot be started.
  explicit Served(std::vector<std::string> flags,
                  const std::string& model = "deploy/demo_model/tessera-demo");

  uint16_t http_port() const { return http_port_; }
  const std::string& grpc_address() const { return grpc_address_; }
  // Until /ready says so; exits the process after 60 s.
  void WaitUntilReady();
  // Private and shared memory of the process, in bytes (PSS).
  int64_t MemoryBytes() const;
  // Seconds of processor time that it has used.
  double CpuSeconds() const;
  // What it has logged so far.
  std::string Log() const;
  void Terminate() { process_->Signal(15); }

 private:
  const tests::TemporaryFolder folder_;
  std::unique_ptr<deploy::ChildProcess> process_;
  uint16_t http_port_ = 0;
  std::string grpc_address_;
  int pid_ = 0;
};

}  // namespace tessera
