#include "tests/simulation/worker_session.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/response_head.h"

namespace sluice::testing {

std::string RequestFor(const Question& question) {
  return absl::StrCat(question.key, " ", question.bytes, " ", question.messages, " ", question.streaming, " ",
                      question.taken, " ", question.block, " ", question.traffic_class, " ", question.deadline_ns);
}

std::optional<Question> ParseQuestion(absl::string_view message) {
  const std::vector<std::string> words = absl::StrSplit(message, ' ');
  Question question;
  if (words.size() != 8 || !absl::SimpleAtoi(words[0], &question.key) || !absl::SimpleAtoi(words[1], &question.bytes) ||
      !absl::SimpleAtoi(words[2], &question.messages) || !absl::SimpleAtob(words[3], &question.streaming) ||
      !absl::SimpleAtob(words[4], &question.taken) || !absl::SimpleAtoi(words[5], &question.block) ||
      !absl::SimpleAtoi(words[6], &question.traffic_class) || !absl::SimpleAtoi(words[7], &question.deadline_ns)) {
    return std::nullopt;
  }
  return question;
}

// One call of the worker.
class WorkerSession::Stream final : public ServerCall {
 public:
  Stream(WorkerSession& worker, Http2Session& session, int32_t id) : ServerCall(session, id), worker_(worker) {}

 private:
  void OnRequest() override {
    const std::optional<Question> question = ParseQuestion(request());
    if (!question.has_value()) return worker_.Finish(stream(), absl::InvalidArgumentError("not a request"));
    worker_.Serve(stream(), *question, head().timeout);
  }
  void OnGone(StreamEnd) override { worker_.Gone(stream()); }

  WorkerSession& worker_;
};

WorkerSession::WorkerSession() = default;

WorkerSession::~WorkerSession() = default;

absl::Status WorkerSession::Begin(uint32_t max_concurrent_streams) {
  auto session = Http2Session::Create({.side = Http2Session::Side::kServer,
                                       .max_concurrent_streams = max_concurrent_streams,
                                       .max_unsent_bytes_per_stream = 16u << 20},
                                      *this);
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  Flush();
  return absl::OkStatus();
}

void WorkerSession::OnBytes(absl::string_view bytes) {
  if (session_ == nullptr) return;
  const absl::Status received = session_->Receive(bytes);
  Flush();
  if (!received.ok()) Lose();
}

void WorkerSession::OnClientGone() {
  if (session_ == nullptr) return;
  session_->Lose();
  session_.reset();
  gone_.clear();
}

StreamEvents* WorkerSession::OnStream(int32_t stream) {
  std::unique_ptr<Stream>& call = streams_[stream];
  call = std::make_unique<Stream>(*this, *session_, stream);
  return call.get();
}

void WorkerSession::Answer(int32_t stream, size_t size) {
  const auto call = streams_.find(stream);
  if (call != streams_.end()) call->second->Answer(std::string(size, '\0'));
}

void WorkerSession::Finish(int32_t stream, const absl::Status& status) {
  session_->SendHeaders(stream, ToTrailersOnly(status, "", {}), true);
}

void WorkerSession::Flush() {
  if (session_ == nullptr) return;
  std::string out;
  session_->Output(out);
  if (!out.empty()) Write(std::move(out));
  gone_.clear();
}

void WorkerSession::Gone(int32_t stream) {
  gone_.push_back(std::move(streams_.extract(stream).mapped()));
  OnGone(stream);
}

}  // namespace sluice::testing
