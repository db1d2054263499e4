------------------------------- MODULE Ledger -------------------------------
(***************************************************************************)
(* The ledger that decides every commit: docs/protocol/ledger.md. Names    *)
(* like T4 are the invariants of docs/reliability.md.                      *)
(*                                                                         *)
(* Every step is one access to the store, so a process may stop between    *)
(* any two of them, forever or until others treat it as dead. Heartbeats   *)
(* are not modelled: any process may consider any other dead at any time.  *)
(* Each read of a wall clock returns any value in Clocks. An append is a   *)
(* request that lands at any later time, or never, and its reply may be    *)
(* lost, or report a success as a refusal (412).                           *)
(*                                                                         *)
(* Data: a slice of a file group maps keys to the sequence of the writers  *)
(* whose updates it contains. An update is lost when one is missing there. *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Writers,        \* model values
    Keys,           \* those in OldKeys are in HomeGroup from the start
    OldKeys, Groups, HomeGroup,
    Scene,          \* who does what: see Jobs
    A, B, C,        \* the writers of a scene, by name
    Clocks,         \* what wall clocks may read
    MaxEntries,
    MaxFaults,      \* lost requests, lost replies, late requests, false refusals
    Crashes,        \* liveness only: for safety a crash is a pause that never ends
    UseLock,        \* a configured lock is held during conflict check and append
    LockExpires,
    Bugs            \* planted bugs

VARIABLES
    obj,            \* ledger objects: number -> entry, or NoEntry
    hist,           \* the decisions, in order; a history variable that no process reads
    ck,             \* the checkpoint: boundary b, and a state beyond it, kept as its entries
    net,            \* appends in flight
    hb,             \* heartbeat objects, with the requested and inflight files of their instants
    files,          \* data files: instant, attempt, file group
    pub,            \* completed instants on the active timeline, by entry number
    gone,           \* those removed by the archive
    lock,           \* the advisory lock: holder and last token
    acked,          \* commits acknowledged to callers
    faults, crashed, p

vars == <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed, p>>

Bug(name) == name \in Bugs

None == "none"
Nil == <<"nil">>    \* no such key in this slice
Max(a, b) == IF a > b THEN a ELSE b
MinOf(s) == CHOOSE x \in s : \A y \in s : x <= y
MaxOf(s) == CHOOSE x \in s : \A y \in s : x >= y

-----------------------------------------------------------------------------
(* Scenes *)

Write(keys) == [kind |-> "write", keys |-> keys]
Other(kind) == [kind |-> kind, keys |-> {}]
NewKeys == Keys \ OldKeys

\* `pair`: an old key and a new one at once. `insert`: only new keys.
Jobs(w) ==
    CASE Scene = "pair" -> <<Write(Keys)>>
      [] Scene = "update" -> <<Write(OldKeys)>>
      [] Scene = "insert" -> <<Write(NewKeys)>>
      [] Scene = "mixed" -> <<Write(IF w = A THEN OldKeys ELSE IF w = B THEN Keys ELSE NewKeys)>>
      [] Scene = "rollback" -> IF w = A THEN <<Other("rollback")>> ELSE <<Write(OldKeys)>>
      [] Scene = "archive" -> IF w = A THEN <<Other("archive")>> ELSE <<Write(OldKeys)>>
      [] Scene = "history" -> IF w = A THEN <<Write(OldKeys), Other("archive")>> ELSE <<Write(OldKeys)>>
      [] Scene = "sweep" -> IF w = A THEN <<Other("rollback"), Write(NewKeys), Other("archive")>> ELSE <<Write(OldKeys)>>
      [] Scene = "apart" -> <<Write(IF w = A THEN OldKeys ELSE NewKeys)>>
      [] Scene = "trim" -> IF w = A THEN <<Write(OldKeys), Write(OldKeys), Other("archive")>> ELSE <<Write(NewKeys)>>
      [] Scene \in {"ghost", "stray"} -> IF w = A THEN <<Write(OldKeys), Other("archive")>>
                            ELSE IF w = B THEN <<Write(NewKeys)>> ELSE <<Write(OldKeys)>>
      [] Scene = "service" -> IF w = A THEN <<Other("plan"), Other("exec")>>
                              ELSE IF w = B THEN <<Other("exec")>> ELSE <<Write(OldKeys)>>
      [] Scene = "executors" -> IF w = A THEN <<Other("plan"), Other("exec")>> ELSE <<Other("exec")>>

JobOf(w) == IF p[w].job <= Len(Jobs(w)) THEN Jobs(w)[p[w].job] ELSE Other("end")

-----------------------------------------------------------------------------
(* The state. Entries: plan, claim, commit, rollback *)

NoContent == [g \in {} |-> <<>>]

Entry(kind, w, job, t, att, time, base, c, ins, tok) ==
    [kind |-> kind, w |-> w, job |-> job, t |-> t, att |-> att, time |-> time, base |-> base, c |-> c, ins |-> ins,
     tok |-> tok, before |-> <<>>]

\* The nonce of an entry, and whether an entry names the last one of a view as its predecessor.
Nonce(e) == <<e.kind, e.w, e.job, e.t, e.time>>
Before(view) == IF view = <<>> THEN <<>> ELSE Nonce(view[Len(view)])
Follows(view, e) == e.before = Before(view) \/ Bug("NoChain")

\* No object there; nothing to append.
NoEntry == Entry("none", None, 0, 0, 0, 0, 0, NoContent, {}, 0)

LastTime(view) == IF view = <<>> THEN 0 ELSE view[Len(view)].time

Are(view, kind, t) == {i \in 1..Len(view) : view[i].kind = kind /\ view[i].t = t}
Committed(view, t) == Are(view, "commit", t) # {}
RolledBack(view, t) == Are(view, "rollback", t) # {}
Decided(view, t) == Committed(view, t) \/ RolledBack(view, t)

\* Only the last claim of a plan is valid.
LastClaim(view, t) ==
    LET is == Are(view, "claim", t) IN IF is = {} THEN NoEntry
                                       ELSE view[MaxOf(is)]

InitContent(g) == [k \in Keys |-> IF g = HomeGroup /\ k \in OldKeys THEN <<>> ELSE Nil]

Touching(view, g) == {i \in 1..Len(view) : view[i].kind = "commit" /\ g \in DOMAIN view[i].c}

Content(view, g) == IF Touching(view, g) = {} THEN InitContent(g) ELSE view[MaxOf(Touching(view, g))].c[g]

Homes(view, k) == {g \in Groups : Content(view, g)[k] # Nil}

NewContent(view, w, f) ==
    [g \in {f[k] : k \in DOMAIN f} |->
        [k \in Keys |->
            LET old == Content(view, g)[k]
            IN  IF k \in DOMAIN f /\ f[k] = g THEN Append(IF old = Nil THEN <<>> ELSE old, w) ELSE old]]

\* A commit since the base conflicts: both have a file group, or a new key, in common.
Conflict(view, e) ==
    \E i \in (e.base + 1)..Len(view) :
        /\ view[i].kind = "commit"
        /\ \/ DOMAIN view[i].c \cap DOMAIN e.c # {}
           \/ ~Bug("NoKeyFilter") /\ view[i].ins \cap e.ins # {}

\* T9: a holder that lost its lock has a smaller token than the next holder that committed.
TokenOf(view) == IF view = <<>> THEN 0 ELSE MaxOf({view[i].tok : i \in 1..Len(view)})

Valid(view, e) ==
    CASE e.kind = "commit" ->
            /\ ~Decided(view, e.t)
            /\ ~Conflict(view, e)
            /\ e.tok >= TokenOf(view) \/ Bug("TokenIgnored")
            /\ \/ e.att = 0
               \/ LastClaim(view, e.t).att = e.att
               \/ Bug("ZombieAttempt")
      [] e.kind = "rollback" -> ~Decided(view, e.t)
      [] e.kind = "boundary" -> TRUE
      [] e.kind = "plan" -> /\ ~Decided(view, e.t)
                            /\ Bug("PlanUnchecked") \/ \A i \in Touching(view, HomeGroup) : i <= e.base
                            /\ \A i \in 1..Len(view) : view[i].kind = "plan" => Decided(view, view[i].t)
      [] e.kind = "claim" -> ~Decided(view, e.t) /\ e.att = LastClaim(view, e.t).att + 1

-----------------------------------------------------------------------------
(* A process *)

Idle(job) ==
    [pc |-> "read", next |-> "help", job |-> job, view |-> <<>>, from |-> 0, kb |-> 0, kt |-> 0, base |-> 0, t |-> 0, att |-> 0,
     tok |-> 0, c |-> NoContent, ins |-> {}, e |-> NoEntry, n |-> 0, ans |-> None, pd |-> 0, tgt |-> 0]

Init ==
    /\ obj = [n \in 1..MaxEntries |-> NoEntry]
    /\ hist = <<>>
    /\ ck = [b |-> 0, seq |-> <<>>]
    /\ net = {} /\ pub = {} /\ gone = {} /\ acked = {}
    /\ lock = [by |-> None, tok |-> 0]
    /\ faults = 0 /\ crashed = {}
    /\ IF Scene \notin {"ghost", "stray"} THEN hb = {} /\ files = {} /\ p = [w \in Writers |-> Idle(1)]
       ELSE \* One or two writers have written on top of an empty ledger, and pause before they commit.
            LET at(w) == IF w = B THEN 1 ELSE 2
                route(w) == [k \in Jobs(w)[1].keys |-> IF k \in OldKeys THEN HomeGroup ELSE CHOOSE g \in Groups : g # HomeGroup]
                made(w) == NewContent(<<>>, w, route(w))
                stalled == IF Scene = "ghost" THEN {B, C} ELSE {B}
            IN  /\ hb = {at(w) : w \in stalled}
                /\ files = UNION {{<<at(w), 0, g>> : g \in DOMAIN made(w)} : w \in stalled}
                /\ p = [w \in Writers |->
                            IF w \notin stalled THEN Idle(1)
                            ELSE [Idle(1) EXCEPT !.next = "validate", !.t = at(w), !.c = made(w),
                                                 !.ins = {k \in Jobs(w)[1].keys : k \notin OldKeys}]]

Set(w, r) == p' = [p EXCEPT ![w] = r]
Go(w, r, pc) == Set(w, [r EXCEPT !.pc = pc])
Reread(r, next) == [r EXCEPT !.pc = "read", !.next = next]

\* The view stays cached after a job.
End(w) ==
    LET job == p[w].job + 1
    IN  IF job > Len(Jobs(w)) THEN [Idle(job) EXCEPT !.pc = "done"]
        ELSE [Idle(job) EXCEPT !.view = p[w].view, !.from = p[w].from, !.kb = p[w].kb, !.kt = p[w].kt, !.pd = p[w].pd]

\* A retry of the same job on the current ledger, under a new instant.
Again(r) == [Reread(r, "help") EXCEPT !.t = 0, !.att = 0, !.base = 0, !.c = NoContent, !.ins = {}, !.e = NoEntry,
                                      !.n = 0, !.ans = None]

-----------------------------------------------------------------------------
(* Reading. Entries are read up to the first absent one, or the first one that does not name its predecessor. A        *)
(* refresh then reads the checkpoint to validate them: below the boundary, a deleted entry may have been created again. *)
(* The conflict check does not need this: the boundary is below the newest entry, which names its true predecessor.    *)

BoundaryTime == IF ck.b = 0 THEN 0 ELSE ck.seq[ck.b].time

RECURSIVE Walk(_)
Walk(view) ==
    LET n == Len(view) + 1
    IN  IF n > MaxEntries THEN view
        ELSE IF obj[n] = NoEntry \/ ~Follows(view, obj[n]) THEN view
        ELSE Walk(Append(view, obj[n]))

\* The next entry does not follow what was read: this process lags behind the boundary.
Strayed(view) == Len(view) < MaxEntries /\ obj[Len(view) + 1] # NoEntry /\ ~Follows(view, obj[Len(view) + 1])

Read(w) ==
    LET r == p[w]
        v == Walk(r.view)
    IN  /\ r.pc = "read"
        /\ \/ ~UseLock \/ r.next # "validate" \/ lock.by = w
           \/ r.e # NoEntry       \* lost a race, and assumes that it still holds the lock
        /\ IF r.next # "validate" THEN Go(w, [r EXCEPT !.view = v], "confirm")
           ELSE IF Strayed(v) THEN Go(w, r, "load")
           ELSE Go(w, [r EXCEPT !.view = v], "validate")
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

Loaded(r) == [r EXCEPT !.view = ck.seq, !.from = Len(ck.seq), !.kb = Len(ck.seq), !.kt = BoundaryTime]

Load(w) ==
    /\ p[w].pc = "load" /\ Go(w, Loaded(p[w]), "read")
    /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

Confirm(w) ==
    LET r == p[w]
    IN  /\ r.pc = "confirm"
        /\ IF ck.b > r.from /\ ~Bug("NoConfirm")
           THEN Go(w, Loaded(r), "read")
           ELSE Go(w, [r EXCEPT !.from = Len(r.view), !.kb = Len(ck.seq), !.kt = BoundaryTime], r.next)
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* Publishing, in ledger order, also for other processes *)

Unpublished(w) ==
    LET r == p[w]
    IN  {i \in (r.pd + 1)..Len(r.view) : r.view[i].kind = "commit" /\ i \notin pub /\ i > Len(ck.seq)}

Mine(w) == {i \in Unpublished(w) : p[w].view[i].w = w}

\* The next step when nothing is left to publish.
Published(w) ==
    LET r == p[w]
    IN  IF r.next = "help" THEN Go(w, [r EXCEPT !.pd = Len(r.view)], "begin")
        ELSE Set(w, End(w))

PubPick(w) ==
    LET r == p[w]
        todo == IF Bug("PublishOwn") /\ r.next # "help" THEN Mine(w)
                ELSE IF (Bug("PublishOwn") \/ Bug("NoHelping")) /\ r.next = "help" THEN {}
                ELSE Unpublished(w)
        i == IF Bug("OutOfOrder") THEN MaxOf(todo) ELSE MinOf(todo)
    IN  /\ r.pc = "help"
        /\ IF todo = {} THEN Published(w)
           ELSE /\ Bug("NoHelping") => r.view[i].w = w
                /\ Go(w, [r EXCEPT !.tgt = i], "pubput")
        /\ hb' = IF todo = {} /\ r.next # "help" THEN hb \ {r.t} ELSE hb
        /\ UNCHANGED <<obj, hist, ck, net, files, pub, gone, lock, acked, faults, crashed>>

PubPut(w) ==
    LET r == p[w]
    IN  /\ r.pc = "pubput"
        /\ pub' = pub \cup {r.tgt}
        /\ Go(w, r, "pubcheck")
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, gone, lock, acked, faults, crashed>>

\* The archive deletes keys below the boundary: one that was just created again must be deleted.
PubCheck(w) ==
    LET r == p[w]
    IN  /\ r.pc = "pubcheck"
        /\ pub' = IF r.tgt \in gone /\ ~Bug("NoPublishCheck") THEN pub \ {r.tgt} ELSE pub
        /\ Go(w, [r EXCEPT !.tgt = 0, !.pd = IF Bug("OutOfOrder") THEN @ ELSE r.tgt], "help")
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, gone, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* Begin *)

\* The group of each key of the write: the one that contains it, otherwise any.
Routes(view, keys) == {f \in [keys -> Groups] : \A k \in keys : Homes(view, k) # {} => f[k] \in Homes(view, k)}

\* The first free time from there on: an existing one is refused, and the next one is tried.
FreeFrom(t) == MinOf({u \in t..(t + Cardinality(hb)) : u \notin hb})

Begin(w) ==
    LET r == p[w]
    IN  /\ r.pc = "begin" /\ JobOf(w).kind = "write"
        /\ \E wall \in Clocks, f \in Routes(r.view, JobOf(w).keys) :
              LET least == Max(wall, LastTime(r.view) + 1)
                  t == IF Bug("ReuseInstant") /\ r.t # 0 THEN r.t
                       ELSE IF Bug("NoUniqueName") THEN least ELSE FreeFrom(least)
              IN  /\ hb' = hb \cup {t}
                  /\ Set(w, [Reread(r, "recheck") EXCEPT !.t = t, !.base = Len(r.view),
                                 !.c = NewContent(r.view, w, f), !.ins = {k \in DOMAIN f : Homes(r.view, k) = {}}])
        /\ UNCHANGED <<obj, hist, ck, net, files, pub, gone, lock, acked, faults, crashed>>

\* A deleted key can be created again: is this instant really new, and later than the boundary?
Recheck(w) ==
    LET r == p[w]
        stale == Decided(r.view, r.t) \/ r.t <= r.kt
    IN  /\ r.pc = "recheck"
        /\ IF stale /\ ~Bug("NoRecheck")
           THEN hb' = hb \ {r.t} /\ Set(w, Again(r))
           ELSE hb' = hb /\ Go(w, r, "write")
        /\ UNCHANGED <<obj, hist, ck, net, files, pub, gone, lock, acked, faults, crashed>>

WriteFiles(w) ==
    LET r == p[w]
    IN  /\ r.pc = "write"
        /\ files' = files \cup {<<r.t, r.att, g>> : g \in DOMAIN r.c}
        /\ Set(w, Reread(r, "validate"))
        /\ UNCHANGED <<obj, hist, ck, net, hb, pub, gone, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* The rule: validate against everything below n, then win the create-if-absent of n *)

Send(w, r, e) ==
    LET n == IF Bug("NoTailCheck") /\ r.n # 0 THEN r.n + 1 ELSE Len(r.view) + 1
        e1 == [e EXCEPT !.before = IF n = Len(r.view) + 1 THEN Before(r.view) ELSE Nonce(obj[n - 1])]
    IN  /\ n <= MaxEntries
        /\ net' = net \cup {[w |-> w, n |-> n, e |-> e1]}
        /\ Set(w, [r EXCEPT !.pc = "await", !.e = e1, !.n = n, !.ans = None])

CommitEntry(w, r, wall) ==
    LET after == IF Bug("TimeKept") /\ r.e # NoEntry THEN r.e.time
                 ELSE Max(wall, Max(LastTime(r.view) + 1, IF Bug("TimeFromTail") THEN 0 ELSE r.t + 1))
    IN  Entry("commit", w, r.job, r.t, r.att, after, r.base, r.c, r.ins, r.tok)

Ack(w) == acked' = acked \cup {[w |-> w, job |-> p[w].job, t |-> p[w].t]}

Unlock(w) == lock' = IF lock.by = w THEN [lock EXCEPT !.by = None] ELSE lock

ValidateCommit(w) ==
    LET r == p[w]
    IN  /\ r.pc = "validate" /\ (r.e = NoEntry \/ r.e.kind = "commit")
        /\ IF Are(r.view, "commit", r.t) # {} /\ r.view[MaxOf(Are(r.view, "commit", r.t))].att = r.att
           THEN \* It had landed, and was only read now.
                /\ Ack(w) /\ Unlock(w) /\ Go(w, [r EXCEPT !.next = "end"], "help") /\ net' = net
           ELSE IF RolledBack(r.view, r.t)
           THEN Set(w, Again(r)) /\ Unlock(w) /\ UNCHANGED <<net, acked>>
           ELSE /\ acked' = acked
                /\ \E wall \in Clocks :
                      LET e == CommitEntry(w, r, wall)
                      IN  IF Valid(r.view, e) THEN Send(w, r, e) /\ lock' = lock
                          ELSE IF r.att > 0
                          THEN Set(w, End(w)) /\ Unlock(w) /\ net' = net     \* the plan was taken over
                          ELSE \* Conflicted: roll back our write first, then retry on the new versions.
                               LET e2 == Entry("rollback", w, r.job, r.t, 0,
                                               Max(wall, Max(LastTime(r.view), r.t) + 1), 0, NoContent, {}, 0)
                               IN  IF Bug("ReuseInstant")
                                   THEN Set(w, [Again(r) EXCEPT !.t = r.t]) /\ Unlock(w) /\ net' = net
                                   ELSE Send(w, r, e2) /\ Unlock(w)
        /\ UNCHANGED <<obj, hist, ck, hb, files, pub, gone, faults, crashed>>

\* Rollback, plan and claim: validated again after a lost race.
ValidateOther(w) ==
    LET r == p[w]
        time == Max(LastTime(r.view), r.e.t) + 1
        e == CASE r.e.kind = "claim" -> [r.e EXCEPT !.time = time, !.att = LastClaim(r.view, r.e.t).att + 1]
               [] r.e.kind = "plan" -> [r.e EXCEPT !.time = time]
               [] r.e.kind = "boundary" -> [r.e EXCEPT !.time = LastTime(r.view) + 1]
               [] OTHER -> [r.e EXCEPT !.time = time]
        own == \E i \in 1..Len(r.view) : r.view[i].kind = e.kind /\ r.view[i].w = w /\ r.view[i].job = r.job
                                         /\ r.view[i].t = r.e.t
    IN  /\ r.pc = "validate" /\ r.e # NoEntry /\ r.e.kind # "commit"
        /\ IF own THEN Go(w, r, "landed") /\ net' = net
           ELSE IF Valid(r.view, e) THEN Send(w, r, e)
           ELSE /\ net' = net
                /\ IF JobOf(w).kind = "write"
                   THEN Set(w, IF Committed(r.view, r.t) THEN [r EXCEPT !.e = NoEntry] ELSE Again(r))
                   ELSE Set(w, End(w))
        /\ UNCHANGED <<obj, hist, ck, hb, files, pub, gone, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* Requests in flight *)

