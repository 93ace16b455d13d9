// A worker that lives, takes work and never makes a step: stuck_worker COORDINATOR NAME

#include <unistd.h>

#include <iostream>

#include "tests/fakes/fake_worker.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "stuck_worker COORDINATOR NAME\n";
    return 2;
  }
  tessera::FakeWorkerOptions options;
  options.coordinator = argv[1];
  options.name = argv[2];
  options.tokens_per_second = 1e-6;
  options.logprobs_tokens_per_second = 1e-6;
  const auto worker = tessera::FakeWorker::Start(options);
  if (worker == nullptr) return 1;
  pause();  // until a signal ends the process
}
