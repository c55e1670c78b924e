#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sluice::testing {

// Files of one certificate.
struct TestIdentity {
  std::string certificate_file;
  std::string key_file;
};

// An authority of certificates for one test, with keys on P-256. Not thread-safe.
class TestAuthority {
 public:
  // Writes its own certificate to "NAME.pem" in the folder. `above`, which must outlive it, signs that; without it, the
  // authority is a root.
  TestAuthority(const std::filesystem::path& folder, const std::string& name, TestAuthority* above = nullptr);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  const std::string& file() const { return file_; }

  // Signs a certificate for subject `name`, valid for servers called `hosts` ("DNS:localhost", "IP:127.0.0.1") and for
  // clients, and writes it to "NAME.pem", with the authority's own certificate behind it unless that is a root, and
  // "NAME.key". It replaces existing files, each at once.
  TestIdentity Issue(const std::string& name, const std::string& hosts = "DNS:localhost,IP:127.0.0.1");
  // Writes a revocation list to "NAME" in the folder that names the certificates in these files, and replaces an
  // existing one at once. It has expired if `valid` is false. Returns its path.
  std::string Revoke(const std::string& name, const std::vector<std::string>& certificate_files, bool valid = true);

 private:
  struct State;

  const std::filesystem::path folder_;
  const std::string file_;
  const std::unique_ptr<State> state_;
};

}  // namespace sluice::testing
