#include "elsewhere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job_request.h"

namespace sluice::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::optional<Elsewhere> of(const std::string& words) {
  return elsewhere(*split_words(words), {"sluice", "run", "--priority", "low", "--"});
}

// The word before which options would go.
std::string image_of(const std::string& words) {
  const auto found = of(words);
  if (!found || found->image == 0) return "";
  return (*split_words(words))[found->image];
}

TEST(Elsewhere, TheImageIsFoundBehindTheOptions) {
  EXPECT_EQ(image_of("docker run image cmd --rm"), "image");
  EXPECT_EQ(image_of("docker run --rm -it --gpus all -v /a:/b -e X=1 image python x.py"), "image");
  EXPECT_EQ(image_of("podman run --rm --device nvidia.com/gpu=all --name=x image"), "image");
  EXPECT_EQ(image_of("/usr/bin/nerdctl container run -itv /a:/b -p80:80 -w=/x image"), "image");
  EXPECT_EQ(image_of("docker run -u 1000 --shm-size 1g image run"), "image");
}

TEST(Elsewhere, WhatIsNotSureIsSaidAndNotGuessed) {
  for (const auto& [words, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"docker run --new-option x image", "--new-option is not known"},
           {"docker run -Z image", "-Z is not known"},
           {"docker --context far run image", "before its \"run\""},
           {"docker exec box python", "\"exec\" is no run"},
           {"docker compose run service", "compose file"},
           {"docker-compose up", "compose file"},
           {"sudo docker run image", "write sudo before sluice"},
           {"docker run --rm", "no image"},
           {"docker run --pid container:x image", "--pid=host"}}) {
    const auto found = of(words);
    ASSERT_TRUE(found) << words;
    EXPECT_EQ(found->image, 0u) << words;
    EXPECT_THAT(found->unsure, HasSubstr(why)) << words;
  }
}

TEST(Elsewhere, OrdinaryCommandsAreLeftAlone) {
  for (const char* words : {"python docker run", "docker ps", "docker", "sudo python x.py", "ssh", "mpirun -n 4 x"}) {
    EXPECT_FALSE(of(words)) << words;
  }
}

TEST(Elsewhere, OptionsOfAContainer) {
  const ContainerNeeds needs{"/opt/sluice/shim", "/dev/shm/sluice-7", "", "", ""};
  const auto plain = container_options(*of("docker run image"), needs);
  EXPECT_EQ(
      shell_text(plain),
      "--pid=host -v /opt/sluice/shim:/opt/sluice/shim:ro -v /dev/shm/sluice-7:/dev/shm/sluice-7 -e SLUICE_BOARDS "
      "-e SLUICE_JOB -e SLUICE_BATCH_HINT_FILE -e CUDA_VISIBLE_DEVICES -e "
      "LD_LIBRARY_PATH=/opt/sluice/shim:/usr/local/nvidia/lib:/usr/local/nvidia/lib64");
  const auto own = container_options(*of("docker run --pid=host -e LD_LIBRARY_PATH=/mine image"), needs);
  EXPECT_THAT(own, Not(Contains("--pid=host")));
  EXPECT_THAT(own, Contains("LD_LIBRARY_PATH=/opt/sluice/shim:/mine"));
  EXPECT_THAT(
      container_options(*of("docker run image"), {"/s", "/r", "/limit", "/emulator", ""}),
      testing::AllOf(Contains("/limit:/limit:ro"), Contains("/emulator:/emulator:ro"), Contains("SLUICE_DRIVER"),
                     Contains("LD_LIBRARY_PATH=/s:/limit:/usr/local/nvidia/lib:/usr/local/nvidia/lib64")));
}

TEST(Elsewhere, OptionsOfAContainerThatIsAClientOfMps) {
  const std::string own = shell_text(container_options(*of("docker run image"), {"/s", "/r", "", "", "/r/mps-7/pipe"}));
  EXPECT_THAT(own, HasSubstr("--ipc=host -e "));
  EXPECT_THAT(own, HasSubstr("-e CUDA_MPS_PIPE_DIRECTORY -e CUDA_MPS_CLIENT_PRIORITY"));
  EXPECT_THAT(own, Not(HasSubstr("/r/mps-7/pipe"))) << "inside the runtime directory, which is there anyway";
  EXPECT_THAT(shell_text(container_options(*of("docker run image"), {"/s", "/r", "", "", "/tmp/nvidia-mps"})),
              HasSubstr("-v /tmp/nvidia-mps:/tmp/nvidia-mps -e"));
}

TEST(Elsewhere, WhatTheCommandGivesTheContainer) {
  EXPECT_TRUE(of("docker run --gpus all image")->has_gpu);
  EXPECT_TRUE(of("podman run --device nvidia.com/gpu=all image")->has_gpu);
  EXPECT_FALSE(of("docker run image --gpus all")->has_gpu);
  EXPECT_EQ(of("docker run -u1000:7 image")->user, "1000:7");
}

TEST(Elsewhere, OtherMachines) {
  const auto ssh = [](const char* words) { return shell_text(of(words)->instead); };
  EXPECT_EQ(ssh("ssh -p 22 -tt me@far python 'a b.py'"),
            "ssh -p 22 -tt me@far sluice run --priority low -- python 'a b.py'");
  EXPECT_EQ(ssh("ssh far"), "ssh far sluice run --priority low -- COMMAND");
  EXPECT_EQ(of("ssh far ls")->kind, Elsewhere::Kind::kMachine);
  EXPECT_EQ(shell_text(of("srun -n 4 x")->instead), "srun OPTIONS... sluice run --priority low -- COMMAND");
}

TEST(Elsewhere, ShellText) { EXPECT_EQ(shell_text({"a", "", "b c", "d'e"}), "a '' 'b c' 'd'\\''e'"); }

}  // namespace
}  // namespace sluice::cli
