#include "sluice/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include "socket_path.h"

namespace sluice::control {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kLong = 30 * kNanosPerSecond;  // never reached by a test that passes

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char path[] = "/tmp/sluice-control-XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// ---- messages ----

TEST(Message, RequestRoundTrip) {
  const auto line = to_line({{"op", "status"}, {"text", "a\nb"}});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->find('\n'), line->size() - 1) << "one line";
  const auto request = parse_request(line->substr(0, line->size() - 1));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ((*request)["op"], "status");
  EXPECT_EQ((*request)["text"], "a\nb");
}

struct Bad {
  const char* line;
  Code code;
};
class BadRequest : public testing::TestWithParam<Bad> {};
TEST_P(BadRequest, IsRefusedWithAReason) {
  const auto request = parse_request(GetParam().line);
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.status().code(), GetParam().code);
  EXPECT_STRNE(request.status().message(), "");
}
INSTANTIATE_TEST_SUITE_P(Lines, BadRequest,
                         testing::Values(Bad{"", Code::kInvalidArgument}, Bad{"{", Code::kInvalidArgument},
                                         Bad{"7", Code::kInvalidArgument}, Bad{"[]", Code::kInvalidArgument},
                                         Bad{"{} {}", Code::kInvalidArgument},
                                         Bad{R"({"op":"status"})", Code::kInvalidArgument},
                                         Bad{R"({"v":"1","op":"status"})", Code::kInvalidArgument},
                                         Bad{R"({"v":2,"op":"status"})", Code::kFailedPrecondition},
                                         Bad{R"({"v":99999999999999999999,"op":"x"})", Code::kInvalidArgument},
                                         Bad{R"({"v":1})", Code::kInvalidArgument},
                                         Bad{R"({"v":1,"op":7})", Code::kInvalidArgument},
                                         Bad{"{\"v\":1,\"op\":\"\xff\"}", Code::kInvalidArgument}));

TEST(Message, DeepNestingIsRefusedAndBracketsInTextAreNot) {
  const std::string deep = R"({"v":1,"op":"x","a":)" + std::string(kMaxDepth, '[') + std::string(kMaxDepth, ']') + "}";
  EXPECT_THAT(parse_request(deep).status().message(), HasSubstr("nested"));
  EXPECT_TRUE(parse_request(R"({"v":1,"op":"x","a":")" + std::string(1000, '[') + R"(\""})").ok());
}

TEST(Message, TooLongIsRefusedBothWays) {
  EXPECT_FALSE(parse_request(std::string(kMaxMessageBytes, ' ')).ok());
  EXPECT_EQ(to_line({{"text", std::string(kMaxMessageBytes, 'x')}}).status().code(), Code::kResourceExhausted);
}

TEST(Message, TextThatIsNotUtf8IsReplacedNotThrown) {
  const auto line = to_line({{"name", "\xff job"}});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(*line, HasSubstr(" job"));
}

TEST(Message, AnErrorReplyBecomesItsStatus) {
  const auto line = to_line(error_reply(Status::error(Code::kNotFound, "no job 7")));
  const auto reply = parse_reply(line->substr(0, line->size() - 1));
  EXPECT_EQ(reply.status().code(), Code::kNotFound);
  EXPECT_STREQ(reply.status().message(), "no job 7");
  EXPECT_EQ(parse_reply(R"({"v":1,"error":7})").status().code(), Code::kInternal);
  EXPECT_EQ(parse_reply(R"({"v":1,"error":{"code":"ODD","message":"x"}})").status().code(), Code::kInternal);
}

// ---- locks ----

