"""The native part of the worker pool, as LLVM IR text: launch, walk, claim, barrier, wait, park, wake.

Shared words (64-bit, the pool's memory): 0 steps, 1 count, 2 workers, 3 timings, 4 idle spins, 5 barrier spins; on cache lines of
their own 8 arrivals and 16 generation. Worker w has a slot of 32 words after 32 w words: 0 sequence (32 bits: a change is an
order to start), 1 parked (32 bits), 2 the shared words' address, 3 its number, 4 stop; 8 and 16 mutex and condition where the
system has no futex; on a line of their own, 24 and 25 claims. A step is four words: function, arguments, in halves barrier flag and
(above) pieces, and in halves which part of each worker's share it is, and of how many: a function is called as if there were
so many workers for each. Where the flag is negative it is no call but an end: the byte that the second word points to, which every
worker reads, says whether the walk goes on; so the call before has a barrier, and the byte stays as it is until the walk is over.

Of a step in pieces every worker does seven eighths of its share, then claims what is left of it, half of that at a time, by
adding to its count of claimed pieces; nobody else touches that line, as a rule. A worker that has nothing left claims half of
what is left of the next one's share, of the one after, and so on (guided self-scheduling: C. D. Polychronopoulos and
D. J. Kuck, IEEE Transactions on Computers 36, 1987; stealing: R. D. Blumofe and C. E. Leiserson, Journal of the ACM 46, 1999).
Every worker sets its count for the following step back to 0 when it begins one: all are beyond the barrier after the last step
that used it, and none beyond the next, so there is one count for even steps and one for odd.

Two orderings carry the whole thing. A launch writes the shared words, then moves each sequence on; a worker reads the sequence,
then the shared words. A worker says `parked`, then looks at its sequence once more; a launch moves the sequence on, then looks at
`parked`: in one total order one of them sees the other, so no order is slept through.
"""

from __future__ import annotations

__all__ = ["SLOT_WORDS", "pool_ir"]

SLOT_WORDS = 32
"""64-bit words per worker slot; the shared words take the place of slot 0."""