Awaits(w, m) == p[w].pc = "await" /\ p[w].e = m.e /\ p[w].n = m.n /\ p[w].ans = None

Answer(m, ans) == p' = IF Awaits(m.w, m) THEN [p EXCEPT ![m.w].ans = ans] ELSE p

Fault == faults < MaxFaults /\ faults' = faults + 1

Land(m) ==
    /\ net' = net \ {m}
    /\ IF obj[m.n] = NoEntry \/ Bug("CheckWithoutCas")
       THEN /\ obj' = [obj EXCEPT ![m.n] = m.e]
            /\ hist' = IF m.n = Len(hist) + 1 THEN Append(hist, m.e)
                       ELSE IF m.n > ck.b THEN [hist EXCEPT ![m.n] = m.e] ELSE hist
            /\ \/ Answer(m, "landed") /\ faults' = faults
               \/ Awaits(m.w, m) /\ Fault /\ (Answer(m, "unclear") \/ Answer(m, "refused"))
       ELSE /\ UNCHANGED <<obj, hist>>
            /\ \/ Answer(m, "refused") /\ faults' = faults
               \/ Awaits(m.w, m) /\ Fault /\ Answer(m, "unclear")
    /\ UNCHANGED <<ck, hb, files, pub, gone, lock, acked, crashed>>

