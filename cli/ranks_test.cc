#include "ranks.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

namespace sluice::cli {
namespace {

using Variables = std::initializer_list<std::pair<const char*, const char*>>;

std::uint64_t of(Variables variables, std::int32_t priority = 0) {
  Environment environment;
  for (const auto& [name, value] : variables) environment.set(name, value);
  return ranks_of(environment, priority);
}

TEST(Ranks, OfEachLauncher) {
  for (const Variables variables : {
           Variables{{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}},
           Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
           Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}},
           Variables{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}},
           Variables{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "1,3"}},
       }) {
    EXPECT_NE(of(variables), 0u);
  }
}

TEST(Ranks, NoneWhereThereIsOneOrNoLauncher) {
  EXPECT_FALSE(of({}));
  EXPECT_FALSE(of({{"WORLD_SIZE", "4"}})) << "exported for later, say";
  EXPECT_FALSE(of({{"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}))
      << "the others are on other machines";
  EXPECT_FALSE(of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})) << "a batch script, which is no rank";
}

TEST(Ranks, ProgramsAreToldApart) {
  const auto mpi = [](const char* rank, const char* program) {
    return of({{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", program}});
  };
  EXPECT_EQ(mpi("0", "a"), mpi("1", "a"));
  EXPECT_NE(mpi("0", "a"), mpi("0", "b"));
  const auto by_parent = [] { return of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}); };
  EXPECT_EQ(by_parent(), by_parent());
  EXPECT_NE(by_parent(), mpi("0", "a"));
}

TEST(Ranks, RunsOfOtherPrioritiesInsideOneRankAreOtherJobs) {
  const auto in_shell = [](std::int32_t priority) {
    return of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}},
              priority);
  };
  EXPECT_EQ(in_shell(100), in_shell(100));
  EXPECT_NE(in_shell(100), in_shell(0));
}

}  // namespace
}  // namespace sluice::cli