def pool_ir(machine: str, parking: str, monotonic_clock: int) -> str:
    """The module for a processor family (`x86_64`, `aarch64`, other) and a way to park (`futex` or `condition`).

    It defines `pool_launch(shared, steps, count, workers, timings)`, `pool_alone(steps, count, timings)`,
    `pool_worker(slot)`, `pool_wake(slot)` and `pool_spin(count)`. `timings` is null or i64[count][workers][2]: start and
    end of each worker's share of each step, nanoseconds of the system clock `monotonic_clock`.
    """
    pause = {
        "x86_64": "call void @llvm.x86.sse2.pause()",
        "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    }.get(machine, "")
    declarations = {
        "x86_64": "declare void @llvm.x86.sse2.pause()",
        "aarch64": "declare void @llvm.aarch64.hint(i32)",
    }.get(machine, "")
    waiting = _CONDITION
    if parking == "futex":
        waiting = _FUTEX.replace("$FUTEX", {"x86_64": "202", "aarch64": "98"}[machine])
    text = declarations + _COMMON + waiting
    return (
        text.replace("$PAUSE", pause)
        .replace("$CLOCK", str(monotonic_clock))
        .replace("$SLOT_BYTES", str(8 * SLOT_WORDS))
        .replace("$SLOT_WORDS", str(SLOT_WORDS))
    )


_COMMON = """
declare i32 @sched_yield()
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @clock_gettime(i32, ptr)

define void @pool_spin(i64 %count) {
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  $PAUSE
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %again, label %done
done:
  ret void
}

define internal void @barrier(ptr %shared, i64 %workers) {
entry:
  %arrivals = getelementptr i64, ptr %shared, i64 8
  %generation = getelementptr i64, ptr %shared, i64 16
  %mine = load atomic i64, ptr %generation acquire, align 8
  %before = atomicrmw add ptr %arrivals, i64 1 acq_rel
  %now = add i64 %before, 1
  %last = icmp eq i64 %now, %workers
  br i1 %last, label %open, label %wait
open:
  store atomic i64 0, ptr %arrivals monotonic, align 8
  %following = add i64 %mine, 1
  store atomic i64 %following, ptr %generation release, align 8
  ret void
wait:
  %limit.at = getelementptr i64, ptr %shared, i64 5
  %limit = load i64, ptr %limit.at
  br label %spin
spin:
  %i = phi i64 [ 0, %wait ], [ %next, %patient ], [ %rewound, %yield ]
  $PAUSE
  %current = load atomic i64, ptr %generation acquire, align 8
  %opened = icmp ne i64 %current, %mine
  br i1 %opened, label %done, label %patient.check
patient.check:
  %next = add i64 %i, 1
  %short = icmp slt i64 %next, %limit
  br i1 %short, label %patient, label %yield
patient:
  br label %spin
yield:
  %ignored = call i32 @sched_yield()
  %rewound = sub i64 %limit, 16
  br label %spin
done:
  ret void
}

define internal i64 @clock() {
  %time = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}

define internal ptr @claims(ptr %shared, i64 %k, i64 %worker) {
  %slot = mul i64 %worker, $SLOT_WORDS
  %odd = and i64 %k, 1
  %place = or i64 %odd, 24
  %word = add i64 %slot, %place
  %at = getelementptr i64, ptr %shared, i64 %word
  ret ptr %at
}

define internal void @claim(ptr %counter, i64 %rest, ptr %function, ptr %arguments, i64 %first, i64 %of, i64 %worker) {
entry:
  br label %look
look:
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %some = icmp slt i64 %seen, %rest
  br i1 %some, label %take, label %done
take:
  %left = sub i64 %rest, %seen
  %part = lshr i64 %left, 1
  %wanted = call i64 @llvm.smax.i64(i64 %part, i64 1)
  %before = atomicrmw add ptr %counter, i64 %wanted monotonic
  %free = sub i64 %rest, %before
  %any = icmp sgt i64 %free, 0
  br i1 %any, label %call, label %done
call:
  %count = call i64 @llvm.smin.i64(i64 %wanted, i64 %free)
  %low = add i64 %first, %before
  %high = add i64 %low, %count
  call void %function(ptr %arguments, i64 %low, i64 %high, i64 %of, i64 %worker, i64 1)
  br label %look
done:
  ret void
}

define internal void @share(ptr %shared, ptr %at, i64 %k, i64 %workers, i64 %worker) {
entry:
  %function = load ptr, ptr %at
  %arguments.at = getelementptr i64, ptr %at, i64 1
  %arguments = load ptr, ptr %arguments.at
  %flag.at = getelementptr i64, ptr %at, i64 2
  %flag = load i64, ptr %flag.at
  %pieces = lshr i64 %flag, 32
  %strip.at = getelementptr i64, ptr %at, i64 3
  %strip = load i64, ptr %strip.at
  %parts = lshr i64 %strip, 32
  %part = and i64 %strip, 4294967295
  %shares = mul i64 %workers, %parts
  %before = mul i64 %worker, %parts
  %share = add i64 %before, %part
  %one = icmp eq i64 %workers, 1
  br i1 %one, label %given, label %several
several:
  %following = add i64 %k, 1
  %coming = call ptr @claims(ptr %shared, i64 %following, i64 %worker)
  store atomic i64 0, ptr %coming monotonic, align 8
  %given.once = icmp eq i64 %pieces, 1
  br i1 %given.once, label %given, label %divided
given:
  %beyond = add i64 %share, 1
  call void %function(ptr %arguments, i64 %share, i64 %beyond, i64 %shares, i64 %worker, i64 0)
  ret void
divided:
  %of = mul i64 %workers, %pieces
  %low = mul i64 %worker, %pieces
  %seven = mul i64 %pieces, 7
  %own = lshr i64 %seven, 3
  %rest = sub i64 %pieces, %own
  %high = add i64 %low, %own
  call void %function(ptr %arguments, i64 %low, i64 %high, i64 %of, i64 %worker, i64 0)
  %counter = call ptr @claims(ptr %shared, i64 %k, i64 %worker)
  call void @claim(ptr %counter, i64 %rest, ptr %function, ptr %arguments, i64 %high, i64 %of, i64 %worker)
  %limit = call i64 @llvm.smin.i64(i64 %workers, i64 9)
  br label %other
other:
  %distance = phi i64 [ 1, %divided ], [ %farther, %visit ]
  %more = icmp slt i64 %distance, %limit
  br i1 %more, label %visit, label %done
visit:
  %sum = add i64 %worker, %distance
  %victim = urem i64 %sum, %workers
  %theirs = call ptr @claims(ptr %shared, i64 %k, i64 %victim)
  %their.low = mul i64 %victim, %pieces
  %their.first = add i64 %their.low, %own
  call void @claim(ptr %theirs, i64 %rest, ptr %function, ptr %arguments, i64 %their.first, i64 %of, i64 %worker)
  %farther = add i64 %distance, 1
  br label %other
done:
  ret void
}

define internal void @walk(ptr %shared, ptr %steps, i64 %count, i64 %workers, ptr %timings, i64 %worker) {
entry:
  %timed = icmp ne ptr %timings, null
  %alone = icmp eq i64 %workers, 1
  %several = select i1 %alone, i32 0, i32 -1
  %end = getelementptr [4 x i64], ptr %steps, i64 %count
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %step, label %done
step:
  %at = phi ptr [ %steps, %entry ], [ %next, %more ], [ %next, %synchronise ], [ %next, %look ]
  %k = phi i64 [ 0, %entry ], [ %k.next, %more ], [ %k.next, %synchronise ], [ %k, %look ]
  %flag.at = getelementptr i64, ptr %at, i64 2
  %flag = load i32, ptr %flag.at
  %next = getelementptr [4 x i64], ptr %at, i64 1
  %k.next = add i64 %k, 1
  %last = icmp eq ptr %next, %end
  %ends = icmp slt i32 %flag, 0
  %special = or i1 %ends, %timed
  br i1 %special, label %which, label %plain
which:
  br i1 %ends, label %look, label %measured
look:
  %told.at = getelementptr i64, ptr %at, i64 1
  %byte.at = load ptr, ptr %told.at
  %byte = load i8, ptr %byte.at
  %told = icmp eq i8 %byte, 0
  %over = or i1 %told, %last
  br i1 %over, label %finish, label %step
plain:
  call void @share(ptr %shared, ptr %at, i64 %k, i64 %workers, i64 %worker)
  br label %meet
measured:
  %here = ptrtoint ptr %at to i64
  %begin = ptrtoint ptr %steps to i64
  %distance = sub i64 %here, %begin
  %row = lshr exact i64 %distance, 5
  %rows = mul i64 %row, %workers
  %entry.number = add i64 %rows, %worker
  %start.at = getelementptr [2 x i64], ptr %timings, i64 %entry.number
  %stop.at = getelementptr i64, ptr %start.at, i64 1
  %start = call i64 @clock()
  store i64 %start, ptr %start.at
  call void @share(ptr %shared, ptr %at, i64 %k, i64 %workers, i64 %worker)
  %stop = call i64 @clock()
  store i64 %stop, ptr %stop.at
  br label %meet
meet:
  br i1 %last, label %finish, label %more
more:
  %flagged = and i32 %flag, %several
  %wanted = icmp ne i32 %flagged, 0
  br i1 %wanted, label %synchronise, label %step
synchronise:
  call void @barrier(ptr %shared, i64 %workers)
  br label %step
finish:
  br i1 %alone, label %done, label %leave
leave:
  call void @barrier(ptr %shared, i64 %workers)
  ret void
done:
  ret void
}

define void @pool_alone(ptr %steps, i64 %count, ptr %timings) {
  call void @walk(ptr null, ptr %steps, i64 %count, i64 1, ptr %timings, i64 0)
  ret void
}

define void @pool_launch(ptr %shared, ptr %steps, i64 %count, i64 %workers, ptr %timings) {
entry:
  %count.at = getelementptr i64, ptr %shared, i64 1
  %workers.at = getelementptr i64, ptr %shared, i64 2
  %timings.at = getelementptr i64, ptr %shared, i64 3
  store ptr %steps, ptr %shared
  store i64 %count, ptr %count.at
  store i64 %workers, ptr %workers.at
  store ptr %timings, ptr %timings.at
  br label %clear
clear:
  %c = phi i64 [ 0, %entry ], [ %c.next, %clear ]
  %c.at = call ptr @claims(ptr %shared, i64 0, i64 %c)
  store atomic i64 0, ptr %c.at monotonic, align 8
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %workers
  br i1 %c.more, label %clear, label %head
head:
  %w = phi i64 [ 1, %clear ], [ %next, %ordered ]
  %more = icmp slt i64 %w, %workers
  br i1 %more, label %order, label %go
order:
  %offset = mul i64 %w, $SLOT_BYTES
  %slot = getelementptr i8, ptr %shared, i64 %offset
  %ignored = atomicrmw add ptr %slot, i32 1 seq_cst
  %parked.at = getelementptr i64, ptr %slot, i64 1
  %parked = load atomic i32, ptr %parked.at seq_cst, align 8
  %asleep = icmp ne i32 %parked, 0
  br i1 %asleep, label %rouse, label %ordered
rouse:
  call void @pool_wake(ptr %slot)
  br label %ordered
ordered:
  %next = add i64 %w, 1
  br label %head
go:
  call void @walk(ptr %shared, ptr %steps, i64 %count, i64 %workers, ptr %timings, i64 0)
  ret void
}

define ptr @pool_worker(ptr %slot) {
entry:
  %parked.at = getelementptr i64, ptr %slot, i64 1
  %shared.at = getelementptr i64, ptr %slot, i64 2
  %worker.at = getelementptr i64, ptr %slot, i64 3
  %stop.at = getelementptr i64, ptr %slot, i64 4
  %shared = load ptr, ptr %shared.at
  %worker = load i64, ptr %worker.at
  %count.at = getelementptr i64, ptr %shared, i64 1
  %workers.at = getelementptr i64, ptr %shared, i64 2
  %timings.at = getelementptr i64, ptr %shared, i64 3
  %limit.at = getelementptr i64, ptr %shared, i64 4
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %order, %work ]
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  br label %spin
spin:
  %i = phi i64 [ 0, %idle ], [ %next, %patient ]
  %spun = load atomic i32, ptr %slot acquire, align 8
  %ordered = icmp ne i32 %spun, %seen
  br i1 %ordered, label %start, label %patient.check
patient.check:
  $PAUSE
  %next = add i64 %i, 1
  %short = icmp slt i64 %next, %limit
  br i1 %short, label %patient, label %park
patient:
  br label %spin
park:
  store atomic i32 1, ptr %parked.at seq_cst, align 8
  br label %check
check:
  %checked = load atomic i32, ptr %slot seq_cst, align 8
  %called = icmp ne i32 %checked, %seen
  br i1 %called, label %up, label %sleep
sleep:
  call void @pool_sleep(ptr %slot, i32 %seen)
  br label %check
up:
  store atomic i32 0, ptr %parked.at seq_cst, align 8
  br label %start
start:
  %order = phi i32 [ %spun, %spin ], [ %checked, %up ]
  %stop = load i64, ptr %stop.at
  %stopping = icmp ne i64 %stop, 0
  br i1 %stopping, label %leave, label %work
work:
  %steps = load ptr, ptr %shared
  %count = load i64, ptr %count.at
  %workers = load i64, ptr %workers.at
  %timings = load ptr, ptr %timings.at
  call void @walk(ptr %shared, ptr %steps, i64 %count, i64 %workers, ptr %timings, i64 %worker)
  br label %idle
leave:
  ret ptr null
}
"""

# FUTEX_WAIT and FUTEX_WAKE, both private to the process. The kernel compares the sequence itself, so an order that comes between
# the last look and the call is not slept through.
_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @pool_sleep(ptr %slot, i32 %seen) noinline {
  %ignored = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %slot, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}

define void @pool_wake(ptr %slot) noinline {
  %ignored = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %slot, i32 129, i32 1, ptr null, ptr null, i32 0)
  ret void
}
"""

_CONDITION = """
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)

define internal void @pool_sleep(ptr %slot, i32 %seen) noinline {
entry:
  %mutex = getelementptr i64, ptr %slot, i64 8
  %condition = getelementptr i64, ptr %slot, i64 16
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %look
look:
  %now = load atomic i32, ptr %slot seq_cst, align 8
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %wait, label %done
wait:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
done:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define void @pool_wake(ptr %slot) noinline {
  %mutex = getelementptr i64, ptr %slot, i64 8
  %condition = getelementptr i64, ptr %slot, i64 16
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %signalled = call i32 @pthread_cond_signal(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}
"""