\* Lost or only late: the writer does not know.
Late(m) ==
    /\ Awaits(m.w, m) /\ Fault /\ Answer(m, "unclear")
    /\ net' \in {net, net \ {m}}
    /\ UNCHANGED <<obj, hist, ck, hb, files, pub, gone, lock, acked, crashed>>

NotLanded(r) == [Reread(r, "validate") EXCEPT !.ans = None]

Resolve(w) ==
    LET r == p[w]
        m == [w |-> w, n |-> r.n, e |-> r.e]
    IN  /\ r.pc = "await" /\ r.ans # None
        /\ IF r.ans = "landed" \/ (Bug("RefusedIsLanded") /\ r.ans = "refused") \/ (obj[r.n] = r.e /\ ~Bug("NoReadback"))
           THEN Go(w, [r EXCEPT !.ans = None], "landed") /\ UNCHANGED <<net, files>>
           ELSE IF Bug("NoReadback") /\ r.e.kind = "commit"
           THEN \* Reported as failed: clean up and try again.
                /\ files' = {f \in files : f[1] # r.t}
                /\ Set(w, Again(r)) /\ net' = net
           ELSE IF obj[r.n] = NoEntry /\ r.ans = "unclear"
           THEN net' = net \cup {m} /\ Set(w, [r EXCEPT !.ans = None]) /\ files' = files
           ELSE IF Bug("NoTailCheck") /\ r.e.kind = "commit"
           THEN Send(w, r, r.e) /\ files' = files
           ELSE Set(w, NotLanded(r)) /\ UNCHANGED <<net, files>>
        /\ UNCHANGED <<obj, hist, ck, hb, pub, gone, lock, acked, faults, crashed>>

