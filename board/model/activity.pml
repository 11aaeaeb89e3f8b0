/* Inside one process: threads that launch, and the pump that finds everything done and opens what the process held.
 * No lock is taken on a launch while the process is busy; the two sides meet as in Dekker's algorithm.
 *
 * The bits are set before `busy`: a thread that finds the process busy launches at once.
 */
#define LAUNCHERS 2
#define LAUNCHES 2

byte submitted; /* counted before the launch */
byte queued;    /* reached the GPU */
byte completed;
bool busy;
bool bits; /* this process holds those below it */
bool locked;

inline lock() { atomic { !locked -> locked = true } }
inline unlock() { locked = false }

proctype Launcher() {
  byte i;
  bool seen;
  do
  :: i < LAUNCHES ->
     i++;
#ifdef MUTATE_LOOK_FIRST
     seen = busy;
     submitted++;
#else
     submitted++;
     seen = busy;
#endif
     if
     :: !seen ->
        lock();
#ifdef MUTATE_ACTIVE_FIRST
        busy = true;
        bits = true;
#else
        bits = true;
        busy = true;
#endif
        unlock()
     :: else
     fi;
     queued++
  :: else -> break
  od
}

proctype Gpu() {
end:
  do
  :: completed < queued -> completed++
  od
}

proctype Pump() {
end:
  do
  :: busy && submitted == completed ->
     lock();
     busy = false;
#ifndef MUTATE_NO_SECOND_LOOK
     if
     :: submitted != completed -> busy = true
     :: else -> bits = false
     fi;
#else
     bits = false;
#endif
     unlock()
  od
}

/* At every moment: what is on the GPU holds those below it. */
proctype Always() {
end:
  atomic { completed < queued && !bits -> assert(false) }
}

/* Once nothing moves any more: everything was done, and nobody is held. */
proctype Monitor() {
  timeout;
  assert(completed == LAUNCHERS * LAUNCHES);
  assert(!bits && !busy && !locked)
}

init {
  atomic {
    run Launcher();
    run Launcher();
    run Gpu();
    run Pump();
    run Always();
    run Monitor()
  }
}