TEST(FileLock, ExclusiveExcludesAndSharedShares) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/lock";
  {
    const auto shared = FileLock::acquire(path, FileLock::Mode::kShared, 0);
    ASSERT_TRUE(shared.ok());
    EXPECT_TRUE(FileLock::acquire(path, FileLock::Mode::kShared, 0).ok());
    EXPECT_EQ(FileLock::acquire(path, FileLock::Mode::kExclusive, 0).status().code(), Code::kDeadlineExceeded);
  }
  const auto exclusive = FileLock::acquire(path, FileLock::Mode::kExclusive, 0);
  ASSERT_TRUE(exclusive.ok());
  EXPECT_EQ(FileLock::acquire(path, FileLock::Mode::kShared, 0).status().code(), Code::kDeadlineExceeded);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(FileLock, ErrorsSayWhat) {
  TemporaryDirectory directory;
  EXPECT_EQ(FileLock::acquire(directory.path() + "/no/lock", FileLock::Mode::kShared, 0).status().code(),
            Code::kNotFound);
  ASSERT_EQ(symlink("/etc/hostname", (directory.path() + "/link").c_str()), 0);
  EXPECT_EQ(FileLock::acquire(directory.path() + "/link", FileLock::Mode::kShared, 0).status().code(),
            Code::kPermissionDenied);
}

// The file is removed and made anew all the time; still only one holds it at any moment.
TEST(FileLock, RemovingTheFileKeepsOneHolder) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/lock";
  std::atomic<int> holders{0}, worst{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        auto lock = FileLock::acquire(path, FileLock::Mode::kExclusive, kLong);
        ASSERT_TRUE(lock.ok()) << lock.status().message();
        const int now = ++holders;
        if (now > worst) worst = now;
        --holders;
        if (i % 2 == 0) lock->remove_file();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worst, 1);
}

// ---- client and server ----

class ServerTest : public testing::Test {
 protected:
  void start(Server::Handler handler, Server::Limits limits = Server::Limits()) {
    auto server = Server::listen(io_, directory_.path(), std::move(handler), limits);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    thread_ = std::thread([this] { io_.run(); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] {
      server_.reset();
      work_.reset();
    });
    thread_.join();
  }
  void TearDown() override { stop(); }

  static void echo(const Json& message, uid_t, Server::Reply reply) { reply({{"got", message["op"]}}); }