\* An entry at or below the boundary is invalid. The checkpoint then has the outcome of the write.
Landed(w) ==
    LET r == p[w]
    IN  /\ r.pc = "landed"
        /\ IF ck.b >= r.n /\ r.n # 0 /\ ~Bug("NoBoundary")
           THEN /\ Set(w, [NotLanded(Loaded(r)) EXCEPT !.n = 0])
                /\ UNCHANGED <<acked, lock>>
           ELSE LET v == IF Len(r.view) = r.n - 1 THEN Append(r.view, r.e) ELSE r.view
                    q == [r EXCEPT !.view = v, !.e = NoEntry, !.n = 0]
                IN  CASE r.e.kind = "commit" -> Ack(w) /\ Unlock(w) /\ Go(w, [q EXCEPT !.next = "end"], "help")
                      [] r.e.kind = "rollback" -> Go(w, [q EXCEPT !.tgt = r.e.t], "sweep") /\ UNCHANGED <<acked, lock>>
                      [] r.e.kind = "boundary" -> Go(w, [q EXCEPT !.tgt = r.e.base], "checkpoint") /\ UNCHANGED <<acked, lock>>
                      [] r.e.kind = "plan" -> Set(w, [End(w) EXCEPT !.view = v]) /\ UNCHANGED <<acked, lock>>
                      [] r.e.kind = "claim" -> Go(w, [q EXCEPT !.t = r.e.t, !.att = r.e.att], "takeover")
                                               /\ UNCHANGED <<acked, lock>>
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, faults, crashed>>

