#include "lib/blocks/manifest_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/str_cat.h"
#include "lib/blocks/sru_ranges.h"
#include "lib/rpc/messages.h"
#include "lib/stripe/manifest.h"

namespace sluice {
namespace {

constexpr uint64_t kFirstRangeBytes = 8 << 10;
// A worker that has lost its disk must not hide a file that the others have.
constexpr uint32_t kWorkersAsked = 3;

}  // namespace

std::shared_ptr<ManifestFetch> ManifestFetch::Start(ReaderCore& core, std::string file, TimePoint deadline,
                                                    Callback callback) {
  std::shared_ptr<ManifestFetch> fetch(new ManifestFetch(core, std::move(file), deadline, std::move(callback)));
  fetch->AskWorker();
  return fetch;
}

ManifestFetch::ManifestFetch(ReaderCore& core, std::string file, TimePoint deadline, Callback callback)
    : core_(core),
      file_(std::move(file)),
      deadline_(deadline),
      callback_(std::move(callback)),
      range_bytes_(core.RangeBytesFor(kMaxRangeBytes)) {}

void ManifestFetch::AskWorker() {
  {
    absl::MutexLock lock(&mutex_);
    stored_.clear();
    size_known_ = false;
    first_range_ = true;
    status_ = absl::OkStatus();
  }
  AskRanges(0, std::min(range_bytes_, kFirstRangeBytes));
}

void ManifestFetch::AskRanges(uint64_t begin, uint64_t end) {
  std::vector<GroupCall> calls;
  for (uint64_t offset = begin; offset < end; offset += range_bytes_) {
    v1::ReadManifestRequest request;
    request.set_file(file_);
    request.set_worker(worker_);
    request.set_offset(offset);
    request.set_length(static_cast<uint32_t>(std::min(range_bytes_, end - offset)));
    calls.push_back({.channels = &core_.channels(),
                     .worker = worker_,
                     .method = "/sluice.v1.SruService/ReadManifest",
                     .request = Serialize(request),
                     .response_bytes = request.length(),
                     .timeout = core_.options().sru_timeout,
                     .tag = offset});
  }
  int round = 0;
  {
    absl::MutexLock lock(&mutex_);
    round = ++round_;
  }
  auto self = shared_from_this();
  CallGroup::Handlers handlers{
      .on_answer = [self](CallGroup&, size_t tag,
                          absl::StatusOr<grpc::ByteBuffer> answer) { return self->OnAnswer(tag, std::move(answer)); },
      .on_end = [self] { self->OnEnd(); }};
  auto started = core_.fan_out().StartGroup(std::move(calls), deadline_, std::move(handlers));
  if (!started.ok()) return callback_(started.status());
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = cancelled_;
    // It may have ended already, and the next one begun.
    if (round == round_) group_ = *started;
  }
  if (cancelled) (*started)->Cancel();
}

void ManifestFetch::Cancel() {
  std::shared_ptr<CallGroup> group;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    group = group_.lock();
  }
  if (group) group->Cancel();
}

absl::Status ManifestFetch::OnAnswer(size_t tag, absl::StatusOr<grpc::ByteBuffer> answer) {
  v1::ReadManifestResponse response;
  absl::Status status = answer.ok() ? Parse(*answer, response) : answer.status();
  absl::MutexLock lock(&mutex_);
  if (status.ok()) status = Store(tag, response.data(), response.total_bytes());
  status_.Update(status);
  return status;
}

absl::Status ManifestFetch::Store(uint64_t offset, const std::string& data, uint64_t total_bytes) {
  if (!size_known_) {
    if (total_bytes > kMaxStoredManifestBytes) {
      return absl::DataLossError(
          absl::StrCat("its manifest has ", total_bytes, " bytes; at most ", kMaxStoredManifestBytes, " are read"));
    }
    stored_.resize(total_bytes);
    size_known_ = true;
  }
  const uint64_t asked = offset == 0 ? std::min(range_bytes_, kFirstRangeBytes) : range_bytes_;
  if (total_bytes != stored_.size() || offset > total_bytes || data.size() != std::min(asked, total_bytes - offset)) {
    return absl::DataLossError(absl::StrCat("answered with ", data.size(), " of ", total_bytes,
                                            " manifest bytes at offset ", offset, "; that is not what was asked for"));
  }
  std::memcpy(stored_.data() + offset, data.data(), data.size());
  return absl::OkStatus();
}

void ManifestFetch::OnEnd() {
  absl::Status status;
  uint64_t have = 0;
  uint64_t total = 0;
  {
    absl::MutexLock lock(&mutex_);
    status = status_;
    total = stored_.size();
    have = std::exchange(first_range_, false) ? std::min({range_bytes_, kFirstRangeBytes, total}) : total;
  }
  if (!status.ok()) return OnWorkerFailed(status);
  if (have < total) return AskRanges(have, total);
  auto layout = Decode();
  if (!layout.ok()) return OnWorkerFailed(layout.status());
  if ((*layout)->Workers() > core_.channels().size()) return callback_(TooManyWorkers((*layout)->Workers()));
  core_.KeepLayout(file_, *layout);
  callback_(std::move(layout));
}

void ManifestFetch::OnWorkerFailed(const absl::Status& why) {
  // A worker that has the file in a bad state says more than one that does not have it.
  if (!absl::IsNotFound(why)) {
    failure_.Update(
        absl::Status(ReaderCode(why.code()), absl::StrCat("manifest of file \"", file_, "\": worker ", worker_, " (",
                                                          core_.channels().address(worker_), "): ", why.message())));
  }
  const bool another = worker_ + 1 < std::min<size_t>(kWorkersAsked, core_.channels().size());
  if (another && !absl::IsCancelled(why)) {
    ++worker_;
    return AskWorker();
  }
  if (!failure_.ok()) return callback_(failure_);
  callback_(absl::NotFoundError(absl::StrCat("no file \"", file_, "\" on the workers asked: ", why.message())));
}

absl::Status ManifestFetch::TooManyWorkers(uint32_t workers) const {
  return absl::FailedPreconditionError(absl::StrCat("file \"", file_, "\" is striped over ", workers,
                                                    " workers; this reader has ", core_.channels().size()));
}

absl::StatusOr<std::shared_ptr<const StripeLayout>> ManifestFetch::Decode() {
  absl::StatusOr<v1::Manifest> manifest = absl::UnknownError("");
  {
    absl::MutexLock lock(&mutex_);
    manifest = DecodeManifest(stored_);
  }
  if (!manifest.ok()) return absl::DataLossError(manifest.status().message());
  auto layout = StripeLayout::Create(*std::move(manifest));
  if (!layout.ok()) return absl::DataLossError(layout.status().message());
  return std::make_shared<const StripeLayout>(*std::move(layout));
}

}  // namespace sluice
