#include "proto/api_keys.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace tessera {

TEST_CASE("a file of keys holds one a line") {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "keys").string();
  std::ofstream(path) << "  first key \r\n\n second\nthird";
  CHECK(ReadApiKeyFile(path).value() == std::vector<std::string>{"first key", "second", "third"});
  std::ofstream(path) << " \n\n";
  CHECK_THAT(std::string(ReadApiKeyFile(path).status().message()),
             Catch::Contains(path) && Catch::Contains("holds no key"));
  CHECK_THAT(std::string(ReadApiKeyFile("/nowhere").status().message()),
             Catch::Contains("--api-key-file /nowhere cannot be read"));
}

TEST_CASE("a file of keys that others may read is worth a warning") {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "keys").string();
  std::ofstream(path) << "key\n";
  chmod(path.c_str(), 0644);
  CHECK_THAT(KeyFileWarning(path), Catch::Contains("chmod 600 " + path));
  chmod(path.c_str(), 0600);
  CHECK(KeyFileWarning(path).empty());
}

TEST_CASE("the values of --api-key are hidden from ps, and nothing else is") {
  std::vector<std::string> texts = {"program",         "--api-key",      "secret",
                                    "--api-key=other", "--api-key-file", "a/file",
                                    "--port",          "8000",           "--api-key"};
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  HideKeys(static_cast<int>(argv.size()), argv.data());
  CHECK(texts == std::vector<std::string>{"program", "--api-key", "******", "--api-key=*****",
                                          "--api-key-file", "a/file", "--port", "8000",
                                          "--api-key"});
}

}  // namespace tessera