  // Sends raw bytes and returns all that comes back until the server closes.
  std::string converse(const std::string& bytes, bool close_writing) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const SocketPath path(directory_.path());
    const sockaddr_un address = path.address();
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t sent = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += static_cast<std::size_t>(sent);
    }
    if (close_writing) shutdown(fd, SHUT_WR);
    std::string all;
    char buffer[4096];
    for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<std::size_t>(got));
    close(fd);
    return all;
  }

  TemporaryDirectory directory_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(ServerTest, AnswersAndIsPrivate) {
  start(echo);
  const auto reply = request(directory_.path(), {{"op", "hello"}}, kLong);
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ((*reply)["got"], "hello");
  struct stat info;
  ASSERT_EQ(stat((directory_.path() + "/" + kSocketName).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  stop();
  EXPECT_NE(access((directory_.path() + "/" + kSocketName).c_str(), F_OK), 0) << "the socket is removed";
  EXPECT_EQ(request(directory_.path(), {{"op", "hello"}}).status().code(), Code::kUnavailable);
}

TEST_F(ServerTest, SeveralRequestsOnOneConnectionAndGarbageInBetween) {
  start(echo);
  const std::string all =
      converse("{\"v\":1,\"op\":\"a\"}\nnonsense\n{\"v\":1,\"op\":\"b\"}\n{\"v\":1,\"op\":\"cut", true);
  EXPECT_THAT(all, HasSubstr(R"("got":"a")"));
  EXPECT_THAT(all, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(all, HasSubstr(R"("got":"b")"));
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 3);
}

TEST_F(ServerTest, ARequestWithoutEndIsRefusedAndTheServerLives) {
  start(echo);
  EXPECT_THAT(converse(std::string(kMaxMessageBytes + 1, 'x'), false), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_TRUE(request(directory_.path(), {{"op", "hello"}}, kLong).ok());
}

TEST_F(ServerTest, ASilentConnectionIsClosed) {
  Server::Limits limits;
  limits.silence_ns = 20 * kNanosPerMilli;
  start(echo, limits);
  EXPECT_EQ(converse("", false), "");
}

TEST_F(ServerTest, ConnectionsBeyondTheLimitAreClosed) {
  Server::Limits limits;
  limits.connections = 0;
  start(echo, limits);
  EXPECT_EQ(request(directory_.path(), {{"op", "hello"}}, kLong).status().code(), Code::kUnavailable);
}

TEST_F(ServerTest, AReplyMayComeLaterFromAnotherThread) {
  std::vector<std::thread> threads;
  start([&](const Json& message, uid_t, Server::Reply reply) {
    threads.emplace_back([message, reply] { reply({{"got", message["op"]}}); });
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(request(directory_.path(), {{"op", "hello"}}, kLong).ok());
  stop();  // from here on `threads` is this thread's alone
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServerTest, AReplyAfterTheServerIsGoneIsDropped) {
  Server::Reply kept;
  std::promise<void> asked;
  start([&](const Json&, uid_t, Server::Reply reply) {
    kept = std::move(reply);
    asked.set_value();
  });
  auto answer = std::async(std::launch::async, [&] { return request(directory_.path(), {{"op", "hello"}}, kLong); });
  asked.get_future().wait();
  stop();
  EXPECT_EQ(answer.get().status().code(), Code::kUnavailable);
  kept({{"late", true}});
}

TEST_F(ServerTest, ARequestWithoutAnswerRunsIntoItsDeadline) {
  std::vector<Server::Reply> kept;
  start([&](const Json&, uid_t, Server::Reply reply) { kept.push_back(std::move(reply)); });
  EXPECT_EQ(request(directory_.path(), {{"op", "hello"}}, 20 * kNanosPerMilli).status().code(),
            Code::kDeadlineExceeded);
  stop();  // before `kept` goes
}

TEST_F(ServerTest, ManyClientsAtOnce) {
  start(echo);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) good += request(directory_.path(), {{"op", "hello"}}, kLong).ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16 * 20);
}

TEST_F(ServerTest, AStaleSocketIsReplaced) {
  const SocketPath path(directory_.path());
  const sockaddr_un address = path.address();
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(fd);
  start(echo);
  EXPECT_TRUE(request(directory_.path(), {{"op", "hello"}}, kLong).ok());
}

TEST(SocketPath, WorksBeyondTheLengthOfASocketAddress) {
  TemporaryDirectory directory;
  const std::string deep = directory.path() + "/" + std::string(200, 'd');
  ASSERT_EQ(mkdir(deep.c_str(), 0700), 0);
  boost::asio::io_context io;
  auto server = Server::listen(io, deep, [](const Json&, uid_t, Server::Reply reply) { reply({{"deep", true}}); });
  ASSERT_TRUE(server.ok()) << server.status().message();
  std::thread thread([&] { io.run(); });
  const auto reply = request(deep, {{"op", "hello"}}, kLong);
  io.stop();
  thread.join();
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ((*reply)["deep"], true);
}

TEST(Start, AProgramThatIsMissingIsNamed) {
  TemporaryDirectory directory;
  DaemonStart start;
  start.runtime_dir = directory.path();
  start.program = "/nonexistent/sluiced";
  const auto daemon = ensure_daemon(start);
  EXPECT_EQ(daemon.status().code(), Code::kUnavailable);
  EXPECT_THAT(daemon.status().message(), HasSubstr("/nonexistent/sluiced"));
}

TEST(Start, AProgramThatNeverAnswersIsGivenUp) {
  TemporaryDirectory directory;
  DaemonStart start;
  start.runtime_dir = directory.path();
  start.program = "/bin/true";
  start.timeout_ns = 50 * kNanosPerMilli;
  EXPECT_EQ(ensure_daemon(start).status().code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace sluice::control
