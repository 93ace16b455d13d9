// A fuzzer with a fault that random mutation reaches from the corpus: what fuzz_main_test runs.

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("[[[[") != std::string_view::npos) std::abort();
  return 0;
}
