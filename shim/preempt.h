// Makes room for a job above within the time that a kernel runs. See channel_groups.h for how.
//
// For jobs with long kernels only. While a job above has a context on the same GPU, this process's time slices are
// short: the GPU gets to the other's first kernel that much sooner. And while a job above holds this one, it is off the
// GPU altogether: else what is left of a kernel comes back in every gap between the other's, for the price of two
// switches.
#pragma once

namespace sluice::shim {

// Before cuInit, with the driver's handle of dlopen. SLUICE_TIME_SLICE (microseconds; 0: off) is read here.
void prepare_preemption(void* driver);
// Starts its thread, if the driver can be made to do it. Once, when there is a session.
void start_preemption();
// The process ends: nothing is left as it would not be without Sluice.
void end_preemption();

}  // namespace sluice::shim