-----------------------------------------------------------------------------
(* Rollback *)

\* Recovery considers some instant dead, or finds nothing to do.
Suspect(w) ==
    LET r == p[w]
    IN  /\ r.pc = "begin" /\ JobOf(w).kind = "rollback"
        /\ \/ Set(w, End(w))
           \/ \E t \in hb :
                 /\ ~Decided(r.view, t)
                 /\ IF Bug("RollbackWithoutEntry") THEN Go(w, [r EXCEPT !.tgt = t], "sweep")
                    ELSE Go(w, [r EXCEPT !.e = Entry("rollback", w, r.job, t, 0, 0, 0, NoContent, {}, 0)], "validate")
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

Sweep(w) ==
    LET r == p[w]
    IN  /\ r.pc = "sweep"
        /\ files' = {f \in files : f[1] # r.tgt}
        /\ hb' = hb \ {r.tgt}
        /\ Set(w, IF JobOf(w).kind = "write" THEN [Again(r) EXCEPT !.tgt = 0] ELSE End(w))
        /\ UNCHANGED <<obj, hist, ck, net, pub, gone, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* Archive: checkpoint by If-Match, then deletion. The timeline is not trimmed past a running instant.                 *)

Checkpointed(e) ==
    IF Bug("ForgetRollbacks") /\ e.kind = "rollback" THEN [e EXCEPT !.kind = "forgotten"]
    ELSE IF Bug("ForgetCommits") /\ e.kind = "commit" THEN [e EXCEPT !.t = 0]
    ELSE e

