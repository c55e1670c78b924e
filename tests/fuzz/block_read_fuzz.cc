// Reads a striped file through the whole client in virtual time, from workers whose manifests and SRUs come from the
// input. Whatever they return, parts must be consecutive, the data must be the striped data, and gaps may occur only if
// allowed. Every read must end, and leave the link idle.
//
// The input has one byte for the reader. Then each read takes three bytes (see Read). Each request to a worker takes
// one byte for the worker's action, and the bytes of that action (see AnswerSru, AnswerManifest).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "lib/storage/blocks/file_read.h"
#include "lib/storage/blocks/reader_state.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/manifest_builder.h"
#include "lib/storage/stripe/stripe_layout.h"
#include "prometheus/registry.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scripted_workers.h"

namespace sluice {
namespace {

constexpr uint32_t kWorkers = 3;
constexpr uint32_t kReplicas = 2;
constexpr uint32_t kSruBytes = 90;
constexpr size_t kFileBytes = 700;  // two blocks and a partial one, whose last SRU is partial, too
constexpr size_t kReads = 3;

std::string Source() {
  std::string source;
  for (size_t i = 0; source.size() < kFileBytes; ++i) absl::StrAppend(&source, i, " ");
  source.resize(kFileBytes);
  return source;
}

v1::Manifest TrueManifest() {
  ManifestBuilder builder(kSruBytes, kWorkers, kReplicas);
  const std::string source = Source();
  for (absl::string_view rest = source; !rest.empty();) {
    const size_t bytes = std::min(rest.size(), builder.room());
    builder.Add({rest.data(), bytes});
    rest.remove_prefix(bytes);
  }
  return builder.manifest();
}

// Created once, because metrics cost more than a read.
LinkMetrics& Metrics() {
  static auto* const registry = new prometheus::Registry();
  static auto* const metrics = new LinkMetrics(*registry);
  return *metrics;
}

class BlockReadFuzz {
 public:
  explicit BlockReadFuzz(FuzzInput input)
      : input_(input),
        workers_(events_,
                 [this](const std::string& path, const std::string& request) { return Answer(path, request); }),
        link_(workers_, {}, Metrics()) {
    const uint8_t choice = input_.Byte();
    BlockReader::Options options{.sru_timeout = absl::Milliseconds(50),
                                 .block_timeout = absl::Milliseconds(500),
                                 .attempts = 1 + choice % 4,
                                 .segment_bytes = choice & 4 ? 200 : 16 << 20};
    if (choice & 8) options.hedge_after = absl::Milliseconds(5);
    for (uint32_t i = 0; i < kWorkers + (choice >> 4) % 3; ++i) {
      options.workers.push_back(absl::StrCat("10.0.0.", i, ":7000"));
    }
    workers_.Turn([&] { reader_ = std::make_unique<ReaderState>(link_, callbacks_, nullptr, std::move(options)); });
  }

  void Run() {
    for (size_t i = 0; i < kReads && (i == 0 || !input_.empty()); ++i) Read();
    bool idle = false;
    workers_.Turn([&] { reader_->Close([&] { idle = true; }); });
    const TimePoint end = events_.now() + std::chrono::seconds(20);
    while (events_.Step(end)) {
    }
    FUZZ_CHECK(idle);
    const ScheduleState state = link_.schedule().State();
    FUZZ_CHECK(state.in_flight_calls == 0 && state.in_flight_bytes == 0 && state.ungranted_calls == 0);
    workers_.Turn([&] { reader_.reset(); });
  }

 private:
  // The input selects the part of the file, whether the read may be partial, and the number of parts before it is
  // cancelled.
  void Read() {
    const uint8_t choice = input_.Byte();
    const uint8_t where = input_.Byte();
    const uint8_t cancel = input_.Byte();
    FileRead::Target target;
    if (choice / 2 % 3 == 1) target.block = where % 4;
    if (choice / 2 % 3 == 2) target.block_at = where * 4u;
    allow_partial_ = choice % 2 == 1;
    const auto read =
        std::make_shared<FileRead>(*reader_, "data", target, ReadOptions{.allow_partial = allow_partial_});
    Progress progress;
    for (int parts = 0; !progress.ended; ++parts) {
      std::optional<absl::StatusOr<ReadPart>> part;
      workers_.Turn([&] {
        read->Next([&](absl::StatusOr<ReadPart> next) { part = std::move(next); }, FileRead::CallOn::kLinkThread);
        if (cancel >= 128 && parts == cancel % 8) read->Cancel(absl::CancelledError("by the fuzzer"));
      });
      const TimePoint end = events_.now() + std::chrono::seconds(10);
      while (!part.has_value() && events_.Step(end)) {
      }
      FUZZ_CHECK(part.has_value());
      OnPart(*part, target, progress);
    }
    workers_.Turn([&] { read->Drop(); });
    // Requests in flight must arrive before the next read begins.
    const TimePoint soon = events_.now() + std::chrono::milliseconds(1);
    while (events_.Step(soon)) {
    }
  }

