// How often this program allocated; for tests that link count_allocations.cc. Thread safe.
#pragma once

namespace sluice::engine::test {

long allocation_count();

}  // namespace sluice::engine::test
