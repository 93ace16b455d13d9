#include "worker/worker_options.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "third_party/linux/host_name.h"
#include "worker/devices/cuda/emulated_cuda.h"

namespace tessera::worker {
namespace {

absl::StatusOr<ParsedOptions> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tessera-worker");
  return ParseWorkerOptions(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("flags, sizes with units, environment, and which of them wins") {
  setenv("TESSERA_COORDINATOR", "there:1", 1);
  setenv("TESSERA_MEMORY", "2GiB", 1);
  auto parsed = Parse({"--coordinator", "here:2", "--kv-cache-memory-bytes", "1000", "--cpus",
                       "0-1", "--model-folder", "/models/a"});
  unsetenv("TESSERA_COORDINATOR");
  unsetenv("TESSERA_MEMORY");
  REQUIRE(parsed.ok());
  CHECK(parsed->options.coordinator == "here:2");
  CHECK(parsed->options.device.memory_bytes == int64_t{2} << 30);
  CHECK(parsed->options.kv_cache_memory_bytes == 1000);
  CHECK(parsed->options.device.cpus == "0-1");
  CHECK(parsed->options.model_folder == "/models/a");
  CHECK(parsed->options.listen == "127.0.0.1:0");
  CHECK_FALSE(parsed->options.name.empty());
}

TEST_CASE("a file says what neither flags nor environment say") {
  const std::string path = (std::filesystem::temp_directory_path() / "worker.yaml").string();
  std::ofstream(path) << "name: from/0\ncpus: 0-3\nmemory: 1GiB\n";
  const auto parsed = Parse({"--config", path.c_str(), "--cpus", "1"});
  REQUIRE(parsed.ok());
  CHECK(parsed->options.name == "from/0");
  CHECK(parsed->options.device.cpus == "1");
  CHECK(parsed->options.device.memory_bytes == int64_t{1} << 30);
  std::ofstream(path) << "memory: 3 parsecs\n";
  CHECK_THAT(std::string(Parse({"--config", path.c_str()}).status().message()),
             Catch::Contains(path) && Catch::Contains("memory"));
}

TEST_CASE("what is not understood is named") {
  CHECK_THAT(std::string(Parse({"--memroy", "1"}).status().message()), Catch::Contains("memroy"));
  CHECK_THAT(std::string(Parse({"--memory", "3 parsecs"}).status().message()),
             Catch::Contains("--memory"));
  CHECK_FALSE(Parse({"--memory", "-1"}).ok());
  CHECK_FALSE(Parse({"--drain-seconds", "-3"}).ok());
}

TEST_CASE("devices that this build has are taken, others are refused by name") {
  const auto type = [](std::initializer_list<const char*> flags) {
    const auto parsed = Parse(flags);
    REQUIRE(parsed.status().message() == "");
    return std::string(parsed->options.device_type->name) + " of " + parsed->options.device.name;
  };
  CHECK(type({}) == "cpu of cpu");
  CHECK(type({"--device", "cuda-emulated"}) == "cuda-emulated of cuda-emulated");
  CHECK(type({"--device", "cuda-emulated-75"}) == "cuda-emulated of cuda-emulated-75");
  CHECK(type({"--device", "cuda:GPU-12"}) == "cuda: of cuda:GPU-12");
  CHECK(type({"--device", "emulated:A100-80,L4"}) == "emulated: of emulated:A100-80,L4");
  CHECK(EmulatedCapability("cuda-emulated") == 90);
  CHECK(EmulatedCapability("cuda-emulated-120") == 120);
  CHECK(EmulatedCapability("cuda:0") == 0);
  CHECK(Parse({"--device", "cuda:0"})->options.name == HostName() + "/0");
  CHECK(Parse({"--device", "cuda:3"})->options.name == HostName() + "/3");
  CHECK(Parse({"--device", "cuda:GPU-12"})->options.name == HostName() + "/0");
  for (const char* device : {"tpu", "cuda", "cuda:", "all", "cuda-emulated-70", "cuda-emulated-",
                             "cpu-2", "emulated:", "emulated:L4,"}) {
    CHECK_THAT(std::string(Parse({"--device", device}).status().message()),
               Catch::Contains("--device " + std::string(device) + ": there is no such device") &&
                   Catch::Contains("it takes cpu; cuda:0 or cuda:UUID") &&
                   Catch::Contains("; cuda-emulated: ") && Catch::Contains("; emulated:KIND"));
  }
  CHECK(Parse({"--list-devices", "--json"})->options.json);
  CHECK_FALSE(Parse({"--json"}).ok());
  CHECK(Parse({})->options.device.gpu_memory_utilization == 0.9);
  for (const char* share : {"1.5", "0", "nan"}) {
    CHECK_THAT(std::string(Parse({"--gpu-memory-utilization", share}).status().message()),
               Catch::Contains(std::string("--gpu-memory-utilization: \"") + share +
                               "\" is no number from 0.01 to 1"));
  }
}

TEST_CASE("an address that cannot be one is refused at once, with its flag") {
  for (const char* flag : {"--coordinator", "--advertise", "--advertise-link", "--advertise-kv"}) {
    for (const char* address : {"http://10.0.0.1:8001", "10.0.0.1", "10.0.0.1:", ":8001", "[::1]",
                                "::1:8001", "here:0", "here:65536", "here:http", "here:8001/"}) {
      INFO(flag << " " << address);
      CHECK_THAT(std::string(Parse({flag, address}).status().message()),
                 Catch::StartsWith(std::string(flag) + ": ") && Catch::Contains(address));
    }
    for (const char* address : {"here:8001", "127.0.0.1:1", "[::1]:65535"}) {
      INFO(flag << " " << address);
      CHECK(Parse({flag, address}).ok());
    }
  }
  // Any port is one to listen on.
  CHECK(Parse({"--listen", "[::1]:0"}).ok());
  CHECK_THAT(std::string(Parse({"--listen", "::1:0"}).status().message()),
             Catch::StartsWith("--listen: ") && Catch::Contains("[::1]:8001"));
}

TEST_CASE("a variable that is no flag's is warned of, others' variables are not") {
  setenv("TESSERA_COORDINATR", "here:1", 1);
  setenv("TESSERA_PORT", "1", 1);
  const auto parsed = Parse({});
  unsetenv("TESSERA_COORDINATR");
  unsetenv("TESSERA_PORT");
  REQUIRE(parsed.ok());
  REQUIRE(parsed->warnings.size() == 1);
  CHECK_THAT(parsed->warnings[0],
             Catch::Contains("TESSERA_COORDINATR") && Catch::Contains("TESSERA_COORDINATOR?"));
}

TEST_CASE("the address that the coordinator is told") {
  WorkerOptions options;
  CHECK(*AdvertisedAddress(options, "127.0.0.1:5000") == "127.0.0.1:5000");
  CHECK(*AdvertisedAddress(options, "0.0.0.0:5000") == HostName() + ":5000");
  CHECK(*AdvertisedAddress(options, "[::]:5000") == HostName() + ":5000");
  options.advertise = "worker-1.example:6000";
  CHECK(*AdvertisedAddress(options, "0.0.0.0:5000") == "worker-1.example:6000");
  options.advertise = "no-port";
  CHECK_FALSE(AdvertisedAddress(options, "0.0.0.0:5000").ok());
}

}  // namespace
}  // namespace tessera::worker