  struct Progress {
    std::optional<ReadHeader> header;
    uint64_t offset = 0;  // offset of the next byte in the file
    uint64_t missing_bytes = 0;
    bool ended = false;
  };

  void OnPart(const absl::StatusOr<ReadPart>& part, const FileRead::Target& target, Progress& progress) {
    if (!part.ok()) {
      progress.ended = true;
      return;
    }
    if (const auto* header = std::get_if<ReadHeader>(&*part)) {
      FUZZ_CHECK(!progress.header.has_value());
      progress.header = *header;
      progress.offset = header->offset;
      FUZZ_CHECK(header->offset <= header->file_bytes && header->length <= header->file_bytes - header->offset);
      if (target.block_at.has_value()) {
        FUZZ_CHECK(*target.block_at - header->offset < header->length);
      } else if (!target.block.has_value()) {
        FUZZ_CHECK(header->length == header->file_bytes);
      }
      FUZZ_CHECK(!true_manifest_ || header->file_bytes == kFileBytes);
      return;
    }
    FUZZ_CHECK(progress.header.has_value());
    const uint64_t end = progress.header->offset + progress.header->length;
    if (const auto* chunk = std::get_if<ReadChunk>(&*part)) {
      FUZZ_CHECK(chunk->offset == progress.offset && !chunk->data.empty() && chunk->data.size() <= 1 << 20);
      if (true_manifest_ && !allow_partial_) {
        FUZZ_CHECK(chunk->data == source_.substr(chunk->offset, chunk->data.size()));
      }
      progress.offset += chunk->data.size();
    } else if (const auto* gap = std::get_if<MissingBytes>(&*part)) {
      FUZZ_CHECK(allow_partial_);
      FUZZ_CHECK(gap->offset == progress.offset && gap->length > 0 && gap->code != absl::StatusCode::kOk);
      progress.offset += gap->length;
      progress.missing_bytes += gap->length;
    } else {
      const auto& summary = std::get<ReadSummary>(*part);
      FUZZ_CHECK(progress.offset == end);
      FUZZ_CHECK(summary.bytes_wanted == progress.header->length);
      FUZZ_CHECK(summary.bytes_read + progress.missing_bytes == summary.bytes_wanted);
      progress.ended = true;
    }
    FUZZ_CHECK(progress.offset <= end);
  }

  ScriptedAnswer Answer(const std::string& path, const std::string& request) {
    if (!absl::EndsWith(path, "ReadSru")) {
      v1::ReadManifestRequest asked;
      FUZZ_CHECK(asked.ParseFromString(request) && asked.file() == "data" && asked.length() > 0);
      return AnswerManifest(asked);
    }
    v1::ReadSruRequest asked;
    FUZZ_CHECK(asked.ParseFromString(request) && asked.file() == "data" && asked.length() > 0);
    FUZZ_CHECK(asked.allow_partial() == allow_partial_);
    return AnswerSru(asked);
  }

  // A failure that any call can have.
  ScriptedAnswer Fail(uint8_t how) {
    using End = ScriptedAnswer::End;
    switch (how % 6) {
      case 0:
        return {.status = absl::Status(static_cast<absl::StatusCode>(1 + input_.Byte() % 16), "by the fuzzer")};
      case 1:
        return {.data = std::string(input_.Take(input_.Byte())), .end = End::kHang};
      case 2:
        return {.data = std::string(input_.Take(input_.Byte())), .end = End::kReset};
      case 3:
        return {.data = std::string(input_.Take(input_.Byte())), .end = End::kLost};
      case 4:
        return {.data = std::string(input_.Take(input_.Byte()))};
      default:
        return {.data = FrameMessage(input_.Take(input_.Byte()))};
    }
  }

  // Returns the stored bytes at the worker, or "" if the request is outside them.
  std::string Stored(const v1::ReadSruRequest& asked) const {
    std::string stripe;
    if (asked.worker() >= kWorkers || asked.replica() >= kReplicas) return stripe;
    for (uint64_t i = 0; i < layout_.StripeSrus(asked.worker(), asked.replica()); ++i) {
      const uint64_t sru = layout_.SruInStripe(asked.worker(), asked.replica(), i);
      stripe += source_.substr(layout_.SruOffset(sru), layout_.SruLength(sru));
    }
    if (asked.offset() > stripe.size() || asked.length() > stripe.size() - asked.offset()) return "";
    return stripe.substr(asked.offset(), asked.length());
  }

