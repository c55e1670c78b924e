#include "tests/unit/storage/blocks/test_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

// A field of length 100 in a message of three bytes.
constexpr char kGarbage[] = "\x0a\x64!";

template <class Request>
Request Parse(const std::string& bytes) {
  Request request;
  EXPECT_TRUE(request.ParseFromString(bytes));
  return request;
}

// Cuts a response into messages as a worker does; each gap is in the message that it begins in. A request for one
// message gets one, even if the test has enlarged it.
std::vector<std::string> InMessages(const v1::ReadSruResponse& answer, const v1::ReadSruRequest& asked) {
  if (asked.length() <= kSruMessageBytes) return {answer.SerializeAsString()};
  std::vector<std::string> messages;
  for (size_t begin = 0; begin < std::max<size_t>(answer.data().size(), 1); begin += kSruMessageBytes) {
    v1::ReadSruResponse piece;
    piece.set_data(answer.data().substr(begin, kSruMessageBytes));
    for (const v1::MissingSruRange& missing : answer.missing()) {
      if ((missing.offset() - asked.offset()) / kSruMessageBytes == begin / kSruMessageBytes) {
        *piece.add_missing() = missing;
      }
    }
    messages.push_back(piece.SerializeAsString());
  }
  return messages;
}

// Returns the script of a call with this fault. Without the fault, the call sends `messages` or ends with `status`.
Script Spoilt(const Fault& fault, absl::Status status, std::vector<std::string> messages) {
  if (fault.kind == Fault::Kind::kError) status = absl::Status(fault.code, "spoilt by the test");
  if (fault.kind == Fault::Kind::kGarbage) {
    status = absl::OkStatus();
    messages = {kGarbage};
  }
  if (!status.ok()) messages.clear();
  Script script{.messages = std::move(messages), .status = std::move(status), .delay = fault.delay};
  if (fault.kind == Fault::Kind::kHang) script.hold_before = 0;
  return script;
}

}  // namespace

TestWorker::TestWorker(const std::string& root)
    : store_(*StripeStore::Open(root)), server_([this](const Seen& seen) { return Play(seen); }) {}

void TestWorker::SpoilSrus(SruFault fault) {
  faults_.Change([&](Faults& faults) { faults.sru = std::move(fault); });
}

void TestWorker::SpoilManifests(ManifestFault fault) {
  faults_.Change([&](Faults& faults) { faults.manifest = std::move(fault); });
}

Script TestWorker::Play(const Seen& seen) const {
  if (seen.method == "/sluice.v1.SruService/ReadSru") return ReadSru(Parse<v1::ReadSruRequest>(seen.request));
  if (seen.method == "/sluice.v1.SruService/ReadManifest") {
    return ReadManifest(Parse<v1::ReadManifestRequest>(seen.request));
  }
  return {.messages = {}, .status = absl::UnimplementedError(absl::StrCat("no method ", seen.method))};
}

Script TestWorker::ReadSru(const v1::ReadSruRequest& asked) const {
  const SruFault decide = faults_.Get().sru;
  const Fault fault = decide ? decide(asked) : Healthy();
  v1::ReadSruResponse answer;
  absl::Status read =
      store_.Read(asked.worker(), asked.file(), asked.replica(), asked.offset(), asked.length(), answer.mutable_data());
  if (read.ok() && fault.edit) fault.edit(*answer.mutable_data());
  for (const v1::MissingSruRange& missing : fault.missing) *answer.add_missing() = missing;
  return Spoilt(fault, std::move(read), InMessages(answer, asked));
}

Script TestWorker::ReadManifest(const v1::ReadManifestRequest& asked) const {
  const ManifestFault decide = faults_.Get().manifest;
  const Fault fault = decide ? decide(asked) : Healthy();
  v1::ReadManifestResponse answer;
  const auto total =
      store_.ReadManifest(asked.worker(), asked.file(), asked.offset(), asked.length(), answer.mutable_data());
  if (total.ok() && fault.edit) fault.edit(*answer.mutable_data());
  if (total.ok()) answer.set_total_bytes(fault.manifest_bytes.value_or(*total));
  return Spoilt(fault, total.status(), {answer.SerializeAsString()});
}

}  // namespace sluice::testing