CkOf(r) == [b |-> r.tgt, seq |-> [i \in 1..Len(r.view) |-> Checkpointed(r.view[i])]]

Erased(b) == [n \in 1..MaxEntries |-> IF n <= b THEN NoEntry ELSE obj[n]]

\* Everything read is published by now. The boundary entry is above the entries it releases.
Archive(w) ==
    LET r == p[w]
    IN  /\ r.pc = "begin" /\ JobOf(w).kind = "archive"
        /\ IF Len(r.view) = 0 THEN Set(w, End(w))
           ELSE Go(w, [r EXCEPT !.e = Entry("boundary", w, r.job, 0, 0, 0, Len(r.view), NoContent, {}, 0)], "validate")
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

\* Replaced by If-Match, with published entries only.
Checkpoint(w) ==
    LET r == p[w]
        new == CkOf([r EXCEPT !.view = SubSeq(@, 1, r.tgt + 1)])
    IN  /\ r.pc = "checkpoint"
        /\ IF Len(ck.seq) # r.kb THEN Set(w, End(w)) /\ UNCHANGED <<ck, obj>>
           ELSE IF Bug("DeleteFirst") /\ obj # Erased(r.tgt) THEN obj' = Erased(r.tgt) /\ UNCHANGED <<ck, p>>
           ELSE ck' = new /\ obj' = obj /\ Go(w, r, "forget")
        /\ UNCHANGED <<hist, net, hb, files, pub, gone, lock, acked, faults, crashed>>

Forget(w) ==
    LET r == p[w]
    IN  /\ r.pc = "forget"
        /\ obj' = Erased(r.tgt)
        /\ Go(w, r, "trim")
        /\ UNCHANGED <<hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

