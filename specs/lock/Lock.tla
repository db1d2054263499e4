-------------------------------- MODULE Lock --------------------------------
(***************************************************************************)
(* The lock of docs/protocol/lock.md: lease, clock skew, lost replies.     *)
(* Names like P16 and L4 are the sentences and invariants of that file.    *)
(*                                                                         *)
(* Time is one global integer. Each read of a wall clock returns any value *)
(* in now .. now + Skew, so two clocks differ by at most Skew and may jump *)
(* within that band. A paused client takes no step while time passes. A    *)
(* request is a message that lands at any later time, or never.            *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Clients,        \* model values, symmetric
    Validity,       \* of a grant or renewal
    Drift, Grace,   \* P10
    Margin,         \* P9
    Slip,           \* how much longer a lease lasts on the holder's monotonic clock
    Skew,           \* the actual difference of two wall clocks; the protocol requires at most Drift
    RangeSize,      \* P5
    MaxTime, MaxWrites, MaxCeiling,     \* bounds: time, writes of each client, ranges
    Rounds,         \* the number of grants that each client requests
    JavaWrites,     \* writes of a client that knows only three fields
    Deletes,        \* deletions of the lock object by an operator
    Duplicates,     \* whether a create that landed may land again after the object was deleted
    Crashes,
    FaultyWrites,   \* how many writes of each client may have a lost request, a lost reply or a false 412
    Effects,        \* whether holders write to the fenced resource
    ConfirmAll,     \* P7 for every range instead of only for created records
    Bugs            \* planted bugs, by name

VARIABLES
    now,
    store,      \* the lock object, or Absent
    ceiling,    \* the counter object
    net,        \* requests in flight
    cl,         \* the state of each client
    res,        \* the fenced resource: largest and last accepted token
    hist,       \* acquire writes in the order in which they landed
    used        \* the number of faults of each bounded kind

vars == <<now, store, ceiling, net, cl, res, hist, used>>

Bug(b) == b \in Bugs

NoVer  == <<"none", 0>>
NoPrev == [ver |-> NoVer, ow |-> "none", tk |-> 0, rel |-> TRUE]
Absent == [op |-> "absent", ver |-> NoVer, ow |-> "none", tk |-> 0, ceil |-> 0, rel |-> TRUE,
           vu |-> 0, prev |-> NoPrev]

\* P4: the description of the replaced record in a write.
Prev(r) == [ver |-> r.ver, ow |-> r.ow, tk |-> r.tk, rel |-> r.rel]

\* P3: the nonce <<client, n>> identifies the write, so it is also the version.
Rec(op, c, n, tk, ceil, rel, vu, base) ==
    [op |-> op, ver |-> <<c, n>>, ow |-> c, tk |-> tk, ceil |-> ceil, rel |-> rel, vu |-> vu,
     prev |-> Prev(base)]

\* `base` is the record that a write replaces: read (P14), cached (P12), or the client's own last one.
Idle == [pc |-> "idle", aw |-> 0, ans |-> "none", tk |-> 0, rng |-> 0, how |-> "none", dl |-> 0, pdl |-> 0,
         base |-> Absent, rl |-> FALSE]

Fixed(r) == [n |-> r.n, cache |-> r.cache, eff |-> r.eff, lie |-> r.lie, done |-> r.done]

\* The attempt or the holding has ended; the write count, the cache and the effect in flight remain.
End(r) == Idle @@ Fixed(r)

Init ==
    /\ now = 0 /\ store = Absent /\ ceiling = 0 /\ net = {} /\ hist = <<>>
    /\ res = [max |-> 0, last |-> 0]
    /\ used = [java |-> 0, deletes |-> 0, crashes |-> 0]
    /\ cl = [c \in Clients |->
                Idle @@ [n |-> 0, cache |-> Absent, eff |-> 0, lie |-> FALSE, done |-> 0]]

-----------------------------------------------------------------------------
(* Time, P8 to P11 *)

\* Only the extremes of the clock band matter: vu is only compared.
WallAtSend == {now, now + Skew}

\* A slower monotonic clock holds longer; the slowest one covers the others.
DeadlineAt(t) == t + Validity - Margin + Slip

\* The fastest wall clock; a contender with a slower one takes no step yet.
Dead(r) == IF Bug("NoDrift") THEN now + Skew > r.vu + Grace
                             ELSE now + Skew > r.vu + Drift + Grace

Believes(c) == cl[c].pc = "held" /\ now < cl[c].dl

CanWrite(c) == cl[c].n < MaxWrites

Live(c) == cl[c].pc # "crashed"

-----------------------------------------------------------------------------
(* The network *)

\* A request that no client awaits and whose version no longer exists has no effect: it is dropped at once.
Useful(m, s, k) ==
    \/ k[m.c].aw = m.rec.ver[2] /\ k[m.c].ans = "none"
    \/ m.cond = s.ver
    \/ m.cond = NoVer /\ used.deletes < Deletes
    \/ Duplicates
    \/ m.rec.op = "release" /\ Bug("BareRelease")
    \/ m.rec.op = "acquire" /\ Bug("BareTakeover")

DropUseless(msgs, s, k) == {m \in msgs : Useful(m, s, k)}

Msg(c, cond, rec) == [c |-> c, cond |-> cond, rec |-> rec]

Matches(m) ==
    \/ m.cond = store.ver
    \/ m.rec.op = "release" /\ Bug("BareRelease")
    \/ m.rec.op = "acquire" /\ Bug("BareTakeover")

\* Landed acquire writes that may still become a grant, and grants. Of leading grants in order, only the last is kept.
RECURSIVE Shrink(_)
Shrink(h) == IF Len(h) >= 2 /\ h[1].ok /\ h[2].ok /\ h[1].tk < h[2].tk THEN Shrink(Tail(h)) ELSE h

Forget(h, c) == IF Bug("ReadbackGrant") THEN h ELSE Shrink(SelectSeq(h, LAMBDA e : e.ok \/ e.c # c))

Land(m) ==
    LET c == m.c
        r == cl[c]
        n == m.rec.ver[2]
        awaited == r.aw = n /\ r.ans = "none"
        hit == Matches(m)
        acquires == m.rec.op = "acquire" /\ (awaited \/ Bug("ReadbackGrant"))
        store1 == IF hit THEN m.rec ELSE store
    IN  \E answer \in IF ~awaited THEN {r.ans}
                      ELSE IF ~hit THEN {"refused"}
                      \* A retry by a lower layer is refused (412) because of its own success.
                      ELSE IF n <= FaultyWrites THEN {"ok", "refused"} ELSE {"ok"} :
            LET r1 == [r EXCEPT !.ans = answer,
                                !.rl = @ \/ (hit /\ r.pc = "releasing" /\ m.rec.op = "release" /\ m.rec.tk = r.tk)]
                cl1 == [cl EXCEPT ![c] = r1]
            IN  /\ hit \/ awaited
                /\ store' = store1
                /\ cl' = cl1
                /\ net' = DropUseless(IF hit /\ Duplicates /\ m.cond = NoVer THEN net ELSE net \ {m}, store1, cl1)
                /\ hist' = IF hit /\ acquires
                           THEN Append(hist, [c |-> c, n |-> n, tk |-> m.rec.tk, ok |-> FALSE]) ELSE hist
                /\ UNCHANGED <<now, ceiling, res, used>>

\* One client step that sends `msgs`, with the new state r1 and the new history h1.
Step(c, r1, msgs, h1) ==
    LET cl1 == [cl EXCEPT ![c] = r1]
    IN  cl' = cl1 /\ net' = DropUseless(net \cup msgs, store, cl1) /\ hist' = h1

\* P15, P16, P23: an own record that must not be held is released, without waiting for the reply.
Undo(c, r1, rec) ==
    LET n == r1.n + 1
    IN  IF CanWrite(c)
        THEN Step(c, [r1 EXCEPT !.n = n],
                  {Msg(c, rec.ver, Rec("release", c, n, rec.tk, rec.ceil, TRUE, 0, rec))}, Forget(hist, c))
        ELSE Step(c, r1, {}, Forget(hist, c))

Unclear(c) == cl[c].aw <= FaultyWrites /\ cl[c].ans # "refused"

-----------------------------------------------------------------------------
(* Acquire, P12 to P18 *)

\* The origin of the token: inherited from the record, or the first of a new range over an absent or an existing record.
Fresh(base) == IF base.ver = NoVer THEN "created" ELSE "matched"

MustConfirm(how) == ~Bug("NoRecheck") /\ (how = "created" \/ (how = "matched" /\ ConfirmAll))

\* A new range is published by the holder's next write, after the grant. If the acquire write published it, a write that
\* never becomes a grant (P7, P15, P16) would pass its range on to a contender that checks nothing.
CeilingSaid(how, rng) == IF how = "inherited" \/ Bug("CeilingAtOnce") THEN rng ELSE 0

NextToken(base) == base.tk + 1

Inherits(base) == \/ base.tk > 0 /\ NextToken(base) <= base.ceil      \* P6
                  \/ Bug("TokenInRecord")

SendAcquire(c, base, tk, rng, how) ==
    LET n == cl[c].n + 1
    IN  \E wall \in WallAtSend :
            Step(c, [cl[c] EXCEPT !.pc = "acquiring", !.n = n, !.aw = n, !.ans = "none", !.tk = tk, !.rng = rng,
                                  !.how = how, !.dl = DeadlineAt(now), !.base = Absent, !.cache = Absent],
                 {Msg(c, base.ver, Rec("acquire", c, n, tk, CeilingSaid(how, rng), FALSE, wall + Validity, base))}, hist)

Proceed(c, base) ==
    IF Inherits(base)
    THEN SendAcquire(c, base, NextToken(base), base.ceil, "inherited")
    ELSE Step(c, [cl[c] EXCEPT !.pc = "range", !.base = [base EXCEPT !.prev = NoPrev, !.vu = 0], !.cache = Absent], {}, hist)

Undoing(c) == \E m \in net : m.c = c /\ m.cond = store.ver /\ m.rec.op = "release"

Acquire(c) ==
    /\ cl[c].pc = "idle" /\ CanWrite(c) /\ cl[c].done < Rounds
    /\ IF cl[c].cache # Absent THEN Proceed(c, cl[c].cache)                     \* P12
       ELSE IF store.rel THEN Proceed(c, store)                                  \* P14
       ELSE IF store.ow = c THEN ~Undoing(c) /\ Undo(c, cl[c], store)            \* P18
       ELSE Dead(store) /\ Proceed(c, store)                                     \* P13
    /\ UNCHANGED <<now, store, ceiling, res, used>>

\* Reading and replacing the counter is one step: after a failed conditional write, it is read and written again.
TakeRange(c) ==
    /\ cl[c].pc = "range" /\ CanWrite(c)
    /\ \/ /\ ceiling + RangeSize <= MaxCeiling
          /\ ceiling' = ceiling + RangeSize
          /\ SendAcquire(c, cl[c].base, ceiling + 1, ceiling + RangeSize, Fresh(cl[c].base))
       \/ /\ Bug("SharedRange") /\ ceiling > 0
          /\ ceiling' = ceiling
          /\ SendAcquire(c, cl[c].base, ceiling - RangeSize + 1, ceiling, Fresh(cl[c].base))
    /\ UNCHANGED <<now, store, res, used>>

\* The counter was written, but the reply was lost: that range is not used.
LoseRange(c) ==
    /\ cl[c].pc = "range" /\ cl[c].n < FaultyWrites
    /\ ceiling + RangeSize <= MaxCeiling /\ ceiling' = ceiling + RangeSize
    /\ UNCHANGED <<now, store, net, cl, res, hist, used>>

Grant(c, r, n) ==
    LET i == {j \in 1..Len(hist) : hist[j].c = c /\ hist[j].n = n}
        h == IF i = {} THEN Append(hist, [c |-> c, n |-> n, tk |-> r.tk, ok |-> TRUE])
             ELSE [j \in 1..Len(hist) |-> IF j \in i THEN [hist[j] EXCEPT !.ok = TRUE] ELSE hist[j]]
    IN  Step(c, [r EXCEPT !.pc = "held", !.aw = 0, !.ans = "none", !.how = "none", !.done = @ + 1,
                          !.lie = @ \/ i = {}], {}, Shrink(h))

Mine(c, n, r) == Rec("acquire", c, n, r.tk, CeilingSaid(r.how, r.rng), FALSE, 0, Absent)

Acquired(c) ==
    LET r0 == cl[c]
        r == IF Bug("ReceiveDeadline") THEN [r0 EXCEPT !.dl = DeadlineAt(now)] ELSE r0
        own == Mine(c, r.aw, r)
    IN  /\ r.pc = "acquiring" /\ r.ans = "ok"
        /\ IF now >= r.dl THEN Undo(c, End(r), own)                                   \* P15
           ELSE IF MustConfirm(r.how) THEN Step(c, [r EXCEPT !.pc = "confirm", !.base = own], {}, hist)
           ELSE Grant(c, [r EXCEPT !.base = own], r.aw)
        /\ UNCHANGED <<now, store, ceiling, res, used>>

Confirm(c) ==                                                                    \* P7
    LET r == cl[c]
    IN  /\ r.pc = "confirm"
        /\ IF ceiling = r.rng /\ now < r.dl THEN Grant(c, r, r.aw)
           ELSE Undo(c, End(r), r.base)
        /\ UNCHANGED <<now, store, ceiling, res, used>>

NotAcquired(c) ==                                                                \* P16, P17
    LET r == cl[c]
    IN  /\ r.pc = "acquiring" /\ (r.ans = "refused" \/ Unclear(c))
        /\ IF Bug("RefusedIsMine") /\ r.ans = "refused" /\ now < r.dl
           THEN Grant(c, [r EXCEPT !.base = Mine(c, r.aw, r)], r.aw)
           ELSE IF store.ow = c /\ ~store.rel
           THEN IF Bug("ReadbackGrant") /\ now < r.dl
                THEN Grant(c, [r EXCEPT !.tk = store.tk, !.rng = store.ceil, !.base = [store EXCEPT !.prev = NoPrev]],
                           store.ver[2])
                ELSE Undo(c, End(r), store)
           ELSE Step(c, End(r), {}, Forget(hist, c))
        /\ UNCHANGED <<now, store, ceiling, res, used>>

-----------------------------------------------------------------------------
(* Renew, P20 to P23; `base` is the client's own record as last written or adopted *)

Renew(c) ==
    LET r == cl[c]
        n == r.n + 1
    IN  /\ r.pc = "held" /\ r.aw = 0 /\ CanWrite(c)
        /\ now < r.dl \/ Bug("LateRenew")                                        \* P20
        /\ \E wall \in WallAtSend :
              Step(c, [r EXCEPT !.n = n, !.aw = n, !.ans = "none", !.pdl = DeadlineAt(now)],
                   {Msg(c, r.base.ver, Rec("renew", c, n, r.tk, r.rng, FALSE, wall + Validity, r.base))}, hist)
        /\ UNCHANGED <<now, store, ceiling, res, used>>

Renewed(c) ==
    LET r == cl[c]
        own == Rec("renew", c, r.aw, r.tk, r.rng, FALSE, 0, Absent)
    IN  /\ r.pc = "held" /\ r.aw # 0 /\ r.ans = "ok"
        /\ IF now < r.dl \/ Bug("Resurrect")
           THEN Step(c, [r EXCEPT !.aw = 0, !.ans = "none", !.dl = r.pdl, !.pdl = 0, !.base = own], {}, hist)
           ELSE Undo(c, End(r), own)                                             \* P23
        /\ UNCHANGED <<now, store, ceiling, res, used>>

Ours(c) == store.ow = c /\ store.tk = cl[c].tk /\ ~store.rel

RenewRefused(c) ==                                                               \* P21
    LET r == cl[c]
        adopted == [store EXCEPT !.prev = NoPrev, !.vu = 0]
    IN  /\ r.pc = "held" /\ r.aw # 0 /\ r.ans = "refused"
        /\ IF Ours(c)
           THEN Step(c, [r EXCEPT !.aw = 0, !.ans = "none", !.pdl = 0, !.base = adopted,
                                  !.dl = IF Bug("RefusedRenews") /\ now < @ THEN r.pdl ELSE @], {}, hist)
           ELSE Step(c, End(r), {}, hist)
        /\ UNCHANGED <<now, store, ceiling, res, used>>

RenewUnclear(c) ==                                                               \* P22
    /\ cl[c].pc = "held" /\ cl[c].aw # 0 /\ Unclear(c)
    /\ Step(c, [cl[c] EXCEPT !.aw = 0, !.ans = "none", !.pdl = 0], {}, hist)
    /\ UNCHANGED <<now, store, ceiling, res, used>>

Lose(c) ==                                                                       \* P11
    /\ cl[c].pc = "held" /\ now >= cl[c].dl
    /\ Step(c, End(cl[c]), {}, hist)
    /\ UNCHANGED <<now, store, ceiling, res, used>>

-----------------------------------------------------------------------------
(* Release, P24 and P25. A renewal in flight is abandoned: it may still land first. *)

SendRelease(c, base) ==
    LET n == cl[c].n + 1
    IN  Step(c, [cl[c] EXCEPT !.pc = "releasing", !.n = n, !.aw = n, !.ans = "none", !.dl = 0, !.pdl = 0,
                              !.base = base],
             {Msg(c, base.ver, Rec("release", c, n, cl[c].tk, cl[c].rng, TRUE, 0, base))}, hist)

Release(c) ==
    /\ cl[c].pc = "held" /\ CanWrite(c)
    /\ SendRelease(c, cl[c].base)
    /\ UNCHANGED <<now, store, ceiling, res, used>>

\* The result that is reported to the caller, compared with what happened.
Conclude(c, outcome, cache) ==
    LET r == cl[c]
        false == \/ outcome = "released" /\ ~r.rl
                 \/ outcome = "taken" /\ r.rl
    IN  Step(c, End([r EXCEPT !.lie = @ \/ false, !.cache = cache]), {}, hist)

Released(c) ==
    LET r == cl[c]
    IN  /\ r.pc = "releasing" /\ r.ans = "ok"
        /\ Conclude(c, "released", Rec("release", c, r.aw, r.tk, r.rng, TRUE, 0, Absent))
        /\ UNCHANGED <<now, store, ceiling, res, used>>

ReleaseReadback(c) ==
    LET r == cl[c]
        ofOurs(p) == p.ow = c /\ p.tk = r.tk
    IN  /\ r.pc = "releasing" /\ (r.ans = "refused" \/ Unclear(c))
        /\ IF ofOurs(store) /\ store.rel THEN Conclude(c, "released", [store EXCEPT !.prev = NoPrev])   \* (a)
           ELSE IF ofOurs(store.prev) /\ store.prev.rel THEN Conclude(c, "released", Absent)          \* (b)
           ELSE IF ofOurs(store) THEN                                                                  \* (c)
                IF CanWrite(c) THEN SendRelease(c, [store EXCEPT !.prev = NoPrev, !.vu = 0])
                ELSE Conclude(c, "unknown", Absent)
           ELSE IF ofOurs(store.prev) THEN Conclude(c, "taken", Absent)                               \* (d)
           ELSE Conclude(c, IF Bug("GuessReleased") THEN "released" ELSE "unknown", Absent)           \* (e)
        /\ UNCHANGED <<now, store, ceiling, res, used>>

-----------------------------------------------------------------------------
(* The fenced resource, and the environment *)

StartEffect(c) ==
    /\ Effects /\ Believes(c) /\ cl[c].eff = 0
    /\ cl' = [cl EXCEPT ![c].eff = cl[c].tk]
    /\ UNCHANGED <<now, store, ceiling, net, res, hist, used>>

LandEffect(c) ==
    /\ cl[c].eff > 0
    /\ cl' = [cl EXCEPT ![c].eff = 0]
    /\ LET tk == cl[c].eff
       IN  res' = IF tk >= res.max \/ Bug("AnyToken")
                  THEN [max |-> IF tk > res.max THEN tk ELSE res.max, last |-> tk] ELSE res
    /\ UNCHANGED <<now, store, ceiling, net, hist, used>>

JavaRec(rel, vu) ==
    [op |-> "java", ver |-> <<"java", used.java + 1>>, ow |-> "java", tk |-> 0, ceil |-> 0, rel |-> rel, vu |-> vu,
     prev |-> NoPrev]

Java ==
    /\ used.java < JavaWrites
    /\ used' = [used EXCEPT !.java = @ + 1]
    /\ \/ /\ store.rel \/ now + Skew > store.vu + Drift
          /\ \E wall \in WallAtSend : store' = JavaRec(FALSE, wall + Validity)
       \/ store.ow = "java" /\ ~store.rel /\ store' = JavaRec(TRUE, 0)
    /\ net' = DropUseless(net, store', cl)
    /\ UNCHANGED <<now, ceiling, cl, res, hist>>

Delete ==
    /\ used.deletes < Deletes /\ store # Absent
    /\ store' = Absent
    /\ used' = [used EXCEPT !.deletes = @ + 1]
    /\ UNCHANGED <<now, ceiling, net, cl, res, hist>>

Crash(c) ==
    /\ used.crashes < Crashes /\ Live(c)
    \* The record that it leaves must expire within the time bound.
    /\ now + Validity + Drift + Grace < MaxTime
    /\ used' = [used EXCEPT !.crashes = @ + 1]
    /\ Step(c, [End(cl[c]) EXCEPT !.pc = "crashed", !.cache = Absent], {}, Forget(hist, c))
    /\ UNCHANGED <<now, store, ceiling, res>>

Tick == now < MaxTime /\ now' = now + 1 /\ UNCHANGED <<store, ceiling, net, cl, res, hist, used>>

\* The steps of a client without faults.
Proper(c) ==
    \/ Acquire(c) \/ TakeRange(c) \/ Acquired(c) \/ Confirm(c)
    \/ Renewed(c) \/ RenewRefused(c) \/ Release(c) \/ Released(c)
    \/ cl[c].ans = "refused" /\ (NotAcquired(c) \/ ReleaseReadback(c))

ClientStep(c) ==
    \/ Proper(c) \/ Renew(c) \/ Lose(c) \/ LoseRange(c)
    \/ NotAcquired(c) \/ RenewUnclear(c) \/ ReleaseReadback(c)
    \/ StartEffect(c) \/ LandEffect(c) \/ Crash(c)

Next ==
    \/ Tick \/ Java \/ Delete
    \/ \E m \in net : Land(m)
    \/ \E c \in Clients : ClientStep(c)

Spec == Init /\ [][Next]_vars

Symmetric == Permutations(Clients)

-----------------------------------------------------------------------------
(* Safety *)

\* L1: grants that land later have larger tokens, so no token is granted twice.
TokenOrder ==
    \A i, j \in 1..Len(hist) : i < j /\ hist[i].ok /\ hist[j].ok => hist[i].tk < hist[j].tk

\* The purpose of P9 and P10, while Skew <= Drift.
BeliefExclusion == \A c, d \in Clients : c # d => ~(Believes(c) /\ Believes(d))

\* L5, L6: no grant without its write in the store; "released" and "taken" are reported only if true.
NoFalseAnswer == \A c \in Clients : ~cl[c].lie

\* The write of an earlier holder is never accepted after that of a later one.
FencedOrder == res.last = res.max

Replaces(op) == store' # store /\ store # Absent /\ store'.op = op

\* L2
NoGrantOverLive ==
    [][Replaces("acquire") => store.rel \/ now + Skew > store.vu + Drift + Grace]_vars

\* L4
OnlyOwnerExtends ==
    [][Replaces("renew") \/ Replaces("release") =>
            store.ow = store'.ow /\ store.tk = store'.tk /\ ~store.rel]_vars

\* L7, L10, L11
RenewsOnlyWhileHeld ==
    [][\A m \in net' \ net : m.rec.op = "renew" => Believes(m.c) /\ m.rec.tk = cl[m.c].tk]_vars

\* P11, P23: LOST is final for a token.
LostIsFinal ==
    [][\A c \in Clients : cl[c].pc = "held" /\ now >= cl[c].dl =>
            cl'[c].pc # "held" \/ cl'[c].dl <= now]_vars

-----------------------------------------------------------------------------
(* Liveness: once faults stop, every live client gets its grants. L9 *)

Fair ==
    /\ WF_vars(Tick)
    /\ WF_vars(\E m \in net : Land(m))
    /\ \A c \in Clients : WF_vars(Proper(c))

\* Every holder releases the lock; renewals and lost ranges would only use up the bounds.
LiveNext ==
    \/ Tick \/ \E m \in net : Land(m)
    \/ \E c \in Clients : Proper(c) \/ NotAcquired(c) \/ ReleaseReadback(c) \/ Crash(c)

LiveSpec == Init /\ [][LiveNext]_vars /\ Fair

EverybodyServed == <>(\A c \in Clients : cl[c].done = Rounds \/ ~Live(c))
=============================================================================
