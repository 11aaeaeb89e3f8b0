/* The board's protocol: slots claimed, held, released, taken from the dead and reused, with death at any step.
 *
 * Every statement is one atomic operation of gates.cc or slots.cc. Time is abstracted: a holder may be found stuck
 * whenever somebody looks. What must hold once nothing moves any more is asserted in Monitor; what must always hold,
 * in place. board/model/run.sh checks the model, and that each mutation of it (-DMUTATE_...) is found out. What reapers and
 * watchers do overlaps on purpose, so one mutation takes both away.
 */
#ifndef DEATHS
#define DEATHS 1 /* at most so many processes die, */
#endif
#ifndef STALLS
#define STALLS 1 /* and so many times is a holder found stuck */
#endif
#define SLOTS 2
#define BIT(s) (1 << (s))

#define HIGH 1 /* processes; 0 is nobody */
#define LOW 2
#define LATER 3 /* comes into a slot that one of the others left */
#define REAPER_1 4
#define REAPER_2 5 /* survives */

byte owner[SLOTS];
bool live[SLOTS];
byte prio[SLOTS];
byte gate[SLOTS];
byte progress[SLOTS];
byte dropped_at[SLOTS];
bool busy[SLOTS];
byte epoch;
bool dead[6];
byte stalls;
byte deaths;

#define DROPPED(c) (dropped_at[c] == progress[c] + 1)
#define BELOW(t, c) (live[t] && live[c] && prio[t] < prio[c])
#define RIGHTFUL(c, t) (BELOW(t, c) && !DROPPED(c) && !dead[owner[c]])
#define MAY_HOLD(c) (live[c] && !DROPPED(c))

inline open(t, c) { gate[t] = gate[t] & ~BIT(c) }

/* SLOTS is 2: the only other one. */
#define OTHER(s) (1 - (s))

inline release_held(s) {
  if
  :: (gate[OTHER(s)] & BIT(s)) != 0 -> open(OTHER(s), s)
  :: else
  fi
}

inline hold_below(s) {
  if
  :: MAY_HOLD(s) ->
     if
     :: BELOW(OTHER(s), s) ->
        gate[OTHER(s)] = gate[OTHER(s)] | BIT(s);
        if
        :: !BELOW(OTHER(s), s) -> open(OTHER(s), s)
        :: else
        fi
     :: else -> release_held(s)
     fi
  :: else
  fi;
  if
  :: !MAY_HOLD(s) -> complete = false; release_held(s)
  :: else -> complete = true
  fi
}

/* hold_again() */
#ifdef MUTATE_EPOCH_ONLY
#define HOLD_AGAIN(s) (epoch != seen_epoch && MAY_HOLD(s))
#else
#define HOLD_AGAIN(s) ((epoch != seen_epoch || dropped_at[s] != seen_drop || !complete) && MAY_HOLD(s))
#endif

proctype Client(byte me; byte my_priority) {
  byte s;
  byte seen_epoch;
  byte seen_drop;
  byte rounds;
  bool complete;
  bool forever;
end_unclaimed:
  {
    if
    :: owner[0] == me -> s = 0
    :: owner[1] == me -> s = 1
    :: atomic { owner[0] == 0 -> owner[0] = me; s = 0 }
    :: atomic { owner[1] == 0 -> owner[1] = me; s = 1 }
    fi;
    if
    :: !live[s] ->
       gate[s] = 0;
       d_step { progress[s] = 0; dropped_at[s] = 0; busy[s] = false; prio[s] = my_priority };
       live[s] = true;
       epoch++
    :: else
    fi;
end:
    do
    :: !busy[s] && rounds < 1 ->
       rounds++;
       busy[s] = true;
       d_step { seen_epoch = epoch; seen_drop = dropped_at[s] };
       hold_below(s)
    :: busy[s] && HOLD_AGAIN(s) ->
       d_step { seen_epoch = epoch; seen_drop = dropped_at[s] };
       hold_below(s)
    :: busy[s] && progress[s] < 1 -> progress[s]++
    :: busy[s] && !forever -> forever = true
    :: busy[s] && !forever -> busy[s] = false; release_held(s)
    /* Only its own death may take the slot from it. */
    :: owner[s] != me && !dead[me] -> assert(false)
    od
  } unless { dead[me] }
}