\* The last commit at or below the boundary stays on the timeline: a write that begins after the boundary moved is later.
Trim(w) ==
    LET r == p[w]
        is == {i \in 1..r.tgt : r.view[i].kind = "commit"}
        pending == {t \in hb : ~Decided(r.view, t)}
        may == {i \in is : i # MaxOf(is) /\ \A j \in is : j <= i => \A t \in pending : Bug("TrimPending") \/ r.view[j].t < t}
        \* What remains must start before every running instant.
        ok(i) == \A t \in pending : Bug("TrimPending") \/ \E j \in is : j > i /\ r.view[j].t < t
        go == {i \in may : ok(i)}
    IN  /\ r.pc = "trim"
        /\ gone' = IF is = {} THEN gone ELSE gone \cup go
        /\ pub' = IF is = {} THEN pub ELSE pub \ go
        /\ Set(w, End(w))
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* Table services: a plan is in the ledger; the last claim may commit it *)

\* The time of a plan is reserved like that of every write: a writer may have taken it already.
Schedule(w) ==
    LET r == p[w]
        least == LastTime(r.view) + 1
        t == IF Bug("PlanUnreserved") THEN least ELSE FreeFrom(least)
    IN  /\ r.pc = "begin" /\ JobOf(w).kind = "plan"
        /\ hb' = IF Bug("PlanUnreserved") THEN hb ELSE hb \cup {t}
        /\ Go(w, [Reread(r, "validate") EXCEPT !.e = Entry("plan", w, r.job, t, 0, 0, Len(r.view), NoContent, {}, 0)],
              "read")
        /\ UNCHANGED <<obj, hist, ck, net, files, pub, gone, lock, acked, faults, crashed>>

Pending(view) == {i \in 1..Len(view) : view[i].kind = "plan" /\ ~Decided(view, view[i].t)}

Claim(w) ==
    LET r == p[w]
    IN  /\ r.pc = "begin" /\ JobOf(w).kind = "exec"
        /\ IF Pending(r.view) = {} THEN Set(w, End(w))
           ELSE Go(w, [r EXCEPT !.e = Entry("claim", w, r.job, r.view[MaxOf(Pending(r.view))].t, 0, 0, 0, NoContent, {}, 0)],
                   "validate")
        /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, crashed>>

\* Files of earlier attempts are deleted; their names differ, so a late one cannot affect ours.
Takeover(w) ==
    LET r == p[w]
        plan == MaxOf(Are(r.view, "plan", r.t))
        \* Validated against what came after the plan; the slice is as of then.
        before == SubSeq(r.view, 1, plan)
    IN  /\ r.pc = "takeover"
        /\ files' = {f \in files : f[1] # r.t \/ f[2] >= r.att}
        /\ Go(w, [r EXCEPT !.base = plan, !.c = [g \in {HomeGroup} |-> Content(before, g)]], "write")
        /\ UNCHANGED <<obj, hist, ck, net, hb, pub, gone, lock, acked, faults, crashed>>

-----------------------------------------------------------------------------
(* The advisory lock: a lease that expires while its holder is paused *)

Lock(w) ==
    /\ UseLock /\ lock.by = None /\ lock.tok < MaxEntries
    /\ p[w].pc = "read" /\ p[w].next = "validate"
    /\ lock' = [by |-> w, tok |-> lock.tok + 1]
    /\ p' = [p EXCEPT ![w].tok = lock.tok + 1]
    /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, acked, faults, crashed>>

Expire ==
    /\ LockExpires /\ lock.by # None
    /\ lock' = [lock EXCEPT !.by = None]
    /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, acked, faults, crashed, p>>

Crash(w) ==
    /\ Cardinality(crashed) < Crashes /\ w \notin crashed
    /\ crashed' = crashed \cup {w}
    /\ UNCHANGED <<obj, hist, ck, net, hb, files, pub, gone, lock, acked, faults, p>>

-----------------------------------------------------------------------------
Step(w) ==
    /\ w \notin crashed
    /\ \/ Lock(w) \/ Read(w) \/ Load(w) \/ Confirm(w)
       \/ PubPick(w) \/ PubPut(w) \/ PubCheck(w)
       \/ Begin(w) \/ Recheck(w) \/ WriteFiles(w)
       \/ ValidateCommit(w) \/ ValidateOther(w) \/ Resolve(w) \/ Landed(w)
       \/ Suspect(w) \/ Sweep(w)
       \/ Archive(w) \/ Checkpoint(w) \/ Forget(w) \/ Trim(w)
       \/ Schedule(w) \/ Claim(w) \/ Takeover(w)

\* Steps that depend only on the process's own state. They commute with the steps of other processes, so they are taken
\* first, which reduces the number of orders to search.
Local(w) ==
    /\ w \notin crashed
    /\ \/ p[w].pc = "validate" /\ Len(p[w].view) < MaxEntries
       \/ p[w].pc = "recheck"
       \/ p[w].pc = "help" /\ p[w].next = "help"
       \/ p[w].pc = "await" /\ p[w].ans = "landed"

Prioritized == {w \in Writers : Local(w)}

Next ==
    IF Prioritized # {} THEN \E w \in Prioritized : Step(w)
    ELSE \/ \E w \in Writers : Step(w) \/ Crash(w)
         \/ \E m \in net : Land(m) \/ Late(m)
         \/ Expire

Spec == Init /\ [][Next]_vars

Symmetric == Permutations(Writers)

-----------------------------------------------------------------------------
(* Safety *)

