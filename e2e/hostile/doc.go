// Package hostile finds out what one client can do to others: it attacks an API
// server in a process of its own, one attack after the other, while a well-behaved
// client, the bystander, goes on reading, writing and asking for health.
//
// The server must neither panic nor answer 500, the bystander must be answered all the
// time, and when all is over the server's heap must be back where it was.
//
// How long the bystander waited, and how many CPUs the server used, are reported and
// not asserted: they are figures of the machine. The bystander is a process of its own,
// which runs at once where the superuser asks for it, and attackers run only when nobody
// else wants to, so that what shows is the server's work and
// not theirs, which elsewhere is done by machines of their own. It is to be compared
// with what the bystander waits while the attackers' process is as busy and asks for
// nothing ("the same, on a busy machine"). On a machine that others use as well it tells
// little: a server that is kept from its CPUs is slow without any attack.
//
// TestHostileClients attacks what every client reaches. The other tests attack with the
// rights of an administrator of one namespace, which include impersonation of its service accounts. Each
// is of one class: values that are stored and cannot be shown, many names of one principal,
// work before authorization, room held by requests that wait, values that are short in text
// and large in meaning, lists without a bound in bytes, and caches that one namespace clears
// for all. Beside the ordinary bystander, a leader election renews its lease and an
// administrator writes.
//
// What is drawn at random is drawn from a seed, which every run logs and
// BINNACLE_HOSTILE_SEED sets. The test is short; BINNACLE_HOSTILE=long makes each
// attack larger, and lasts as long as BINNACLE_HOSTILE_TIME says (10m by default), of
// which the mutated conversations have the half. BINNACLE_HOSTILE_ONLY selects attacks by
// a regular expression, BINNACLE_HOSTILE_BOMBS=each makes each sort of bombs an attack of its
// own, and BINNACLE_HOSTILE_PROFILES is a folder for profiles of the server, one of each.
package hostile