/* The watcher of whoever has slot t: check_holders(). */
proctype Watcher(byte t) {
  byte me;
  byte seen;
  byte c = OTHER(t);
end:
  do
  :: atomic {
       live[t] && !dead[owner[t]] && (gate[t] & BIT(c)) != 0 && (!RIGHTFUL(c, t) || stalls < STALLS) -> me = owner[t]
     };
     {
       if
       :: !RIGHTFUL(c, t)
       :: RIGHTFUL(c, t) && stalls < STALLS ->
          stalls++;
          seen = progress[c];
          dropped_at[c] = seen + 1
       :: else -> goto end
       fi;
       open(t, c);
#ifndef MUTATE_NO_REPAIR
       if
       :: RIGHTFUL(c, t) -> epoch++
       :: else
       fi
#endif
     } unless { dead[me] }
  od
}

proctype Reaper(byte me) {
  byte s;
  byte o;
  {
end:
    do
    :: (owner[0] != 0 && dead[owner[0]]) || (owner[1] != 0 && dead[owner[1]]) ->
       if
       :: atomic { owner[0] != 0 && dead[owner[0]] -> s = 0; o = owner[0] }
       :: atomic { owner[1] != 0 && dead[owner[1]] -> s = 1; o = owner[1] }
       :: else -> goto end
       fi;
       if
       :: atomic { owner[s] == o -> owner[s] = me }
       :: else -> goto end
       fi;
       live[s] = false;
#ifdef MUTATE_FREE_EARLY
       owner[s] = 0;
#endif
#ifndef MUTATE_NOBODY_CLEARS
       open(OTHER(s), s);
#endif
       gate[s] = 0;
       d_step { progress[s] = 0; dropped_at[s] = 0; busy[s] = false };
       epoch++;
       owner[s] = 0
    od
  } unless { dead[me] }
}

proctype Killer() {
  do
  :: deaths < DEATHS -> deaths++; if :: dead[HIGH] = true :: dead[LOW] = true :: dead[LATER] = true
#if DEATHS > 1
     :: dead[REAPER_1] = true
#endif
     fi
  :: break
  od
}

#define ALIVE(s) (live[s] && owner[s] != 0 && !dead[owner[s]])

inline settled(t, c) {
  /* A closed gate has a holder that lives, has work, and is above; */
  assert((gate[t] & BIT(c)) == 0 || (ALIVE(t) && ALIVE(c) && busy[c] && prio[c] > prio[t]));
  /* a holder that has work, and was not dropped, holds what is below it; */
  assert(!(ALIVE(c) && ALIVE(t) && busy[c] && prio[c] > prio[t] && !DROPPED(c)) || (gate[t] & BIT(c)) != 0);
  /* and the dead own nothing. */
  assert(owner[c] == 0 || !dead[owner[c]])
}

proctype Monitor() {
  timeout;
  settled(0, 1);
  settled(1, 0)
}

init {
  atomic {
    /* Two have their slots already; a third may wait for the death of one. */
    owner[0] = HIGH; prio[0] = 2; live[0] = true;
    owner[1] = LOW; prio[1] = 1; live[1] = true;
    run Client(HIGH, 2);
    run Client(LOW, 1);
    if :: run Client(LATER, 0) :: run Client(LATER, 3) :: skip fi;
#ifndef MUTATE_NOBODY_CLEARS
    run Watcher(0);
    run Watcher(1);
#endif
#if DEATHS > 1
    run Reaper(REAPER_1);
#endif
    run Reaper(REAPER_2);
    run Killer();
    run Monitor()
  }
}