Commits == {i \in 1..Len(hist) : hist[i].kind = "commit"}
Writes == {i \in Commits : hist[i].att = 0}

Started(w) == JobOf(w).kind = "write" /\ p[w].t # 0 /\ p[w].pc \notin {"recheck", "begin"} /\ p[w].next \notin {"recheck", "help"}

\* T1
UniqueInstants ==
    /\ \A v, w \in Writers : v # w /\ Started(v) /\ Started(w) => p[v].t # p[w].t
    /\ \A i \in Writes : \A w \in Writers : Started(w) /\ p[w].t = hist[i].t => hist[i].w = w
    /\ \A i \in Writes, j \in 1..Len(hist) : hist[j].kind = "plan" => hist[i].t # hist[j].t

\* T2
CompletionOrder ==
    /\ \A i \in 1..(Len(hist) - 1) : hist[i].time < hist[i + 1].time
    /\ \A i \in Commits : hist[i].t < hist[i].time

\* T3, S1: one decision for each instant.
OneDecision ==
    \A i, j \in 1..Len(hist) :
        i < j /\ hist[i].kind \in {"commit", "rollback"} /\ hist[j].kind \in {"commit", "rollback"} => hist[i].t # hist[j].t

\* The expected updates of a key: the writers, in ledger order.
Expected(k) ==
    LET is == {i \in Writes : k \in Jobs(hist[i].w)[hist[i].job].keys}
        RECURSIVE Seq_(_)
        Seq_(s) == IF s = {} THEN <<>> ELSE <<hist[MinOf(s)].w>> \o Seq_(s \ {MinOf(s)})
    IN  Seq_(is)

\* T4, T14
NoLostUpdate ==
    \A k \in Keys : \A g \in Homes(hist, k) : Content(hist, g)[k] = Expected(k)

NoKeyTwice == \A k \in Keys : Cardinality(Homes(hist, k)) <= 1

\* Hudi reads the version with the latest request time; it must be the last in ledger order.
RequestOrder ==
    \A i, j \in Commits : i < j /\ DOMAIN hist[i].c \cap DOMAIN hist[j].c # {} => hist[i].t < hist[j].t

\* T5: an acknowledged commit is in the ledger, and each job is committed once.
Durable ==
    /\ \A a \in acked : \E i \in Commits : hist[i].t = a.t /\ hist[i].w = a.w /\ hist[i].job = a.job
    /\ \A i, j \in Writes : i # j => <<hist[i].w, hist[i].job>> # <<hist[j].w, hist[j].job>>

\* T9
TokenOrder == \A i, j \in Commits : i < j => hist[i].tok <= hist[j].tok

\* T10: checkpoint and entries are the whole history at every step.
RECURSIVE Above(_)
Above(n) == IF n > MaxEntries THEN <<>> ELSE IF obj[n] = NoEntry THEN <<>> ELSE <<obj[n]>> \o Above(n + 1)
WholeHistory == Bug("ForgetRollbacks") \/ Bug("ForgetCommits") \/ ck.seq \o Above(Len(ck.seq) + 1) = hist

\* Views confirmed by a refresh, and those that commits were appended to, match the history.
TrueViews ==
    \A w \in Writers : p[w].pc \in {"help", "begin", "recheck"} =>
        Len(p[w].view) <= Len(hist) /\ p[w].view = SubSeq(hist, 1, Len(p[w].view))

\* Atomic, in ledger order: readers see a prefix of the commits.
PrefixVisible == \A i \in pub : \A j \in Commits : j < i => j \in pub \/ j \in gone

\* T3: a key below the boundary is on the timeline again only until its publisher deletes it.
NoneResurrected == \A i \in pub \cap gone : \E w \in Writers : p[w].pc = "pubcheck" /\ p[w].tgt = i

\* T12
FilesExist == \A i \in Commits : \A g \in DOMAIN hist[i].c : <<hist[i].t, hist[i].att, g>> \in files

\* Readers treat an instant that is older than the first one on the timeline as archived and committed. So no running
\* write may be older (for Hudi's readers and ours), and no rolled back one (for ours, which read the checkpoint).
FirstActive == IF gone = {} \/ pub = {} THEN 0 ELSE MinOf({hist[i].t : i \in pub})
Known == ck.seq \o Above(Len(ck.seq) + 1)
OnlyCommittedShows ==
    \A f \in files : f[1] < FirstActive => Committed(hist, f[1]) \/ RolledBack(Known, f[1])

-----------------------------------------------------------------------------
(* Liveness: live processes finish their jobs, and commits are published *)

Fair ==
    /\ \A w \in Writers : WF_vars(Step(w))
    /\ WF_vars(\E m \in net : Land(m))

LiveSpec == Init /\ [][Next]_vars /\ Fair

Finished == \A w \in Writers : w \in crashed \/ p[w].pc = "done"

EverybodyServed == <>[]Finished

\* Also if an earlier commit was left by a writer that crashed.
AllPublished == <>[](\A i \in Commits : hist[i].w \notin crashed => i \in pub)
=============================================================================