  ScriptedAnswer AnswerSru(const v1::ReadSruRequest& asked) {
    std::string data = Stored(asked);
    if (data.empty()) return {.status = absl::OutOfRangeError("not within the stripe")};
    const uint8_t op = input_.Byte();
    bool says_missing = false;
    switch (op % 8) {
      case 1:
        data[input_.Byte() % data.size()] ^= static_cast<char>(1 << input_.Byte() % 8);
        break;
      case 2:
        data.resize(data.size() - input_.Byte() % data.size());
        break;
      case 3:
        data.append(1 + input_.Byte() % 100, 'x');
        break;
      case 4:
        says_missing = true;
        break;
      case 5:
        return Fail(input_.Byte());
      default:
        break;
    }
    // The data comes in several pieces or in one.
    ScriptedAnswer answer;
    for (size_t begin = 0; begin < data.size();) {
      const size_t bytes = op >= 64 ? input_.Byte() % 64 : data.size();
      v1::ReadSruResponse message;
      message.set_data(data.substr(begin, bytes));
      for (int i = 0; says_missing && i < 2; ++i) {
        v1::MissingSruRange& missing = *message.add_missing();
        const auto shift = static_cast<int8_t>(input_.Byte());
        missing.set_offset(asked.offset() + begin + static_cast<uint64_t>(int64_t{shift}));
        missing.set_length(input_.Byte() % 64);
        missing.set_data_loss(shift % 2 != 0);
        missing.set_reason("by the fuzzer");
        if (shift == 127) missing.set_length(UINT64_MAX);
        if (input_.Byte() % 2 == 0) break;
      }
      answer.data += FrameMessage(message.SerializeAsString());
      begin += bytes;
      if (input_.empty()) says_missing = false;
      if (bytes == 0 && input_.empty()) break;
    }
    return answer;
  }

  ScriptedAnswer AnswerManifest(const v1::ReadManifestRequest& asked) {
    const uint8_t op = input_.Byte();
    std::string stored = EncodeManifest(layout_.manifest());
    v1::ReadManifestResponse message;
    if (op % 8 == 1) return FailManifest();
    if (op % 8 == 2) stored = EncodeManifest(OtherManifest());
    if (op % 8 == 3) stored[input_.Byte() % stored.size()] ^= static_cast<char>(1 << input_.Byte() % 8);
    if (op % 8 == 4) stored.resize((1 << 20) + input_.Byte());
    message.set_total_bytes(stored.size());
    if (op % 8 == 5) message.set_total_bytes(stored.size() + static_cast<uint64_t>(int64_t{1} << input_.Byte() % 64));
    if (asked.offset() <= stored.size()) message.set_data(stored.substr(asked.offset(), asked.length()));
    return {.data = FrameMessage(message.SerializeAsString())};
  }

  ScriptedAnswer FailManifest() {
    true_manifest_ = false;  // the input may contain a different manifest
    return Fail(input_.Byte());
  }

  // Any valid manifest, and some invalid ones.
  v1::Manifest OtherManifest() {
    true_manifest_ = false;
    v1::Manifest manifest = layout_.manifest();
    manifest.set_sru_bytes(manifest.sru_bytes() << input_.Byte() % 24);
    manifest.set_workers(input_.Byte() % 8);
    manifest.set_replicas(input_.Byte() % 4);
    manifest.set_file_bytes(uint64_t{input_.Byte()} << input_.Byte() % 64);
    const uint64_t srus = manifest.sru_bytes() == 0 ? 0 : (manifest.file_bytes() - 1) / manifest.sru_bytes() + 1;
    manifest.mutable_sru_crc32c()->Resize(static_cast<int>(std::min<uint64_t>(srus, 300)), 0);
    return manifest;
  }

  FuzzInput input_;
  const std::string source_ = Source();
  const StripeLayout layout_ = *StripeLayout::Create(TrueManifest());
  bool true_manifest_ = true;  // no worker has sent a different manifest
  bool allow_partial_ = false;
  testing::EventQueue events_;
  InlineCallbacks callbacks_;
  ScriptedWorkers workers_;
  LinkLoop link_;
  std::unique_ptr<ReaderState> reader_;
};

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::BlockReadFuzz(sluice::FuzzInput(data, size)).Run();
  return 0;
}
