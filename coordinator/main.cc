// tessera-coordinator: one per cluster. See coordinator_options.h for its flags and serving.h for
// what it starts.

#include <iostream>
#include <string>

#include "coordinator/coordinator_options.h"
#include "coordinator/serving.h"
#include "proto/api_keys.h"
#include "third_party/grpc/log_lines.h"
#include "third_party/grpc/mutex_checks.h"
#include "third_party/spdlog/log.h"

int main(int argc, char** argv) {
  tessera::SkipMutexChecks();
  tessera::TakeGrpcLines();
  const auto parsed = tessera::coordinator::ParseCoordinatorOptions(argc, argv);
  tessera::HideKeys(argc, argv);
  if (!parsed.ok()) {
    std::cerr << "tessera-coordinator: " << std::string(parsed.status().message()) << "\n";
    return 2;
  }
  if (parsed->exit_code >= 0) return parsed->exit_code;
  absl::Status status =
      tessera::SetUpLogging(parsed->options.log_level, parsed->options.log_format);
  for (const std::string& line : parsed->warnings) tessera::Logger("coordinator").warn("{}", line);
  if (status.ok()) status = tessera::coordinator::Serve(parsed->options);
  if (status.ok()) return 0;
  std::cerr << "tessera-coordinator: " << std::string(status.message()) << "\n";
  return 1;
}
