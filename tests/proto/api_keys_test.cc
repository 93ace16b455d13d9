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
  const std::vector<ApiKey> keys = ReadApiKeyFile(path).value();
  REQUIRE(keys.size() == 3);
  CHECK(keys[0].key == "first key");
  CHECK(keys[1].key == "second");
  CHECK(keys[2].key == "third");
  CHECK(keys[2].weight == 1);
  CHECK(keys[2].name.empty());
  std::ofstream(path) << " \n\n";
  CHECK_THAT(std::string(ReadApiKeyFile(path).status().message()),
             Catch::Contains(path) && Catch::Contains("holds no key"));
  CHECK_THAT(std::string(ReadApiKeyFile("/nowhere").status().message()),
             Catch::Contains("--api-key-file /nowhere cannot be read"));
}

TEST_CASE("behind a key stand the terms of its client") {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "keys").string();
  std::ofstream(path)
      << "# the agents\nc2VjcmV0IQ==  name=agents weight=0.5 concurrent=8 models=a,org/b\n"
      << "other\ttokens-per-minute=1e6 requests-per-minute=60 name=night\n";
  const std::vector<ApiKey> keys = ReadApiKeyFile(path).value();
  REQUIRE(keys.size() == 2);
  CHECK(keys[0].key == "c2VjcmV0IQ==");
  CHECK(keys[0].name == "agents");
  CHECK(keys[0].weight == 0.5);
  CHECK(keys[0].concurrent_requests == 8);
  CHECK(keys[0].models == std::vector<std::string>{"a", "org/b"});
  CHECK(keys[1].models.empty());
  CHECK(keys[1].key == "other");
  CHECK(keys[1].tokens_per_minute == 1e6);
  CHECK(keys[1].requests_per_minute == 60);
  const auto why = [&](const std::string& line) {
    std::ofstream(path) << "good\n" << line << "\n";
    return std::string(ReadApiKeyFile(path).status().message());
  };
  CHECK_THAT(why("key wieght=2"), Catch::Contains("line 2: wieght= is no term of a key"));
  CHECK_THAT(why("key weight=0"), Catch::Contains("weight=0: a number above 0 is expected"));
  CHECK_THAT(why("key weight=nan"), Catch::Contains("a number above 0"));
  CHECK_THAT(why("key concurrent=1.5"), Catch::Contains("a number of requests is expected"));
  CHECK_THAT(why("key models=a,,b"), Catch::Contains("names between commas are expected"));
  CHECK_THAT(why("key name="), Catch::Contains("name= is empty"));
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
