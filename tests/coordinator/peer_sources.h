// Where tests/bench/peers/llama_cpp has put the sources of llama.cpp, with published chat templates
// and vocabularies that are not part of the project.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera::tests {

// A folder of them ("models/templates"); empty where there is none.
std::filesystem::path PeerFolder(std::string_view below);

}  // namespace tessera::tests
